//! Makes one system call after the other and prints what the kernel said, for the survey of sandboxes
//! (`tests/tests/e2e/sandbox_survey.rs`). It is a program of the end-to-end tests and lies in this crate because
//! it needs `unsafe`.
//!
//! `survey WORLD CALLS`: `WORLD` is a folder with `outside/` (a file, a folder, a link and a Unix socket that no
//! token names), `writable/`, and the files `pid`, `port`, `free`, `home` and `abstract` with the targets' names.
//! `CALLS` is `all`, or one of the calls that replace or end the process.
//!
//! A line is `GROUP/NAME GAP RESULT`. Calls have arguments that change nothing if they are permitted: the value
//! that is there already, or an argument that the kernel rejects after its check of permissions.
#![allow(unsafe_code, missing_docs, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap)]

mod calls;
mod ending;

use std::ffi::CString;
use std::path::{Path, PathBuf};

/// What a call came to.
pub(crate) enum Said {
    Fine,
    Error(i32),
}

/// What the calls are tried on.
pub(crate) struct World {
    folder: PathBuf,
    pid: i64,
    port: u16,
    free: u16,
    home: String,
    abstract_name: String,
    state: String,
}

impl World {
    fn new(folder: &Path) -> World {
        // An agent that cannot read the world's files gets their values by its arguments.
        let words: Vec<String> = std::env::args().skip(3).collect();
        let word = |index: usize| words.get(index).cloned().unwrap_or_default();
        World {
            folder: folder.to_owned(),
            pid: word(0).parse().expect("a process"),
            port: word(1).parse().expect("a port"),
            free: word(2).parse().expect("a port"),
            home: word(3),
            abstract_name: word(4),
            state: std::env::var("DEFIB_STATE_DIR").expect("a state folder"),
        }
    }

    pub(crate) fn text(&self, name: &str) -> CString {
        CString::new(self.folder.join(name).display().to_string()).expect("no NUL")
    }

    pub(crate) fn in_state(&self, name: &str) -> CString {
        CString::new(format!("{}/{name}", self.state)).expect("no NUL")
    }
}

pub(crate) fn call(number: i64, arguments: [i64; 6]) -> Said {
    let [one, two, three, four, five, six] = arguments;
    let result = unsafe { libc::syscall(number, one, two, three, four, five, six) };
    if result < 0 { Said::Error(errno()) } else { Said::Fine }
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Says what a call came to. Errors other than a refusal mean that the call passed.
pub(crate) fn say(name: &str, gap: &str, said: &Said) {
    let refusals = [
        (libc::EPERM, "EPERM"),
        (libc::EACCES, "EACCES"),
        (libc::EROFS, "EROFS"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EXDEV, "EXDEV"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ENETUNREACH, "ENETUNREACH"),
    ];
    let missing = [libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::ESOCKTNOSUPPORT];
    let hidden = ["process/clone3", "file/openat2", "kernel/x32"];
    let result = match said {
        Said::Error(libc::ENOSYS) if hidden.contains(&name) => "shut ENOSYS".to_owned(),
        // In a user namespace other users do not exist.
        Said::Error(libc::EINVAL) if name.ends_with("id-other") => "shut EINVAL".to_owned(),
        Said::Error(libc::ENOSYS) => "absent".to_owned(),
        Said::Error(errno) if missing.contains(errno) => "absent".to_owned(),
        Said::Error(errno) => match refusals.iter().find(|(known, _)| known == errno) {
            Some((_, word)) => format!("shut {word}"),
            None => "open".to_owned(),
        },
        Said::Fine => "open".to_owned(),
    };
    println!("{name} {gap} {result}");
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let folder = words.get(1).expect("a folder");
    let calls = words.get(2).expect("what to call");
    // A program that was run instead of another says so by this.
    if folder == "say" {
        println!("{calls} {} open", words.get(3).map_or("-", String::as_str));
        return;
    }
    let world = World::new(Path::new(folder));
    if calls == "all" {
        calls::all(&world);
    } else {
        ending::end(calls, &world);
    }
    println!("surveyed {calls}");
}
