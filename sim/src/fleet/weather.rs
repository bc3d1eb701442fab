//! The weather of a day: which faults it has, and how often.
//!
//! Each seed draws its own set, so that some days have one fault only and others have everything at
//! once. A day with every fault a little hides what a day with two faults a lot would show.

use std::time::Duration;

use super::check::goals::Request;
use super::draw::Draw;

macro_rules! faults {
    ($($variant:ident = $word:literal),* $(,)?) => {
        /// What can go wrong, or be meddled with, in a day.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the words say it")]
        pub enum Fault {
            $($variant),*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Fault] = &[$(Fault::$variant),*];

            /// How it is called in the account of many days.
            pub const fn word(self) -> &'static str {
                match self { $(Fault::$variant => $word),* }
            }
        }
    };
}

faults! {
    Crash = "crash",
    CrashLoop = "crash loop",
    QuickDone = "quick done",
    SpawnFailure = "spawn failure",
    Deaf = "deaf to the stop signal",
    Hang = "hang",
    Finding = "death with a finding",
    Wish = "wish to shut down",
    Overspend = "overspent",
    ProbeFailed = "probe failed",
    SlowReady = "ready late",
    NeverReady = "never ready",
    LateReport = "late exit report",
    DuplicateReport = "duplicate exit report",
    MissingReport = "missing exit report",
    WallStep = "wall clock step",
    Suspend = "suspend",
    DaemonDeath = "daemon death",
    Reboot = "reboot",
    Close = "orderly close",
    Command = "operator command",
    Edit = "edit of the file",
    Balance = "balance change",
    Trigger = "trigger",
    WaitOver = "end of a wait",
}

use Request::{Down, Restart, Revive, Start, Stop, Up};

/// Some of everything.
const BALANCED: &[Request] = &[Up, Down, Start, Stop, Restart, Revive];
/// Whatever falls is put back.
const PATIENT: &[Request] = &[Up, Start, Revive, Revive, Revive];
/// Nothing is left alone.
const RESTLESS: &[Request] = &[Restart, Restart, Start, Stop, Revive];
/// Down, up, and again.
const STRICT: &[Request] = &[Down, Up, Up, Stop, Start, Revive];

/// Which faults a day has.
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    /// How many in a thousand runs, signals or reports are struck; zero is never.
    odds: [u64; Fault::ALL.len()],
    /// Between two strokes of a fault that comes by itself.
    gaps: [Option<Duration>; Fault::ALL.len()],
    /// What people ask for on such a day; what is in it twice they ask for more often.
    pub(crate) requests: &'static [Request],
    /// How many deaths of its own each agent may die in a day. It bounds what happens in one.
    pub(crate) fuel: u64,
}

impl Weather {
    pub(crate) fn draw(draw: &mut Draw) -> Weather {
        let busy = draw.pick(&[300, 500, 800]);
        let mut weather = Weather {
            odds: [0; Fault::ALL.len()],
            gaps: [None; Fault::ALL.len()],
            requests: draw.pick(&[BALANCED, PATIENT, RESTLESS, STRICT]),
            fuel: draw.pick(&[10, 50, 150, 300]),
        };
        for fault in Fault::ALL {
            if !draw.chance(busy) {
                continue;
            }
            weather.odds[*fault as usize] = draw.pick(&[30, 100, 300, 600]);
            weather.gaps[*fault as usize] = most_a_day(*fault).map(|most| {
                let times = draw.between(1, most);
                Duration::from_secs(86_400 / times)
            });
        }
        weather
    }

    /// How many in a thousand are struck.
    pub(crate) fn odds(&self, fault: Fault) -> u64 {
        self.odds[fault as usize]
    }

    /// How long until the fault comes again; nothing where it does not come by itself.
    pub(crate) fn next(&self, fault: Fault, draw: &mut Draw) -> Option<Duration> {
        let gap = self.gaps[fault as usize]?;
        // Now and then two come close together.
        Some(match draw.below(4) {
            0 => draw.spread(Duration::from_millis(1), gap),
            1 | 2 => draw.span(Duration::ZERO, gap),
            _ => draw.span(gap, gap * 2),
        })
    }
}

/// How often a fault comes by itself, at most; nothing where it strikes runs, signals or reports.
const fn most_a_day(fault: Fault) -> Option<u64> {
    match fault {
        Fault::Crash
        | Fault::CrashLoop
        | Fault::QuickDone
        | Fault::SpawnFailure
        | Fault::Deaf
        | Fault::Hang
        | Fault::Finding
        | Fault::Wish
        | Fault::Overspend
        | Fault::ProbeFailed
        | Fault::SlowReady
        | Fault::NeverReady
        | Fault::LateReport
        | Fault::DuplicateReport
        | Fault::MissingReport => None,
        Fault::WallStep => Some(24),
        Fault::Suspend => Some(20),
        Fault::DaemonDeath => Some(150),
        Fault::Reboot => Some(8),
        Fault::Close => Some(6),
        Fault::Command => Some(400),
        Fault::Edit => Some(60),
        Fault::Balance => Some(40),
        Fault::Trigger => Some(100),
        Fault::WaitOver => Some(60),
    }
}
