//! The full-screen view: the real binary on a terminal, with real agents that die.

use defib_e2e::{Bench, Sitting, await_that, proc};

use crate::bench;

/// A person in front of the view. What counts is what stands on the screen: only what has changed is
/// drawn.
struct Watcher {
    sitting: Sitting,
}

impl Watcher {
    fn new(bench: &Bench) -> Watcher {
        let mut command = bench.command(&["top"]);
        // Shapes are plain where a locale has no others.
        command.env("LC_ALL", "C");
        Watcher { sitting: Sitting::new(&command) }
    }

    /// Waits until a text stands on the screen.
    fn sees(&mut self, text: &str) {
        self.sitting.await_shown(text, |shown| screen(shown).contains(text));
    }

    fn presses(&mut self, keys: &str) {
        self.sitting.type_in(keys);
    }

    /// Waits until it has ended well and given the terminal back.
    fn ends(self) {
        let (status, shown) = self.sitting.end();
        assert!(status.success(), "{shown:?}");
        assert!(shown.contains("\x1b[?1049h"), "{shown:?}");
        let last = shown.trim_end_matches("\x1b[?25h");
        assert!(last.len() < shown.len() && last.ends_with("\x1b[?1049l"), "{shown:?}");
    }
}

/// The screen after all that was shown.
fn screen(shown: &str) -> String {
    let mut terminal = avt::Terminal::with_scrollback(100, 30, Some(0)).expect("a size");
    terminal.feed(shown);
    terminal.screen().visible_lines().map(|line| line.text() + "\n").collect()
}

#[test]
fn an_agent_is_seen_to_crash_out_and_revived_by_a_key() {
    let bench = bench();
    // It dies until the file is there.
    let script = format!("rest-if {} sleep 10 exit 1", bench.file("mended"));
    let settings = "limits = [{ deaths = 3, within = \"60s\" }]\ntrigger = \"manual\"";
    bench.up(&[bench.agent("looper", &script, settings), bench.agent("steady", "forever", "")]);
    let mut top = Watcher::new(&bench);
    top.sees("steady");
    top.sees("idle");
    top.presses("/looper\r");
    top.sees("1 of 1");
    top.presses("s");
    top.sees("X crashed-out looper");
    top.sees("1 needs you: looper");
    top.sees("error exit 1");
    top.presses("w");
    top.sees("exited with code 1 after");
    top.sees("3 of 3 deaths within 1m");
    std::fs::write(bench.project().join("mended"), "").unwrap();
    top.presses("v");
    top.sees("looper: running");
    top.sees("* running     looper");
    let pid = bench.pid("looper");
    top.presses("k");
    top.sees("kill looper? y/n");
    top.presses("n");
    top.sees("looper was not killed");
    assert!(proc::lives(pid));
    top.presses("q");
    top.ends();
    assert!(proc::lives(pid), "a view that ends leaves agents alone");
}

#[test]
fn it_says_when_it_is_stale_and_goes_on_under_the_next_daemon() {
    let bench = bench();
    bench.up(&[bench.agent("a", "print hello forever", "")]);
    bench.await_log("a", |log| log.contains("hello"));
    let mut top = Watcher::new(&bench);
    top.sees("running");
    top.presses("l");
    top.sees("hello");
    let (keeper, daemon) = bench.who();
    // The next daemon is not there before the keeper goes on.
    proc::kill(keeper, "STOP");
    proc::kill(daemon, "KILL");
    top.sees("stale since");
    proc::kill(keeper, "CONT");
    top.sitting.await_shown("the list anew", |shown| !screen(shown).contains("stale since"));
    let pid = bench.pid("a");
    top.presses("x");
    top.sees("a: stopped");
    await_that("the agent's end", || !proc::lives(pid));
    let home = bench.home().display().to_string();
    let is_view = |pid: &u32| {
        proc::read(*pid, "cmdline").is_some_and(|line| line.ends_with(b"/defib\0top\0"))
            && proc::read(*pid, "environ").is_some_and(|text| proc::holds(&text, &home))
            && proc::read(*pid, "comm").is_some_and(|name| name == b"defib\n")
    };
    proc::kill(proc::all().find(is_view).expect("the view's process"), "TERM");
    top.ends();
}

#[test]
fn it_makes_room_for_an_agent_s_terminal_and_comes_back() {
    let bench = bench();
    let line = "echo ready; while read -r line; do echo \\\"got $line\\\"; done";
    bench
        .up(&[format!("[agent.shell]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\npty = true\n")]);
    bench.await_log("shell", |log| log.contains("ready"));
    let mut top = Watcher::new(&bench);
    top.sees("* running     shell");
    top.presses("a");
    top.sees("ready");
    top.presses("q hello\r");
    top.sees("got q hello");
    top.presses("\x1c");
    top.sees("detached; shell goes on");
    top.sees("* running     shell");
    // Every key comes here again, the first one too.
    top.presses("?");
    top.sees("any key closes this");
    top.presses("\x03");
    top.ends();
}

#[test]
fn without_a_terminal_or_a_daemon_it_says_what_to_do() {
    let bench = bench();
    let ran = bench.defib(&["top"]).bad(2);
    assert!(ran.err.contains("defib status"), "{}", ran.err);
    let (status, shown) = Sitting::new(&bench.command(&["top"])).end();
    assert_eq!(status.code(), Some(4), "{shown:?}");
    assert!(shown.contains("defib up"), "{shown:?}");
    assert!(!shown.contains("\x1b[?1049h"), "nothing was drawn: {shown:?}");
}
