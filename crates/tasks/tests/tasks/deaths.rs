//! How runs end, and what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use defib_tasks::{
    Class, Context, End, Error, Failure, Heartbeat, Kind, Mode, Preset, Reason, State, Task,
    Verdict, What,
};
use tokio::time::Instant;

use crate::{Log, ms, plain, rest, secs, until};

#[tokio::test(start_paused = true)]
async fn what_fails_is_restarted_after_its_delay_and_what_finishes_rests() {
    let task = Task::new("a", |context: Context| async move {
        tokio::time::sleep(secs(1)).await;
        if context.run() < 3 { Err(Failure::new("not yet")) } else { Ok(()) }
    });
    let (builder, log) = Log::of(plain().task(task));
    let supervisor = builder.start().unwrap();
    let began = Instant::now();
    rest(&supervisor).await;
    assert_eq!(log.delays_ms(), [100, 200]);
    assert_eq!(began.elapsed(), ms(3300), "three seconds of life, and the two delays");
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run, sight.restarts), (State::Done, 3, 2));
    let death = sight.last_death.unwrap();
    assert_eq!((death.class, death.verdict, death.ran), (Class::Done, Verdict::Rest, secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_death_like_any_other_and_its_words_are_kept() {
    let inside = Task::new("inside", |context: Context| async move {
        assert!(context.run() > 1, "a bug in {}", context.name());
        context.stopped().await;
    });
    let before = Task::new("before", |context: Context| {
        assert!(context.run() > 1, "a bug in making it");
        async move { context.stopped().await }
    });
    let supervisor = plain().task(inside).task(before).start().unwrap();
    for (name, words) in
        [("inside", "panicked: a bug in inside"), ("before", "panicked: a bug in making it")]
    {
        let sight = until(&supervisor, name, |sight| sight.run == 2).await;
        let death = sight.last_death.unwrap();
        assert_eq!((death.class, death.kind), (Class::Error, Some(Kind::Dumb)));
        assert_eq!(death.evidence.as_deref(), Some(words));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_with_its_causes() {
    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bad answer")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let task = Task::new("a", |_| async {
        let number = "x".parse::<u8>().map_err(Outer)?;
        if number > 7 { Err(Failure::new("too large")) } else { Ok(()) }
    });
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let death = supervisor.sight("a").await.unwrap().last_death.unwrap();
    assert_eq!(death.evidence.as_deref(), Some("bad answer: invalid digit found in string"));
}

#[tokio::test(start_paused = true)]
async fn anything_that_can_be_shown_is_an_error() {
    let text = Task::new("text", |_| async { Err::<(), _>("in words".to_owned()) });
    let boxed = Task::new("boxed", |_| async {
        "x".parse::<u8>()?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    let supervisor = plain().task(text).task(boxed).start().unwrap();
    rest(&supervisor).await;
    for (name, words) in [("text", "in words"), ("boxed", "invalid digit found in string")] {
        let death = supervisor.sight(name).await.unwrap().last_death.unwrap();
        assert_eq!(death.evidence.as_deref(), Some(words));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_ends_at_its_limit_and_revive_puts_it_back() {
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = fixed.clone();
    let task = Task::new("a", move |context: Context| {
        let is_fixed = is_fixed.load(Ordering::SeqCst);
        async move {
            if !is_fixed {
                return 7;
            }
            context.stopped().await;
            0
        }
    });
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::CrashedOut, 5), "five deaths, four respawns");
    let refused = supervisor.start("a").await.unwrap_err();
    assert_eq!(refused.to_string(), "a is crashed-out: `revive` puts it back");
    fixed.store(true, Ordering::SeqCst);
    supervisor.revive("a").await.unwrap();
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run, sight.restarts), (State::Running, 6, 0));
}

#[tokio::test(start_paused = true)]
async fn who_wants_to_end_stays_down_even_under_always() {
    let says = Task::new("says", |_| async { End::Voluntary }).restart(Mode::Always);
    let wishes = Task::new("wishes", |context: Context| async move {
        context.shutdown();
        panic!("on the way out");
    })
    .restart(Mode::Always);
    let lingers = Task::new("lingers", |context: Context| async move {
        context.shutdown();
        context.stopped().await;
        std::future::pending::<()>().await;
    })
    .restart(Mode::Always);
    let supervisor = plain().task(says).task(wishes).task(lingers).start().unwrap();
    let began = Instant::now();
    rest(&supervisor).await;
    for name in ["says", "wishes", "lingers"] {
        let sight = supervisor.sight(name).await.unwrap();
        assert_eq!((sight.state, sight.run), (State::Done, 1), "{name}");
        assert_eq!(sight.last_death.unwrap().class, Class::Voluntary, "{name}");
    }
    assert_eq!(began.elapsed(), secs(20), "asked after its time for that, then aborted");
}

#[tokio::test(start_paused = true)]
async fn who_has_nothing_left_to_spend_is_halted_until_it_is_funded() {
    let scrip = Arc::new(AtomicU32::new(2));
    let (spent, left) = (scrip.clone(), scrip.clone());
    let task = Task::new("a", move |_| {
        let spent = spent.clone();
        async move {
            spent.fetch_sub(1, Ordering::SeqCst);
            tokio::time::sleep(secs(100)).await;
            Err::<(), _>(Failure::new("a bug"))
        }
    })
    .solvent_while(move || left.load(Ordering::SeqCst) > 0);
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Halted, 2), "the purse had two runs in it");
    assert_eq!(sight.reason, Some(Reason::Halt(Class::Broke)));
    assert_eq!(sight.last_death.unwrap().kind, Some(Kind::Smart));
    let refused = supervisor.revive("a").await.unwrap_err();
    assert!(matches!(refused, Error::NotInState { .. }), "{refused}");
    scrip.store(5, Ordering::SeqCst);
    supervisor.fund("a").await.unwrap();
    assert_eq!(supervisor.sight("a").await.unwrap().run, 3);
}

#[tokio::test(start_paused = true)]
async fn an_empty_purse_ends_no_run() {
    let task = Task::new("a", |context: Context| async move {
        context.set_broke(true);
        tokio::time::sleep(secs(5)).await;
        Err::<(), _>(Failure::new("a bug"))
    });
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Halted, 1));
    assert_eq!(sight.last_death.unwrap().ran, secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_waited_for_as_long_as_it_was_stated_and_costs_no_restart() {
    let task = Task::new("a", |context: Context| async move {
        if context.run() <= 10 {
            return Err(Failure::of(Class::Quota, "limit reached").resets_in(secs(3600)));
        }
        context.stopped().await;
        Ok(())
    });
    let supervisor = plain().task(task).start().unwrap();
    let began = Instant::now();
    let sight = until(&supervisor, "a", |sight| sight.run == 11).await;
    assert_eq!(began.elapsed(), secs(36_000));
    assert_eq!(sight.restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_beat_in_time_is_ended_and_restarted() {
    let task = Task::new("a", |context: Context| async move {
        for _ in 0..3 {
            tokio::time::sleep(secs(20)).await;
            context.beat();
        }
        context.stopped().await;
        std::future::pending::<()>().await;
    })
    .edit(|policy| policy.heartbeat = Some(Heartbeat { ttl: secs(30), grace: secs(0) }));
    let (builder, log) = Log::of(plain().task(task));
    let supervisor = builder.start().unwrap();
    let began = Instant::now();
    let sight = until(&supervisor, "a", |sight| sight.run == 2).await;
    assert_eq!(sight.last_death.unwrap().class, Class::Timeout);
    assert_eq!(began.elapsed(), ms(60_000 + 30_000 + 10_000 + 100), "beats, silence, stop, delay");
    assert!(log.has(|what| matches!(what, What::HeartbeatMissed { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_means_what_the_policy_says() {
    let task = Task::new("a", |_| async { 2 }).preset(Preset::Aivex);
    let supervisor = plain().task(task).start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.run), (State::Halted, 1));
    assert_eq!(sight.reason, Some(Reason::Halt(Class::Config)));
}

#[tokio::test(start_paused = true)]
async fn code_of_others_that_panics_in_the_supervisor_ends_nothing() {
    let task = Task::new("a", |context: Context| async move {
        if context.run() < 3 { Err(Failure::new("a bug")) } else { Ok(()) }
    })
    .solvent_while(|| panic!("in the purse"));
    let (builder, log) = Log::of(plain().task(task).observe(|_| panic!("in an observer")));
    let supervisor = builder.start().unwrap();
    rest(&supervisor).await;
    assert_eq!(supervisor.sight("a").await.unwrap().run, 3);
    assert_eq!(log.delays_ms().len(), 2, "the next observer still observes");
}

#[tokio::test(start_paused = true)]
async fn events_come_in_order_and_who_is_slow_knows_what_it_missed() {
    let task = Task::new("a", |context: Context| async move {
        if context.run() < 4 { Err(Failure::new("a bug")) } else { Ok(()) }
    });
    let mut builder = plain().task(task);
    let (mut all, mut few) = (builder.events(1000), builder.events(3));
    let supervisor = builder.start().unwrap();
    rest(&supervisor).await;
    supervisor.shutdown().await;
    let mut seqs = Vec::new();
    while let Some(event) = all.next().await {
        seqs.push(event.seq);
    }
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(seqs.len(), 16, "four starts, ready, died; three restarts scheduled; one rest");
    let mut got = 0;
    while few.next().await.is_some() {
        got += 1;
    }
    assert_eq!((got, few.missed()), (3, 13));
}
