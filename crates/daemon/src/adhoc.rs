//! The files of agents that were added without one.
//!
//! Invariant: such a file is whole or not there, and its owner's alone: what an agent is given may be in it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Writes one, in the place of the one that may be there.
///
/// # Errors
/// If it cannot be written. Then what was there is as it was.
pub fn keep(path: &Path, text: &str) -> io::Result<()> {
    put(path, text, |draft| std::fs::rename(draft, path))
}

/// Writes one where none is.
///
/// # Errors
/// If there is one, as [`io::ErrorKind::AlreadyExists`], or if it cannot be written.
pub fn keep_new(path: &Path, text: &str) -> io::Result<()> {
    put(path, text, |draft| {
        std::fs::hard_link(draft, path)?;
        std::fs::remove_file(draft)
    })
}

fn put(path: &Path, text: &str, place: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&draft);
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let kept = written.and_then(|()| place(&draft));
    if kept.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    kept
}
