//! Obstacles in place of the files of a home: FIFOs, devices, folders, sockets, symlinks that lead nowhere.
//!
//! To open a FIFO waits for its other end, which may never come; a device may have no end; a folder cannot be
//! written. [`clear_home`] renames such obstacles before anything is opened, so that a keeper and a daemon
//! start in any home. A symlink to a regular file, or to a folder where one belongs, is the operator's
//! choice and stays. Nothing is deleted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The folders of a home.
const FOLDERS: [&str; 4] = ["logs", "state", "n", "adhoc"];
/// The files that are opened before a daemon is there.
const KEEPER_FILES: [&str; 5] = ["lock", "keeper.log", "cgroups", "cgroups.new", "defib.sock"];
/// The files that a daemon opens.
const DAEMON_FILES: [&str; 4] = ["journal", "journal.old", "journal.new", "audit.log"];
/// The databases.
const DATABASES: [&str; 3] = ["history.db", "intent.db", "witness.db"];
/// What `SQLite` puts beside a database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];
/// What a renamed obstacle's name ends with, before a number.
const ASIDE: &str = ".set-aside";

/// What a name has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    /// A socket is removed and made anew, whatever is there, except for a folder.
    Socket,
}

/// Renames what stands in place of the files that are opened before a daemon is there. Gives a sentence per
/// obstacle.
pub fn clear_for_keeper(home: &Path) -> Vec<String> {
    let kind = |name| if name == "defib.sock" { Kind::Socket } else { Kind::File };
    KEEPER_FILES.into_iter().filter_map(|name| clear(&home.join(name), kind(name))).collect()
}

/// Renames what stands in place of any file or folder of a home. Gives a sentence per obstacle.
///
/// To be called by the daemon of that home before it opens its files. The databases themselves are
/// left to those who open them, because a database that is set aside is restored from its copy.
pub fn clear_home(home: &Path) -> Vec<String> {
    let mut said = clear_for_keeper(home);
    let beside = DATABASES.iter().flat_map(|name| BESIDE.map(|suffix| format!("{name}{suffix}")));
    let files = DAEMON_FILES.into_iter().map(str::to_owned).chain(beside);
    said.extend(files.filter_map(|name| clear(&home.join(name), Kind::File)));
    said.extend(FOLDERS.iter().filter_map(|name| clear(&home.join(name), Kind::Folder)));
    for folder in clear_entries(&home.join("logs"), Kind::Folder, &mut said) {
        clear_entries(&folder, Kind::File, &mut said);
    }
    clear_entries(&home.join("adhoc"), Kind::File, &mut said);
    said
}

/// Renames all entries of a folder that are not of this kind. Gives those that are folders, if wanted.
fn clear_entries(folder: &Path, kind: Kind, said: &mut Vec<String>) -> Vec<PathBuf> {
    let mut right = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // The type comes with the list: only an odd one is looked at.
        let is_right = entry.file_type().is_ok_and(|it| match kind {
            Kind::Folder => it.is_dir(),
            Kind::File | Kind::Socket => it.is_file(),
        });
        let path = entry.path();
        match if is_right { None } else { clear(&path, kind) } {
            Some(sentence) => said.push(sentence),
            None if kind == Kind::Folder => right.push(path),
            None => {}
        }
    }
    right
}

fn is_set_aside(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.contains(ASIDE))
}

/// Renames what is at a path and is not of this kind.
fn clear(path: &Path, kind: Kind) -> Option<String> {
    if is_set_aside(path) {
        return None;
    }
    let own = fs::symlink_metadata(path).ok()?;
    let found = fs::metadata(path).ok();
    let is_right = match (kind, &found) {
        (Kind::File, Some(found)) => found.is_file(),
        (Kind::Folder, Some(found)) => found.is_dir(),
        (Kind::Socket, _) => !own.is_dir(),
        (Kind::File | Kind::Folder, None) => false,
    };
    if is_right {
        return None;
    }
    let what = match found.map(|found| found.file_type()) {
        None => "a symlink that leads nowhere",
        Some(it) if it.is_fifo() => "a FIFO",
        Some(it) if it.is_dir() => "a folder",
        Some(it) if it.is_char_device() || it.is_block_device() => "a device",
        Some(it) if it.is_socket() => "a socket",
        Some(_) => "a file",
    };
    let wanted = if kind == Kind::Folder { "a folder" } else { "a file" };
    let shown = path.display();
    Some(match set_aside(path) {
        Ok(aside) => {
            format!("{shown} is {what}, not {wanted}: renamed to {}", aside.display())
        }
        Err(error) => {
            format!("{shown} is {what}, not {wanted}, and cannot be renamed: {error}")
        }
    })
}

fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("{ASIDE}-{number}"));
        let aside = PathBuf::from(name);
        if fs::symlink_metadata(&aside).is_err() {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::symlink;

    #[test]
    fn obstacles_are_renamed_once_and_what_is_right_stays() {
        let home = std::env::temp_dir().join(format!("defib-odd-{}", std::process::id()));
        fs::create_dir_all(home.join("logs/a")).unwrap();
        fs::create_dir_all(home.join("elsewhere")).unwrap();
        fs::write(home.join("elsewhere/audit"), "x").unwrap();
        mknodat(CWD, home.join("journal"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        symlink("/dev/zero", home.join("lock")).unwrap();
        symlink("keeper.log", home.join("keeper.log")).unwrap();
        symlink(home.join("elsewhere/audit"), home.join("audit.log")).unwrap();
        symlink(home.join("elsewhere"), home.join("state")).unwrap();
        fs::create_dir(home.join("intent.db-wal")).unwrap();
        fs::create_dir(home.join("logs/a/00000001.log")).unwrap();
        fs::write(home.join("logs/b"), "").unwrap();
        let said = clear_home(&home);
        assert_eq!(said.len(), 6, "{said:#?}");
        assert_eq!(clear_home(&home), Vec::<String>::new());
        for name in
            ["journal", "lock", "keeper.log", "intent.db-wal", "logs/a/00000001.log", "logs/b"]
        {
            assert!(fs::symlink_metadata(home.join(name)).is_err(), "{name}");
            let aside = home.join(format!("{name}{ASIDE}-1"));
            assert!(fs::symlink_metadata(aside).is_ok(), "{name}");
        }
        assert!(home.join("audit.log").is_file() && home.join("state").is_dir());
        fs::remove_dir_all(home).unwrap();
    }
}
