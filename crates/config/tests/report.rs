//! What people and programs get to read.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use defib_config::{Outcome, Report, parse_bytes, parse_in};

fn outcome(text: &str) -> Outcome {
    parse_in(Path::new("/srv/night"), text)
}

fn rendered(text: &str) -> String {
    Report::new("defib.toml", text, &outcome(text).diagnostics).render(false)
}

#[test]
fn both_places_of_a_conflict_are_shown_however_far_apart() {
    let gap = "# …\n".repeat(20);
    let text = format!(
        "[agent.a]\ncommand = \"x\"\n{gap}[agent.b]\ncommand = \"x\"\n[group.a]\nmembers = [\"b\"]\n"
    );
    insta::assert_snapshot!(rendered(&text), @r#"
    error: `a` is both an agent and a group
      --> defib.toml:25:8
       |
    25 | [group.a]
       |        ^ the group
       |
      ::: defib.toml:1:8
       |
     1 | [agent.a]
       |        - the agent
       |
       = help: agents and groups share their names; call one of them otherwise

    defib.toml: 1 error
    "#);
}

#[test]
fn tabs_wide_characters_and_line_endings_do_not_move_the_marker() {
    let text = "[agent.\"ä\"]\r\n\tcommand = \"x\"\r\n\tenv = { A = \"漢字\", B = 1 }\r\n";
    insta::assert_snapshot!(rendered(text), @r#"
    error: `B` must be a string, not an integer
     --> defib.toml:3:24
      |
    3 |     env = { A = "漢字", B = 1 }
      |                             ^
      |
      = help: put it in quotes

    defib.toml: 1 error
    "#);
}

#[test]
fn a_line_too_long_for_a_screen_is_only_named() {
    let text = format!("project = {{ name = \"x\", y = \"{}\", z = 1 }}", "é".repeat(5000));
    insta::assert_snapshot!(rendered(&text), @r#"
    error: unknown key `y`
    --> defib.toml:1:25
     = note: not a key of `project`
     = help: the keys here are `name`

    error: unknown key `z`
    --> defib.toml:1:5033
     = note: not a key of `project`
     = help: the keys here are `name`

    defib.toml: 2 errors
    "#);
}

#[test]
fn a_mistake_at_the_very_end_is_shown() {
    insta::assert_snapshot!(rendered("[agent.a]\ncommand = "), @r#"
    error: string values must be quoted
     --> defib.toml:2:11
      |
    2 | command = 
      |           ^ expected literal string
      |
      = help: put quotes around it: "…"

    defib.toml: 1 error
    "#);
}

#[test]
fn errors_and_warnings_are_counted_and_nothing_is_said_of_a_clean_file() {
    let text = "[agent.a]\ncommand = \"x | y\"\n[agent.b]\n[agent.c]\n";
    assert!(rendered(text).ends_with("defib.toml: 2 errors, 1 warning\n"));
    let clean = "[agent.a]\ncommand = \"x\"\n";
    assert_eq!(rendered(clean), "");
    assert_eq!(Report::new("f", clean, &outcome(clean).diagnostics).summary(), None);
}

#[test]
fn colour_is_there_only_if_asked_for() {
    let text = "agnet = 1";
    let diagnostics = outcome(text).diagnostics;
    let report = Report::new("defib.toml", text, &diagnostics);
    assert!(report.render(true).contains("\u{1b}["));
    assert!(!report.render(false).contains('\u{1b}'));
}

#[test]
fn programs_get_an_object_for_each() {
    let text = "[agent.a]\ncomand = 1\n";
    let diagnostics = outcome(text).diagnostics;
    let told = Report::new("defib.toml", text, &diagnostics).told();
    assert_eq!(
        serde_json::to_string(&told).unwrap(),
        "[{\"severity\":\"error\",\"message\":\"unknown key `comand`\",\"line\":2,\"column\":1,\
         \"help\":\"did you mean `command`?\"}]"
    );
}

#[test]
fn a_file_that_is_no_text_is_shown_as_far_as_it_goes() {
    let loaded = parse_bytes(Path::new("defib.toml"), b"a = 1\nb = '\xff'\n");
    insta::assert_snapshot!(loaded.render(false), @r#"
    error: the file is not UTF-8
     --> defib.toml:2:6
      |
    2 | b = '�'
      |      ^ the byte here is 0xff
      |
      = help: save it as UTF-8

    defib.toml: 1 error
    "#);
}
