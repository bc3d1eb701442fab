//! `defib import`: a file of any length takes time in proportion to it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use defib_e2e::{Bench, Ran};

use crate::bench;

/// A file of a format with about so many lines.
type Make = fn(usize) -> String;

fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

/// Files that took more than their length: one name again and again, many members, many variables.
const FILES: [(&str, Make); 16] = [
    ("Procfile", |n| repeated(n, |i| format!("web{i}: run {i}\n"))),
    ("same.Procfile", |n| repeated(n, |i| format!("web: run {i}\n"))),
    ("vars.Procfile", |n| format!("a: {}\n", repeated(n, |i| format!("$V{i} ")))),
    ("programs.conf", |n| repeated(n / 2, |i| format!("[program:p{i}]\ncommand=x\n"))),
    ("keys.conf", |n| format!("[program:p]\ncommand=x\n{}", repeated(n, |i| format!("k{i}=1\n")))),
    ("groups.conf", |n| {
        repeated(n / 4, |i| format!("[program:p{i}]\ncommand=x\n[group:g{i}]\nprograms=p{i}\n"))
    }),
    ("members.conf", |n| {
        let members: Vec<String> = (0..n / 2).map(|i| format!("p{i}")).collect();
        let programs = repeated(n / 2, |i| format!("[program:p{i}]\ncommand=x\n"));
        format!("{programs}[group:g]\nprograms={}\n", members.join(","))
    }),
    ("env.conf", |n| {
        format!(
            "[program:p]\ncommand=x\nenvironment={}A=1\n",
            repeated(n, |i| format!("A{i}=1,\n "))
        )
    }),
    ("ecosystem.json", |n| {
        let apps = repeated(n, |_| "{\"name\":\"a b\",\"script\":\"x.js\"},\n".to_owned());
        format!("{{\"apps\":[{apps}{{\"script\":\"x.js\"}}]}}")
    }),
    ("ecosystem.env.json", |n| {
        let env = repeated(n, |i| format!("\"K{i}\":\"1\",\n"));
        format!("{{\"apps\":[{{\"script\":\"x.js\",\"env\":{{{env}\"Z\":\"1\"}}}}]}}")
    }),
    ("spawn.json", |n| {
        let env = repeated(n, |i| format!("\"K{i}\":\"1\",\n"));
        format!("{{\"name\":\"a\",\"command\":\"x\",\"env\":{{{env}\"Z\":\"1\"}}}}")
    }),
    ("compose.yml", |n| {
        let service = |i| format!("  s{}:\n    command: x\n    depends_on: [s{i}]\n", i + 1);
        format!("services:\n  s0:\n    command: x\n{}", repeated(n / 3, service))
    }),
    ("compose.env.yml", |n| {
        let lines = repeated(n, |i| format!("      A{i}: \"${{V{i}}}\"\n"));
        format!("services:\n  s:\n    command: x\n    environment:\n{lines}")
    }),
    ("agents.yaml", |n| {
        format!("agents:\n{}", repeated(n / 2, |i| format!("  a{i}:\n    command: x\n")))
    }),
    ("weave.toml", |n| repeated(n / 3, |i| format!("[[agent]]\nname=\"a{i}\"\ncommand=\"x\"\n"))),
    ("Aidefile", |n| format!("[persona]\nname=\"a\"\n{}", repeated(n, |i| format!("k{i}=1\n")))),
];

fn import(bench: &Bench, name: &str, text: &str) -> Duration {
    std::fs::write(bench.project().join(name), text).unwrap();
    let begin = Instant::now();
    let ran = Ran::within(bench.command(&["import", name]), Duration::from_secs(60));
    let ran = ran.unwrap_or_else(|| panic!("{name}: the import does not end"));
    assert!(matches!(ran.code, 0 | 3), "{name}: {}", ran.err);
    begin.elapsed()
}

/// Goal: no file makes the import take time by the square of its length. Method: each is imported with n
/// and with eight times as many lines, in one run on one machine. A square would take 64 times as long; the
/// bound leaves room for a busy machine. The best of three counts.
#[test]
fn an_import_takes_time_in_proportion_to_its_file() {
    let bench = bench();
    let mut table = String::new();
    for (name, make) in FILES {
        let best = |lines| (0..3).map(|_| import(&bench, name, &make(lines))).min().unwrap();
        let (short, long) = (best(2_000), best(16_000));
        writeln!(table, "{name:20} {short:>10.1?} {long:>10.1?}").unwrap();
        // What every start of the program takes is not the file's.
        let floor = short.max(Duration::from_millis(20));
        assert!(long < floor * 28, "{name} takes more than its length:\n{table}");
    }
    println!("{table}");
}
