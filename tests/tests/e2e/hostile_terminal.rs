//! Agents that write control sequences: none reaches the operator's terminal, unless it is asked for.

use std::process::Command;

use defib_e2e::{Bench, Sitting, await_that};

use crate::bench;

/// Sequences that control a terminal, with a text after each that must stay visible. The shell's `printf`
/// writes them.
const ATTACKS: [(&str, &str); 16] = [
    ("title", r"\033]0;PWNED\007"),
    ("clipboard", r"\033]52;c;UFdORUQ=\033\\"),
    ("dcs", r"\033Pq#0PWNED\033\\"),
    ("apc", r"\033_GPWNED\033\\"),
    ("pm", r"\033^PWNED\033\\"),
    ("sos", r"\033XPWNED\033\\"),
    ("clear", r"\033[2J\033[H\033[3J"),
    ("up", r"\033[1A\033[2K"),
    ("report", r"\033[6n\033[c\033[21t"),
    ("mode", r"\033[?1049h\033[?25l\033[>4;2m"),
    ("reset", r"\033c\033(0\0337"),
    ("c1", r"\302\2330;31H\302\2350;PWNED\302\234"),
    ("eightbit", r"\2332J"),
    ("conceal", r"\033[8m"),
    ("bidi", r"\342\200\256"),
    ("controls", r"\b\b\b\a\016\177"),
];

/// An agent that writes every attack, a colour, and an overwritten line; then lives on.
fn attacker(name: &str) -> String {
    let mut script = String::new();
    for (word, bytes) in ATTACKS {
        script.push_str(&format!("printf '{bytes}after-{word}\\n'; "));
    }
    // A sequence whose parts are written apart, a colour that is left on, and text that is overwritten.
    script.push_str(
        r"printf '\033'; sleep 0.1; printf ']0;PWNED'; sleep 0.1; printf '\007after-split\n'; ",
    );
    script.push_str(
        r"printf '\033[31mred\n'; printf 'hidden-text\rdecoy\n'; echo all-is-said; sleep 1000",
    );
    format!("[agent.{name}]\ncommand = '''{script}'''\nshell = true\n")
}

fn up(names: &[&str]) -> Bench {
    let bench = bench();
    let parts: Vec<String> = names.iter().map(|name| attacker(name)).collect();
    bench.up(&parts);
    for name in names {
        await_that("everything is written", || {
            let bytes: Vec<u8> = bench.segments(name).into_iter().flat_map(|(_, it)| it).collect();
            defib_e2e::proc::holds(&bytes, "all-is-said\n")
        });
    }
    bench
}

/// A command on a terminal, to its end.
fn shown(mut command: Command) -> String {
    command.env_remove("NO_COLOR");
    Sitting::new(&command).end().1
}

/// Checks that a text has nothing for a terminal but colours and line ends.
#[track_caller]
fn is_harmless(shown: &str) {
    let mut rest = shown;
    while let Some(at) = rest.find('\x1b') {
        let sequence = &rest[at + 1..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(sequence.len());
        let is_colour = sequence.starts_with('[')
            && sequence[1..end].bytes().all(|b| b.is_ascii_digit() || b";:".contains(&b))
            && sequence[end..].starts_with('m')
            && &sequence[1..end] != "8";
        assert!(is_colour, "{:?} in {shown:?}", &rest[at..(at + 20).min(rest.len())]);
        rest = &rest[at + 1..];
    }
    let plain = |c: char| !c.is_control() || matches!(c, '\x1b' | '\n' | '\r' | '\t');
    let bidi = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(shown.chars().all(|c| plain(c) && !bidi(c)), "{shown:?}");
    // A terminal's own line ends are `\r\n`; no other carriage return may be there.
    assert!(!shown.replace("\r\n", "").contains('\r'), "{shown:?}");
}

#[test]
fn logs_on_a_terminal_have_colours_and_no_control_sequences() {
    let bench = up(&["a"]);
    let out = shown(bench.command(&["logs", "a"]));
    is_harmless(&out);
    assert!(!out.contains("PWNED"), "strings go with their text: {out:?}");
    for (word, _) in ATTACKS {
        assert!(out.contains(&format!("after-{word}")), "{word}: {out:?}");
    }
    assert!(out.contains("after-split"), "{out:?}");
    assert!(out.contains("\x1b[31mred\x1b[0m\r\n"), "a colour ends with its line: {out:?}");
    assert!(out.contains("hidden-text\r\ndecoy\r\n"), "nothing is overwritten: {out:?}");
}

#[test]
fn logs_of_several_agents_name_every_line_also_one_that_a_return_began() {
    let bench = up(&["a", "b"]);
    let out = shown(bench.command(&["logs", "a", "b"]));
    is_harmless(&out);
    let lines: Vec<&str> = out.lines().filter(|line| line.contains("decoy")).collect();
    assert_eq!(lines.len(), 2, "{out:?}");
    assert!(lines.iter().all(|line| line.contains(" |")), "{lines:?}");
}

#[test]
fn followed_logs_hold_back_a_sequence_whose_parts_come_apart() {
    let bench = bench();
    bench.up(&[attacker("a")]);
    let mut command = bench.command(&["logs", "-f", "a"]);
    command.env_remove("NO_COLOR");
    let mut sitting = Sitting::new(&command);
    sitting.await_text("all-is-said");
    is_harmless(&sitting.shown);
}

#[test]
fn raw_logs_and_logs_in_a_pipe_are_what_the_agent_wrote() {
    let bench = up(&["a"]);
    let out = shown(bench.command(&["logs", "--raw", "a"]));
    for bytes in ["\x1b]0;PWNED\x07", "\x1b[2J\x1b[H", "hidden-text\rdecoy"] {
        assert!(out.contains(bytes), "{bytes:?} in {out:?}");
    }
    let piped = bench.command(&["logs", "a"]).output().unwrap().stdout;
    let written: Vec<u8> = bench.segments("a").into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(piped, written);
}

/// Goal: no command that quotes an agent passes its control sequences on. Method: an agent says a hostile
/// text of itself and dies with a hostile last line; every command that shows it runs on a terminal.
#[test]
fn commands_that_quote_an_agent_are_harmless_on_a_terminal() {
    let bench = bench();
    let defib = defib_e2e::defib_path();
    let say = format!(
        "{} self status \"$(printf 'busy\\033]0;PWNED\\007\\302\\2332J\\342\\200\\256x')\"",
        defib.display()
    );
    let line = format!(
        "[ -e said ] || {{ {say}; : > said; }}; printf 'Error: \\033]0;PWNED\\007\\033[2Jboom\\342\\200\\256\\n'; \
         exit 1"
    );
    let settings = "shell = true\nrestart = \"never\"\n";
    let dead = format!("[agent.dead]\ncommand = '''{line}'''\n{settings}");
    let busy = format!("[agent.busy]\ncommand = '''{say}; sleep 1000'''\n{settings}");
    let events = bench.up(&[dead, busy]);
    events.of("dead", "run-died");
    bench.await_status("busy", |status| status["status_text"].is_string());
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["why", "dead"],
        &["why", "busy"],
        &["history", "dead"],
        &["events"],
        &["events", "--json"],
    ] {
        let out = shown(bench.command(arguments));
        assert!(!out.is_empty());
        is_harmless(&out);
    }
}

#[test]
fn top_shows_a_log_without_its_control_sequences() {
    let bench = up(&["a"]);
    let mut command = bench.command(&["top"]);
    command.env_remove("NO_COLOR");
    let mut sitting = Sitting::new(&command);
    sitting.await_text("a");
    sitting.type_in("l");
    sitting.await_text("all-is-said");
    for attack in ["PWNED", "\x1b]0;", "\x1b]52", "\x1bP", "\x1b_", "\u{202e}", "\u{9b}", "\x1bc"] {
        assert!(!sitting.shown.contains(attack), "{attack:?} in {:?}", sitting.shown);
    }
    assert!(sitting.shown.contains("hidden-text"), "nothing is overwritten");
}
