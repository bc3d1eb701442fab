//! Units, manifests and jobs: that those who read them take them, and that they say what they must.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const PROJECT: &str = "\
[project]
name = \"Night_Shift\"
[agent.db]
command = \"sleep 1000\"
stop_timeout = \"40s\"
[agent.web]
command = [\"sleep\", \"it's {{ 1000 }}\"]
env_pass = [\"API_KEY\", \"XDG_*\"]
after = [\"db\"]
stop_timeout = \"20s\"
";

/// Files of other systems, with what the command line and the environment say of them.
const OTHERS: [(&str, &str, &[&str]); 3] = [
    (
        "Aidefile",
        "[persona]\nname = \"scout\"\n[daemon]\n[vault]\nkeys = [\"GITHUB_TOKEN\"]\n",
        &["--runner", "agent 'two words'", "--format", "aide"],
    ),
    ("weave.toml", "[[agent]]\nname = \"batch\"\ncommand = \"sleep 1000\"\n", &[]),
    ("defib.toml", "[module.news]\nrunner = \"module_runner.py\"\n", &[]),
];

fn defib(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("defib").unwrap();
    command
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("PATH", std::env::var("PATH").unwrap());
    command.env("XDG_CONFIG_HOME", folder.join("config dir")).args(arguments).output().unwrap()
}

fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = defib(folder, arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("defib.toml"), PROJECT).unwrap();
    folder
}

/// A judge is not there: that is said, and fails where `DEFIB_NEED_JUDGES` says that all are.
fn left_out(why: &str) {
    assert!(std::env::var_os("DEFIB_NEED_JUDGES").is_none(), "LEFT OUT: {why}");
    eprintln!("LEFT OUT: {why}");
}

/// Has systemd judge a unit, where it is installed.
fn verify(unit: &Path, scope: &str) {
    let judged = std::process::Command::new("systemd-analyze")
        .args(["verify", scope, "--recursive-errors=no", "--man=no"])
        .arg(unit)
        .env("XDG_RUNTIME_DIR", unit.parent().unwrap())
        .output();
    let Ok(judged) = judged else {
        left_out("systemd-analyze is not installed (Debian package systemd)");
        return;
    };
    let said = String::from_utf8_lossy(&judged.stderr).into_owned();
    assert!(judged.status.success() && said.trim().is_empty(), "{}: {said}", unit.display());
}

#[test]
fn systemd_takes_the_exported_unit_and_waits_long_enough() {
    let folder = project();
    let path = folder.path();
    for (scope, arguments) in [
        ("--system", vec!["export", "systemd"]),
        ("--user", vec!["export", "systemd", "--user"]),
        ("--system", vec!["--home", "a b%c", "export", "systemd"]),
    ] {
        let unit = good(path, &arguments);
        for line in
            ["TimeoutStopSec=75", "Type=exec", "KillMode=mixed", "Delegate=yes", "Restart=always"]
        {
            assert!(unit.lines().any(|found| found == line), "{line}\n{unit}");
        }
        assert!(unit.contains("up --detach -f "), "{unit}");
        let file = path.join("night.service");
        std::fs::write(&file, unit).unwrap();
        verify(&file, scope);
    }
}

#[test]
fn a_service_is_written_shown_and_removed_and_others_units_are_left_alone() {
    let folder = project();
    let path = folder.path();
    let unit = path.join("config dir/systemd/user/defib.service");
    let told = good(path, &["service", "install", "--dry-run", "-f", "defib.toml"]);
    assert!(told.contains("ExecStart=") && !unit.exists(), "{told}");
    let told = good(path, &["service", "install"]);
    assert!(told.contains("systemctl --user daemon-reload"), "{told}");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(!text.contains("--for-up"), "the daemon brings up what was up before: {text}");
    verify(&unit, "--user");
    good(path, &["service", "install", "-f", "defib.toml"]);
    assert!(std::fs::read_to_string(&unit).unwrap().contains("TimeoutStopSec=75"));
    verify(&unit, "--user");
    assert!(good(path, &["service", "status"]).contains("is there"));
    good(path, &["service", "uninstall"]);
    assert!(!unit.exists());
    assert_eq!(defib(path, &["service", "status"]).status.code(), Some(1));
    std::fs::write(&unit, "[Service]\n").unwrap();
    assert_eq!(defib(path, &["service", "install"]).status.code(), Some(1));
    assert_eq!(defib(path, &["service", "uninstall"]).status.code(), Some(1));
    let root = path.join("root");
    let root = root.to_str().unwrap();
    good(path, &["service", "install", "--system", "--root", root]);
    verify(&path.join("root/etc/systemd/system/defib.service"), "--system");
}

#[test]
fn the_manifest_holds_the_file_and_the_grace_period() {
    let folder = project();
    let manifest = good(folder.path(), &["export", "kubernetes", "--image", "night:1"]);
    for part in [
        "terminationGracePeriodSeconds: 75",
        "kind: StatefulSet",
        "accessModes: [ReadWriteOncePod]",
        "name: night-shift-defib",
        "secretKeyRef: { name: night-shift-defib, key: \"API_KEY\" }",
        "    command = [\"sleep\", \"it's {{ 1000 }}\"]\n",
        "image: \"night:1\"",
    ] {
        assert!(manifest.contains(part), "{part}\n{manifest}");
    }
    assert!(!manifest.contains("kind: Deployment"), "{manifest}");
    held_against_kubernetes(folder.path(), &manifest);
}

#[test]
fn deployment_says_that_two_pods_may_run_if_a_node_is_cut_off() {
    let folder = project();
    let manifest = good(folder.path(), &["export", "kubernetes", "--deployment"]);
    for part in ["kind: Deployment", "type: Recreate", "agents may run twice"] {
        assert!(manifest.contains(part), "{part}\n{manifest}");
    }
    assert!(!manifest.contains("StatefulSet\n"), "{manifest}");
    held_against_kubernetes(folder.path(), &manifest);
}

/// Has kubernetes-validate judge a manifest, where it is installed.
fn held_against_kubernetes(folder: &Path, manifest: &str) {
    let Some(tool) = python_tool("kubernetes-validate") else { return };
    let file = folder.join("night.yaml");
    std::fs::write(&file, manifest).unwrap();
    let judged = std::process::Command::new(tool).arg("--strict").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
}

#[test]
fn files_of_other_systems_travel_with_how_they_are_read() {
    for (name, text, more) in OTHERS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join(name), text).unwrap();
        let export = |to: &str| good(path, &[&["export", to, "-f", name], more].concat());
        let unit = export("systemd");
        let lines = ["ExecStartPost=", "ExecReload="].map(|start| {
            unit.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{unit}"))
        });
        for word in more.iter().filter(|word| !word.starts_with("--")) {
            assert!(lines.iter().all(|line| line.contains(word)), "{word}\n{unit}");
        }
        let file = path.join("other.service");
        std::fs::write(&file, &unit).unwrap();
        verify(&file, "--system");
        let manifest = export("kubernetes");
        held_against_kubernetes(path, &manifest);
        let job: Value = serde_json::from_str(&export("nomad")).unwrap();
        held_against_nomads_fields("Job", &job["Job"]);
        held_against_nomad_pydantic(job["Job"].clone());
        let args = &job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"]["args"];
        let args: Vec<&str> =
            args.as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let file = format!("/local/{name}");
        let mut expected = vec!["up", "--home", "/alloc/data/defib", "--file", &file];
        if !more.is_empty() {
            let told =
                "\"/etc/defib/Aidefile\", \"--format=aide\", \"--runner=agent 'two words'\"]";
            assert!(manifest.contains(told), "{manifest}");
            expected.extend(["--format=aide", "--runner=agent 'two words'"]);
        }
        assert_eq!(args, expected);
    }
}

#[test]
fn variables_that_the_file_leaves_to_its_caller_are_carried_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = "[agent.a]\ncommand = \"x\"\nenv_pass = [\"API_KEY\", \"GITHUB_TOKEN?\", \"ANTHROPIC_*\"]\n\
                [module.news]\nrunner = \"module_runner.py\"\n\
                [notify.pager]\nwebhook = \"https://pager.example\"\nsecret_env = \"PAGER_SECRET\"\n";
    std::fs::write(path.join("defib.toml"), file).unwrap();
    let export = |to: &str| {
        let mut command = Command::cargo_bin("defib").unwrap();
        command.current_dir(path).env_clear().env("HOME", path).args(["export", to]);
        let set = [("WATCHDOG_BACKOFF", "7.5"), ("WATCHDOG_MAX_RESTARTS", " 3 ")];
        let output = command.envs(set).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        (String::from_utf8(output.stdout).unwrap(), told)
    };
    let (unit, _) = export("systemd");
    for line in [
        "Environment=WATCHDOG_BACKOFF=7.5",
        "Environment=WATCHDOG_MAX_RESTARTS=3",
        "# The agents are to have API_KEY (needed), GITHUB_TOKEN, PAGER_SECRET, ANTHROPIC_*: by \
         Environment= or a file that only its owner can read.",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}\n{unit}");
    }
    let (manifest, _) = export("kubernetes");
    for part in [
        "- { name: WATCHDOG_BACKOFF, value: \"7.5\" }",
        "key: \"API_KEY\" }",
        "key: \"GITHUB_TOKEN\", optional: true }",
        "key: \"PAGER_SECRET\", optional: true }",
        "# `env_pass` has \"ANTHROPIC_*\": add each such variable here.",
    ] {
        assert!(manifest.contains(part), "{part}\n{manifest}");
    }
    held_against_kubernetes(path, &manifest);
    let (job, told) = export("nomad");
    let job: Value = serde_json::from_str(&job).unwrap();
    let env = job["Job"]["TaskGroups"][0]["Tasks"][0]["Env"].as_object().unwrap();
    assert_eq!(env["WATCHDOG_MAX_RESTARTS"], "3");
    assert!(env.contains_key("API_KEY") && !env.contains_key("GITHUB_TOKEN"), "{env:?}");
    for name in ["GITHUB_TOKEN", "PAGER_SECRET", "ANTHROPIC_*"] {
        assert!(told.contains(&format!("the agents may have {name}:")), "{told}");
    }
}

/// What `scripts/python-tools` installs, where it has been run.
fn python_tool(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tool = root.join("target/tools/python/bin").join(name);
    if tool.exists() {
        return Some(tool);
    }
    left_out(&format!("no {name}; scripts/python-tools installs it"));
    None
}

/// Has somebody else's models of Nomad's jobs judge one. They lack a group's `EphemeralDisk` and have
/// other names for a template's fields than Nomad's API; for those there is only our own table.
fn held_against_nomad_pydantic(mut job: Value) {
    const JUDGE: &str = "import json, sys, nomad_pydantic\n\
                         nomad_pydantic.Job.model_validate(json.load(sys.stdin))";
    let Some(python) = python_tool("python") else { return };
    let group = job["TaskGroups"][0].as_object_mut().unwrap();
    group.remove("EphemeralDisk").unwrap();
    group["Tasks"][0].as_object_mut().unwrap().remove("Templates").unwrap();
    let judged =
        Command::new(python).args(["-c", JUDGE]).write_stdin(job.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stderr).into_owned();
    if said.contains("No module named 'nomad_pydantic'") {
        left_out("no nomad-pydantic; scripts/python-tools installs it");
        return;
    }
    assert!(judged.status.success(), "{said}");
}

/// The fields of Nomad's API that a job of ours has, with the sort of their values.
fn held_against_nomads_fields(at: &str, value: &Value) {
    let fields: &[(&str, &str)] = match at {
        "Job" => &[
            ("ID", "text"),
            ("Name", "text"),
            ("Type", "text"),
            ("Datacenters", "list"),
            ("TaskGroups", "list"),
        ],
        "TaskGroups" => &[
            ("Name", "text"),
            ("Count", "number"),
            ("EphemeralDisk", "table"),
            ("RestartPolicy", "table"),
            ("Tasks", "list"),
        ],
        "EphemeralDisk" => &[("Sticky", "flag"), ("Migrate", "flag"), ("SizeMB", "number")],
        "RestartPolicy" => {
            &[("Attempts", "number"), ("Interval", "number"), ("Delay", "number"), ("Mode", "text")]
        }
        "Tasks" => &[
            ("Name", "text"),
            ("Driver", "text"),
            ("Config", "table"),
            ("Env", "table"),
            ("KillSignal", "text"),
            ("KillTimeout", "number"),
            ("Templates", "list"),
            ("Resources", "table"),
        ],
        "Templates" => &[
            ("EmbeddedTmpl", "text"),
            ("DestPath", "text"),
            ("ChangeMode", "text"),
            ("LeftDelim", "text"),
            ("RightDelim", "text"),
        ],
        "Resources" => &[("CPU", "number"), ("MemoryMB", "number")],
        "Config" => &[("image", "text"), ("command", "text"), ("args", "list")],
        _ => return,
    };
    if let Value::Array(items) = value {
        return items.iter().for_each(|item| held_against_nomads_fields(at, item));
    }
    for (key, value) in value.as_object().unwrap() {
        let sort = match value {
            Value::String(_) => "text",
            Value::Number(_) => "number",
            Value::Bool(_) => "flag",
            Value::Array(_) => "list",
            Value::Object(_) | Value::Null => "table",
        };
        assert!(fields.contains(&(key.as_str(), sort)), "{at} has no {key} that is a {sort}");
        held_against_nomads_fields(key, value);
    }
}

#[test]
fn the_job_has_nomads_fields_the_file_and_the_kill_timeout() {
    let folder = project();
    let job: Value = serde_json::from_str(&good(folder.path(), &["export", "nomad"])).unwrap();
    held_against_nomads_fields("Job", &job["Job"]);
    let task = &job["Job"]["TaskGroups"][0]["Tasks"][0];
    assert_eq!(task["KillTimeout"], 75_000_000_000_u64);
    assert_eq!(task["Templates"][0]["EmbeddedTmpl"], PROJECT);
    assert!(task["Env"]["API_KEY"].is_string());
    held_against_nomad_pydantic(job["Job"].clone());
}

#[test]
fn completions_and_the_manual_know_the_commands() {
    let folder = project();
    for shell in ["bash", "zsh", "fish"] {
        assert!(good(folder.path(), &["completions", shell]).contains("simulate"), "{shell}");
    }
    assert!(good(folder.path(), &["man"]).contains(".TH defib 1"));
    assert!(good(folder.path(), &["man", "import"]).contains("Procfile"));
    assert_eq!(defib(folder.path(), &["man", "nonsense"]).status.code(), Some(2));
}
