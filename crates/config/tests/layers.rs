//! Preset, then defaults, then the agent: what each leaves out is what the one beneath says.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use defib_config::config::{Agent, Command, Config};
use defib_config::parse_in;
use defib_core::backoff::{Backoff, Growth};
use defib_core::class::Class;
use defib_core::limit::{Limit, Span};
use defib_core::policy::{Heartbeat, Mode, Order, Policy, Ready, Reset, Trigger};
use defib_core::preset::Preset;

fn config(text: &str) -> Config {
    let outcome = parse_in(Path::new("/srv/night"), text);
    outcome.config.unwrap_or_else(|| panic!("{:#?}", outcome.diagnostics))
}

/// The first agent of a file with these defaults and these keys of its own.
fn agent(defaults: &str, own: &str) -> Agent {
    let text = format!("[defaults]\n{defaults}\n[agent.a]\ncommand = \"x\"\n{own}\n");
    config(&text).agents.remove(0)
}

fn policy(defaults: &str, own: &str) -> Policy {
    (*agent(defaults, own).policy).clone()
}

#[test]
fn a_preset_alone_is_the_presets_own_policy() {
    for preset in Preset::ALL {
        let own = format!("preset = \"{preset}\"");
        assert_eq!(policy("", &own), preset.policy(), "{preset}");
        assert_eq!(policy(&own, ""), preset.policy(), "{preset} by default");
    }
    assert_eq!(policy("", ""), Preset::Default.policy());
}

#[test]
fn a_partial_backoff_merges_over_the_presets() {
    let own = "preset = \"aivex\"\nbackoff = { base = \"7s\" }";
    let usual = Preset::Aivex.policy();
    let expected = Backoff { base: Duration::from_secs(7), ..usual.backoff };
    assert_eq!(policy("", own), Policy { backoff: expected, ..usual });
}

#[test]
fn limits_replace_the_presets_list() {
    let own = "preset = \"aivex\"\nlimits = [{ restarts = 3 }]";
    assert_eq!(policy("", own).limits, [Limit::restarts(3, Span::Lifetime)]);
    assert_eq!(policy("", "preset = \"aivex\"\nlimits = []").limits, []);
}

#[test]
fn the_agents_preset_replaces_the_default_one_but_other_defaults_lie_over_it() {
    let defaults = "preset = \"aide\"\nbackoff = { jitter = 0.5 }\nrestart = \"never\"";
    let got = policy(defaults, "preset = \"weft\"");
    let usual = Preset::Weft.policy();
    assert_eq!(got.backoff, Backoff { jitter: 0.5, ..usual.backoff });
    assert_eq!(got.limits, usual.limits);
    assert_eq!(got.reset, Reset::Window);
    assert_eq!(got.mode, Mode::Never);
}

#[test]
fn weft_restarts_always_unless_told_otherwise() {
    assert_eq!(policy("", "preset = \"weft\"").mode, Mode::Always);
    assert_eq!(policy("", "preset = \"weft\"\nrestart = \"on-failure\"").mode, Mode::OnFailure);
}

#[test]
fn tables_merge_key_by_key_and_lists_replace() {
    let defaults = r#"
        backoff = { kind = "linear", base = "2s" }
        env = { A = "1", B = "1" }
        on = { quota = "halt", error = "restart" }
        exit_codes = { 2 = "config", 3 = "auth" }
        heartbeat = { ttl = "10s", file = "alive" }
        log = { keep = 9 }
        limits_os = { memory = "1G", files = 10 }
        budget = { per_day = { usd = 1 }, balance = { scrip = 5 } }
        env_pass = ["A", "B"]
        capabilities = ["read:/"]
        limits = [{ restarts = 1 }, { restarts = 2 }]
    "#;
    let own = r#"
        backoff = { base = "3s" }
        env = { B = "2", C = "2" }
        on = { error = "halt" }
        exit_codes = { 3 = "billing" }
        heartbeat = { grace = "5s" }
        log = { max_size = "1M" }
        limits_os = { files = 20 }
        budget = { per_day = { tokens = 7 }, burn = "off" }
        env_pass = ["C"]
        capabilities = []
        limits = [{ restarts = 3 }]
    "#;
    let agent = agent(defaults, own);
    let policy = &agent.policy;
    assert_eq!(policy.backoff.growth, Growth::Linear);
    assert_eq!(policy.backoff.base, Duration::from_secs(3));
    let env: Vec<_> = agent.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=1", "B=2", "C=2"]);
    assert_eq!(policy.on[&Class::Quota], Order::Halt);
    assert_eq!(policy.on[&Class::Error], Order::Halt);
    assert_eq!(policy.exit_codes[&2], Class::Config);
    assert_eq!(policy.exit_codes[&3], Class::Billing);
    let beat = Heartbeat { ttl: Duration::from_secs(10), grace: Duration::from_secs(5) };
    assert_eq!(policy.heartbeat, Some(beat));
    assert_eq!(agent.heartbeat_file.as_deref(), Some(Path::new("alive")));
    assert_eq!((agent.log.max_size, agent.log.keep), (1 << 20, 9));
    assert_eq!((agent.limits_os.memory, agent.limits_os.files), (Some(1 << 30), Some(20)));
    assert_eq!(agent.budget.per_day.len(), 2);
    assert!((agent.budget.balance["scrip"] - 5.0).abs() < f64::EPSILON);
    assert_eq!(agent.env_pass, ["C"]);
    assert_eq!(agent.capabilities.as_deref(), Some(&[][..]));
    assert_eq!(policy.limits, [Limit::restarts(3, Span::Lifetime)]);
}

#[test]
fn a_probe_of_the_agents_own_replaces_the_default_one() {
    let agent = agent("probe = { http = \"http://x\", failures = 9 }", "probe = { tcp = \"x:1\" }");
    assert_eq!(agent.probe.unwrap().failures, 3);
}

#[test]
fn exit_codes_of_the_file_lie_over_the_presets() {
    let got = policy("", "preset = \"aivex\"\nexit_codes = { 75 = \"quota\" }");
    assert_eq!(got.exit_codes.len(), 2);
    let got = policy("", "preset = \"aivex\"\nexit_codes = { 2 = \"error\" }");
    assert_eq!(got.exit_codes[&2], Class::Error);
}

#[test]
fn heartbeats_have_no_grace_unless_set_and_merge_over_the_presets() {
    let second = Duration::from_secs(1);
    let got = policy("", "heartbeat = { ttl = \"1s\" }").heartbeat;
    assert_eq!(got, Some(Heartbeat { ttl: second, grace: Duration::ZERO }));
    let got = policy("", "preset = \"aivex\"\nheartbeat = { grace = \"1s\" }").heartbeat;
    assert_eq!(got, Some(Heartbeat { ttl: 120 * second, grace: second }));
}

#[test]
fn a_set_stable_after_has_its_meaning_over_every_preset() {
    for (preset, reset) in [
        ("default", Reset::Stable),
        ("aide", Reset::Stable),
        ("ecology", Reset::Beat),
        ("weft", Reset::Stable),
    ] {
        let got = policy("", &format!("preset = \"{preset}\"\nstable_after = \"5s\""));
        assert_eq!((got.reset, got.stable_after), (reset, Duration::from_secs(5)), "{preset}");
    }
}

#[test]
fn ready_and_trigger_reach_the_policy() {
    assert_eq!(policy("", "ready = \"spawn\"").ready, Ready::AtSpawn);
    assert_eq!(policy("", "ready = \"notify\"").ready, Ready::WhenTold);
    assert_eq!(policy("", "ready = \"probe\"\nprobe.tcp = \"x:1\"").ready, Ready::WhenTold);
    assert_eq!(policy("", "trigger = \"boot\"").trigger, Trigger::Boot);
    let cron = agent("trigger = \"cron: 0 3 * * * \"", "");
    assert_eq!((cron.policy.trigger, cron.cron.as_deref()), (Trigger::Cron, Some("0 3 * * *")));
}

#[test]
fn a_default_command_and_its_shell_are_everybodys() {
    let config = config("[defaults]\ncommand = \"a | b\"\nshell = true\n[agent.x]\n[agent.y]\n");
    assert_eq!(config.agents.len(), 2);
    assert_eq!(config.agents[1].command, Command::Shell("a | b".to_owned()));
}

#[test]
fn a_default_wait_does_not_make_an_agent_wait_for_itself() {
    let config = config(
        "[defaults]\nafter = [\"db\"]\n[agent.db]\ncommand = \"x\"\n[agent.web]\ncommand = \"x\"\n",
    );
    assert!(config.agents[0].after.is_empty());
    assert_eq!(config.agents[1].after.len(), 1);
}

#[test]
fn the_folder_names_the_project_unless_the_file_does() {
    let named = |folder: &str, text: &str| {
        let outcome = parse_in(Path::new(folder), text);
        outcome.config.map(|config| config.project.to_string())
    };
    assert_eq!(named("/srv/My Agents", ""), Some("My-Agents".to_owned()));
    assert_eq!(named("/srv/x", "[project]\nname = \"y\""), Some("y".to_owned()));
    assert_eq!(named("/", "project.name = \"y\""), Some("y".to_owned()));
    let outcome = parse_in(Path::new("/"), "");
    assert_eq!(outcome.config, None);
    assert!(outcome.diagnostics[0].help.as_deref().unwrap().contains("[project]"));
}
