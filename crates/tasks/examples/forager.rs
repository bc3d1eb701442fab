//! An agent that works in iterations, has bugs, spends what it has, and keeps its memory.
//!
//! `cargo run -p defib-tasks --example forager`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use defib_tasks::ecology::{AgentSupervisor, RestartPolicy};
use defib_tasks::{AgentLoop, Context, Failure, Looping, Next};

/// Each iteration costs one scrip; every third one meets a bug.
struct Forager {
    scrip: Arc<AtomicI64>,
}

impl AgentLoop for Forager {
    type State = Vec<String>;
    type Error = Failure;

    async fn iterate(
        &mut self,
        memory: &mut Vec<String>,
        context: &Context,
    ) -> Result<Next, Failure> {
        self.scrip.fetch_sub(1, Ordering::Relaxed);
        memory.push(format!("run {}", context.run()));
        if memory.len().is_multiple_of(3) {
            return Err(Failure::new("the berries were not there"));
        }
        Ok(Next::After(Duration::from_millis(100)))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let policy = RestartPolicy { initial_backoff_seconds: 0.2, ..RestartPolicy::default() };
    let supervisor = AgentSupervisor::start(policy)?;
    let scrip = Arc::new(AtomicI64::new(9));
    let (spent, left) = (scrip.clone(), scrip.clone());
    let looping = Looping::new(Vec::new(), move || Forager { scrip: spent.clone() }).pause_after(1);
    let memory = looping.state();
    let owned = move || if left.load(Ordering::Relaxed) > 0 { 1.0 } else { 0.0 };
    supervisor.spawn("forager", looping, owned).await?;
    supervisor.handle().all_at_rest().await?;
    println!("memory: {:?}", memory.lock().await);
    println!("{:#?}", supervisor.handle().sight("forager").await?);
    println!("{:#?}", supervisor.state());
    Ok(())
}
