//! Measures what the history can take: events a second that are on disk, and what a caller waits.
//!
//! `cargo run --release -p defib-history --example throughput [FOLDER]`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use defib_core::record::Cause;
use defib_core::time::Seconds;
use defib_core::{Class, Goal, Mono, Name, Now, Record, RunId, Verdict, Wall, What};
use defib_history::{Event, EventFilter, History, Intent, Options, Reader, RunFilter, Stamp, Take};

const LONG: Duration = Duration::from_secs(600);
const EVENTS: u64 = 300_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("defib-throughput-{}", std::process::id()));
    let path = folder.join("history.db");
    let (history, _) = History::open(&path, Options::default())?;
    let agents: Vec<Name> =
        (0..50).map(|n| Name::parse(&format!("agent-{n}"))).collect::<Result<_, _>>()?;

    let began = Instant::now();
    let (mut slowest, mut waited) = (Duration::ZERO, Duration::ZERO);
    for seq in 1..=EVENTS {
        let event = storm(seq, &agents);
        let push = Instant::now();
        history.append([event]);
        slowest = slowest.max(push.elapsed());
        // No faster than the disk: a storm that the ring cannot hold would be counted as lost.
        if seq.is_multiple_of(5_000) {
            let flush = Instant::now();
            history.flush(LONG)?;
            waited += flush.elapsed();
        }
    }
    history.flush(LONG)?;
    let took = began.elapsed();
    println!(
        "appended  {:.0} events/s, on disk with FULL; slowest append {slowest:?}; waited {waited:?} \
         of {took:?}; lost {}",
        rate(EVENTS, took),
        history.lost().events
    );

    let began = Instant::now();
    for n in 0..200 {
        let goal = if n % 2 == 0 { Goal::Up } else { Goal::Stopped };
        history.store_intent(Intent::Goal { agent: agents[0].clone(), goal })?;
    }
    println!("intents   {:?} each, one after the other", began.elapsed() / 200);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for agent in &agents {
            let history = &history;
            scope.spawn(move || {
                for _ in 0..20 {
                    let intent = Intent::Goal { agent: agent.clone(), goal: Goal::Up };
                    history.store_intent(intent).map_err(|error| error.to_string())?;
                }
                Ok::<(), String>(())
            });
        }
    });
    println!("intents   {:.0}/s from 50 callers at once", rate(1000, began.elapsed()));
    drop(history);

    let size = std::fs::metadata(&path)?.len();
    let began = Instant::now();
    let (history, _) = History::open(&path, Options::default())?;
    println!("reopened  {:?} for {} MiB", began.elapsed(), size >> 20);
    let began = Instant::now();
    let last = EventFilter { take: Take::Last(100), ..EventFilter::default() };
    let count = Reader::open(&path)?.events(&last)?.len();
    println!("read      {count} last events in {:?}", began.elapsed());
    let began = Instant::now();
    let filter =
        RunFilter { agent: Some(agents[7].clone()), limit: Some(100), ..RunFilter::default() };
    let count = Reader::open(&path)?.runs(&filter)?.len();
    println!("read      {count} last runs of one agent in {:?}", began.elapsed());
    let began = Instant::now();
    let view = Reader::open(&path)?.view()?;
    println!(
        "replayed  {EVENTS} events to {} agents in {:?}",
        view.agents().count(),
        began.elapsed()
    );
    drop(history);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// The events of a crash storm: started, died, restart scheduled.
fn storm(seq: u64, agents: &[Name]) -> Event {
    let run = seq / 3;
    let agent = agents[usize::try_from(run).unwrap_or(0) % agents.len()].clone();
    let what = match seq % 3 {
        0 => What::RunStarted { cause: Cause::Restart, fresh: false, restarts: 3 },
        1 => What::RunDied {
            class: Class::Error,
            kind: Class::Error.kind(),
            exit_code: Some(1),
            signal: None,
            ran_s: Seconds(Duration::from_millis(12)),
            verdict: Verdict::Restart,
            counted: true,
            consecutive_failures: 4,
            evidence: Some("exit code 1".into()),
        },
        _ => What::RestartScheduled { delay_ms: 0, attempt: 4, gauge: None },
    };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let wall = Wall::from_millis(0) + since.unwrap_or_default();
    let now = Now { mono: Mono::from_nanos(seq), wall };
    let project = Name::parse("night").ok();
    let stamp = Stamp { seq, now, boot: "1c2d".into(), project };
    Event::of_record(stamp, &Record { agent, run: Some(RunId(run)), what })
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown, not counted")]
fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
