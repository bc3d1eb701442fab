//! AIVEX: modules as real processes: modes, status line, start-up validation.

use defib_e2e::Bench;

use crate::FAKE_AGENT;

/// The document's five modules.
const MODULES: [&str; 5] = ["news", "chart", "metrics", "brain", "eye"];

/// A project of modules whose runner does, for each, what a line of it says.
fn project(script: &str, modules: &[&str]) -> Bench {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let runner = format!("MODULE_REGISTRY=\"x\" # {{'x'}}\n{script}\n");
    std::fs::write(bench.project().join("runner.sh"), runner).unwrap();
    let mut text = "[project]\nname = \"aivex\"\n".to_owned();
    for module in modules {
        std::fs::create_dir(bench.project().join(module)).unwrap();
        text += &format!("[module.{module}]\nrunner = \"runner.sh\"\nstop_timeout = \"1s\"\n");
    }
    bench.config(&text);
    bench
}

#[test]
fn c003_24_the_status_line_has_the_exact_format() {
    let bench = project("exec sleep 1000", &MODULES);
    let lines = bench.lines(&["up", "--mode", "dev", "--status-line", "1s"]);
    let wanted = "[AIVEX] news=RUNNING(0) chart=RUNNING(0) metrics=RUNNING(0) brain=RUNNING(0) eye=RUNNING(0)";
    lines.until(|line| line == wanted);
}

#[test]
fn c003_25_every_state_has_its_word() {
    let script = "case $1 in done) exit 0;; fix) exit 2;; slow) exit 1;; loop) exit 1;; out) exit 1;; esac; exec sleep 1000";
    let bench = project(script, &["up", "done", "fix", "slow"]);
    let mut text = std::fs::read_to_string(bench.project().join("defib.toml")).unwrap();
    for (name, limit) in
        [("loop", "{ deaths = 2, within = \"300s\" }"), ("out", "{ restarts = 1 }")]
    {
        std::fs::create_dir(bench.project().join(name)).unwrap();
        text += &format!(
            "[module.{name}]\nrunner = \"runner.sh\"\nlimits = [{limit}]\nbackoff = {{ kind = \"none\" }}\n"
        );
    }
    bench.config(&text);
    let lines = bench.lines(&["up", "--mode", "dev", "--status-line", "1s"]);
    let wanted = "[AIVEX] up=RUNNING(0) done=STOPPED(0) fix=CRASHED(0) slow=RESTARTING(0) loop=LOOP_DETECTED(1) out=CRASHED(1)";
    lines.until(|line| line == wanted);
}

#[test]
fn c003_26_once_runs_every_module_for_one_cycle_and_exits() {
    let bench = project("echo cycle of $1", &["news", "chart"]);
    bench.defib(&["up", "--mode", "once"]).good();
    for name in ["news", "chart"] {
        assert_eq!(bench.log(name), format!("cycle of {name}\n"));
    }
    bench.defib(&["status"]).bad(4);
}

#[test]
fn c003_27_once_says_when_a_module_failed_and_restarts_nothing() {
    let bench = project("echo cycle; test $1 = news", &["news", "chart"]);
    let told = bench.defib(&["up", "--mode", "once"]).bad(1);
    assert!(told.out.contains("error exit 1"), "{}", told.out);
    assert_eq!(bench.log("chart"), "cycle\n");
}

#[test]
fn c003_28_continuous_starts_with_pauses_and_dev_without_and_tells_more() {
    let bench = project("echo mode $DEFIB_MODE; exec sleep 1000", &["news", "chart"]);
    bench.defib(&["up", "--detach"]).good();
    let events = bench.events();
    events.of("chart", "wait-ended");
    bench.await_log("chart", |log| log.contains("mode continuous"));
    bench.defib(&["down", "--all"]).good();

    let bench = project("echo mode $DEFIB_MODE; exec sleep 1000", &["news", "chart"]);
    let lines = bench.lines(&["up", "--mode", "dev"]);
    let told = lines.until(|line| line.contains("chart") && line.contains("run-ready"));
    assert!(
        told.iter().any(|line| line.contains("news") && line.contains("run-started")),
        "{told:#?}"
    );
    assert!(!told.iter().any(|line| line.contains("wait-started")), "no pause: {told:#?}");
    bench.await_log("chart", |log| log.contains("mode dev"));
}

#[test]
fn c003_29_a_missing_or_empty_runner_is_a_warning() {
    let bench = project("exit 0", &["news"]);
    std::fs::remove_file(bench.project().join("runner.sh")).unwrap();
    let told = bench.defib(&["up", "--detach"]).good().err;
    assert!(told.contains("runner.sh is not there"), "{told}");
    std::fs::write(bench.project().join("runner.sh"), "").unwrap();
    let told = bench.defib(&["up", "--detach"]).good().err;
    assert!(told.contains("runner.sh is empty"), "{told}");
}

#[test]
fn c003_30_a_missing_package_is_a_warning() {
    let bench = project("exec sleep 1000", &["news", "chart"]);
    std::fs::remove_dir(bench.project().join("chart")).unwrap();
    let told = bench.defib(&["up", "--detach"]).good().err;
    assert!(told.contains("chart: its package"), "{told}");
    assert!(!told.contains("news: its package"), "{told}");
    bench.await_state("chart", "running");
}

#[test]
fn c003_31_a_module_that_is_not_registered_is_a_warning() {
    let bench = project("exec sleep 1000", &["news", "chart"]);
    let registry = "MODULE_REGISTRY = {\n    'news': 'news.main',\n}\n";
    std::fs::write(bench.project().join("registry.py"), registry).unwrap();
    let text = std::fs::read_to_string(bench.project().join("defib.toml")).unwrap();
    let text = text.replace("stop_timeout", "registry = \"registry.py\"\nstop_timeout");
    bench.config(&text);
    let told = bench.defib(&["up", "--detach"]).good().err;
    assert!(told.contains("chart: it is not in the MODULE_REGISTRY"), "{told}");
    assert!(!told.contains("news: it is not"), "{told}");
    std::fs::remove_file(bench.project().join("registry.py")).unwrap();
    let told = bench.defib(&["up", "--detach"]).good().err;
    let missing = told.lines().filter(|line| line.contains("registry.py is not there"));
    assert_eq!(missing.count(), 1, "{told}");
}

#[test]
fn c003_32_validation_comes_first_in_its_order_and_keeps_nothing_down() {
    let bench = project("exec sleep 1000", &["news"]);
    std::fs::remove_dir(bench.project().join("news")).unwrap();
    let told = bench.defib(&["up", "--detach"]).good();
    let (package, registry) =
        (told.err.find("its package").unwrap(), told.err.find("MODULE_REGISTRY").unwrap());
    assert!(package < registry, "{}", told.err);
    bench.await_state("news", "running");
}

#[test]
fn c003_33_last_activity_is_in_the_status() {
    let bench = project("echo hello; exec sleep 1000", &["news"]);
    bench.defib(&["up", "--detach"]).good();
    bench.await_log("news", |log| log.contains("hello"));
    let status = bench.await_status("news", |status| status["last_activity_at"].is_string());
    assert!(status["last_activity_at"].as_str().unwrap().ends_with('Z'), "{status}");
    let shown = bench.defib(&["status"]).good().out;
    assert!(shown.lines().next().unwrap().contains("LAST ACTIVITY"), "{shown}");
    assert!(shown.lines().nth(1).unwrap().contains(" ago"), "{shown}");
}

#[test]
fn c003_34_variables_of_the_caller_hold_for_what_is_up() {
    let mut bench = project("exit 1", &["news"]);
    bench.set("WATCHDOG_MAX_RESTARTS", "1");
    bench.set("WATCHDOG_BACKOFF", "0.01");
    bench.defib(&["up", "--detach"]).good();
    let status = bench.await_state("news", "crashed-out");
    assert_eq!(status["restarts"], 1, "{status}");
    bench.set("WATCHDOG_BACKOFF", "soon");
    let told = bench.defib(&["check"]).bad(3).err;
    assert!(told.contains("WATCHDOG_BACKOFF"), "{told}");
}

#[test]
fn c003_35_a_folder_of_modules_is_imported() {
    let bench = defib_e2e::bench(FAKE_AGENT);
    let folder = bench.project().join("watchdog");
    std::fs::create_dir(&folder).unwrap();
    let registry = "MODULE_REGISTRY = {'news': 1, 'chart': 2, 'eye.v2': 3, 'no name': 4}\n";
    std::fs::write(folder.join("module_runner.py"), registry).unwrap();
    let toml = bench.defib(&["import", "--aivex", "."]).good().out;
    let config = defib_config::parse_in(&bench.project(), &toml).config.unwrap();
    let names: Vec<&str> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["news", "chart", "eye.v2"]);
    assert!(toml.contains("# The module \"no name\" is left out"), "{toml}");
    let runner = &config.agents[0].module.as_ref().unwrap().runner;
    assert_eq!(runner, std::path::Path::new("watchdog/module_runner.py"));
}

#[test]
fn c003_36_a_process_that_no_longer_writes_its_heartbeat_file_is_restarted() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do : > \"$DEFIB_HEARTBEAT_FILE\"; sleep 0.25; done\n\
                  echo silent; exec sleep 1000";
    let mut bench = project(script, &["news"]);
    bench.set("WATCHDOG_HEARTBEAT_TTL", "1");
    bench.set("WATCHDOG_BACKOFF", "0.05");
    bench.defib(&["up", "--detach"]).good();
    let events = bench.events();
    let died = events.of_run("news", 1, "run-died");
    assert_eq!(died["class"], "timeout", "{died}");
    assert!(died["ran_s"].as_f64().unwrap() >= 3.0, "its beats kept it alive: {died}");
    assert!(bench.log("news").contains("silent"));
    bench.await_status("news", |status| status["run"] == 2 && status["state"] == "running");
}
