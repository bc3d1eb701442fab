//! Folders with many Aidefiles below them.

use std::io;
use std::path::{Path, PathBuf};

use super::is_aidefile;

/// Folders that hold what was built or fetched, never what was written.
const PASSED_OVER: [&str; 2] = ["node_modules", "target"];

/// Every Aidefile in a folder and below it, in the order of their paths. Hidden folders and links to
/// folders are passed over, because a link may lead in a circle, and so is what may not be read, and
/// a pipe, which would be waited for.
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
        } else if is_aidefile(&name) && !is_waited_for(&entry.path()) {
            found.push(entry.path());
        }
    }
}

/// Whether it is something else than a file. Of a link that leads nowhere it is said when it is read.
fn is_waited_for(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_by_the_name_of_an_aidefile_is_passed_over() {
        let folder = std::env::temp_dir().join(format!("defib-aidefiles-{}", std::process::id()));
        let (good, pipe) = (folder.join("Aidefile"), folder.join("below/Aidefile"));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::fs::write(&good, "").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let found = aidefiles_below(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [good]);
    }
}
