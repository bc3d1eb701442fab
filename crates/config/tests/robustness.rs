//! No input makes it panic, takes it long, or sends a span outside the text.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use defib_config::{MAX_KEPT, Outcome, Report, Severity, Span, load, parse_bytes, parse_in};
use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

const CLEAN: &str = include_str!("fixtures/every-key.toml");
const WRONG: &str = include_str!("fixtures/ten-mistakes.toml");

/// Everything that must hold of every outcome, whatever the text.
fn hold(text: &str, outcome: &Outcome) {
    let errors = outcome.diagnostics.iter().any(|d| d.severity == Severity::Error);
    assert_eq!(outcome.config.is_some(), !errors);
    let fits = |span: Span| {
        assert!(span.start <= span.end && span.end <= text.len(), "{span:?}");
        assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end), "{span:?}");
    };
    for diagnostic in &outcome.diagnostics {
        fits(diagnostic.span);
        diagnostic.related.iter().for_each(|related| fits(related.span));
        let all = [Some(&diagnostic.message), diagnostic.label.as_ref(), diagnostic.help.as_ref()];
        for said in all.into_iter().flatten() {
            assert!(!said.chars().any(char::is_control), "{said:?}");
            assert!(!said.is_empty());
        }
    }
    let report = Report::new("defib.toml", text, &outcome.diagnostics);
    let rendered = report.render(false);
    assert!(!rendered.contains('\u{1b}'), "no colour unless asked, not even the file's own");
    for told in report.told() {
        assert!(told.line >= 1 && told.column >= 1);
        assert!(
            rendered.contains(&format!("defib.toml:{}:{}", told.line, told.column)),
            "{told:?}"
        );
    }
}

fn try_text(text: &str) {
    hold(text, &parse_in(Path::new("/srv/night"), text));
}

/// Slices of files that say something, so that a mutation is more than a syntax error.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,8}",
        "[\\[\\]{}=\",.\n# ]{0,6}",
        prop::sample::select(vec![
            "[agent.a]\n",
            "command = \"x\"\n",
            "after = [\"a\"]\n",
            "[group.a]\n",
            "members = [\"a\"]\n",
            "= 5\n",
            "\"0s\"",
            "-1",
            "true",
            "[[rule]]\n",
            "\r\n",
            "\t",
            "\u{feff}",
            "é",
            "\0",
            "\u{1b}[31m",
        ])
        .prop_map(str::to_owned),
    ]
}

fn mutated(source: &'static str) -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0usize..40, piece(), 0u8..4);
    prop::collection::vec(change, 1..6).prop_map(move |changes| {
        let mut text = source.to_owned();
        for (at, length, piece, what) in changes {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            match what {
                0 => text.replace_range(start..end, ""),
                1 => {
                    let again = text[start..end].to_owned();
                    text.insert_str(start, &again);
                }
                2 => text.replace_range(start..end, &piece),
                _ => text.insert_str(start, &piece),
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_get_an_answer(bytes: Vec<u8>) {
        let loaded = parse_bytes(Path::new("/srv/night/defib.toml"), &bytes);
        hold(&loaded.text, &loaded.outcome);
    }

    #[test]
    fn arbitrary_text_gets_an_answer(text in "(\\PC|\n|\r|\t){0,60}") {
        try_text(&text);
    }

    #[test]
    fn pieces_of_files_get_an_answer(pieces in prop::collection::vec(piece(), 0..20)) {
        try_text(&pieces.concat());
    }

    #[test]
    fn a_clean_file_gone_wrong_gets_an_answer(text in mutated(CLEAN)) {
        try_text(&text);
    }

    #[test]
    fn a_wrong_file_gone_worse_gets_an_answer(text in mutated(WRONG)) {
        try_text(&text);
    }
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_a_place() {
    for (bytes, line, column, help) in [
        (&b"a = 1\nb = \"\xe9\"\n"[..], 2, 6, "save it as UTF-8"),
        (&b"\xff\xfea\0"[..], 1, 1, "it looks like UTF-16; save it as UTF-8"),
        (&b"a = '\xc3"[..], 1, 6, "save it as UTF-8"),
    ] {
        let loaded = parse_bytes(Path::new("defib.toml"), bytes);
        hold(&loaded.text, &loaded.outcome);
        let report = Report::new("defib.toml", &loaded.text, &loaded.outcome.diagnostics);
        let told = report.told();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].line, told[0].column, told[0].help), (line, column, Some(help)));
    }
}

#[test]
fn a_file_that_cannot_be_read_says_why_and_what_to_do() {
    let missing = load(Path::new("/nowhere/defib.toml")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read /nowhere/defib.toml: "));
    assert!(missing.hint().contains("-f FILE"));
    let folder = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")).unwrap_err();
    assert!(folder.to_string().contains("no Aidefile"), "{folder}");
    assert!(folder.hint().contains("name a file"), "{folder}");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/every-key.toml");
    let loaded = load(&here).unwrap();
    assert_eq!(loaded.text, CLEAN);
    assert_eq!(loaded.outcome.config.unwrap().folder, here.parent().unwrap());
    // A way through `..` leads to a folder with a name all the same.
    let round = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/../defib.toml");
    let project = parse_bytes(&round, b"").outcome.config.unwrap().project;
    assert_eq!(project.as_str(), "config");
}

#[test]
fn nesting_without_end_is_an_error_and_no_overflow() {
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}{}", "[".repeat(1000), "]".repeat(1000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        "[agent.a]\n".to_owned() + &"a.".repeat(1000) + "a = 1",
    ] {
        try_text(&text);
    }
}

#[test]
fn chains_as_long_as_a_file_can_write_them_need_no_stack() {
    let mut text = "[agent.a0]\ncommand = \"x\"\n".to_owned();
    for n in 1..3000 {
        writeln!(text, "[agent.a{n}]\ncommand = \"x\"\nafter = [\"a{}\"]", n - 1).unwrap();
    }
    text.push_str("[group.g0]\nmembers = [\"a0\"]\n");
    for n in 1..3000 {
        writeln!(text, "[group.g{n}]\nmembers = [\"g{}\"]", n - 1).unwrap();
    }
    let outcome = parse_in(Path::new("/srv/night"), &text);
    assert_eq!(outcome.diagnostics, []);
    let text = text.replacen("command", "after = [\"a2999\"]\ncommand", 1);
    let outcome = parse_in(Path::new("/srv/night"), &text);
    hold(&text, &outcome);
    assert_eq!(outcome.diagnostics.len(), 1);
}

/// How long a text of about `size` bytes takes, from parsing to the last rendered line.
fn time(size: usize, make: &dyn Fn(usize) -> String) -> Duration {
    let text = make(size);
    let start = Instant::now();
    let outcome = parse_in(Path::new("/srv/night"), &text);
    let report = Report::new("defib.toml", &text, &outcome.diagnostics);
    let rendered = report.render(false);
    report.told();
    assert!(rendered.len() < 2_000_000, "{}", rendered.len());
    assert!(outcome.diagnostics.len() <= MAX_KEPT + 2);
    start.elapsed()
}

/// Makes a text of about so many bytes.
type Make = Box<dyn Fn(usize) -> String>;

/// Ten megabytes of each sort of trouble. The bound is far above what a debug build takes and far
/// below what anything quadratic would.
#[test]
fn ten_megabytes_of_anything_are_read_in_one_go() {
    let repeat = |piece: &'static str| move |size: usize| piece.repeat(size / piece.len());
    let numbered = |make: fn(usize) -> String| {
        move |size: usize| {
            let mut text = String::with_capacity(size + 100);
            let mut n = 0;
            while text.len() < size {
                text.push_str(&make(n));
                n += 1;
            }
            text
        }
    };
    let kinds: Vec<(&str, Make)> = vec![
        ("comments", Box::new(repeat("# nothing\n"))),
        ("syntax errors", Box::new(repeat("= =\n"))),
        ("syntax errors in one line", Box::new(repeat("= "))),
        ("one long string", Box::new(|size| format!("a = \"{}\"", "x".repeat(size)))),
        ("one long key", Box::new(|size| format!("{} = 1", "x".repeat(size)))),
        ("one long word", Box::new(|size| format!("agent.a.kind = \"{}\"", "x".repeat(size)))),
        ("unknown keys", Box::new(numbered(|n| format!("unknown{n} = 1\n")))),
        (
            "unknown keys in one line",
            Box::new(move |size| {
                let keys = numbered(|n| format!("unknown{n} = 1, "))(size);
                format!("project = {{ {keys} x = 1 }}")
            }),
        ),
        (
            "bad values in one line",
            Box::new(|size| {
                format!(
                    "agent.a = {{ command = \"x\", after = [{}] }}",
                    "\"é \", ".repeat(size / 8)
                )
            }),
        ),
        ("agents", Box::new(numbered(|n| format!("[agent.a{n}]\ncommand = \"x\"\n")))),
        (
            "unknown waits",
            Box::new(numbered(|n| format!("[agent.a{n}]\ncommand = \"x\"\nafter = [\"b{n}\"]\n"))),
        ),
        (
            "members",
            Box::new(numbered(|n| {
                format!(
                    "[agent.a{n}]\ncommand = \"x\"\n[group.g{n}]\nmembers = [\"a{n}\", \"a{n}\"]\n"
                )
            })),
        ),
        (
            "variables",
            Box::new(move |size| {
                let env = numbered(|n| format!("V{n} = \"x\"\n"))(size / 2);
                format!("[defaults.env]\n{env}\n[agent.a]\ncommand = \"x\"\n[agent.a.env]\n{env}")
            }),
        ),
    ];
    // Debug builds of a parser are slow; what is asked here is the growth, not the speed.
    let size = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };
    for (kind, make) in kinds {
        let took = time(size, make.as_ref());
        assert!(took < Duration::from_secs(20), "{kind}: {took:?}");
        println!("{kind}: {took:?}");
    }
}
