//! What a confined agent tries: one thing each, and whether the kernel let it.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, Protocol, SocketType};
use rustix::process::{Pid, Signal};

/// Tries something and says `permitted`, `denied`, or what else came of it.
///
/// | what | to what |
/// | --- | --- |
/// | `read`, `write`, `list`, `rename` | a file; a file; a folder; `from` to `to` in a folder |
/// | `exec` | runs the program in this process's place: it says what comes of it |
/// | `spawn`, `kill-own`, `thread` | `-`: a child, a child and a signal to it, a thread |
/// | `connect`, `bind` | a TCP port of this machine |
/// | `udp`, `mptcp`, `packet`, `mount`, `user-namespace` | `-` |
/// | `signal`, `environ` | a process |
/// | `abstract` | the name of an abstract socket |
#[must_use]
pub fn attempt(what: &str, on: &str) -> String {
    match outcome(what, on) {
        Ok(()) => "permitted".to_owned(),
        // A place that may not be written is read-only in a sandbox.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            "denied".to_owned()
        }
        Err(error) => format!("failed: {error}"),
    }
}

fn outcome(what: &str, on: &str) -> io::Result<()> {
    match what {
        "read" => std::fs::read(on).map(drop),
        "write" => std::fs::OpenOptions::new().create(true).append(true).open(on).map(drop),
        "list" => std::fs::read_dir(on).map(drop),
        "rename" => std::fs::rename(Path::new(on).join("from"), Path::new(on).join("to")),
        "exec" => Err(Command::new(on).arg("the program ran").exec()),
        "spawn" => child("print spawned").map(drop),
        "kill-own" => {
            let mut child = child("forever")?;
            let sent = child.kill();
            child.wait()?;
            sent
        }
        "thread" => std::thread::Builder::new().spawn(|| ()).map(|thread| drop(thread.join())),
        "connect" => TcpStream::connect(("127.0.0.1", port(on))).map(drop),
        "bind" => match TcpListener::bind(("127.0.0.1", port(on))) {
            // Others try the same, and one of them has it.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
            bound => bound.map(drop),
        },
        "udp" => UdpSocket::bind("127.0.0.1:0")
            .and_then(|socket| socket.send_to(b"x", socket.local_addr()?))
            .map(drop),
        "mptcp" => socket(AddressFamily::INET, SocketType::STREAM, Some(262)),
        "packet" => socket(AddressFamily::PACKET, SocketType::DGRAM, None),
        "mount" => {
            let none = rustix::mount::MountFlags::empty();
            Ok(rustix::mount::mount("none", "/mnt", "tmpfs", none, c"")?)
        }
        "user-namespace" => {
            let status = Command::new("/usr/bin/unshare").args(["--user", "true"]).status()?;
            if status.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        }
        // To a process that runs it does nothing.
        "signal" => Ok(rustix::process::kill_process(pid(on), Signal::CONT)?),
        "environ" => std::fs::read(format!("/proc/{on}/environ")).map(drop),
        "abstract" => {
            let address = SocketAddr::from_abstract_name(on)?;
            UnixStream::connect_addr(&address).map(drop)
        }
        other => panic!("nobody can try {other}"),
    }
}

fn child(words: &str) -> io::Result<std::process::Child> {
    Command::new(std::env::current_exe()?).args(words.split(' ')).spawn()
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<u32>) -> io::Result<()> {
    let protocol = protocol.and_then(std::num::NonZeroU32::new).map(Protocol::from_raw);
    match rustix::net::socket(family, kind, protocol) {
        // A kernel without it is as good as one that permits it: nothing of ours refused.
        Err(rustix::io::Errno::PROTONOSUPPORT | rustix::io::Errno::AFNOSUPPORT) => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

fn port(text: &str) -> u16 {
    text.parse().unwrap_or_else(|_| panic!("no port: {text}"))
}

fn pid(text: &str) -> Pid {
    text.parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("no process: {text}"))
}
