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

/// Has systemd judge a unit, where it is installed.
fn verify(unit: &Path, scope: &str) {
    let judged = std::process::Command::new("systemd-analyze")
        .args(["verify", scope, "--recursive-errors=no", "--man=no"])
        .arg(unit)
        .env("XDG_RUNTIME_DIR", unit.parent().unwrap())
        .output();
    let Ok(judged) = judged else {
        eprintln!("SKIPPED: systemd-analyze is not installed (Debian package systemd)");
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
        "type: Recreate",
        "name: night-shift-defib",
        "secretKeyRef: { name: night-shift-defib, key: \"API_KEY\" }",
        "    command = [\"sleep\", \"it's {{ 1000 }}\"]\n",
        "image: \"night:1\"",
    ] {
        assert!(manifest.contains(part), "{part}\n{manifest}");
    }
    let Some(tool) = python_tool("kubernetes-validate") else { return };
    let file = folder.path().join("night.yaml");
    std::fs::write(&file, manifest).unwrap();
    let judged = std::process::Command::new(tool).arg("--strict").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
}

/// What `scripts/python-tools` installs, where it has been run.
fn python_tool(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tool = root.join("target/tools/python/bin").join(name);
    if tool.exists() {
        return Some(tool);
    }
    eprintln!("SKIPPED: no {name}; scripts/python-tools installs it");
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
        eprintln!("SKIPPED: no nomad-pydantic; scripts/python-tools installs it");
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
