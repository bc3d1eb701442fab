//! Output that nobody would read: a line without an end, bytes that are no text, colours by the
//! megabyte. Whoever writes it dies like anybody else, and the daemon stays as small as it was.

use std::time::{Duration, Instant};

use defib_e2e::{Bench, DEADLINE, proc};
use serde_json::Value;

use crate::{bench, is_long};

const MIB: u64 = 1 << 20;

/// The most memory that a process ever had, in bytes.
fn most_memory(pid: u32) -> u64 {
    let status = String::from_utf8(proc::read(pid, "status").unwrap()).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kilobytes << 10
}

fn agent(name: &str, kind: &str, line: &str, settings: &str) -> String {
    format!("[agent.{name}]\ncommand = '''{line}'''\nshell = true\nkind = \"{kind}\"\n{settings}\n")
}

/// The death of an agent's first run.
fn death(bench: &Bench, name: &str) -> Value {
    bench.history(name)[0]["death"].clone()
}

#[test]
fn a_line_of_a_gigabyte_is_rotated_and_capped_and_its_writer_s_death_has_its_cause() {
    // A gigabyte takes a while in a build without optimisation, and nothing is other about it.
    let size = if is_long() { 1 << 30 } else { 64 * MIB };
    let bench = bench();
    let log = "restart = \"never\"\nlog = { max_size = \"2M\", keep = 3 }";
    // A usual death first, so that what one needs is there.
    let write = format!("head -c {size} /dev/zero | tr '\\0' x");
    let limit = "ERROR: You have hit your usage limit. Try again in 3 hours.";
    let events = bench.up(&[
        agent("usual", "codex", &format!("echo '{limit}'; exit 1"), log),
        agent(
            "said",
            "codex",
            &format!("{write}; echo; echo '{limit}'; exit 1"),
            &format!("{log}\ntrigger = \"manual\""),
        ),
        agent(
            "mute",
            "claude",
            &format!("{write}; printf THE-END; exit 3"),
            &format!("{log}\ntrigger = \"manual\""),
        ),
    ]);
    assert_eq!(events.of("usual", "run-died")["class"], "quota");
    let (_, daemon) = bench.who();
    let before = most_memory(daemon);
    let begin = Instant::now();
    for (name, class, code) in [("said", "quota", 1), ("mute", "error", 3)] {
        bench.defib(&["start", name]).good();
        // Longer than anything else is waited for, where it is longer.
        while bench.status(name)["state"] != "stopped" {
            assert!(begin.elapsed() < 10 * DEADLINE, "it goes on for ever");
            std::thread::sleep(Duration::from_millis(100));
        }
        let died = events.of(name, "run-died");
        assert_eq!((&died["class"], &died["exit_code"]), (&class.into(), &code.into()), "{died}");
        let segments = bench.segments(name);
        let sizes: Vec<usize> = segments.iter().map(|(_, bytes)| bytes.len()).collect();
        assert!((2..=4).contains(&sizes.len()), "{sizes:?}");
        // A line may end within a MiB, and so much is moved at once; then it is cut.
        assert!(sizes.iter().all(|bytes| *bytes as u64 <= 4 * MIB), "{sizes:?}");
        let last = if name == "said" { format!("x\n{limit}\n") } else { "xTHE-END".to_owned() };
        let bytes: Vec<u8> = segments.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(bytes.ends_with(last.as_bytes()), "the tail is kept");
        let why = bench.defib(&["why", name]).good().out;
        assert!(why.len() < 10_000, "{} bytes", why.len());
        bench.defib(&["status", "--json"]).good().json();
    }
    assert_eq!(death(&bench, "said")["evidence"], limit);
    let grown = most_memory(daemon).saturating_sub(before);
    let took = begin.elapsed();
    println!("two lines of {} MiB in {took:.1?}: {} KiB more memory", size / MIB, grown >> 10);
    assert!(grown < 64 * MIB, "the daemon has grown by {grown} bytes");
    assert_eq!(bench.who().1, daemon, "it is still the same");
}

#[test]
fn bytes_that_are_no_text_do_not_hide_what_a_run_died_of() {
    let bench = bench();
    let (never, end) = ("restart = \"never\"", "API Error: 529 Overloaded");
    let noise = [
        ("invalid", r"head -c 300000 /dev/zero | tr '\0' '\377'; printf '\300\200\355\240\200\n'".to_owned()),
        ("nuls", "head -c 300000 /dev/zero; echo".to_owned()),
        ("random", "head -c 2000000 /dev/urandom; echo".to_owned()),
        ("half", r#"i=0; while [ $i -lt 2000 ]; do echo '{"type":"result","subtype":"succ'; i=$((i+1)); done; printf '{"type":"assistant","message":{"content":[{\n'"#.to_owned()),
        ("nested", r#"yes '{"a":[{' | head -c 900000 | tr -d '\n'; echo"#.to_owned()),
        ("colours", r"yes $(printf '\033[31m\033[1mx\033[0m\033[2J\033]0;title\007') | head -c 3000000 | tr -d '\n'; echo".to_owned()),
        ("returns", r"yes x | head -c 3000000 | tr '\n' '\r'; echo".to_owned()),
    ];
    let mut parts: Vec<String> = noise
        .iter()
        .map(|(name, line)| agent(name, "claude", &format!("{line}; echo '{end}'; exit 1"), never))
        .collect();
    // The same on a terminal, where somebody may look; a screen is drawn slowly without optimisation.
    let storm = noise[5].1.replace("3000000", "100000");
    let storm = format!("{storm}; printf '\\033c'; echo '{end}'; exit 1");
    parts.push(agent("storm", "claude", &storm, &format!("{never}\npty = true")));
    let events = bench.up(&parts);
    let (_, daemon) = bench.who();
    for name in noise.iter().map(|(name, _)| *name).chain(["storm"]) {
        let died = events.of(name, "run-died");
        let found = (&died["class"], &died["evidence"]);
        assert_eq!(found, (&"overload".into(), &end.into()), "{died}");
        let why = bench.defib(&["why", name]).good().out;
        let is_plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
        assert!(why.contains(end) && why.chars().all(is_plain), "{why:?}");
    }
    bench.defib(&["status", "--json"]).good().json();
    bench.defib(&["history", "--json"]).good().json();
    assert_eq!(bench.who().1, daemon, "it is still the same");
}
