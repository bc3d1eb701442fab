//! Two projects with agents and groups of the same names in one home: neither gets in the other's way.

use std::path::PathBuf;

use defib_e2e::{Bench, Ran, pid_in, proc};
use serde_json::Value;

use crate::bench;

/// Writes a project with an agent `web`, another after it, and a group of both.
fn declare(bench: &Bench, project: &str, script: &str) -> String {
    let folder: PathBuf = bench.project().join(project);
    std::fs::create_dir_all(&folder).unwrap();
    let text = [
        format!("[project]\nname = \"{project}\"\n[defaults]\nstop_timeout = \"1s\"\n"),
        bench.agent("web", &format!("print '{project} web' {script}"), ""),
        bench.agent("side", "forever", "after = [\"web\"]"),
        "[group.pair]\nmembers = [\"web\", \"side\"]\n".to_owned(),
    ];
    let path = folder.join("defib.toml");
    std::fs::write(&path, text.join("\n")).unwrap();
    path.display().to_string()
}

fn up(bench: &Bench, project: &str, script: &str) -> String {
    let file = declare(bench, project, script);
    bench.defib(&["up", "--detach", "-f", &file]).good();
    file
}

fn names(bench: &Bench) -> Vec<String> {
    let name = |status: &Value| status["name"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = bench.statuses().iter().map(name).collect();
    all.sort();
    all
}

/// That a plain name is refused, by something that names both.
fn says_which(ran: Ran, name: &str) {
    let ran = ran.bad(2);
    for project in ["day", "night"] {
        assert!(ran.err.contains(&format!("{project}/{name}")), "{}", ran.err);
    }
}

const BOTH: [&str; 4] = ["day/side", "day/web", "night/side", "night/web"];

#[test]
fn agents_of_two_projects_share_a_name_and_nothing_else() {
    let bench = bench();
    up(&bench, "day", "forever");
    let day = bench.pid("web");
    assert_eq!(names(&bench), ["side", "web"], "alone it needs no project");
    assert_eq!(bench.pid("day/web"), day, "and may be called by it");
    bench.defib(&["status", "night/web"]).bad(5);

    let file = up(&bench, "night", "forever");
    assert_eq!(names(&bench), BOTH);
    let night = bench.pid("night/web");
    assert_eq!(bench.pid("day/web"), day, "who was there runs on");
    assert_ne!(day, night);
    for command in ["status", "stop", "why", "history", "logs", "attach", "caps"] {
        says_which(bench.defib(&[command, "web"]), "web");
    }
    says_which(bench.defib(&["restart", "pair"]), "pair");

    for project in ["day", "night"] {
        let name = format!("{project}/web");
        let logs = bench.defib(&["logs", &name]).good().out;
        assert_eq!(logs, format!("{project} web\n"));
        assert_eq!(bench.history(&name).len(), 1);
        assert_eq!(bench.history(&name)[0]["agent"], name.as_str());
    }
    let both = bench.defib(&["logs", "day/web", "night/web"]).good().out;
    assert!(both.contains("day/web   | day web") || both.contains("day/web | day web"), "{both}");
    assert!(both.contains("night/web | night web"), "{both}");

    let events = bench.events();
    proc::kill(night, "KILL");
    events.of_run("night/web", 2, "run-ready");
    assert_eq!(bench.history("night/web").len(), 2);
    assert_eq!(bench.history("day/web").len(), 1, "one's death is not in the other's history");
    let why = bench.defib(&["why", "night/web"]).good().out;
    assert!(why.contains("SIGKILL") && why.contains("night/web"), "{why}");

    bench.defib(&["stop", "night/web"]).good();
    bench.await_state("night/web", "stopped");
    assert_eq!(bench.pid("day/web"), day, "a stop of one leaves the other");
    bench.defib(&["restart", "night/pair"]).good();
    assert_ne!(bench.pid("night/web"), night);
    assert_eq!(bench.pid("day/web"), day, "so does what is done to a group");

    bench.kill_daemon();
    assert_eq!(names(&bench), BOTH, "the next daemon knows them both");
    assert_eq!(bench.pid("day/web"), day);
    says_which(bench.defib(&["stop", "web"]), "web");

    bench.defib(&["down", "-f", &file]).good();
    assert_eq!(names(&bench), ["night/side", "night/web", "side", "web"], "web is day's again");
    assert_eq!(pid_in(&bench.status("web")), day);
    assert_eq!(bench.status("night/web")["state"], "stopped");
    bench.defib(&["stop", "pair"]).good();
    assert_eq!(bench.status("web")["state"], "stopped");
}

#[test]
fn a_refusal_says_the_name_by_which_it_can_be_asked_for_again() {
    let bench = bench();
    for project in ["day", "night"] {
        up(&bench, project, "exit 1");
    }
    bench.await_state("night/web", "crashed-out");
    let refused = bench.defib(&["start", "night/web"]).bad(6);
    assert!(refused.err.contains("night/web is crashed-out"), "{refused:?}");
    assert!(refused.err.contains("`defib revive night/web`"), "{refused:?}");
}

#[test]
fn each_of_two_projects_is_planned_and_reloaded_by_its_own_names() {
    let bench = bench();
    let files = ["day", "night"].map(|project| up(&bench, project, "forever"));
    let pids = ["day/web", "day/side", "night/web", "night/side"].map(|name| bench.pid(name));
    for file in &files {
        let plan = bench.defib(&["plan", "-f", file]).good();
        assert_eq!(plan.out, "nothing changes\n");
    }
    let events = bench.events();
    declare(&bench, "night", "print anew forever");
    let plan = bench.defib(&["plan", "--json", "-f", &files[1]]).good().json();
    assert_eq!(plan["restarted"], serde_json::json!(["web"]));
    assert_eq!(plan["unchanged"], serde_json::json!(["side"]));
    bench.defib(&["reload", "-f", &files[1]]).good();
    events.of_run("night/web", 2, "run-ready");
    assert_eq!(bench.pid("day/web"), pids[0], "the other project's is not touched");
    assert_eq!(bench.pid("day/side"), pids[1]);
    assert_ne!(bench.pid("night/web"), pids[2]);
    assert_eq!(bench.pid("night/side"), pids[3]);
}

#[test]
fn who_has_which_name_is_the_same_after_everything_has_been_down() {
    let bench = bench();
    for project in ["day", "night"] {
        up(&bench, project, "forever");
    }
    bench.pid("night/web");
    bench.defib(&["down", "--all"]).good();

    up(&bench, "night", "forever");
    bench.pid("web");
    assert_eq!(names(&bench), ["side", "web"], "the other is not there");
    assert_eq!(bench.history("web").len(), 2, "its own runs, and not those of the other");
    assert_eq!(bench.status("web")["run"], 2);
    assert!(bench.log("night+web").contains("night web"));
    let all = bench.defib(&["history", "--json"]).good().json();
    let of = |name: &str| all.as_array().unwrap().iter().filter(|run| run["agent"] == name).count();
    assert_eq!((of("web"), of("day/web")), (2, 1), "{all}");

    up(&bench, "day", "forever");
    bench.pid("day/web");
    assert_eq!(names(&bench), BOTH);
    assert_eq!(bench.history("day/web").len(), 2);
    assert!(bench.log("web").contains("day web"));
    assert!(!bench.log("web").contains("night web"));

    bench.kill_both();
    bench.defib(&["up", "--detach", "-f", &declare(&bench, "night", "forever")]).good();
    bench.pid("night/web");
    assert_eq!(names(&bench), BOTH, "both come back, each as itself");
}

#[test]
fn the_api_takes_both_forms_and_gives_names_that_it_takes() {
    let bench = bench();
    for project in ["day", "night"] {
        up(&bench, project, "forever");
    }
    let ambiguous = bench.look("/api/v1/agents/web");
    assert_eq!(ambiguous.code, 400);
    let full = bench.look("/api/v1/agents/night%2Fweb");
    assert_eq!(full.json()[0]["project"], "night");
    for status in bench.look("/api/v1/agents").json().as_array().unwrap() {
        let name = status["name"].as_str().unwrap().replace('/', "%2F");
        for below in ["", "/runs", "/why", "/logs", "/policy", "/caps", "/ledger", "/usage"] {
            let reply = bench.look(&format!("/api/v1/agents/{name}{below}"));
            assert_eq!(reply.code, 200, "{name}{below}");
        }
    }
    let groups = bench.look("/api/v1/groups").json();
    assert_eq!(groups[0]["name"], "day/pair");
    assert_eq!(groups[1]["members"][0]["name"], "night/web");
    let metrics = bench.look("/metrics").body;
    for project in ["day", "night"] {
        let of = format!("agent=\"web\",project=\"{project}\"");
        assert!(metrics.contains(&of), "{of}: {metrics}");
    }
}
