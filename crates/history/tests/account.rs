//! Events go in and come out as they were; runs are what they add up to.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod common;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use common::{SOON, at, died, event, home, host_event, name, open, stamp, started};
use defib_core::limit::{Gauge, Limit, Span};
use defib_core::record::{By, Cause, Rest, Trip, WaitReason};
use defib_core::run::Status;
use defib_core::time::Seconds;
use defib_core::{
    AgentSpec, Class, Effect, Goal, GroupSpec, Input, Now, Outbox, Preset, Record, RunId, Scope,
    Settings, Signal, Strategy, Supervisor, Topology, Verdict, View, Wall, What,
};
use defib_history::{
    Event, EventFilter, PostMortem, Reader, Redactor, RunFilter, Stamp, TAIL_MAX, Take, Usage,
};
use serde_json::json;

/// Every variant, with and without each of its options.
fn every_what() -> Vec<What> {
    let gauge = Gauge { limit: Limit::deaths(5, Duration::from_millis(60_500)), count: 4 };
    let tumbling =
        Gauge { limit: Limit::restarts(3, Span::Tumbling(Duration::from_secs(60))), count: 1 };
    let mut all = vec![
        What::RunStarted { cause: Cause::Restart, fresh: true, restarts: 7 },
        What::RunReady,
        What::RestartScheduled { delay_ms: 800, attempt: 3, gauge: Some(gauge) },
        What::RestartScheduled { delay_ms: 0, attempt: u64::MAX, gauge: None },
        What::WaitStarted { reason: WaitReason::Cause(Class::Quota), wait_ms: Some(u64::MAX) },
        What::WaitStarted { reason: WaitReason::Dependency, wait_ms: None },
        What::WaitEnded { reason: WaitReason::Dependency },
        What::LimitTripped { group: Some(name("pipeline")), gauge: tumbling },
        What::LimitTripped { group: None, gauge },
        What::CrashedOut { by: Trip::Window },
        What::Halted { reason: Class::Auth },
        What::Revived,
        What::StopRequested { by: By::Operator, kill: true },
        What::Stopped { goal: Goal::Down },
        What::Rested { rest: Rest::Failed },
        What::Escalated { group: Some(name("a")), to: None },
        What::GroupRestarted {
            group: name("g"),
            strategy: Strategy::RestForOne,
            delay_ms: 5,
            members: 3,
            gauge: Some(tumbling),
        },
        What::HeartbeatMissed {
            silent_s: Seconds(Duration::new(121, 123_456_789)),
            ttl_s: Seconds(Duration::from_secs(120)),
        },
    ];
    for class in Class::ALL {
        for (exit_code, signal) in [(Some(-1), None), (None, Some(Signal::KILL)), (None, None)] {
            all.push(What::RunDied {
                class: *class,
                kind: class.kind(),
                exit_code,
                signal,
                ran_s: Seconds(Duration::new(6_000_000, 999_999_999)),
                verdict: Verdict::CrashOut,
                counted: true,
                consecutive_failures: 3,
                evidence: Some("line \"with\" \u{1} and ü".into()),
            });
        }
    }
    all
}

/// A place for each variant. A new one does not compile until it has a place, and is then missed.
fn place(what: &What) -> usize {
    match what {
        What::RunStarted { .. } => 0,
        What::RunReady => 1,
        What::RunDied { .. } => 2,
        What::RestartScheduled { .. } => 3,
        What::WaitStarted { .. } => 4,
        What::WaitEnded { .. } => 5,
        What::LimitTripped { .. } => 6,
        What::CrashedOut { .. } => 7,
        What::Halted { .. } => 8,
        What::Revived => 9,
        What::StopRequested { .. } => 10,
        What::Stopped { .. } => 11,
        What::Rested { .. } => 12,
        What::Escalated { .. } => 13,
        What::GroupRestarted { .. } => 14,
        What::HeartbeatMissed { .. } => 15,
    }
}

#[test]
fn every_record_comes_back_from_the_disk_as_it_went_in() {
    let (_folder, path) = home();
    let (history, opened) = open(&path);
    assert_eq!((opened.highest_seq, opened.damaged, opened.failing), (0, None, None));
    let whats = every_what();
    let mut places: Vec<usize> = whats.iter().map(place).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places, (0..16).collect::<Vec<_>>());
    let events: Vec<Event> =
        whats.iter().zip(1..).map(|(what, seq)| event(seq, "web", 4, what.clone())).collect();
    history.append(events.clone());
    history.flush(SOON).unwrap();

    let read = Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap();
    assert_eq!(read, events);
    for (event, what) in read.iter().zip(whats) {
        let record = event.record().unwrap_or_else(|| panic!("{} is no record", event.kind));
        assert_eq!(record, Record { agent: name("web"), run: Some(RunId(4)), what });
    }
    drop(history);
    assert_eq!(open(&path).1.highest_seq, events.len() as u64);
}

/// A fleet that restarts, waits, stops, halts and crashes out, told what happens by a small seeded
/// generator. Gives the records with their times, and the view folded as they were made.
fn a_busy_day(seed: u64) -> (Vec<(Now, Record)>, View) {
    let names = ["a", "b", "c", "d"].map(name);
    let policy = |preset: Preset| Arc::new(preset.policy());
    let specs = [Preset::Default, Preset::Aide, Preset::Weft, Preset::Celistra];
    let agents: Vec<AgentSpec> = names
        .iter()
        .zip(specs)
        .map(|(agent, preset)| AgentSpec::new(agent.clone(), name("p"), policy(preset)))
        .collect();
    let groups = vec![GroupSpec {
        name: name("g"),
        strategy: Strategy::OneForAll,
        budget: Some(GroupSpec::DEFAULT_BUDGET),
        members: names[2..].to_vec(),
    }];
    let mut core = Supervisor::new(Settings::default());
    let (mut records, mut view) = (Vec::new(), View::default());
    let (mut state, mut second) = (seed, 0_u64);
    let mut pick = |of: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % of
    };
    let mut inputs = VecDeque::from([
        Input::Apply(Box::new(Topology { agents, groups, ..Topology::default() })),
        Input::UpAsked(Scope::All),
    ]);
    let mut live = Vec::new();
    for _ in 0..600 {
        second += pick(40);
        let mut now = at(second);
        now.mono = now.mono + Duration::from_nanos(pick(1_000_000_007));
        let input = inputs.pop_front().unwrap_or_else(|| {
            let agent = core.known(&names[usize::try_from(pick(4)).unwrap()]).unwrap();
            let scope = Scope::Agent(agent);
            match pick(9) {
                0 => Input::StopAsked { scope, kill: pick(2) == 0 },
                1 => Input::StartAsked(scope),
                2 => Input::ReviveAsked(scope),
                3 => Input::DownAsked(Scope::All),
                4 => Input::UpAsked(Scope::All),
                5 if !live.is_empty() => {
                    let (agent, run) = live[usize::try_from(pick(live.len() as u64)).unwrap()];
                    Input::Readied { agent, run }
                }
                6 | 7 if !live.is_empty() => {
                    let (agent, run) =
                        live.remove(usize::try_from(pick(live.len() as u64)).unwrap());
                    let code = i32::try_from(pick(3)).unwrap();
                    Input::Exited { agent, run, report: Status::Exited(code).into() }
                }
                _ => Input::Tick,
            }
        });
        let mut out = Outbox::default();
        // What is refused changes nothing.
        let _ = core.handle(now, input, &mut out);
        for record in out.records {
            view.fold(now, &record);
            records.push((now, record));
        }
        for effect in out.effects {
            if let Effect::Spawn { agent, run, .. } = effect {
                live.push((agent, run));
                inputs.push_back(Input::Spawned { agent, run });
            }
        }
    }
    (records, view)
}

#[test]
fn replaying_the_stored_events_gives_the_live_view() {
    let mut deaths = 0;
    for seed in 1..=8 {
        let (records, live) = a_busy_day(seed);
        deaths += records.iter().filter(|(_, r)| matches!(r.what, What::RunDied { .. })).count();
        let (_folder, path) = home();
        let (history, _) = open(&path);
        for (seq, (now, record)) in (1..).zip(&records) {
            let stamp = Stamp { seq, now: *now, boot: "b".into(), project: None };
            history.append([Event::of_record(stamp, record)]);
        }
        history.flush(SOON).unwrap();
        assert_eq!(Reader::open(&path).unwrap().view().unwrap(), live, "seed {seed}");
    }
    assert!(deaths > 50, "the days were quiet: {deaths} deaths");
}

#[test]
fn a_run_is_what_history_json_says() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    let used =
        Usage { cpu_user_ms: Some(10), cpu_system_ms: None, memory_peak_bytes: Some(1 << 40) };
    let record = died(2, "web", 1, 3).record().unwrap();
    let death = Event::of_record_with(stamp(2), &record, used);
    assert_eq!(death.record(), Some(record));
    history.append([started(1, "web", 1), death, started(3, "web", 2)]);
    let output = b"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'tok-abcdef'\n";
    let found =
        PostMortem::new(name("web"), RunId(1)).with_output(output, &Redactor::new(&["tok-abcdef"]));
    history.attach(found);
    // What a later one does not say stays.
    history.attach(PostMortem::new(name("web"), RunId(1)));
    history.flush(SOON).unwrap();

    let reader = Reader::open(&path).unwrap();
    let runs = reader.runs(&RunFilter::default()).unwrap();
    let trace =
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: '[redacted]'";
    assert_eq!(
        serde_json::to_value(&runs).unwrap(),
        json!([
            {
                "agent": "web", "run": 2, "started_at": "2023-11-14T22:13:23.000Z",
                "ended_at": null, "ran_s": null, "death": null, "verdict": null,
            },
            {
                "agent": "web", "run": 1, "started_at": "2023-11-14T22:13:21.000Z",
                "ended_at": "2023-11-14T22:13:22.000Z", "ran_s": 1.5, "verdict": "restart",
                "death": {
                    "at": "2023-11-14T22:13:22.000Z", "class": "error", "kind": "dumb",
                    "exit_code": 3, "signal": null, "ran_s": 1.5, "evidence": "exit code",
                    "trace": trace, "cpu_user_ms": 10, "cpu_system_ms": null,
                    "memory_peak_bytes": 1_u64 << 40,
                },
            },
        ])
    );
    assert!(runs[0].alive && !runs[1].alive);
    assert_eq!(runs[1].death.as_ref().map(|death| death.used), Some(used));
    assert_eq!(runs[1].project, Some(name("night")));
    assert_eq!(reader.run(&name("web"), RunId(1)).unwrap().as_ref(), Some(&runs[1]));
    let tail = reader.tail(&name("web"), RunId(1)).unwrap().unwrap();
    assert!(tail.ends_with(b"KeyError: '[redacted]'\n"));
    assert_eq!(reader.tail(&name("web"), RunId(2)).unwrap(), None);
    assert_eq!(reader.last_runs().unwrap(), [(name("web"), RunId(2))].into());
}

#[test]
fn a_tail_is_never_longer_than_it_may_be() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.append([started(1, "web", 1)]);
    let mut found = PostMortem::new(name("web"), RunId(1));
    found.tail = Some([vec![b'x'; TAIL_MAX], b"end".to_vec()].concat());
    history.attach(found);
    history.flush(SOON).unwrap();
    let tail = Reader::open(&path).unwrap().tail(&name("web"), RunId(1)).unwrap().unwrap();
    assert_eq!(tail.len(), TAIL_MAX);
    assert!(tail.ends_with(b"xend"));
}

#[test]
fn a_run_whose_start_was_lost_is_told_from_its_death_and_one_without_a_death_is_over() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.append([died(10, "a", 7, 1), started(11, "b", 1), started(12, "b", 2)]);
    history.flush(SOON).unwrap();
    let reader = Reader::open(&path).unwrap();
    let a = reader.run(&name("a"), RunId(7)).unwrap().unwrap();
    assert_eq!(a.started_at, Wall::from_millis(at(10).wall.as_millis() - 1500));
    assert!(!a.alive && a.death.is_some());
    let b = reader.run(&name("b"), RunId(1)).unwrap().unwrap();
    assert!(!b.alive && b.death.is_none());
    assert!(reader.run(&name("b"), RunId(2)).unwrap().unwrap().alive);
}

#[test]
fn a_number_that_is_there_already_changes_nothing() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.append([started(1, "a", 1), died(2, "a", 1, 1)]);
    history.append([died(2, "a", 1, 9), started(1, "a", 1), host_event(3, "notified")]);
    history.flush(SOON).unwrap();
    let reader = Reader::open(&path).unwrap();
    let runs = reader.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].death.as_ref().unwrap().exit_code, Some(1));
    assert_eq!(reader.highest_seq().unwrap(), 3);
}

#[test]
fn events_and_runs_are_filtered() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    for run in 1..=10_u64 {
        let agent = if run.is_multiple_of(2) { "even" } else { "odd" };
        history.append([started(run * 2, agent, run), died(run * 2 + 1, agent, run, 1)]);
    }
    history.append([host_event(30, "daemon-started")]);
    history.flush(SOON).unwrap();
    let reader = Reader::open(&path).unwrap();
    let seqs = |filter: EventFilter| -> Vec<u64> {
        reader.events(&filter).unwrap().iter().map(|event| event.seq).collect()
    };
    let all = EventFilter::default();
    assert_eq!(seqs(all.clone()).len(), 21);
    assert_eq!(seqs(EventFilter { after: Some(20), ..all.clone() }), [21, 30]);
    assert_eq!(seqs(EventFilter { take: Take::Last(2), ..all.clone() }), [21, 30]);
    assert_eq!(seqs(EventFilter { take: Take::First(2), ..all.clone() }), [2, 3]);
    assert_eq!(seqs(EventFilter { since: Some(at(21).wall), ..all.clone() }), [21, 30]);
    let even = EventFilter { agent: Some(name("even")), after: Some(17), ..all.clone() };
    assert_eq!(seqs(even), [20, 21]);
    let kind = EventFilter { kinds: vec!["daemon-started".into()], ..all.clone() };
    assert_eq!(seqs(kind), [30]);
    let kinds = vec!["daemon-started".into(), "run-died".into()];
    assert_eq!(seqs(EventFilter { kinds, after: Some(18), ..all.clone() }), [19, 21, 30]);
    assert_eq!(seqs(EventFilter { until: Some(at(3).wall), ..all.clone() }), [2, 3]);
    let mut seen = 0;
    reader
        .each_event(&all, |_| {
            seen += 1;
            if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, 3);

    let runs = |filter: RunFilter| -> Vec<u64> {
        reader.runs(&filter).unwrap().iter().map(|run| run.run.0).collect()
    };
    let all = RunFilter::default();
    assert_eq!(runs(RunFilter { limit: Some(3), ..all.clone() }), [10, 9, 8]);
    assert_eq!(runs(RunFilter { agent: Some(name("odd")), limit: Some(2), ..all.clone() }), [9, 7]);
    assert_eq!(runs(RunFilter { since: Some(at(19).wall), ..all }), [10, 9]);
    assert_eq!(
        reader.runs(&RunFilter { agent: Some(name("no")), ..RunFilter::default() }),
        Ok(vec![])
    );
}

#[test]
fn readers_see_whole_commits_and_are_never_refused_while_the_writer_writes() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.append([host_event(1, "daemon-started")]);
    history.flush(SOON).unwrap();
    let total: u64 = 20_000;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < total {
                        // A connection for each question, and one that asks again.
                        let reader = Reader::open(&path).unwrap();
                        for _ in 0..2 {
                            let last =
                                EventFilter { take: Take::Last(50), ..EventFilter::default() };
                            let events = reader.events(&last).unwrap();
                            let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
                            assert!(seqs.windows(2).all(|two| two[1] == two[0] + 1), "{seqs:?}");
                            let highest = *seqs.last().unwrap();
                            assert!(highest >= seen, "the account went back");
                            seen = highest;
                        }
                    }
                })
            })
            .collect();
        for seq in 2..=total {
            history.append([host_event(seq, "notified")]);
            if seq.is_multiple_of(4000) {
                history.flush(SOON).unwrap();
            }
        }
        history.flush(SOON).unwrap();
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(history.lost(), defib_history::Lost::default());
}

#[test]
fn the_account_can_be_read_when_no_daemon_runs() {
    let (_folder, path) = home();
    assert!(Reader::open(&path).is_err(), "there is none yet");
    let (history, _) = open(&path);
    history.append([started(1, "a", 1)]);
    drop(history);
    let events = Reader::open(&path).unwrap().events(&EventFilter::default()).unwrap();
    assert_eq!(events, [started(1, "a", 1)]);
}

#[test]
fn nobody_else_can_read_what_agents_printed() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = home();
    let (history, _) = open(&path);
    history.append([started(1, "a", 1)]);
    history.flush(SOON).unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", entry.path().display());
        files += 1;
    }
    assert!(files >= 4, "both files and their logs: {files}");
}

#[test]
fn a_run_that_is_open_is_found_behind_however_many_others() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    let mut events = vec![started(1, "quiet", 1)];
    for run in 1..=10_050 {
        events.extend([started(run * 2, "loop", run), died(run * 2 + 1, "loop", run, 1)]);
    }
    history.append(events);
    history.flush(SOON).unwrap();
    let reader = Reader::open(&path).unwrap();
    let open = reader.open_runs().unwrap();
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!((&open[0].agent, open[0].run), (&name("quiet"), RunId(1)));
}

#[test]
fn the_newest_run_of_each_agent_is_told_with_its_death() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    history.append([
        started(1, "twice", 1),
        died(2, "twice", 1, 1),
        started(3, "twice", 2),
        died(4, "twice", 2, 7),
        started(5, "lives", 1),
        died(6, "lives", 1, 1),
        started(7, "lives", 2),
    ]);
    history.flush(SOON).unwrap();
    let newest = Reader::open(&path).unwrap().newest_runs().unwrap();
    let shown = newest.iter().map(|run| {
        let code = run.death.as_ref().map(|death| death.exit_code);
        (run.agent.as_str(), run.run, code)
    });
    let wanted = [("lives", RunId(2), None), ("twice", RunId(2), Some(Some(7)))];
    assert_eq!(shown.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_run_whose_end_was_lost_is_as_old_as_its_beginning() {
    let (_folder, path) = home();
    let (history, _) = open(&path);
    // No death of the first was stored, and another has begun.
    history.append([started(1, "a", 1), started(100, "a", 2), started(2, "b", 1)]);
    history.flush(SOON).unwrap();
    let reader = Reader::open(&path).unwrap();
    let since = Some(at(50).wall);
    let runs = reader.runs(&RunFilter { since, ..RunFilter::default() }).unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run.agent.as_str(), run.run.0)).collect();
    assert_eq!(runs, [("a", 2), ("b", 1)]);
}
