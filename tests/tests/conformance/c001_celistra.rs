//! Celistra: five deaths in any minute, on the virtual clock.

use std::time::Duration;

use defib_config::Severity;
use defib_core::limit::Limit;
use defib_core::policy::Mode;
use defib_core::{Continuity, Input, Scope, State, What};
use serde_json::json;

use crate::bench::{Bench, secs};
use crate::stage::{clean, play, play_for, said, supervise, topology};

fn request(more: &serde_json::Value) -> defib_config::Config {
    let mut request = json!({ "name": "a", "command": ["agent"], "autoRestart": true });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    clean("spawn.json", &request.to_string())
}

fn auto() -> defib_config::Config {
    request(&json!({}))
}

#[test]
fn c001_01_auto_restart_alone_is_five_deaths_in_sixty_seconds() {
    let policy = &auto().agents[0].policy;
    assert_eq!(policy.limits, [Limit::deaths(5, Duration::from_secs(60))]);
    assert_eq!(policy.mode, Mode::OnFailure);
}

#[test]
fn c001_02_the_fifth_death_in_a_minute_is_the_last() {
    let played = play(&auto(), "exit 1");
    assert_eq!((played.runs(), played.state()), (5, State::CrashedOut), "four respawns");
}

#[test]
fn c001_03_a_transient_error_is_respawned_and_decays() {
    let played = play(&auto(), "run 50ms exit 1; run 2h exit 1; run 50ms exit 1; run 2h exit 0");
    assert_eq!((played.runs(), played.state()), (4, State::Done));
}

#[test]
fn c001_04_a_hundred_deaths_an_hour_apart_are_no_crash_loop() {
    let played = play_for(&auto(), "run 1h exit 1", Duration::from_secs(100 * 3600 + 1));
    assert_eq!((played.runs(), played.state()), (101, State::Running));
}

#[test]
fn c001_05_the_window_is_rolling() {
    let mut bench = supervise(&auto());
    for at in [0, 15, 30, 45] {
        bench.exit("a", 1);
        assert_eq!(bench.state("a"), State::Running, "{at}");
        bench.pass(secs(15));
    }
    // The first is sixty seconds old: it is out.
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::Running);
    bench.pass(Duration::from_millis(14_999));
    bench.exit("a", 1);
    assert_eq!(bench.state("a"), State::CrashedOut, "five that are less than sixty seconds old");
}

#[test]
fn c001_06_there_is_no_backoff() {
    let played = play(&auto(), "exit 1");
    assert_eq!(played.delays_ms(), [0; 4]);
    assert_eq!(played.ended_s(), 0.0);
}

#[test]
fn c001_07_exit_code_zero_is_not_respawned() {
    let played = play(&auto(), "run 47m exit 0");
    assert_eq!((played.runs(), played.state()), (1, State::Done));
}

#[test]
fn c001_08_respawn_on_zero_makes_it_be_reborn() {
    let config = request(&json!({ "respawnOnZero": true }));
    let played = play_for(&config, "run 47m exit 0", Duration::from_secs(3 * 3600));
    assert_eq!((played.runs(), played.state()), (4, State::Running));
}

#[test]
fn c001_09_reborn_at_once_again_and_again_is_a_crash_loop() {
    let played = play(&request(&json!({ "respawnOnZero": true })), "exit 0");
    assert_eq!((played.runs(), played.state()), (5, State::CrashedOut));
}

#[test]
fn c001_10_every_non_zero_exit_is_respawned() {
    for code in [1, 2, 64, 255] {
        let played = play(&auto(), &format!("exit {code}; exit 0"));
        assert_eq!(played.runs(), 2, "exit {code}");
    }
}

#[test]
fn c001_11_a_death_by_signal_is_respawned() {
    for signal in ["KILL", "SEGV", "TERM"] {
        let played = play(&auto(), &format!("signal {signal}; exit 0"));
        assert_eq!(played.runs(), 2, "{signal}");
    }
}

#[test]
fn c001_12_a_typo_in_the_command_is_a_death_like_any_other() {
    let played = play(&auto(), "spawn-error");
    assert_eq!((played.runs(), played.state()), (5, State::CrashedOut));
}

#[test]
fn c001_13_an_error_of_the_model_counts_like_any_other() {
    for class in ["overload", "network", "throttle", "quota", "auth"] {
        let played = play(&auto(), &format!("class {class}"));
        assert_eq!((played.runs(), played.state()), (5, State::CrashedOut), "{class}");
    }
}

#[test]
fn c001_14_one_a_day_allows_no_respawn() {
    let config = request(&json!({ "maxDeaths": 1, "windowSeconds": 86400 }));
    let played = play(&config, "run 1h exit 1");
    assert_eq!((played.runs(), played.state()), (1, State::CrashedOut));
}

#[test]
fn c001_15_thirty_a_minute_allows_twenty_nine_respawns() {
    let config = request(&json!({ "maxDeaths": 30, "windowSeconds": 60 }));
    let played = play(&config, "exit 1");
    assert_eq!((played.runs(), played.state()), (30, State::CrashedOut));
}

#[test]
fn c001_16_one_number_can_be_tuned_without_the_other() {
    let deaths = request(&json!({ "maxDeaths": 3 }));
    assert_eq!(deaths.agents[0].policy.limits, [Limit::deaths(3, Duration::from_secs(60))]);
    let window = request(&json!({ "windowSeconds": 10.5 }));
    assert_eq!(window.agents[0].policy.limits, [Limit::deaths(5, Duration::from_millis(10_500))]);
}

#[test]
fn c001_17_without_auto_restart_nothing_is_respawned() {
    for more in [json!({ "autoRestart": false }), json!({ "autoRestart": null })] {
        let played = play(&request(&more), "exit 1");
        assert_eq!((played.runs(), played.state()), (1, State::Stopped), "{more}");
    }
}

#[test]
fn c001_18_a_manual_stop_is_not_respawned() {
    let mut bench = supervise(&auto());
    bench.tell(Input::StopAsked { scope: Scope::All, kill: false }).unwrap();
    bench.pass(secs(3600));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::Stopped, 1));
    let mut bench = supervise(&auto());
    bench.tell(Input::StopAsked { scope: Scope::All, kill: true }).unwrap();
    assert_eq!(bench.state("a"), State::Stopped, "by the kill button too");
}

fn crashed_out() -> Bench {
    let mut bench = supervise(&auto());
    bench.crash_loop("a", 10);
    assert_eq!(bench.state("a"), State::CrashedOut);
    bench
}

#[test]
fn c001_19_crashed_out_stays_down_whatever_time_passes() {
    let mut bench = crashed_out();
    bench.pass(secs(30 * 86_400));
    assert_eq!((bench.state("a"), bench.runs("a")), (State::CrashedOut, 5));
}

#[test]
fn c001_20_only_the_explicit_gesture_brings_it_back() {
    let mut bench = crashed_out();
    assert!(bench.tell(Input::StartAsked(Scope::All)).is_err() || bench.runs("a") == 5);
    let agent = Scope::Agent(bench.id("a"));
    let refused = bench.tell(Input::StartAsked(agent.clone())).unwrap_err();
    assert!(refused.to_string().contains("revive"), "{refused}");
    bench.tell(Input::ReviveAsked(agent)).unwrap();
    assert_eq!(bench.state("a"), State::Running);
}

#[test]
fn c001_21_after_it_the_window_is_empty() {
    let mut bench = crashed_out();
    bench.tell(Input::ReviveAsked(Scope::Agent(bench.id("a")))).unwrap();
    assert_eq!(bench.crash_loop("a", 10).len(), 4, "four respawns again");
}

#[test]
fn c001_22_a_reboot_is_a_free_respawn_with_an_empty_window() {
    let config = auto();
    let mut bench = supervise(&config);
    for _ in 0..4 {
        bench.exit("a", 1);
    }
    bench.succeed(topology(&config), Continuity::Reboot);
    bench.tell(Input::Booted).unwrap();
    let (agent, run) = (bench.id("a"), bench.supervisor.sight(bench.id("a")).run.unwrap());
    assert_eq!(run.0, 6, "it runs again");
    for left in [State::Running, State::Running, State::Running, State::Running, State::CrashedOut]
    {
        let run = bench.supervisor.sight(agent).run.unwrap();
        let report = defib_core::run::Status::Exited(1).into();
        bench.tell(Input::Exited { agent, run, report }).unwrap();
        assert_eq!(bench.supervisor.sight(agent).state, left);
    }
}

#[test]
fn c001_39_without_auto_restart_a_reboot_respawns_nothing() {
    let config = request(&json!({ "autoRestart": false }));
    for closes in [false, true] {
        let mut bench = supervise(&config);
        if closes {
            bench.tell(Input::CloseAsked).unwrap();
        }
        bench.succeed(topology(&config), Continuity::Reboot);
        bench.tell(Input::Booted).unwrap();
        let sight = bench.supervisor.sight(bench.id("a"));
        assert_eq!((sight.state, sight.run.unwrap().0), (State::Stopped, 1));
    }
}

#[test]
fn c001_23_a_changed_command_is_a_new_spawn() {
    let config = auto();
    let mut bench = supervise(&config);
    for _ in 0..4 {
        bench.exit("a", 1);
    }
    let mut changed = topology(&config);
    changed.agents[0].generation += 1;
    bench.tell(Input::Apply(Box::new(changed))).unwrap();
    bench.pass(secs(1));
    assert_eq!(bench.crash_loop("a", 10).len(), 4, "with a ceiling of its own");
}

#[test]
fn c001_24_every_death_is_told_with_its_exit_code() {
    let mut bench = supervise(&auto());
    for code in 1..=5 {
        bench.exit("a", code);
    }
    let codes: Vec<i32> = bench
        .told("a")
        .filter_map(|what| match what {
            What::RunDied { exit_code, .. } => *exit_code,
            _ => None,
        })
        .collect();
    assert_eq!(codes, [1, 2, 3, 4, 5]);
}

#[test]
fn c001_25_a_mistake_in_a_request_has_its_line() {
    let text = "{\n  \"name\": \"a\",\n  \"command\": \"x\",\n  \"autoRestart\": \"yes\",\n  \"maxDeths\": 3\n}";
    let told: Vec<_> = said("spawn.json", text).into_iter().map(|(s, line, _)| (s, line)).collect();
    assert_eq!(told, [(Severity::Error, 4), (Severity::Warning, 5)]);
}
