//! Notify sockets: where an agent says what state it is in, by datagrams.
//!
//! The keeper binds one for each agent and holds it, so that what is said while there is no daemon
//! waits in the socket for the next one. It never reads them. The daemon does, and is told by the
//! kernel who sent what.
//!
//! Invariant: a socket is its owner's alone (mode 0600), and at most one agent has a path.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use defib_core::Name;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use rustix::process::Uid;

use crate::footprint::pack;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

/// The longest datagram that is understood, in bytes.
pub const LONGEST: usize = 4096;

/// The sockets that the keeper holds.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    sockets: BTreeMap<Name, (Box<str>, OwnedFd)>,
}

impl Listeners {
    /// Takes no more memory than it needs.
    pub(crate) fn pack(&mut self) {
        pack(&mut self.sockets);
    }

    /// The agent's socket, bound if it is not. `user` is the only one that may send to it, beside root;
    /// without one that is the keeper's user.
    pub(crate) fn open(
        &mut self,
        agent: &Name,
        path: &str,
        user: Option<u32>,
    ) -> Result<BorrowedFd<'_>, Errno> {
        if self.sockets.get(agent).is_none_or(|(held, _)| **held != *path) {
            // It is asked once for each agent, so that looking through all of them costs little.
            if self.sockets.values().any(|(held, _)| **held == *path) {
                return Err(Errno::ADDRINUSE);
            }
            let socket = bind(path)?;
            if let Some(user) = user.map(Uid::from_raw) {
                // Nobody else can write the folder, so the path still leads to the socket.
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(CWD, path, Some(user), None, flags)?;
            }
            self.close(agent);
            self.sockets.insert(agent.clone(), (path.into(), socket));
        }
        self.sockets.get(agent).map(|(_, socket)| socket.as_fd()).ok_or(Errno::NOENT)
    }

    /// Closes the agent's socket and takes it away.
    pub(crate) fn close(&mut self, agent: &Name) {
        if let Some((path, _)) = self.sockets.remove(agent) {
            let _ = rustix::fs::unlink(&*path);
        }
    }

    pub(crate) fn close_all(&mut self) {
        while let Some((agent, _)) = self.sockets.first_key_value() {
            self.close(&agent.clone());
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, &str, BorrowedFd<'_>)> {
        self.sockets.iter().map(|(agent, (path, socket))| (agent, &**path, socket.as_fd()))
    }
}

fn bind(path: &str) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    // Before anybody can send: what came without its sender's name would be of no use.
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    // An earlier keeper may have left one there, which nobody listens to.
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound.map(|()| socket)
}

/// Who sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The process, which may have ended since.
    pub pid: u32,
    /// The user.
    pub user: u32,
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, from somebody.
    Datagram(usize, Sender),
    /// Something too long, or from nobody that the kernel knows. It is gone.
    Nonsense,
    /// There is nothing more for now.
    Nothing,
}

/// Takes the next datagram. Descriptors that came with it are closed, which is what a sender that
/// waits for it to be read waits for.
pub fn receive(socket: impl AsFd, buffer: &mut [u8; LONGEST]) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut buffer[..])];
        match rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received,
        }
    };
    let Ok(received) = received else { return Received::Nothing };
    let mut sender = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmCredentials(from) = message {
            let pid = from.pid.as_raw_pid().unsigned_abs();
            sender = Some(Sender { pid, user: from.uid.as_raw() });
        }
    }
    match sender {
        Some(sender) if !received.flags.contains(ReturnFlags::TRUNC) => {
            Received::Datagram(received.bytes, sender)
        }
        Some(_) | None => Received::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn an_agent_s_socket_is_its_own_says_who_sent_what_and_goes_with_it() {
        let folder = std::env::temp_dir().join(format!("defib-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("n").display().to_string();
        let (ann, bob) = (Name::parse("ann").unwrap(), Name::parse("bob").unwrap());
        std::fs::write(&path, "what a keeper left").unwrap();
        let mut listeners = Listeners::default();
        let socket = rustix::io::dup(listeners.open(&ann, &path, None).unwrap()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listeners.open(&ann, &path, None).is_ok(), "again, and it is the same");
        assert_eq!(listeners.open(&bob, &path, None).err(), Some(Errno::ADDRINUSE));
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"READY=1", &path).unwrap();
        sender.send_to(&[b'x'; LONGEST + 1], &path).unwrap();
        let mut buffer = [0; LONGEST];
        let own = Sender { pid: std::process::id(), user: rustix::process::geteuid().as_raw() };
        assert_eq!(receive(&socket, &mut buffer), Received::Datagram(7, own));
        assert_eq!(&buffer[..7], b"READY=1");
        assert_eq!(receive(&socket, &mut buffer), Received::Nonsense);
        assert_eq!(receive(&socket, &mut buffer), Received::Nothing);
        listeners.close(&ann);
        assert!(!std::path::Path::new(&path).exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
