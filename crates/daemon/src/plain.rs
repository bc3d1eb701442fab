//! Files that somebody else has put there, read by those who must not wait for anybody.
//!
//! Whoever opens a pipe waits until somebody writes to it, which may be never, and a device may have no
//! end. Here only a regular file of bounded size is read, and anything else is an error at once. A regular
//! file on a mount that hangs is still waited for: the kernel offers no way to read a file without that.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Nobody writes more variables or names than this into a file.
const LONGEST: u64 = 1 << 20;

/// Reads a text from a regular file of at most 1 MiB.
///
/// # Errors
/// If it is something else, is longer, is no text, or cannot be read.
pub fn read_plain(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes_of(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// Reads a regular file of at most 1 MiB.
pub(crate) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    // Looked at before it is opened: a reader that comes and goes would break a pipe for its writer.
    only_regular(&std::fs::metadata(path)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Another may have taken its place meanwhile.
    only_regular(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it has more than 1 MiB; keep the rest elsewhere",
        ));
    }
    Ok(bytes)
}

/// Whether reading it may mean to wait for somebody: it is there, and neither a regular file nor a folder.
pub(crate) fn is_waited_for(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn only_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is no regular file, and nothing else is waited for; copy what it gives into one",
    ))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_regular_file_is_read_and_whatever_else_it_is_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("plain"), "A=1\n").unwrap();
        std::os::unix::fs::symlink(at("plain"), at("link")).unwrap();
        for name in ["plain", "link"] {
            assert_eq!(read_plain(&at(name)).unwrap(), "A=1\n");
            assert!(!is_waited_for(&at(name)));
        }
        let pipe = at("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = read_plain(path).unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{}: {error}", path.display());
        }
        assert!(is_waited_for(&pipe) && is_waited_for(Path::new("/dev/zero")));
        assert!(!is_waited_for(folder.path()) && !is_waited_for(&at("gone")));
        assert_eq!(read_plain(&at("gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_longer_than_anybody_writes_or_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (length, is_read) in [(1 << 20, true), ((1 << 20) + 1, false)] {
            std::fs::write(&file, vec![b'x'; length]).unwrap();
            assert_eq!(read_plain(&file).is_ok(), is_read, "{length}");
        }
        std::fs::write(&file, [0xff]).unwrap();
        assert!(read_plain(&file).unwrap_err().to_string().contains("UTF-8"));
    }
}
