//! The audit: who did what, when, and what came of it; and proof that nothing was changed since.
//!
//! `audit.log` has one entry a line: the entry's hash, a space, the entry as JSON. A hash is taken over
//! the hash before it and the bytes of the entry, so that no entry can be changed, taken out or put in
//! without breaking every one after it. How many there are and the last hash are kept in the intents
//! too, so that a file that ends too early is noticed. Whoever can write both files can forge both; to
//! notice that, note the last hash somewhere else.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use defib_history::Intents;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The file in the home.
const FILE: &str = "audit.log";
/// Under what the number and the hash of the last entry are kept.
pub(crate) const HEAD_KEY: &str = "audit/head";
/// What stands before the first entry.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// So many entries are held while the disk fails.
const BACKLOG: usize = 1000;

/// Something that was done, or was to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number: the first is 1.
    pub number: u64,
    /// When it was over.
    pub at: String,
    /// Who did it: `uid:NAME`, `token:NAME`, `session of …`, `nobody`.
    pub who: String,
    /// What was asked for.
    pub what: String,
    /// With what, where that says something.
    pub detail: Option<Value>,
    /// What came of it.
    pub outcome: String,
}

/// An entry that is to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deed {
    pub(crate) at: String,
    pub(crate) who: String,
    pub(crate) what: String,
    pub(crate) detail: Option<Value>,
    pub(crate) outcome: String,
}

/// The number and the hash of the last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    number: u64,
    hash: String,
}

impl Head {
    fn parse(text: &str) -> Option<Head> {
        let (number, hash) = text.split_once(' ')?;
        Some(Head { number: number.parse().ok()?, hash: hash.to_owned() })
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.hash)
    }
}

/// The one who writes the audit.
#[derive(Debug)]
pub(crate) struct Auditor {
    file: Option<File>,
    path: std::path::PathBuf,
    head: Head,
    /// Lines that are not on disk yet.
    backlog: Vec<u8>,
    waiting: usize,
}

impl Auditor {
    /// Goes on where the file ends, or where the intents say that it ended.
    pub(crate) fn open(home: &Path, intents: &Intents) -> Auditor {
        let path = home.join(FILE);
        let kept = intents.kept.get(HEAD_KEY).and_then(|text| Head::parse(text));
        let none = Head { number: 0, hash: NOTHING.to_owned() };
        let (file, last) = match open_file(&path) {
            Ok((file, last)) => (Some(file), last),
            Err(error) => {
                say!("{}: {error}; the audit is held in memory", path.display());
                (None, None)
            }
        };
        // A file that ends too early is continued with a gap, which stays to be seen.
        let head = [kept, last].into_iter().flatten().max_by_key(|head| head.number);
        let head = head.unwrap_or(none);
        Auditor { file, path, head, backlog: Vec::new(), waiting: 0 }
    }

    /// Writes an entry; it is on disk when this returns. Gives what is to be kept of it elsewhere.
    pub(crate) fn write(&mut self, deed: Deed) -> Result<String, io::Error> {
        let Deed { at, who, what, detail, outcome } = deed;
        if self.waiting >= BACKLOG {
            self.flush()?;
        }
        let number = self.head.number + 1;
        let entry = Entry { number, at, who, what, detail, outcome };
        let body = serde_json::to_string(&entry).map_err(io::Error::other)?;
        let hash = chain(&self.head.hash, body.as_bytes());
        self.backlog.extend_from_slice(format!("{hash} {body}\n").as_bytes());
        self.waiting += 1;
        self.head = Head { number, hash };
        self.flush()?;
        Ok(self.head.to_string())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(open_file(&self.path)?.0);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let before = file.seek(SeekFrom::End(0))?;
        let written = file.write_all(&self.backlog).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line would look like a forgery.
            let _ = file.set_len(before);
        }
        written?;
        self.backlog.clear();
        self.waiting = 0;
        Ok(())
    }
}

/// Opens the file and finds its last whole line. What is after that was never acknowledged.
fn open_file(path: &Path) -> io::Result<(File, Option<Head>)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64)?;
    }
    let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default());
    let last = text.lines().rev().find_map(|line| {
        let (hash, body) = line.split_once(' ')?;
        let entry: Entry = serde_json::from_str(body).ok()?;
        Some(Head { number: entry.number, hash: hash.to_owned() })
    });
    Ok((file, last))
}

fn chain(before: &str, body: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(before.as_bytes());
    digest.update(body);
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What became of the audit since it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every entry is as it was written.
    Whole {
        /// How many there are.
        entries: u64,
        /// The hash of the last one.
        last: String,
    },
    /// From this entry on it cannot be relied on.
    Broken {
        /// Which.
        number: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// Every entry that can be read, oldest first.
pub fn read(home: &Path) -> io::Result<Vec<Entry>> {
    let text = text_of(home)?;
    let entry = |line: &str| serde_json::from_str(line.split_once(' ')?.1).ok();
    Ok(text.lines().filter_map(entry).collect())
}

fn text_of(home: &Path) -> io::Result<String> {
    match std::fs::read(home.join(FILE)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Looks whether every entry is as it was written.
pub fn verify(home: &Path, intents: &Intents) -> io::Result<Verdict> {
    let kept = intents.kept.get(HEAD_KEY).and_then(|text| Head::parse(text));
    Ok(examine(&text_of(home)?, kept.as_ref()))
}

pub(crate) fn examine_text(text: &str) -> Verdict {
    examine(text, None)
}

fn examine(text: &str, kept: Option<&Head>) -> Verdict {
    let mut last = Head { number: 0, hash: NOTHING.to_owned() };
    for line in text.lines() {
        let number = last.number + 1;
        let broken = |why: &str| Verdict::Broken { number, why: why.to_owned() };
        let Some((hash, body)) = line.split_once(' ') else {
            return broken("its line makes no sense");
        };
        let Ok(entry) = serde_json::from_str::<Entry>(body) else {
            return broken("its line makes no sense");
        };
        if entry.number != number {
            return broken(&format!("it is missing: entry {} stands in its place", entry.number));
        }
        if chain(&last.hash, body.as_bytes()) != hash {
            return broken("it, or one before it, was changed");
        }
        last = Head { number, hash: hash.to_owned() };
        if kept.is_some_and(|kept| kept.number == number && kept.hash != hash) {
            return broken("it is not the one that was written: all of them were written anew");
        }
    }
    match kept {
        Some(kept) if kept.number > last.number => Verdict::Broken {
            number: last.number + 1,
            why: format!("it is missing: there were {} entries", kept.number),
        },
        Some(_) | None => Verdict::Whole { entries: last.number, last: last.hash },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(what: &str) -> Deed {
        let text = str::to_owned;
        let (at, who, outcome) = (text("2026-01-01T00:00:00.000Z"), text("uid:me"), text("ok"));
        Deed { at, who, what: text(what), detail: None, outcome }
    }

    fn intents(head: &str) -> Intents {
        let kept = [(HEAD_KEY.to_owned(), head.to_owned())].into();
        Intents { kept, ..Intents::default() }
    }

    /// A home with four entries, and what is kept of the last.
    fn home() -> (tempfile::TempDir, Intents) {
        let home = tempfile::tempdir().unwrap();
        let mut auditor = Auditor::open(home.path(), &Intents::default());
        let heads = ["a", "b", "c", "d"].map(|what| auditor.write(deed(what)).unwrap());
        let last = intents(&heads[3]);
        (home, last)
    }

    fn broken(home: &Path, intents: &Intents) -> Option<u64> {
        match verify(home, intents).unwrap() {
            Verdict::Whole { .. } => None,
            Verdict::Broken { number, .. } => Some(number),
        }
    }

    /// What somebody does to the lines of the file.
    type Tampering = fn(&mut Vec<String>);

    #[test]
    fn the_first_entry_that_was_tampered_with_is_named() {
        let (home, intents) = home();
        let path = home.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(broken(home.path(), &intents), None);
        let tamperings: [(Tampering, u64); 5] = [
            (|lines| lines[1] = lines[1].replace("uid:me", "uid:us"), 2),
            (|lines| drop(lines.remove(2)), 3),
            (|lines| lines.swap(1, 2), 2),
            (|lines| drop(lines.pop()), 4),
            (|lines| lines.clear(), 1),
        ];
        for (tamper, number) in tamperings {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            tamper(&mut lines);
            let tampered: String = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(&path, tampered).unwrap();
            assert_eq!(broken(home.path(), &intents), Some(number), "{lines:#?}");
        }
    }

    #[test]
    fn a_file_that_was_written_anew_is_noticed() {
        let (home, intents) = home();
        std::fs::remove_file(home.path().join(FILE)).unwrap();
        let mut forger = Auditor::open(home.path(), &Intents::default());
        for what in ["a", "b", "c", "e"] {
            forger.write(deed(what)).unwrap();
        }
        assert_eq!(broken(home.path(), &intents), Some(4));
    }

    #[test]
    fn what_was_cut_off_stays_missing_when_the_audit_goes_on() {
        let (home, kept) = home();
        let path = home.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let two: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, two).unwrap();
        let head = Auditor::open(home.path(), &kept).write(deed("next")).unwrap();
        assert_eq!(broken(home.path(), &intents(&head)), Some(3));
    }

    #[test]
    fn half_a_line_is_cut_off_and_the_chain_goes_on() {
        let (home, kept) = home();
        let path = home.path().join(FILE);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"0123 {\"number\":5,\"at").unwrap();
        let head = Auditor::open(home.path(), &kept).write(deed("e")).unwrap();
        assert_eq!(broken(home.path(), &intents(&head)), None);
        let what: Vec<String> = read(home.path()).unwrap().into_iter().map(|e| e.what).collect();
        assert_eq!(what, ["a", "b", "c", "d", "e"]);
    }
}
