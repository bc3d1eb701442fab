//! What a supervised task costs: memory and time for many of them, beside plain tokio tasks.
//!
//! `cargo run --profile sim -p defib-tasks --example many [-- COUNT]`
//!
//! Both kinds wait for the same thing, to be told to end. Each is measured in a process of its own,
//! so that one finds nothing that the other has left.

use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_tasks::{Context, State, Supervisor, Task};
use tokio::sync::Notify;

const MANY: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    match words[..] {
        ["plain", count] => runtime.block_on(plain(count.parse()?)),
        ["supervised", count] => runtime.block_on(supervised(count.parse()?)),
        [] => measure(MANY),
        [count] => measure(count.parse()?),
        _ => Err("usage: many [COUNT]".into()),
    }
}

/// Runs each kind in a process of its own.
fn measure(count: usize) -> Result<(), Box<dyn Error>> {
    println!("{count} tasks");
    for kind in ["plain", "supervised"] {
        let arguments = [kind, &count.to_string()];
        let outcome = Command::new(std::env::current_exe()?).args(arguments).status()?;
        if !outcome.success() {
            return Err(format!("{kind}: {outcome}").into());
        }
    }
    Ok(())
}

async fn plain(count: usize) -> Result<(), Box<dyn Error>> {
    let (before, began) = (resident_bytes()?, Instant::now());
    let end = Arc::new(Notify::new());
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let end = end.clone();
        tasks.push(tokio::spawn(async move { end.notified().await }));
    }
    let up = began.elapsed();
    settle().await;
    let bytes = resident_bytes()?.saturating_sub(before) / count as u64;
    let began = Instant::now();
    end.notify_waiters();
    for task in tasks {
        task.await?;
    }
    report("plain", bytes, up, began.elapsed());
    Ok(())
}

async fn supervised(count: usize) -> Result<(), Box<dyn Error>> {
    let (before, began) = (resident_bytes()?, Instant::now());
    let tasks = (0..count).map(|number| {
        Task::new(format!("task-{number}"), |context: Context| async move {
            context.stopped().await;
        })
    });
    let supervisor = Supervisor::builder().tasks(tasks).start()?;
    let mut last = supervisor.watch(&format!("task-{}", count - 1)).await?;
    last.wait_for(|sight| sight.state == State::Running).await?;
    let up = began.elapsed();
    settle().await;
    let bytes = resident_bytes()?.saturating_sub(before) / count as u64;
    let running = supervisor.sights().await?;
    let running = running.iter().filter(|(_, sight)| sight.state == State::Running).count();
    assert_eq!(running, count, "all of them run");
    let began = Instant::now();
    supervisor.shutdown().await;
    report("supervised", bytes, up, began.elapsed());
    Ok(())
}

fn report(kind: &str, bytes: u64, up: Duration, down: Duration) {
    println!("{kind:10} {bytes:6} bytes a task, up in {up:?}, down in {down:?}");
}

/// Lets every task that has been spawned come to its first wait. What is still in the queue would
/// be missing from the figure; there is nothing to wait for that would not change it.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no figure")?.parse()?;
    Ok(kib * 1024)
}
