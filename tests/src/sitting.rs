//! A person at a terminal: a command on a PTY, what it shows, and what is typed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};

use crate::DEADLINE;

/// A command that runs on a terminal of its own.
pub struct Sitting {
    child: Child,
    master: File,
    blocks: Receiver<Vec<u8>>,
    /// Everything that was shown so far.
    pub shown: String,
}

impl Sitting {
    /// Sits down with a command. It is the terminal's session, so that Ctrl-C reaches it.
    pub fn new(command: &Command) -> Sitting {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let slave: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        resize(&master, 30, 100);
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session.current_dir(command.get_current_dir().unwrap()).env("TERM", "xterm-256color");
        session.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
        let child = session.stderr(Stdio::from(slave)).spawn().unwrap();
        let (sender, blocks) = channel();
        let mut reader = File::from(master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(read) = reader.read(&mut block) {
                if read == 0 || sender.send(block[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Sitting { child, master: File::from(master), blocks, shown: String::new() }
    }

    /// Waits until what was shown is as wanted.
    pub fn await_shown(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !wanted(&self.shown) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(block) = self.blocks.recv_timeout(left) else {
                panic!("waited in vain for {what}; shown: {:?}", self.shown);
            };
            self.shown.push_str(&String::from_utf8_lossy(&block));
        }
    }

    /// Waits for a text.
    pub fn await_text(&mut self, text: &str) {
        self.await_shown(text, |shown| shown.contains(text));
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Makes the terminal another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        resize(&self.master, rows, columns);
    }

    /// Waits for the command's end.
    pub fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + DEADLINE;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(block) = self.blocks.recv_timeout(left()) {
            self.shown.push_str(&String::from_utf8_lossy(&block));
        }
        assert!(Instant::now() < deadline, "it does not end; shown: {:?}", self.shown);
        (self.child.wait().unwrap(), std::mem::take(&mut self.shown))
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        // Its child hears of it when the terminal goes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(master: impl AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).unwrap();
}
