//! The same deaths give the same decisions at the same moments as in a rehearsal of the core.

use std::sync::Arc;
use std::time::Duration;

use defib_sim::rehearsal::{Outcome, Rehearsal};
use defib_sim::script::{End as Ending, Script, Step};
use defib_tasks::{Class, Context, End, Failure, Preset, Record, Supervisor, Task, What};
use proptest::prelude::*;

use crate::{Log, rest, secs, until};

/// The same record, without what only a task says.
fn bare(record: &Record) -> Record {
    let mut record = record.clone();
    if let What::RunDied { evidence, .. } = &mut record.what {
        *evidence = None;
    }
    record
}

fn in_the_core(preset: Preset, steps: &[Step], seed: u64) -> (Vec<(Duration, Record)>, bool) {
    let rehearsal = Rehearsal {
        agent: defib_core_name("a"),
        policy: preset.policy(),
        script: Script::of(steps.to_vec()).unwrap(),
        horizon: secs(10_000_000),
        jitter_seed: Some(seed),
        max_total_restarts: Some(9),
    };
    let account = rehearsal.play();
    let goes_on = matches!(account.outcome, Outcome::ScriptOver(_));
    let told = account.events.into_iter().map(|event| (event.at_s.0, event.record)).collect();
    (told, goes_on)
}

fn defib_core_name(text: &str) -> defib_core::Name {
    defib_core::Name::parse(text).unwrap()
}

fn as_a_task(preset: Preset, steps: &[Step], seed: u64, goes_on: bool) -> Vec<(Duration, Record)> {
    let steps: Arc<[Step]> = steps.into();
    let last = steps.len() as u64;
    let task = Task::new("a", move |context: Context| {
        let step = usize::try_from(context.run()).ok().and_then(|run| steps.get(run - 1).copied());
        async move {
            let Some(step) = step else { return std::future::pending::<End>().await };
            tokio::time::sleep(step.run).await;
            match step.end {
                Ending::Exit(0) => End::Done,
                Ending::Class { class: Class::Voluntary, .. } => End::Voluntary,
                Ending::Exit(code) => End::Failed(Failure::new("code").with_code(code)),
                Ending::Class { class, reset } => {
                    let failure = Failure::of(class, "class");
                    End::Failed(reset.into_iter().fold(failure, Failure::resets_in))
                }
                other => unreachable!("{other:?}"),
            }
        }
    })
    .preset(preset);
    let builder = Supervisor::builder().jitter_seed(seed).max_total_restarts(9).task(task);
    let (builder, log) = Log::of(builder);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let supervisor = builder.start().unwrap();
        if goes_on {
            until(&supervisor, "a", |sight| sight.run == last + 1).await;
        } else {
            rest(&supervisor).await;
        }
    });
    log.events().into_iter().map(|event| (event.after, event.record)).collect()
}

fn endings() -> impl Strategy<Value = Ending> {
    let class = |class| Just(Ending::Class { class, reset: None });
    prop_oneof![
        6 => Just(Ending::Exit(1)),
        2 => Just(Ending::Exit(0)),
        1 => Just(Ending::Exit(2)),
        1 => class(Class::Network),
        1 => class(Class::Quota),
        1 => class(Class::Context),
        1 => class(Class::Interrupted),
        1 => class(Class::Voluntary),
        1 => class(Class::Auth),
        1 => (0u64..100_000).prop_map(|seconds| Ending::Class {
            class: Class::Quota,
            reset: Some(secs(seconds)),
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = prop_oneof![Just(0u64), 0u64..2000, 0u64..59_000];
    let step =
        (run, endings()).prop_map(|(run, end)| Step { run: Duration::from_millis(run), end });
    prop::collection::vec(step, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tasks_are_decided_upon_as_the_core_decides_about_anything(
        preset in prop::sample::select(Preset::ALL.to_vec()),
        steps in steps(),
        seed: u64,
    ) {
        let (told, goes_on) = in_the_core(preset, &steps, seed);
        let seen = as_a_task(preset, &steps, seed, goes_on);
        let told: Vec<_> = told.iter().map(|(at, record)| (*at, bare(record))).collect();
        let seen: Vec<_> = seen.iter().map(|(at, record)| (*at, bare(record))).collect();
        prop_assert_eq!(seen, told);
    }
}
