//! A command that goes on, and the lines that it writes meanwhile.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::DEADLINE;

/// A command whose lines are looked at as they come. It ends with this.
pub struct Lines {
    child: Child,
    lines: Receiver<String>,
}

impl Lines {
    /// Starts it.
    pub fn of(mut command: Command) -> Lines {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Nobody may want the rest.
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Lines { child, lines }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line.
    #[track_caller]
    pub fn next(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("one more line")
    }

    /// The next lines, with their ends.
    #[track_caller]
    pub fn take(&self, count: usize) -> String {
        (0..count).map(|_| self.next() + "\n").collect()
    }

    /// The lines up to one that is as wanted, that one included.
    #[track_caller]
    pub fn until(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| wanted(line)) {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => lines.push(line),
                Err(error) => panic!("{error} after {lines:#?}"),
            }
        }
        lines
    }

    /// Waits until it has ended: its exit code, what it wrote that was not looked at, and what it
    /// complained of.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begin.elapsed() < DEADLINE, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut complaint = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut complaint).unwrap();
        (status.code(), self.lines.iter().collect(), complaint)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
