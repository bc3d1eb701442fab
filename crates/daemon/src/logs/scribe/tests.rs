use std::fs;
use std::io::{PipeWriter, Write};
use std::sync::mpsc::{Receiver, channel};

use super::super::{folder, segment_path, segments};
use super::*;

const DEADLINE: Duration = Duration::from_secs(20);
const ROTATION: Rotation = Rotation { max_size: 1 << 20, keep: 3 };

/// A scribe, and what it says.
struct Office {
    home: tempfile::TempDir,
    scribe: Scribe,
    said: Receiver<ScribeEvent>,
}

/// An agent's end of the pipe that the scribe reads.
struct Mouth {
    output: Arc<OwnedFd>,
    pipe: PipeWriter,
}

impl Office {
    fn new() -> Office {
        let home = tempfile::tempdir().unwrap();
        let (tell, said) = channel();
        let tell = move |event| tell.send(event).unwrap_or_default();
        let (terminals, activity) = (Terminals::default(), Activity::default());
        let scribe =
            Scribe::start(home.path().to_owned(), terminals, activity, |_| {}, tell).unwrap();
        Office { home, scribe, said }
    }

    fn folder(&self, agent: &str) -> PathBuf {
        folder(self.home.path(), &name(agent))
    }

    /// An agent's log can be opened and never be written.
    fn without_space_for(&self, agent: &str) {
        let folder = self.folder(agent);
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/dev/full", segment_path(&folder, 1)).unwrap();
    }

    fn attach(&self, agent: &str, run: u64, terminal: bool) -> Mouth {
        let (output, pipe) = std::io::pipe().unwrap();
        let output = Arc::new(OwnedFd::from(output));
        let source = Source::new(name(agent), RunId(run), output.clone(), terminal);
        self.scribe.attach(source, ROTATION);
        Mouth { output, pipe }
    }

    /// Attaches a terminal with a relay in which an earlier daemon has left bytes. A pipe stands in for
    /// the terminal's master.
    fn attach_relayed(&self, agent: &str, left: &str) -> Mouth {
        let (output, pipe) = std::io::pipe().unwrap();
        let (read, mut write) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&read, true).unwrap();
        write.write_all(left.as_bytes()).unwrap();
        let output = Arc::new(OwnedFd::from(output));
        let mut source = Source::new(name(agent), RunId(1), output.clone(), true);
        source.relay = Some(Box::new(Relay { read: read.into(), write: write.into() }));
        self.scribe.attach(source, ROTATION);
        Mouth { output, pipe }
    }

    /// Waits for a run to be closed, and gives its tail.
    fn close(&self, agent: &str, run: u64) -> Vec<u8> {
        let (then, tail) = channel();
        let then = move |bytes| then.send(bytes).unwrap();
        self.scribe.close(name(agent), RunId(run), 1 << 16, then);
        tail.recv_timeout(DEADLINE).unwrap()
    }

    /// What was told as lost until now.
    fn lost(&self) -> Vec<u64> {
        let lost = |event| match event {
            ScribeEvent::Lost { bytes, .. } => Some(bytes),
            ScribeEvent::Spoke { .. } | ScribeEvent::Prompted { .. } => None,
        };
        self.said.try_iter().filter_map(lost).collect()
    }

    fn log(&self, agent: &str) -> String {
        let folder = self.folder(agent);
        let text = |number| fs::read_to_string(segment_path(&folder, number)).unwrap();
        segments(&folder).into_iter().map(text).collect()
    }
}

impl Mouth {
    /// Says something, and waits until all of it was taken.
    fn say(&mut self, text: &str) {
        self.pipe.write_all(text.as_bytes()).unwrap();
        await_that(&format!("somebody takes {text:?}"), || {
            rustix::io::ioctl_fionread(&self.output) == Ok(0)
        });
    }
}

fn name(agent: &str) -> Name {
    Name::known(agent).unwrap()
}

fn await_that(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn every_byte_that_a_full_disk_costs_is_told_of_a_terminal_too() {
    for terminal in [false, true] {
        let office = Office::new();
        office.without_space_for("a");
        let mut mouth = office.attach("a", 1, terminal);
        mouth.say("the only word");
        office.close("a", 1);
        assert_eq!(office.lost(), [13], "on a terminal: {terminal}");
    }
}

#[test]
fn whoever_floods_a_full_disk_is_told_of_once_a_second_and_in_full() {
    let office = Office::new();
    office.without_space_for("a");
    let mut mouth = office.attach("a", 1, false);
    let begin = Instant::now();
    for _ in 0..500 {
        mouth.say("ten bytes\n");
    }
    let mut told = Vec::new();
    while told.iter().sum::<u64>() < 5000 {
        assert!(begin.elapsed() < DEADLINE, "not told in full: {told:?}");
        thread::sleep(Duration::from_millis(20));
        told.extend(office.lost());
    }
    assert_eq!(told.iter().sum::<u64>(), 5000);
    assert!(told.len() as u64 <= begin.elapsed().as_secs() + 2, "{} times", told.len());
}

#[test]
fn what_was_lost_of_a_run_is_told_when_it_ends() {
    let office = Office::new();
    office.without_space_for("a");
    let mut mouth = office.attach("a", 1, false);
    mouth.say("one");
    mouth.say("two");
    office.close("a", 1);
    assert_eq!(office.lost().iter().sum::<u64>(), 6);
}

#[test]
fn nothing_that_was_lost_is_untold_when_the_daemon_leaves() {
    let office = Office::new();
    office.without_space_for("a");
    let mut mouth = office.attach("a", 1, false);
    mouth.say("one");
    mouth.say("two");
    office.scribe.settle(DEADLINE);
    assert_eq!(office.lost().iter().sum::<u64>(), 6);
}

#[test]
fn what_is_left_of_a_forgotten_agent_is_neither_held_up_nor_taken_for_another() {
    let office = Office::new();
    let mut old = office.attach("a", 1, false);
    old.say("before\n");
    office.scribe.forget(name("a"));
    old.say("after\n");
    let flood = "x".repeat(1 << 12);
    for _ in 0..100 {
        old.say(&flood);
    }
    // Another agent of this name comes.
    let mut new = office.attach("a", 1, false);
    old.say("of the old\n");
    new.say("of the new\n");
    assert_eq!(office.close("a", 1), b"before\nof the new\n");
    assert_eq!(office.log("a"), "before\nof the new\n");
    old.say("it lives on\n");
    assert_eq!(office.log("a"), "before\nof the new\n");
}

/// Writes much at a time until that is noticed. The scribe may come before all of it is there.
fn flood(mouth: &Mouth) {
    await_that("it has a large pipe", || {
        (&mouth.pipe).write_all(&vec![b'.'; MUCH * 2]).unwrap();
        pipe_size(mouth) == LARGE
    });
}

fn pipe_size(mouth: &Mouth) -> usize {
    rustix::pipe::fcntl_getpipe_size(&mouth.output).unwrap()
}

#[test]
fn whoever_writes_much_gets_a_large_pipe_and_nobody_else_does() {
    let office = Office::new();
    let (mut little, mut much) =
        (office.attach("little", 1, false), office.attach("much", 1, false));
    let at_first = pipe_size(&little);
    for _ in 0..1000 {
        little.pipe.write_all(b"a line, and no more\n").unwrap();
    }
    flood(&much);
    much.say("\n");
    little.say("");
    assert_eq!(pipe_size(&little), at_first);
    assert!(office.log("much").trim_end().bytes().all(|byte| byte == b'.'));
}

#[test]
fn large_pipes_that_have_gone_make_room_for_others() {
    let office = Office::new();
    // More than may be large at once; every other one is of an agent that is forgotten while it writes.
    for run in 1..=200 {
        let mouth = office.attach("a", run, false);
        flood(&mouth);
        if run % 2 == 0 {
            office.scribe.forget(name("a"));
            drop(mouth);
        } else {
            drop(mouth);
            office.close("a", run);
        }
    }
}

#[test]
fn bytes_in_a_relay_reach_the_log_without_any_event_of_the_terminal() {
    let office = Office::new();
    let _mouth = office.attach_relayed("a", "left behind\n");
    await_that("the log has it", || {
        office.folder("a").exists() && office.log("a") == "left behind\n"
    });
}

#[test]
fn bytes_in_a_relay_come_before_those_of_the_terminal() {
    let office = Office::new();
    let mut mouth = office.attach_relayed("a", "left behind, ");
    mouth.say("and the rest\n");
    drop(mouth);
    assert_eq!(office.close("a", 1), b"left behind, and the rest\n");
    assert_eq!(office.log("a"), "left behind, and the rest\n");
}

#[test]
fn bytes_in_a_relay_that_a_full_disk_costs_are_counted() {
    let office = Office::new();
    office.without_space_for("a");
    let mut mouth = office.attach_relayed("a", "12345");
    mouth.say("678");
    office.close("a", 1);
    assert_eq!(office.lost().iter().sum::<u64>(), 8);
}
