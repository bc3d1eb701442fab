//! What Celistra's document says of its restarter.

use std::time::Duration;

use defib_tasks::celistra::{AutoRestart, Restarter};
use defib_tasks::{Context, Mode, State, Task};
use tokio::time::{Instant, advance};

use crate::{Log, ms, plain, rest, secs};

#[tokio::test(start_paused = true)]
async fn five_deaths_in_any_rolling_60_seconds_end_the_respawns() {
    let mut restarter = Restarter::default();
    for deaths in 1..=4 {
        restarter.record_death();
        advance(secs(1)).await;
        assert!(restarter.should_respawn(), "{deaths} deaths");
    }
    restarter.record_death();
    assert!(!restarter.should_respawn());
    assert_eq!(restarter.deaths(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_death_exactly_as_old_as_the_window_is_out() {
    let mut restarter = Restarter::new(1, secs(60));
    restarter.record_death();
    advance(ms(59_999)).await;
    assert!(!restarter.should_respawn());
    advance(ms(1)).await;
    assert!(restarter.should_respawn());
}

#[tokio::test(start_paused = true)]
async fn a_death_an_hour_is_no_crash_loop_even_the_hundredth() {
    let mut restarter = Restarter::default();
    for _ in 0..100 {
        advance(secs(3600)).await;
        restarter.record_death();
        assert!(restarter.should_respawn());
    }
}

#[tokio::test(start_paused = true)]
async fn one_in_24_hours_allows_no_respawn_and_thirty_in_a_minute_29() {
    let mut cron = Restarter::new(1, Duration::from_secs(24 * 3600));
    cron.record_death();
    assert!(!cron.should_respawn());
    let mut websocket = Restarter::new(30, secs(60));
    let mut respawns = 0;
    loop {
        websocket.record_death();
        if !websocket.should_respawn() {
            break;
        }
        respawns += 1;
    }
    assert_eq!(respawns, 29);
}

#[tokio::test(start_paused = true)]
async fn a_person_can_re_enable_it() {
    let mut restarter = Restarter::new(1, secs(60));
    restarter.record_death();
    assert!(!restarter.should_respawn());
    restarter.reset();
    assert!(restarter.should_respawn());
}

#[test]
fn exit_code_0_is_done_unless_it_means_i_want_to_be_reborn() {
    let usual = AutoRestart::default();
    assert_eq!([Some(0), Some(1), None].map(|code| usual.is_unexpected(code)), [false, true, true]);
    let reborn = AutoRestart { respawn_on_zero: true, ..usual };
    assert!(reborn.is_unexpected(Some(0)));
    assert_eq!(reborn.policy().mode, Mode::Always);
    let once = AutoRestart { auto_restart: false, ..usual };
    assert_eq!([Some(0), Some(1), None].map(|code| once.is_unexpected(code)), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_task_under_the_rule_is_respawned_four_times_without_delay_and_is_crashed_out() {
    let task = Task::new("a", |_: Context| async { 1 }).policy(AutoRestart::default().policy());
    let (builder, log) = Log::of(plain().task(task));
    let began = Instant::now();
    let supervisor = builder.start().unwrap();
    rest(&supervisor).await;
    let sight = supervisor.sight("a").await.unwrap();
    assert_eq!((sight.state, sight.restarts), (State::CrashedOut, 4));
    assert_eq!(log.delays_ms(), [0; 4], "no backoff");
    assert_eq!(began.elapsed(), secs(0));
}
