//! A pipeline of three tasks in a group, one of which crashes now and then, with every event printed.
//!
//! `cargo run -p defib-tasks --example pipeline`

use std::error::Error;
use std::time::Duration;

use defib_tasks::{Context, Failure, Group, Strategy, Supervisor, Task};

/// A stage that does well for a while, and fails in its first runs.
fn stage(name: &'static str, bad_runs: u64) -> Task {
    Task::new(name, move |context: Context| async move {
        for _ in 0..10 {
            tokio::select! {
                () = context.stopped() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(50)) => context.beat(),
            }
            if context.run() <= bad_runs {
                return Err(Failure::new(format!("{name} lost its connection")));
            }
        }
        context.stopped().await;
        Ok(())
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let pipeline = Group::new("pipeline", Strategy::RestForOne)
        .task(stage("ingest", 0))
        .task(stage("enrich", 2))
        .task(stage("publish", 0));
    let mut builder = Supervisor::builder().group(pipeline);
    let mut events = builder.events(1000);
    let supervisor = builder.start()?;
    let printing = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            println!("{:>7.3?} {:8} {:?}", event.after, event.record.agent, event.record.what);
        }
    });
    let mut enrich = supervisor.watch("enrich").await?;
    enrich.wait_for(|sight| sight.run == 3).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("-- shutdown: in reverse order");
    supervisor.shutdown().await;
    printing.await?;
    Ok(())
}
