//! Files of other process keepers: what becomes of each sample, and that it is said of every line
//! what has no equal.
//!
//! Each table names the samples of one format with lines that must stand in the `defib.toml`, and the
//! lines of the sample that must be warned of. All of a sample's warnings are listed: one that is
//! missing fails, and one too many as well.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod compose;
mod pm2;
mod procfile;
mod supervisord;

use std::path::{Path, PathBuf};

use defib_config::config::Command;
use defib_config::{Config, Format, Imported, Options, Report, import, parse};

/// A sample, lines by table that must be in the result, and what is warned of by line.
type Row<'r> = (&'r str, &'r [(&'r str, &'r str)], &'r [(usize, &'r str)]);

fn folder(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(format)
}

fn imported(path: &Path) -> (String, Imported) {
    let text = std::fs::read_to_string(path).unwrap();
    let imported = import(path, &text, &Options::default());
    (text, imported)
}

/// The lines under a header.
fn under<'t>(toml: &'t str, header: &str) -> Vec<&'t str> {
    let header = format!("[{header}]");
    let lines = toml.lines().skip_while(|line| *line != header).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty()).collect()
}

/// Every sample of a format has its row, passes the check, and comes out as the row says.
fn hold(format: &str, rows: &[Row<'_>]) {
    let mut files: Vec<String> = std::fs::read_dir(folder(format))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{format} has {} samples", files.len());
    let listed: Vec<&str> = rows.iter().map(|(file, ..)| *file).collect();
    assert_eq!(listed, files, "every sample of {format} has its row");
    let mut wrong = String::new();
    for (file, facts, warned) in rows {
        let path = folder(format).join(file);
        let (text, imported) = imported(&path);
        let report = Report::new(file, &text, &imported.diagnostics);
        let Some(toml) = &imported.toml else {
            wrong += &format!("{file} is refused:\n{}\n", report.render(false));
            continue;
        };
        let outcome = parse(&path.with_file_name("defib.toml").to_string_lossy(), toml);
        assert!(
            outcome.config.is_some(),
            "{file} does not pass: {:?}\n{toml}",
            outcome.diagnostics
        );
        for (header, line) in *facts {
            if !under(toml, header).contains(line) {
                wrong += &format!("{file}: no `{line}` in [{header}]:\n{toml}\n");
            }
        }
        let told: Vec<(usize, &str)> = imported
            .diagnostics
            .iter()
            .map(|found| (report.position(found.span).line, found.message.as_str()))
            .collect();
        let missing = warned.iter().find(|(line, words)| {
            !told.iter().any(|(at, message)| at == line && message.contains(words))
        });
        if let Some((line, words)) = missing {
            wrong += &format!("{file}:{line} is not warned of {words:?}: {told:#?}\n");
        }
        if told.len() != warned.len() {
            wrong += &format!(
                "{file} is warned of {} times, not {}: {told:#?}\n",
                told.len(),
                warned.len()
            );
        }
        for (line, message) in told {
            let comment = format!("# line {line}: {message}");
            assert!(toml.lines().any(|written| written == comment), "{file}: {comment}\n{toml}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn config(name: &str, text: &str) -> Config {
    let toml = import(Path::new(name), text, &Options::default()).toml.unwrap();
    parse("defib.toml", &toml).config.unwrap()
}

/// What the first agent prints, run as it would be.
fn printed(config: &Config, variables: &[(&str, &str)]) -> String {
    let agent = &config.agents[0];
    let mut command = match &agent.command {
        Command::Shell(line) => {
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(["-c", line]);
            shell
        }
        Command::Words(words) => {
            let mut program = std::process::Command::new(&words[0]);
            program.args(&words[1..]);
            program
        }
    };
    command.env_clear().env("PATH", std::env::var("PATH").unwrap());
    command.envs(&agent.env).envs(variables.iter().copied());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn what_is_filled_in_from_the_environment_is_filled_in_when_it_runs() {
    let compose = "services:\n  a:\n    command: printf '%s|' ${A:-x y} $$B \"it's `date`\" ${C}\n    \
                   environment: { C: \"<${A}>\" }\n";
    // The variable of the service itself is not what compose fills in with.
    let of_compose = config("compose.yml", compose);
    assert_eq!(printed(&of_compose, &[]), "x y|$B|it's `date`||");
    assert_eq!(printed(&of_compose, &[("A", "$(1)")]), "$(1)|$B|it's `date`||");
    let ini = "[program:a]\ncommand=printf '%%s|' \"%(ENV_A)s b\" $HOME ; comment\nenvironment=D=\"%(ENV_A)s\"\n";
    assert_eq!(printed(&config("a.conf", ini), &[("A", "'1'")]), "'1' b|$HOME|");
    let procfile = "a: printf '%s|' $PORT \"$A\"";
    assert_eq!(printed(&config("Procfile", procfile), &[("A", "1  2")]), "5000|1  2|");
}

#[test]
fn a_script_is_refused_with_the_way_to_json() {
    let (text, imported) = imported(&folder("pm2").join("refused.config.js"));
    assert!(imported.toml.is_none());
    let told = Report::new("ecosystem.config.js", &text, &imported.diagnostics).render(false);
    assert!(told.contains("JSON.stringify"), "{told}");
}

#[test]
fn a_file_without_anything_to_run_is_an_error_that_says_so() {
    for (name, text) in [
        ("Procfile", "# nothing\n"),
        ("a.conf", "[supervisord]\n"),
        ("a.conf", "[program:a]\nautostart=true\n"),
        ("ecosystem.json", "{}"),
        ("ecosystem.json", "{ \"apps\": [{}] }"),
        ("ecosystem.json", "{ \"apps\": 1 }"),
        ("ecosystem.json", "{ nonsense"),
        ("compose.yml", "services: {}\n"),
        ("compose.yml", "version: 3\n"),
        ("compose.yml", "services: [\n"),
    ] {
        let imported = import(Path::new(name), text, &Options::default());
        assert!(imported.toml.is_none(), "{name}: {text}");
        assert!(!imported.diagnostics.is_empty(), "{name}: {text}");
    }
}

#[test]
fn the_format_that_is_named_counts_and_not_the_name_of_the_file() {
    let options = Options { format: Some(Format::Procfile), ..Options::default() };
    let imported = import(Path::new("compose.yml"), "web: ./serve\n", &options);
    assert!(imported.toml.unwrap().contains("./serve"));
}

#[test]
fn no_part_of_a_sample_makes_it_panic() {
    for format in ["procfile", "supervisord", "pm2", "compose"] {
        for entry in std::fs::read_dir(folder(format)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let ends = text.char_indices().map(|(at, _)| at).step_by(7);
            for end in ends {
                let _ = import(&path, &text[..end], &Options::default());
                let _ = import(&path, &text[end..], &Options::default());
            }
        }
    }
}
