//! Ten thousand tasks: all come up, one that dies concerns nobody else, all end.

use defib_tasks::{Context, Failure, State, Task};

use crate::{Log, plain, until};

#[tokio::test(start_paused = true)]
async fn ten_thousand_tasks_come_up_one_is_replaced_and_all_end() {
    const MANY: usize = 10_000;
    let tasks = (0..MANY).map(|number| {
        Task::new(format!("t{number}"), |context: Context| async move {
            if context.name() == "t5000" && context.run() == 1 {
                return Err(Failure::new("a bug"));
            }
            context.stopped().await;
            Ok(())
        })
    });
    let (builder, log) = Log::of(plain().tasks(tasks));
    let supervisor = builder.start().unwrap();
    until(&supervisor, "t5000", |sight| sight.run == 2 && sight.state == State::Running).await;
    let sights = supervisor.sights().await.unwrap();
    let restarted = sights.iter().filter(|(_, sight)| sight.run > 1).count();
    assert_eq!((sights.len(), restarted), (MANY, 1));
    assert!(sights.iter().all(|(_, sight)| sight.state == State::Running));
    assert_eq!(log.len(), 2 * MANY + 4, "started and ready each; died, scheduled, started, ready");
    supervisor.shutdown().await;
}
