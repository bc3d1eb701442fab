//! Processes, as the kernel shows them.

use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

use crate::DEADLINE;

/// Every process id there is.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A file of a process, if it is still there and may be read.
pub fn read(pid: u32, file: &str) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/{file}")).ok()
}

/// Whether bytes have a text in them.
pub fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// What stands after the program's name in `stat`.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(&read(pid, "stat")?).into_owned();
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

/// Its state: `R`, `S`, `T`, …
pub fn state(pid: u32) -> Option<String> {
    stat(pid)?.into_iter().next()
}

/// Its parent.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Whether it lives. One that has ended and was not waited for does not.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != "Z" && state != "X")
}

/// Its session, by the process that leads it; 0 if that one is outside of this PID namespace.
pub fn session(pid: u32) -> Option<u32> {
    stat(pid)?.get(3)?.parse().ok()
}

/// What it is, for a message.
pub fn shown(pid: u32) -> String {
    let line = read(pid, "cmdline").unwrap_or_default();
    let words = String::from_utf8_lossy(&line).replace('\0', " ");
    format!("{pid} (child of {:?}, {:?}): {words}", parent(pid), state(pid))
}

/// Sends a signal by its name, to one process. It may have gone.
pub fn kill(pid: u32, signal: &str) {
    let mut command = Command::new("kill");
    command.args(["-s", signal, &pid.to_string()]).stderr(Stdio::null());
    command.status().expect("kill");
}

/// Waits until a process has ended.
pub fn await_gone(pid: u32) {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    let Ok(handle) = rustix::process::pidfd_open(number, PidfdFlags::empty()) else { return };
    let mut polled = [PollFd::new(&handle, PollFlags::IN)];
    let timeout = Timespec { tv_sec: DEADLINE.as_secs().cast_signed(), tv_nsec: 0 };
    let ready = rustix::event::poll(&mut polled, Some(&timeout)).expect("poll");
    assert_eq!(ready, 1, "waited in vain for the end of {}", shown(pid));
}
