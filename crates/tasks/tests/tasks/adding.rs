//! Tasks that come and go while others run, and what is refused.

use defib_tasks::{
    Context, Error, Failure, Group, Limit, Preset, Span, State, Strategy, Supervisor, Task,
};

use crate::{Log, plain, rest, secs, until};

fn idle(name: &str) -> Task {
    Task::new(name, |context: Context| async move { context.stopped().await })
}

#[tokio::test(start_paused = true)]
async fn tasks_are_added_and_removed_while_others_run_on() {
    let supervisor = plain().task(idle("a")).start().unwrap();
    supervisor.add(idle("b")).await.unwrap();
    until(&supervisor, "b", |sight| sight.state == State::Running).await;
    assert_eq!(supervisor.add(idle("b")).await, Err(Error::NameTaken("b".into())));
    supervisor.remove("b").await.unwrap();
    assert_eq!(supervisor.sight("b").await, Err(Error::Unknown("b".into())));
    supervisor.add(idle("b")).await.unwrap();
    let sight = until(&supervisor, "b", |sight| sight.state == State::Running).await;
    assert_eq!(sight.run, 2, "run numbers are never used again");
    assert_eq!(supervisor.sight("a").await.unwrap().run, 1);
}

#[tokio::test(start_paused = true)]
async fn what_joins_a_group_is_behind_its_members() {
    let group = Group::new("g", Strategy::OneForOne).task(idle("a"));
    let supervisor = plain().group(group).start().unwrap();
    supervisor.add_to("g", idle("b")).await.unwrap();
    let nested = Group::new("h", Strategy::OneForAll).task(idle("c")).task(idle("d"));
    supervisor.add_group(nested).await.unwrap();
    supervisor.stop("g").await.unwrap();
    let states: Vec<(String, State)> = supervisor
        .sights()
        .await
        .unwrap()
        .into_iter()
        .map(|(name, sight)| (name, sight.state))
        .collect();
    let (down, up) = (State::Stopped, State::Running);
    let expected = [("a", down), ("b", down), ("c", up), ("d", up)];
    assert_eq!(states, expected.map(|(name, state)| (name.to_owned(), state)));
    let unknown = supervisor.add_to("nowhere", idle("e")).await;
    assert_eq!(unknown, Err(Error::Unknown("nowhere".into())));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_that_are_added_together_all_come_up() {
    let supervisor = plain().start().unwrap();
    let handle = supervisor.handle();
    let adding: Vec<_> = (0..1000)
        .map(|number| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.add(idle(&format!("t{number}"))).await })
        })
        .collect();
    for added in adding {
        added.await.unwrap().unwrap();
    }
    let sights = supervisor.sights().await.unwrap();
    assert_eq!(sights.len(), 1000);
    assert!(sights.iter().all(|(_, sight)| sight.state == State::Running && sight.run == 1));
}

#[tokio::test(start_paused = true)]
async fn two_of_one_name_that_are_added_together_are_one() {
    let supervisor = plain().start().unwrap();
    let (first, second) = tokio::join!(supervisor.add(idle("a")), supervisor.add(idle("a")));
    assert_eq!([first.is_ok(), second.is_ok()], [true, false]);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused_before_anything_starts() {
    let refused = |builder: defib_tasks::Builder| builder.start().unwrap_err().to_string();
    assert_eq!(
        refused(plain().task(idle("a b"))),
        "\"a b\" is no name: ' ' cannot be in a name: letters, digits, `-`, `_` and `.` can"
    );
    assert_eq!(
        refused(plain().task(idle("a")).group(Group::new("a", Strategy::OneForAll))),
        "a is taken: each task and each group needs a name of its own"
    );
    assert_eq!(refused(plain().task(idle("a").after(["b"]))), "no task and no group is called b");
}

#[test]
fn without_a_runtime_there_is_no_supervisor() {
    assert_eq!(Supervisor::builder().start().unwrap_err(), Error::NoRuntime);
}

#[tokio::test(start_paused = true)]
async fn whom_nobody_knows_is_named() {
    let supervisor = plain().start().unwrap();
    assert_eq!(supervisor.stop("ghost").await, Err(Error::Unknown("ghost".into())));
    assert_eq!(supervisor.stop("no name").await, Err(Error::Unknown("no name".into())));
    rest(&supervisor).await;
    tokio::time::timeout(secs(1), supervisor.shutdown()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_task_changes_is_changed_of_its_supervisors_policy() {
    let (builder, log) = Log::of(plain().preset(Preset::Ecology));
    let crash =
        |name: &str| Task::new(name, |_: Context| async { Err::<(), _>(Failure::new("no")) });
    let limits = [Limit::restarts(2, Span::Lifetime)];
    let supervisor = builder.task(crash("first").limits(limits)).start().unwrap();
    rest(&supervisor).await;
    assert_eq!(log.delays_ms(), [5000, 10_000], "the rule set is the supervisor's");
    supervisor.add(crash("own").preset(Preset::Celistra).limits(limits)).await.unwrap();
    rest(&supervisor).await;
    assert_eq!(log.delays_ms()[2..], [0, 0], "unless the task has its own");
}
