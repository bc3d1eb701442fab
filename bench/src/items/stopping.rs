//! (h) `stop` of agents that do not end when they are asked to: one that is frozen, one that is deaf,
//! one whose grandchild holds its output. From start to end of the command.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{Bench, millis};
use crate::outcome::{Better, Outcome, Row, Verdict, quantile};
use crate::processes;
use crate::reports::now_ns;

/// How long a run has to end before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take beyond that.
const GRACE: Duration = Duration::from_secs(1);
/// One that has not said that it is there by then does not.
const LONGEST: Duration = Duration::from_secs(30);

const FROZEN: &str = "frozen";
/// What each runs in a shell once it has said that it is there.
const AGENTS: [(&str, &str); 3] = [
    (FROZEN, "exec sleep 1000"),
    ("deaf", "trap '' TERM; echo deaf; while :; do sleep 1; done"),
    ("grandchild holds output", "(trap '' TERM; exec setsid sleep 1000) & exec sleep 1000"),
];

pub(crate) fn run(bench: &Bench) -> io::Result<Outcome> {
    let folder = bench.ground.folder()?;
    let mut config = "[project]\nname = \"bench\"\n".to_owned();
    for (id, (_, script)) in AGENTS.iter().enumerate() {
        let timeout = STOP_TIMEOUT.as_secs();
        // A String takes whatever is written to it.
        let _ = write!(
            config,
            "[agent.a{id}]\nshell = true\ncommand = {:?}\nstop_timeout = \"{timeout}s\"\n",
            format!("echo there; {script}")
        );
    }
    std::fs::write(folder.join("defib.toml"), config)?;
    let told = |arguments: &[&str]| {
        let out = bench.defib.command(&folder, arguments).output()?;
        if out.status.success() {
            return Ok(out.stdout);
        }
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        Err(io::Error::other(format!("`defib {}`: {error}", arguments.join(" "))))
    };
    told(&["up", "--detach"])?;
    let mut rows = Vec::new();
    for (id, (name, script)) in AGENTS.iter().enumerate() {
        let agent = format!("a{id}");
        let mut samples = Vec::new();
        for _ in 0..bench.pick(5, 1) {
            told(&["start", &agent])?;
            let wanted = if script.contains("echo deaf") { "deaf" } else { "there" };
            let run = number(&told(&["status", &agent, "--json"])?, "run")?.to_string();
            let end = Instant::now() + LONGEST;
            // A run that has written nothing yet may not be known by its number.
            while !told(&["logs", &agent, "--run", &run])
                .is_ok_and(|log| String::from_utf8_lossy(&log).contains(wanted))
            {
                if Instant::now() > end {
                    return Err(io::Error::other(format!("{name} did not start")));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            if *name == FROZEN {
                let pid = number(&told(&["status", &agent, "--json"])?, "pid")?;
                processes::send(i32::try_from(pid).unwrap_or(0), Signal::STOP);
            }
            let begin_ns = now_ns();
            told(&["stop", &agent])?;
            samples.push(millis(now_ns() - begin_ns));
        }
        let figures = vec![quantile(&mut samples, 0.5), quantile(&mut samples, 1.0)];
        rows.push(Row { name, figures, note: String::new() });
    }
    told(&["down", "--all"])?;
    processes::end_all();
    let longest = rows.iter().filter_map(|row| row.figures.get(1).copied().flatten());
    let longest = longest.reduce(f64::max);
    let bound = (STOP_TIMEOUT + GRACE).as_secs_f64() * 1e3;
    let target = "each within stop_timeout + 1 s";
    Ok(Outcome {
        item: "h",
        title: format!(
            "`stop` of those who do not end when asked, stop_timeout {} s",
            STOP_TIMEOUT.as_secs()
        ),
        columns: vec!["median ms", "longest ms"],
        rows,
        verdicts: vec![Verdict::bound(target, Better::Less, longest, bound)],
    })
}

/// A number that `status --json` says of the one agent.
fn number(status: &[u8], field: &str) -> io::Result<u64> {
    let status: Value = serde_json::from_slice(status)?;
    let number = status[0][field].as_u64();
    number.ok_or_else(|| io::Error::other(format!("no {field} in {status}")))
}
