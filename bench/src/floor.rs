//! The floor: starts children and starts each again when it ends, and nothing else. No supervisor
//! can do less.
//!
//! `posix_spawn` (which is vfork and exec in one call) and `waitpid`, one thread; a second one only
//! waits for the end of standard input, upon which everything is stopped.

use std::collections::HashMap;
use std::io::Read;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Is the floor, for the commands in a file: one a line, words with single spaces.
pub(crate) fn run(list: &std::path::Path) -> std::io::Result<ExitCode> {
    let list = std::fs::read_to_string(list)?;
    let mut commands: Vec<Command> = list.lines().filter_map(command).collect();
    let mut places = HashMap::new();
    let stopping = Arc::new(AtomicBool::new(false));
    let live: Arc<Mutex<Vec<Option<Pid>>>> = Arc::new(Mutex::new(vec![None; commands.len()]));
    for (place, command) in commands.iter_mut().enumerate() {
        let pid = spawn(command)?;
        places.insert(pid, place);
        note(&live, place, Some(pid));
    }
    std::thread::spawn({
        let (stopping, live) = (stopping.clone(), live.clone());
        move || {
            let _ = std::io::stdin().read(&mut [0]);
            stopping.store(true, Ordering::SeqCst);
            let live = live.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for pid in live.iter().flatten() {
                let _ = kill_process(*pid, Signal::TERM);
            }
        }
    });
    while let Ok(Some((pid, _))) = waitpid(None, WaitOptions::empty()) {
        let Some(place) = places.remove(&pid) else { continue };
        // Held while it is decided, so that nobody is started behind the stop's back.
        let mut live = live.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let again = if stopping.load(Ordering::SeqCst) { None } else { commands.get_mut(place) };
        let next = again.map(spawn).transpose()?;
        if let Some(slot) = live.get_mut(place) {
            *slot = next;
        }
        places.extend(next.map(|next| (next, place)));
    }
    Ok(ExitCode::SUCCESS)
}

fn note(live: &Mutex<Vec<Option<Pid>>>, place: usize, pid: Option<Pid>) {
    let mut live = live.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(slot) = live.get_mut(place) {
        *slot = pid;
    }
}

fn command(line: &str) -> Option<Command> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next()?);
    command.args(words);
    Some(command)
}

fn spawn(command: &mut Command) -> std::io::Result<Pid> {
    let child = command.spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::Other.into())
}
