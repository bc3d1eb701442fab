//! What a program needs to be run at all: itself, its loader, a script's interpreter.
//!
//! Reads the beginnings of files and follows them. What cannot be read needs nothing: then running it
//! fails, and says why itself. Nothing that a file says makes it panic or read far.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Scripts may be interpreted by scripts; the kernel follows no further than this.
const DEEPEST: usize = 5;
/// A folder with more entries is not looked through: it is one of programs, such as /usr/bin.
const MOST_ENTRIES: usize = 128;
/// Where programs are looked for if the run has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The sort of entry that names a binary's loader.
const INTERPRETER: u64 = 3;
/// How much of a script's first line, and of the path in a binary, is read.
const LONGEST: usize = 4096;

/// The file that a program's name means to a run.
pub(crate) fn find_program(name: &str, search: Option<&str>, cwd: &Path) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(cwd.join(name)).filter(runs);
    }
    let folders = search.unwrap_or(DEFAULT_PATH).split(':');
    folders.map(|folder| cwd.join(folder).join(name)).find(runs)
}

/// What must be run to run what is at a path: the file there with its loader and interpreter, or
/// those of the files in a folder.
pub(super) fn needed_in(place: &Path, search: Option<&str>, cwd: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        return needed(place, search, cwd);
    }
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let entries: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).take(MOST_ENTRIES + 1).collect();
    if entries.len() > MOST_ENTRIES {
        return Vec::new();
    }
    let files = entries.iter().filter(|path| is_program(path));
    let mut all: Vec<PathBuf> = files.flat_map(|file| needed(file, search, cwd)).collect();
    all.sort();
    all.dedup();
    all
}

/// A program, its loader, and its interpreter with what that needs.
pub(super) fn needed(program: &Path, search: Option<&str>, cwd: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    let mut next = vec![program.to_owned()];
    while let Some(file) = next.pop() {
        if all.contains(&file) || all.len() > DEEPEST * 2 {
            continue;
        }
        if let Some(begin) = beginning(&file) {
            match begin.strip_prefix(b"#!") {
                Some(line) => next.extend(
                    interpreters(line, search, cwd).into_iter().filter(|it| is_program(it)),
                ),
                None => next.extend(loader(&file, &begin).filter(|it| is_program(it))),
            }
        }
        all.push(file);
    }
    all
}

/// Whether a path leads to a file that the kernel can execute. A script that an agent can write names whatever
/// it likes as its interpreter, and a link in its folder leads anywhere: neither gives it folders or data.
fn is_program(path: &Path) -> bool {
    let is_executable = std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    is_executable
        && beginning(path)
            .is_some_and(|begin| begin.starts_with(b"#!") || begin.starts_with(b"\x7fELF"))
}

fn beginning(file: &Path) -> Option<Vec<u8>> {
    // A pipe or a device would be waited for.
    if !std::fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(LONGEST as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The interpreter of a script, and what `env` is told to look for.
fn interpreters(line: &[u8], search: Option<&str>, cwd: &Path) -> Vec<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let Some(interpreter) = words.next() else { return Vec::new() };
    let mut all = vec![PathBuf::from(interpreter)];
    if interpreter.ends_with("/env") {
        let is_program = |word: &&str| !word.starts_with('-') && !word.contains('=');
        let program = words.find(is_program);
        all.extend(program.and_then(|program| find_program(program, search, cwd)));
    }
    all
}

/// The loader that a binary names (`PT_INTERP`), for machines of either byte order and width.
fn loader(file: &Path, begin: &[u8]) -> Option<PathBuf> {
    let elf = Elf { wide: *begin.get(4)? == 2, little: *begin.get(5)? == 1, bytes: begin };
    begin.starts_with(b"\x7fELF").then_some(())?;
    let (table, size, count) = if elf.wide {
        (elf.number(32, 8)?, elf.number(54, 2)?, elf.number(56, 2)?)
    } else {
        (elf.number(28, 4)?, elf.number(42, 2)?, elf.number(44, 2)?)
    };
    let opened = File::open(file).ok()?;
    for index in 0..count.min(64) {
        let mut entry = [0; 56];
        let at = table.checked_add(index.checked_mul(size)?)?;
        let read = opened.read_at(&mut entry, at).ok()?;
        let entry = Elf { bytes: entry.get(..read)?, ..elf };
        if entry.number(0, 4)? != INTERPRETER {
            continue;
        }
        let (at, length) = if elf.wide {
            (entry.number(8, 8)?, entry.number(32, 8)?)
        } else {
            (entry.number(4, 4)?, entry.number(16, 4)?)
        };
        let mut name = vec![0; usize::try_from(length).ok()?.min(LONGEST)];
        let read = opened.read_at(&mut name, at).ok()?;
        let name = name.get(..read)?.split(|byte| *byte == 0).next()?;
        return Some(PathBuf::from(String::from_utf8_lossy(name).into_owned()));
    }
    None
}

/// Bytes of a binary, and how its numbers are written.
#[derive(Clone, Copy)]
struct Elf<'a> {
    wide: bool,
    little: bool,
    bytes: &'a [u8],
}

impl Elf<'_> {
    fn number(&self, at: usize, width: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(width)?)?;
        let join = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        Some(if self.little {
            bytes.iter().rev().fold(0, join)
        } else {
            bytes.iter().fold(0, join)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(folder: &Path, name: &str, line: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, format!("{line}\necho\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_binary_needs_its_loader_and_a_script_its_interpreter_with_what_that_needs() {
        let root = Path::new("/");
        let shell = needed(Path::new("/bin/sh"), None, root);
        assert!(shell.len() == 2 && shell[1].display().to_string().contains("/ld-"), "{shell:?}");
        let folder = tempfile::tempdir().unwrap();
        let plain = script(folder.path(), "plain", "#!/bin/sh -e");
        let all = needed(&plain, None, root);
        assert_eq!(all[..2], [plain.clone(), "/bin/sh".into()]);
        assert_eq!(all[2], shell[1]);
        let nested = script(folder.path(), "nested", "#!/usr/bin/env -S A=b plain");
        let search = folder.path().display().to_string();
        let all = needed(&nested, Some(&search), root);
        assert!(all.contains(&plain) && all.contains(&"/usr/bin/env".into()), "{all:?}");
        assert!(all.contains(&"/bin/sh".into()), "{all:?}");
        assert!(needed_in(folder.path(), Some(&search), root).contains(&shell[1]));
    }

    #[test]
    fn a_script_that_interprets_itself_comes_to_an_end_and_nonsense_needs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop");
        let own = script(folder.path(), "loop", &format!("#!{}", path.display()));
        assert_eq!(needed(&own, None, folder.path()), std::slice::from_ref(&own));
        let mut cut = b"\x7fELF\x02\x01".to_vec();
        let (brief, long) = (cut.clone(), [&cut[..], &[0xff; 200]].concat());
        cut.resize(64, 0);
        for (index, bytes) in [&brief[..], &long, &cut, b"#!", b"#! \n", b""].iter().enumerate() {
            let path = folder.path().join(format!("bad-{index}"));
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(needed(&path, None, folder.path()), std::slice::from_ref(&path));
        }
        let gone = folder.path().join("gone");
        assert_eq!(needed(&gone, None, folder.path()), [gone]);
    }

    #[test]
    fn script_and_link_of_an_agent_give_neither_folders_nor_data() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "#!secret").unwrap();
        let tool = script(folder.path(), "tool", "plain text");
        for (name, interpreter) in [
            ("root", Path::new("/")),
            ("data", &secret),
            ("text", &tool),
            ("gone", Path::new("/x")),
        ] {
            let path = script(&bin, name, &format!("#!{}", interpreter.display()));
            assert_eq!(needed(&path, None, &bin), [path]);
        }
        std::os::unix::fs::symlink(&secret, bin.join("link")).unwrap();
        std::os::unix::fs::symlink("/", bin.join("top")).unwrap();
        let all = needed_in(&bin, None, &bin);
        assert!(all.iter().all(|path| path.parent() == Some(&bin)), "{all:?}");
        assert!(!all.contains(&bin.join("link")) && !all.contains(&bin.join("top")), "{all:?}");
    }

    #[test]
    fn a_name_is_looked_for_in_path_and_a_path_is_relative_to_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let tool = script(folder.path(), "tool", "#!/bin/sh");
        std::fs::write(folder.path().join("data"), "x").unwrap();
        let search = folder.path().display().to_string();
        assert_eq!(find_program("tool", Some(&search), Path::new("/")), Some(tool.clone()));
        let there = find_program("./tool", None, folder.path()).unwrap();
        assert_eq!(there.canonicalize().unwrap(), tool.canonicalize().unwrap());
        assert_eq!(find_program("data", Some(&search), Path::new("/")), None);
        assert_eq!(find_program("tool", Some("/nowhere"), Path::new("/")), None);
    }
}
