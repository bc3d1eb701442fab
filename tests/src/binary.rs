//! Where the `defib` under test is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The binary: `DEFIB_BIN`, or else built once, in the profile and folder that this test was built in.
pub fn defib_path() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("DEFIB_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    // target/PROFILE/deps/e2e-HASH
    let profile = test.ancestors().nth(2).expect("the profile's folder");
    let target = profile.parent().expect("the target folder");
    let word = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(word) => word,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "defib", "--profile", word, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo");
    assert!(built.success(), "defib does not build");
    profile.join("defib")
}
