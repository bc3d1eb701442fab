//! Planted bugs: for each rule a change that breaks it, and the proof that somebody notices.
//!
//! The tree is copied, a bug is planted in the copy by replacing one passage, and the tests of the
//! core and then the simulator are run against it. A bug that nobody notices is a hole in the tests.
//! The working tree itself is never touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One bug: the rule it breaks and the passage that is replaced.
struct Bug {
    rule: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
}

const fn bug(
    rule: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
) -> Bug {
    Bug { rule, file, find, replace }
}

const BUGS: &[Bug] = &[
    bug(
        "a death exactly as old as the window is out",
        "limit.rs",
        "partition_point(|time| now.since(*time) >= within)",
        "partition_point(|time| now.since(*time) > within)",
    ),
    bug(
        "a tumbling window is over once its length has passed",
        "limit.rs",
        "Some(first) if now.since(*first) < within => self.count,",
        "Some(first) if now.since(*first) <= within => self.count,",
    ),
    bug(
        "a success empties what is counted in a row",
        "limit.rs",
        "if limit.span == Span::Consecutive {",
        "if limit.span == Span::Lifetime {",
    ),
    bug(
        "no delay is longer than the cap",
        "backoff.rs",
        "Duration::from_millis(round(jittered_ms)).min(self.cap)",
        "Duration::from_millis(round(jittered_ms))",
    ),
    bug(
        "the first delay is the base",
        "backoff.rs",
        "(n - 1).saturating_add(self.first_exponent.into())",
        "n.saturating_add(self.first_exponent.into())",
    ),
    bug(
        "a limit trips when it is reached, not when it is passed",
        "verdict.rs",
        "concerns && gauge.count >= gauge.limit.max",
        "concerns && gauge.count > gauge.limit.max",
    ),
    bug(
        "under always a short done counts as a death",
        "verdict.rs",
        "&& lived.ran < policy.stable_after",
        "&& lived.ran > policy.stable_after",
    ),
    bug(
        "an empty balance vetoes every restart",
        "verdict.rs",
        "if vetoed && matches!(order, Order::Restart | Order::Wait) {",
        "if vetoed && matches!(order, Order::Wait) {",
    ),
    bug(
        "what wanted to end stays down even under always",
        "supervisor/death.rs",
        "if run.wished.is_some() { Some(Class::Voluntary) } else { None }",
        "None",
    ),
    bug(
        "outages do not count towards limits on deaths",
        "verdict.rs",
        "order == Order::Restart && (treatment.counts || short_done)",
        "order == Order::Restart",
    ),
    bug(
        "a wait for a reset is at most eight days",
        "verdict.rs",
        "stated.clamp(now.wall, now.wall + LONGEST_WAIT)",
        "stated.max(now.wall)",
    ),
    bug(
        "an automatic restart is counted",
        "supervisor/launch.rs",
        "Cause::Restart => life.counters.note_restart(&agent.policy, now),",
        "Cause::Restart => {}",
    ),
    bug(
        "nothing is spawned once the goal is down",
        "supervisor/operator.rs",
        "            life.goal = goal;\n",
        "",
    ),
    bug(
        "run numbers are never used again",
        "supervisor/launch.rs",
        "life.last_run = RunId(life.last_run.0 + 1);",
        "life.last_run = RunId(life.last_run.0.max(1));",
    ),
    bug(
        "members start in order",
        "supervisor/launch.rs",
        "ending || (at < place.at && other.sequenced)",
        "ending",
    ),
    bug(
        "a group's agents stop in reverse order",
        "supervisor/stop.rs",
        "!later && !agent.dependents.iter().any(ending)",
        "!agent.dependents.iter().any(ending)",
    ),
    bug(
        "a stop is stored before the signal goes out",
        "supervisor/operator.rs",
        "self.order(Effect::StoreGoal { agent: id, goal });",
        "",
    ),
    bug(
        "revive empties the windows",
        "supervisor/operator.rs",
        "self.agents[id.index()].life.counters.clear();\n        self.empty_budgets_above(id);\n        self.tell(id, What::Revived);",
        "self.tell(id, What::Revived);",
    ),
    bug(
        "a group restart costs the group's budget",
        "supervisor/group.rs",
        "group.charge(self.now.mono);\n        let strategy",
        "let strategy",
    ),
    bug(
        "a parent's restart empties the budgets below it",
        "supervisor/group.rs",
        "self.empty_budgets_below(parent, &range);",
        "",
    ),
    bug(
        "what we asked for goes before what the report says",
        "supervisor/death.rs",
        "class.or(found).unwrap_or_else",
        "found.or(class).unwrap_or_else",
    ),
    bug(
        "a report of a run that is over changes nothing",
        "supervisor/mod.rs",
        "current.is_some_and(|current| current.id == run)",
        "current.is_some_and(|current| current.id >= run)",
    ),
    bug(
        "a stated time follows the wall clock",
        "supervisor/mod.rs",
        "self.wait(id, reason, Until::at(stated, self.now), then);",
        "let _ = (stated, reason, then);",
    ),
    bug(
        "silence while the machine slept is excused",
        "supervisor/mod.rs",
        "        self.excuse(span);\n",
        "        let _ = span;\n",
    ),
    bug(
        "orders that a dead daemon may have lost are given again",
        "supervisor/mod.rs",
        "self.signal_again(id);",
        "",
    ),
    bug(
        "the view is what the records add up to",
        "view.rs",
        "What::RunReady => self.be(State::Running, None),",
        "What::RunReady => {}",
    ),
    bug(
        "who has spent its allowance is started by nobody before it comes back",
        "supervisor/launch.rs",
        "if let Some(until) = self.spent_until(id) {",
        "if let Some(until) = self.spent_until(id).filter(|_| then.cause == Cause::Wait) {",
    ),
    bug(
        "a spent allowance ends the run",
        "supervisor/allowance.rs",
        "if is_spent && !self.rebooted && self.works(id) =>",
        "if is_spent && self.rebooted && self.works(id) =>",
    ),
    bug(
        "a run that has finished is not ended for its budget",
        "supervisor/mod.rs",
        "run.is_some_and(|run| run.ended.is_none() && run.finished.is_none())",
        "run.is_some_and(|run| run.ended.is_none())",
    ),
    bug(
        "short clean ends in a row slow down",
        "verdict.rs",
        "self.loops = if is_loop { self.loops.saturating_add(1) } else { 0 };",
        "self.loops = if is_loop { 1 } else { 0 };",
    ),
    bug(
        "a long life is a success only with a sign of life",
        "verdict.rs",
        "(lived.signed || !policy.needs_sign)",
        "(lived.signed || policy.needs_sign)",
    ),
    bug(
        "what runs once has had its run when the machine comes up again",
        "supervisor/snapshot.rs",
        "ran && self.policy(id).order(Class::Lost) == Order::Rest",
        "ran && self.policy(id).order(Class::Lost) == Order::Halt",
    ),
];

/// Plants every bug whose rule has `word` in it.
pub(crate) fn run(word: Option<&str>) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate has no parent")?;
    let field = Field::new(root)?;
    field.check("the tree as it is", false)?;
    let chosen: Vec<&Bug> =
        BUGS.iter().filter(|bug| word.is_none_or(|word| bug.rule.contains(word))).collect();
    let mut caught = 0;
    for bug in &chosen {
        let by = field.plant(bug)?;
        caught += usize::from(by.is_some());
        println!(
            "{:8}  {:12}  {}",
            if by.is_some() { "caught" } else { "MISSED" },
            by.unwrap_or(""),
            bug.rule
        );
    }
    println!("\ncaught / planted: {caught} / {}", chosen.len());
    if caught == chosen.len() && caught > 0 {
        Ok(())
    } else {
        Err("not every planted bug was caught".to_owned())
    }
}

/// The copy of the tree in which bugs are planted.
struct Field {
    tree: PathBuf,
    target: PathBuf,
}

impl Field {
    fn new(root: &Path) -> Result<Field, String> {
        let base = root.join("target/planted");
        let field = Field { tree: base.join("tree"), target: base.join("target") };
        let _ = fs::remove_dir_all(&field.tree);
        for part in [
            "Cargo.toml",
            "Cargo.lock",
            "bench",
            "fuzz",
            "crates",
            "sim",
            "tests",
            "xtask",
            "docs/generated",
        ] {
            copy(&root.join(part), &field.tree.join(part))
                .map_err(|error| format!("cannot copy {part}: {error}"))?;
        }
        Ok(field)
    }

    /// Plants a bug and says who caught it.
    fn plant(&self, bug: &Bug) -> Result<Option<&'static str>, String> {
        let path = self.tree.join("crates/core/src").join(bug.file);
        let error = |error| format!("{}: {error}", bug.file);
        let sound = fs::read_to_string(&path).map_err(error)?;
        let places = sound.matches(bug.find).count();
        if places != 1 {
            let rule = bug.rule;
            return Err(format!("{}: the passage for {rule:?} is there {places} times", bug.file));
        }
        fs::write(&path, sound.replace(bug.find, bug.replace)).map_err(error)?;
        let by = self.check(bug.rule, true);
        fs::write(&path, sound).map_err(error)?;
        by
    }

    /// Who finds something wrong with the tree, if anybody does. An unsound tree that does not even
    /// build proves nothing.
    fn check(&self, what: &str, planted: bool) -> Result<Option<&'static str>, String> {
        let core = ["test", "--package", "defib-core", "--tests"];
        if !self.cargo(&[&core[..], &["--no-run"]].concat())? {
            return Err(format!("does not build: {what}"));
        }
        if !self.cargo(&core)? {
            return if planted { Ok(Some("tests")) } else { Err(format!("fails: {what}")) };
        }
        let fleet = "run --profile sim --package defib-sim --bin fleet -- --seeds 0..400";
        if !self.cargo(&fleet.split(' ').collect::<Vec<_>>())? {
            return if planted { Ok(Some("simulator")) } else { Err(format!("fails: {what}")) };
        }
        Ok(None)
    }

    fn cargo(&self, arguments: &[&str]) -> Result<bool, String> {
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        Ok(status.success())
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, to)?;
    }
    Ok(())
}
