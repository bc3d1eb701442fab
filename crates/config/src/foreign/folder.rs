//! Folders with many Aidefiles below them.

use std::io;
use std::path::{Path, PathBuf};

use super::is_aidefile;

/// Folders that hold what was built or fetched, never what was written.
const PASSED_OVER: [&str; 2] = ["node_modules", "target"];

/// Every Aidefile in a folder and below it, in the order of their paths. Hidden folders and links to
/// folders are passed over, because a link may lead in a circle, and so is what may not be read.
pub(crate) fn aidefiles_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), Vec::new());
    sort_out(std::fs::read_dir(folder)?, &mut found, &mut open);
    while let Some(folder) = open.pop() {
        if let Ok(entries) = std::fs::read_dir(folder) {
            sort_out(entries, &mut found, &mut open);
        }
    }
    found.sort();
    Ok(found)
}

fn sort_out(entries: std::fs::ReadDir, found: &mut Vec<PathBuf>, open: &mut Vec<PathBuf>) {
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if !name.starts_with('.') && !PASSED_OVER.contains(&name.as_str()) {
                open.push(entry.path());
            }
        } else if is_aidefile(&name) {
            found.push(entry.path());
        }
    }
}
