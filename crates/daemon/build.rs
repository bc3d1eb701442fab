//! Builds the dashboard and writes down which of its files are embedded.
//!
//! The sources are copied into this build's own folder and built there, so that builds that run side by
//! side never meet. Whatever goes wrong with that is a warning and no failure: then one small page is
//! embedded that says how to get the dashboard, and everything else works.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the dashboard is made of, below its folder. Anything else there does not change it.
const SOURCES: [&str; 7] = [
    "package.json",
    "package-lock.json",
    ".npmrc",
    "tsconfig.json",
    "vite.config.ts",
    "index.html",
    "src",
];

/// Set to leave the dashboard out.
const WITHOUT: &str = "DEFIB_NO_DASHBOARD";

fn main() {
    let manifest = variable("CARGO_MANIFEST_DIR");
    let out = variable("OUT_DIR");
    let sources = manifest.join("../../dashboard");
    println!("cargo:rerun-if-env-changed={WITHOUT}");
    println!("cargo:rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", sources.join(source).display());
    }
    let absent = manifest.join("src/api/page/absent.html");
    println!("cargo:rerun-if-changed={}", absent.display());

    let built = if std::env::var_os(WITHOUT).is_some_and(|value| !value.is_empty()) {
        Err(format!("{WITHOUT} is set"))
    } else {
        build(&sources, &out.join("dashboard"))
    };
    let files = match built {
        Ok(dist) => files_of(&dist),
        Err(reason) => {
            println!("cargo:warning=the dashboard is left out: {reason}");
            // A file that is never there: with the next build it is tried again.
            println!("cargo:rerun-if-changed={}", out.join("never").display());
            vec![("index.html".to_owned(), absent)]
        }
    };
    let list = list(&files).expect("the dashboard's files can be read");
    fs::write(out.join("dashboard.rs"), list).expect("the build's own folder can be written");
}

fn variable(name: &str) -> PathBuf {
    // Cargo sets it for every build script.
    std::env::var_os(name).map(PathBuf::from).expect("cargo says where everything is")
}

/// Builds the dashboard in a folder of this build's own; says where the outcome is.
fn build(sources: &Path, work: &Path) -> Result<PathBuf, String> {
    for source in SOURCES {
        let (from, to) = (sources.join(source), work.join(source));
        if to.is_dir() {
            // What is no longer among the sources is not to linger here.
            fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
        }
        copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let lock = fs::read(work.join("package-lock.json")).map_err(|error| error.to_string())?;
    let installed = work.join("installed-lock.json");
    if fs::read(&installed).ok().as_ref() != Some(&lock) {
        npm(work, &["ci", "--omit=dev", "--prefer-offline", "--no-audit", "--no-fund"])?;
        fs::write(&installed, lock).map_err(|error| error.to_string())?;
    }
    npm(work, &["run", "build"])?;
    Ok(work.join("dist"))
}

fn npm(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let command = format!("npm {}", arguments.join(" "));
    let output =
        Command::new("npm").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        let is_absent = error.kind() == io::ErrorKind::NotFound;
        if is_absent { "npm is not installed".to_owned() } else { format!("{command}: {error}") }
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("`{command}` failed: {last}"))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        return fs::copy(from, to).map(drop);
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Every file below a folder that is served under a name of its own, with that name.
fn files_of(dist: &Path) -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    let mut folders = vec![dist.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_compressed = path.extension().is_some_and(|end| end == "br" || end == "gz");
            if path.is_dir() {
                folders.push(path);
            } else if !is_compressed && let Ok(name) = path.strip_prefix(dist) {
                files.push((name.display().to_string(), path));
            }
        }
    }
    files.sort();
    files
}

/// The Rust list of the files.
fn list(files: &[(String, PathBuf)]) -> io::Result<String> {
    let mut text = "static FILES: &[File] = &[\n".to_owned();
    for (name, path) in files {
        let mut hasher = DefaultHasher::new();
        hasher.write(&fs::read(path)?);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let plain = path.display().to_string();
        let compressed = |end: &str| {
            let path = format!("{plain}.{end}");
            let include = format!("Some(include_bytes!({path:?}))");
            if Path::new(&path).is_file() { include } else { "None".to_owned() }
        };
        let (brotli, gzip) = (compressed("br"), compressed("gz"));
        let path = format!("/{name}");
        // A String takes whatever is written to it.
        let _ = writeln!(
            text,
            "    File {{ path: {path:?}, tag: {tag:?}, plain: include_bytes!({plain:?}), \
             brotli: {brotli}, gzip: {gzip} }},",
        );
    }
    text.push_str("];\n");
    Ok(text)
}
