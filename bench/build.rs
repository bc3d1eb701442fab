//! Builds the supervised child: freestanding C, so that it begins with its first own instruction.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=child/child.c");
    println!("cargo::rerun-if-env-changed=CC");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let child = folder.join("bench-child");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-nostdlib", "-ffreestanding"])
        .args(["-fno-stack-protector", "-fno-builtin", "-o"])
        .arg(&child)
        .arg("child/child.c")
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "{} did not build the child",
        compiler.display()
    );
    println!("cargo::rustc-env=BENCH_CHILD={}", child.display());
}
