//! The second lock of a home, which does not go with the folder.
//!
//! A keeper listens on an abstract Unix socket whose name stands for the home's path. The kernel gives a name
//! to one socket at a time and frees it when the process ends, so a removed or replaced folder does not let
//! in a second keeper. The kernel also names the process that listens.
//!
//! Any process can take a free name. So only a listener of the caller's own user, or of root, counts as a
//! keeper. ADR 20 says what follows from that.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::entrance::above_slots;
use crate::pidfd::credentials;
use crate::say;

/// Maximum number of connections that wait. The keeper takes them at once.
const BACKLOG: i32 = 64;

/// The names that this process holds, until it ends.
#[derive(Debug, Default)]
pub struct Claim(Vec<OwnedFd>);

/// The process that holds a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its number; 0 if it is outside of this PID namespace.
    pub pid: u32,
}

impl Claim {
    /// Takes all of these names. A name that another user holds, or that cannot be had, is left out: the
    /// home then has only the lock in its folder.
    ///
    /// # Errors
    /// The keeper that holds one of them.
    pub fn take(names: &[String]) -> Result<Claim, Holder> {
        let mut claim = Claim::default();
        for name in names {
            claim.0.extend(take(name)?);
        }
        Ok(claim)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(std::os::fd::AsFd::as_fd)
    }

    /// Takes the connections that wait, and closes them: their makers wanted to know who listens.
    pub(crate) fn drain(&self) {
        for socket in self.sockets() {
            for _ in 0..BACKLOG {
                if rustix::net::accept_with(socket, SocketFlags::CLOEXEC).is_err() {
                    break;
                }
            }
        }
    }
}

/// The keeper that holds one of these names. The keeper checks its socket when it is asked this.
pub fn holder_of(names: &[String]) -> Option<Holder> {
    names.iter().find_map(|name| match holder(name) {
        Found::Ours(holder) => Some(holder),
        Found::Busy | Found::Nobody | Found::AnotherUser => None,
    })
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn listen(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    above_slots(&socket)
}

/// Number of times that a name which is held by an unknown process is asked for again, and the pause between.
const ATTEMPTS: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Takes a name. `None`: a process of another user has it, or the system does not let us have it.
///
/// # Errors
/// With the holder, if that is a process of ours. Its pid is 0 if it is too busy to be asked: to refuse is
/// safe then, and two keepers are not.
fn take(name: &str) -> Result<Option<OwnedFd>, Holder> {
    let mut attempts = 0;
    loop {
        let errno = match listen(name) {
            Ok(socket) => return Ok(Some(socket)),
            Err(errno) => errno,
        };
        let found = holder(name);
        match found {
            Found::Ours(holder) => return Err(holder),
            // A process has bound the name and does not listen yet, or has just released it.
            Found::Nobody | Found::Busy if errno == Errno::ADDRINUSE && attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(PAUSE);
            }
            Found::Busy => return Err(Holder { pid: 0 }),
            Found::Nobody | Found::AnotherUser => {
                say(&format!("the abstract socket {name} cannot be had: {errno}"));
                return Ok(None);
            }
        }
    }
}

/// The holder of a name, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nobody,
    Ours(Holder),
    AnotherUser,
    /// A process holds it and does not answer now.
    Busy,
}

fn holder(name: &str) -> Found {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes());
    let (Ok(socket), Ok(address)) = (socket(), address) else { return Found::Nobody };
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Found::Busy,
        Err(_) => return Found::Nobody,
    }
    match credentials(&socket) {
        Ok((pid, uid)) if uid == 0 || uid == rustix::process::geteuid().as_raw() => {
            Found::Ours(Holder { pid })
        }
        Ok(_) => Found::AnotherUser,
        Err(_) => Found::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_one_holder_at_a_time_and_says_which() {
        let names = ["a", "b"].map(|it| format!("defib-test/{}/{it}", std::process::id()));
        assert_eq!(holder_of(&names), None);
        let claim = Claim::take(&names[1..]).unwrap();
        let own = Holder { pid: std::process::id() };
        for _ in 0..3 * BACKLOG {
            assert_eq!(Claim::take(&names).unwrap_err(), own);
            assert_eq!(holder_of(&names), Some(own));
            claim.drain();
        }
        drop(claim);
        assert_eq!(holder_of(&names), None);
        assert_eq!(Claim::take(&names).unwrap().0.len(), 2);
    }
}
