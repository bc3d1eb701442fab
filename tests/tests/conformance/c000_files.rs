//! aide: Aidefiles as files, and what is run of them.

use std::path::Path;

use defib_config::config::Command;
use defib_config::{Options, Severity, load_with};
use defib_e2e::Bench;
use serde_json::json;

use crate::FAKE_AGENT;
use crate::stage::{clean, loaded, said};

fn words(command: &Command) -> Vec<String> {
    match command {
        Command::Words(words) => words.clone(),
        Command::Shell(line) => panic!("{line}"),
    }
}

fn bench() -> Bench {
    defib_e2e::bench(FAKE_AGENT)
}

fn write(bench: &Bench, path: &str, text: &str) {
    let path = bench.project().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn c000_31_without_a_runner_claude_gets_the_personas_style() {
    let config = clean("Aidefile", "[persona]\nname = \"a\"\nstyle = \"terse, kind\"\n");
    assert_eq!(words(&config.agents[0].command), ["claude", "-p", "terse, kind"]);
}

#[test]
fn c000_32_the_caller_goes_before_the_file_and_the_file_before_claude() {
    let bench = bench();
    let text = "[persona]\nname = \"a\"\n[run]\ncommand = [\"own\", \"words here\"]\n";
    write(&bench, "Aidefile", text);
    let of = |runner: Option<&str>| {
        let options = Options { runner: runner.map(str::to_owned), ..Options::default() };
        let loaded = load_with(&bench.project().join("Aidefile"), &options).unwrap();
        words(&loaded.outcome.config.unwrap().agents[0].command)
    };
    assert_eq!(of(None), ["own", "words here"]);
    assert_eq!(of(Some("theirs 'two words'")), ["theirs", "two words"]);
}

#[test]
fn c000_33_the_budget_bounds_tokens_and_time() {
    let text = "[persona]\nname = \"a\"\n[budget]\ntokens = \"200k\"\nmax_retries = 3\ntimeout = \"10m\"\n";
    let config = clean("Aidefile", text);
    let agent = &config.agents[0];
    assert_eq!(agent.budget.per_run.get("tokens"), Some(&200_000.0));
    assert_eq!(agent.policy.max_runtime, Some(std::time::Duration::from_secs(600)));
    assert_eq!(agent.env.get("AIDE_MAX_RETRIES").map(String::as_str), Some("3"));
}

#[test]
fn c000_34_the_sections_of_the_runner_are_no_concern() {
    let text = "[persona]\nname = \"a\"\n[memory]\ncompact_after = \"300k\"\n[hooks]\non_spawn = [\"x\"]\n\
                on_complete = [\"y\"]\n[skills]\ninclude = [\"z\"]\n[vault]\nkeys = [\"GITHUB_TOKEN\"]\n";
    let config = clean("Aidefile", text);
    let passed = &config.agents[0].env_pass;
    let takes = |name: &str| passed.iter().any(|passed| passed.takes(name));
    assert!(takes("GITHUB_TOKEN") && !takes("GITHUB_TOKEN_ADMIN"), "that and no other secret");
    assert!(passed.iter().all(|passed| passed.needed().is_none()), "the runner may do without");
}

#[test]
fn c000_35_what_is_unknown_is_a_warning_with_its_line() {
    let text = "[persona]\nname = \"a\"\nmood = \"good\"\n\n[weather]\nx = 1\n";
    let told = said("Aidefile", text);
    let places: Vec<_> = told.iter().map(|(severity, line, _)| (*severity, *line)).collect();
    assert_eq!(places, [(Severity::Warning, 3), (Severity::Warning, 5)]);
    assert!(loaded("Aidefile", text).outcome.config.is_some());
}

#[test]
fn c000_36_a_word_that_means_nothing_is_an_error_with_its_line() {
    for (line, what) in [("restart = \"often\"", "often"), ("backoff = \"expontial\"", "expontial")]
    {
        let text = format!("[persona]\nname = \"a\"\n[daemon]\n{line}\n");
        let told = said("Aidefile", &text);
        assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Error, 4), "{told:?}");
        assert!(told[0].2.contains(what), "{told:?}");
    }
    for keys in ["\"GITHUB_TOKEN\"", "[\"A\", 7]"] {
        let told = said("Aidefile", &format!("[persona]\nname = \"a\"\n[vault]\nkeys = {keys}\n"));
        assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Error, 4), "{told:?}");
    }
}

#[test]
fn c000_37_a_trigger_that_is_not_supported_is_said_and_waits_for_a_person() {
    let text = "[persona]\nname = \"a\"\n[trigger]\non = \"issue\"\n";
    let told = said("Aidefile", text);
    assert_eq!((told.len(), told[0].0, told[0].1), (1, Severity::Warning, 4), "{told:?}");
    let config = loaded("Aidefile", text).outcome.config.unwrap();
    assert_eq!(config.agents[0].policy.trigger, defib_core::policy::Trigger::Manual);
}

#[test]
fn c000_38_an_aidefile_comes_up_as_it_is() {
    let bench = bench();
    let command = json!([FAKE_AGENT, "env", "AIDE_STYLE", "cwd", "exit", "0"]);
    let text = format!("[persona]\nname = \"one\"\nstyle = \"calm\"\n[run]\ncommand = {command}\n");
    write(&bench, "Aidefile", &text);
    bench.defib(&["up", "-f", "Aidefile", "--detach"]).good();
    let status = bench.await_state("one", "done");
    assert_eq!(status["run"], 1, "without [daemon] it runs once");
    let log = bench.await_log("one", |log| log.lines().count() == 2);
    assert!(log.contains("AIDE_STYLE=calm"), "{log}");
}

#[test]
fn c000_39_a_folder_brings_up_every_aidefile_below_it() {
    let bench = bench();
    write(&bench, "fleet/one/Aidefile", "[persona]\nname = \"Ada L.\"\n");
    write(&bench, "fleet/deep/er/two/Aidefile", "[daemon]\n");
    write(&bench, "fleet/node_modules/x/Aidefile", "[persona]\nname = \"not\"\n");
    let runner = format!("{FAKE_AGENT} cwd forever");
    bench.defib(&["up", "-f", "fleet", "--detach", "--runner", &runner]).good();
    let names: Vec<String> = bench
        .statuses()
        .iter()
        .map(|status| {
            format!("{}/{}", status["project"].as_str().unwrap(), status["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&"fleet/Ada-L.".to_owned()), "by its persona: {names:?}");
    assert!(names.contains(&"fleet/two".to_owned()), "by its folder: {names:?}");
    let log = bench.await_log("two", |log| !log.is_empty());
    assert!(log.trim().ends_with("fleet/deep/er/two"), "it runs in its own folder: {log}");
}

#[test]
fn c000_40_two_agents_of_one_name_are_an_error_that_names_both_files() {
    let bench = bench();
    write(&bench, "fleet/a/Aidefile", "[persona]\nname = \"twin\"\n");
    write(&bench, "fleet/b/Aidefile", "[persona]\nname = \"twin\"\n");
    let told = bench.defib(&["check", "-f", "fleet"]).bad(3).err;
    assert!(told.contains("fleet/a/Aidefile") && told.contains("fleet/b/Aidefile:2"), "{told}");
    let empty = load_with(Path::new("/srv/none"), &Options::default());
    assert!(empty.is_err());
}

#[test]
fn c000_41_the_import_says_the_same() {
    let bench = bench();
    let text = "[persona]\nname = \"a\"\n[daemon]\nrestart = \"always\"\nbackoff = \"linear\"\nmax_restarts = 7\n";
    write(&bench, "Aidefile", text);
    let toml = bench.defib(&["import", "Aidefile"]).good().out;
    let imported = defib_config::parse_in(&bench.project(), &toml).config.unwrap();
    let direct = load_with(&bench.project().join("Aidefile"), &Options::default()).unwrap();
    assert_eq!(imported.agents, direct.outcome.config.unwrap().agents);
}

#[test]
fn c000_42_the_documents_files_pass_the_check_as_written() {
    let mut bench = bench();
    // What they run is there.
    let programs = bench.project().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/true", programs.join("claude")).unwrap();
    bench.set("PATH", &format!("{}:/usr/bin:/bin", programs.display()));
    for (file, text) in [
        ("monitor/Aidefile", include_str!("data/Aidefile.uptime-monitor")),
        ("block/Aidefile", include_str!("data/Aidefile.daemon")),
    ] {
        write(&bench, file, text);
        let checked = bench.defib(&["check", "-f", file]).good();
        assert_eq!(checked.err, "", "nothing is to be said of it");
    }
}

#[test]
fn c000_43_the_uptime_monitor_is_kept_alive_by_a_real_daemon() {
    let bench = bench();
    write(&bench, "Aidefile", include_str!("data/Aidefile.uptime-monitor"));
    let runner = format!("{FAKE_AGENT} exit 0");
    bench.defib(&["up", "-f", "Aidefile", "--detach", "--runner", &runner]).good();
    let status = bench.await_status("uptime-monitor", |status| status["next_at"].is_string());
    // A tick may come at any moment; before the first nothing has run.
    assert!(status["state"] == "idle" || status["run"].is_u64(), "{status}");
    bench.defib(&["start", "uptime-monitor", "--no-wait"]).good();
    let status = bench.await_status("uptime-monitor", |status| status["run"].as_u64() >= Some(3));
    assert_eq!(status["last_death"]["class"], "done", "respawned on success: {status}");
}
