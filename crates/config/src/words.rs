//! The words a file may use where only certain words will do, each with what it stands for.
//!
//! A word is written down once, beside its meaning: the shape of the file, its schema and its
//! lowering all read these tables.

use defib_core::backoff::Growth;
use defib_core::class::Class;
use defib_core::limit::Then;
use defib_core::policy::{Mode, Order};
use defib_core::preset::Preset;
use defib_core::topology::Strategy;
use serde::{Deserialize, Serialize};

/// A table of words: what is written, and what it stands for.
pub(crate) type Meanings<T> = [(&'static str, T)];

macro_rules! words {
    ($(#[doc = $about:literal])* $name:ident {
        $($(#[doc = $doc:literal])* $variant:ident = $word:literal),* $(,)?
    }) => {
        $(#[doc = $about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum $name {
            $($(#[doc = $doc])* #[serde(rename = $word)] $variant),*
        }

        impl $name {
            pub(crate) const MEANINGS: &'static Meanings<$name> =
                &[$(($word, $name::$variant)),*];
            pub(crate) const LIST: &'static [&'static str] = &[$($word),*];

            /// The word by which config, JSON and people call it.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }
    };
}

words! {
    /// What sort of program an agent is: whose output is read, and whose sessions are known.
    AgentKind {
        /// Told from its command.
        Auto = "auto",
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
        /// Gemini.
        Gemini = "gemini",
        /// opencode.
        Opencode = "opencode",
        /// goose.
        Goose = "goose",
        /// aider.
        Aider = "aider",
        /// A Python program.
        Python = "python",
        /// A Node program.
        Node = "node",
        /// Any other program.
        Generic = "generic",
    }
}

words! {
    /// Who says that a run is ready.
    ReadyBy {
        /// Nobody has to: it is ready when it has been spawned.
        Spawn = "spawn",
        /// The agent itself, through its notify socket.
        Notify = "notify",
        /// Its probe.
        Probe = "probe",
    }
}

words! {
    /// What becomes of processes that a dead run left behind.
    Leftovers {
        /// They are ended.
        Kill = "kill",
        /// They are left alone.
        Keep = "keep",
    }
}

words! {
    /// What an agent may look at through the daemon's socket, beside what it does for itself.
    Views {
        /// Nothing else.
        Own = "own",
        /// The agents of its project, and what they wrote and did.
        Project = "project",
    }
}

words! {
    /// What keeps an agent with capabilities apart from the rest of the machine.
    Isolation {
        /// Landlock and a filter of system calls.
        Landlock = "landlock",
        /// Those, in user, mount, pid, ipc and net namespaces of its own.
        Namespaces = "namespaces",
    }
}

words! {
    /// What is done when an agent spends far above its own baseline.
    Burn {
        /// Somebody is told.
        Notify = "notify",
        /// It is stopped.
        Stop = "stop",
        /// Nothing.
        Off = "off",
    }
}

words! {
    /// What is done with an agent whose budget nothing measures.
    Unmetered {
        /// It is not started.
        Refuse = "refuse",
        /// It is started all the same.
        Allow = "allow",
    }
}

words! {
    /// What a notification can be about.
    Event {
        /// A limit tripped.
        CrashedOut = "crashed-out",
        /// A fix is needed.
        Halted = "halted",
        /// Held by quota, budget, disk or a question.
        Waiting = "waiting",
        /// Put back by a person.
        Revived = "revived",
        /// Running again after a failure.
        Recovered = "recovered",
        /// A group has failed.
        Escalated = "escalated",
        /// Not running though it should.
        Down = "down",
        /// Spending far above its own baseline.
        BurnAlarm = "burn-alarm",
    }
}

words! {
    /// How the way to a mail server is encrypted.
    SmtpTls {
        /// From the first byte.
        Implicit = "implicit",
        /// By `STARTTLS`; a server that does not know it gets nothing.
        Starttls = "starttls",
        /// Not at all: for a server on this machine.
        Off = "off",
    }
}

/// How the window of a limit moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    /// It ends now, always.
    Rolling,
    /// It begins with its first entry, and starts again once it is over.
    Tumbling,
}

pub(crate) const WINDOWS: [(&str, Window); 2] =
    [("rolling", Window::Rolling), ("tumbling", Window::Tumbling)];

pub(crate) const MODES: [(&str, Mode); 3] =
    [("always", Mode::Always), ("on-failure", Mode::OnFailure), ("never", Mode::Never)];

pub(crate) const ORDERS: [(&str, Order); 4] = [
    ("restart", Order::Restart),
    ("wait", Order::Wait),
    ("rest", Order::Rest),
    ("halt", Order::Halt),
];

pub(crate) const GROWTHS: [(&str, Growth); 4] = [
    ("exponential", Growth::Exponential),
    ("linear", Growth::Linear),
    ("fixed", Growth::Fixed),
    ("none", Growth::None),
];

pub(crate) const THENS: [(&str, Then); 2] =
    [("crash-out", Then::CrashOut), ("escalate", Then::Escalate)];

pub(crate) const PRESETS: [(&str, Preset); Preset::ALL.len()] = {
    let mut table = [("", Preset::Default); Preset::ALL.len()];
    let mut at = 0;
    while at < table.len() {
        table[at] = (Preset::ALL[at].word(), Preset::ALL[at]);
        at += 1;
    }
    table
};

pub(crate) const CLASSES: [(&str, Class); Class::COUNT] = {
    let mut table = [("", Class::Error); Class::COUNT];
    let mut at = 0;
    while at < table.len() {
        table[at] = (Class::ALL[at].word(), Class::ALL[at]);
        at += 1;
    }
    table
};

/// What a group does when a member has to be restarted.
pub(crate) const STRATEGIES: [(&str, Strategy); 3] = {
    let [a, b, c] = Strategy::ALL;
    [(a.word(), a), (b.word(), b), (c.word(), c)]
};

/// The words of a table alone.
pub(crate) const fn words_of<T, const N: usize>(
    table: &[(&'static str, T); N],
) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = table[at].0;
        at += 1;
    }
    words
}

/// What a word stands for in a table.
pub(crate) fn meaning<T: Copy>(word: &str, table: &Meanings<T>) -> Option<T> {
    table.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
}
