//! How a run ends, as a task says it, and what the core is told of it.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use defib_core::run::{ExitReport, Finding, Status};
use defib_core::{Class, Policy, Signal, Wall};

use crate::clock::wall;

/// The code by which a program that panicked exits; a task that panicked counts as one.
const PANICKED: i32 = 101;

/// How a run ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It has finished. Restarted under `always` alone.
    Done,
    /// It wants to be left alone from now on: not restarted under any mode.
    Voluntary,
    /// It failed.
    Failed(Failure),
}

/// Why a run failed: a message, and what sort of failure it is where the task knows that.
///
/// Every error converts into one, so that `?` works in a task that returns
/// `Result<(), Failure>`. Such a failure is an `error`: a dumb death, restarted. A task may as well
/// return any other error that can be shown, a `String` or a boxed one too.
///
/// ```
/// use defib_tasks::{Class, Failure};
///
/// fn fetch() -> Result<String, Failure> {
///     let text = std::str::from_utf8(b"seven")?;
///     Ok(text.to_owned())
/// }
/// # assert_eq!(fetch().unwrap(), "seven");
///
/// let quota = Failure::of(Class::Quota, "usage limit reached")
///     .resets_in(std::time::Duration::from_secs(3600));
/// assert_eq!(quota.message(), "usage limit reached");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    message: Box<str>,
    class: Option<Class>,
    exit_code: i32,
    resets: Option<Resets>,
}

/// When the cause of a failure goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resets {
    In(Duration),
    At(Wall),
}

impl Failure {
    /// A failure like any other.
    pub fn new(message: impl Into<Box<str>>) -> Failure {
        Failure { message: message.into(), class: None, exit_code: 1, resets: None }
    }

    /// A failure of a known class: a quota is waited for, a missing login halts, and so on, as the
    /// task's policy has it.
    pub fn of(class: Class, message: impl Into<Box<str>>) -> Failure {
        Failure { class: Some(class), ..Failure::new(message) }
    }

    /// With an exit code, from which the policy's map of codes tells the class.
    #[must_use]
    pub fn with_code(self, exit_code: i32) -> Failure {
        Failure { exit_code, ..self }
    }

    /// The cause goes away after this time.
    #[must_use]
    pub fn resets_in(self, span: Duration) -> Failure {
        Failure { resets: Some(Resets::In(span)), ..self }
    }

    /// The cause goes away at this time.
    #[must_use]
    pub fn resets_at(self, time: SystemTime) -> Failure {
        Failure { resets: Some(Resets::At(wall(time))), ..self }
    }

    /// The same failure with another message.
    #[must_use]
    pub fn saying(self, message: impl Into<Box<str>>) -> Failure {
        Failure { message: message.into(), ..self }
    }

    /// What was said about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its class, where the task knows it.
    pub fn class(&self) -> Option<Class> {
        self.class
    }
}

impl<E: Error> From<E> for Failure {
    /// The error's message, and those of its causes behind it.
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Failure::new(message)
    }
}

/// What a task or an iteration may fail with: a [`Failure`], or anything that can be shown.
pub trait IntoFailure {
    /// The failure that it means.
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

impl<E: fmt::Display> IntoFailure for E {
    /// What it shows in its longer form: the causes too, where it has them in there.
    fn into_failure(self) -> Failure {
        Failure::new(format!("{self:#}"))
    }
}

/// What a task's future may give: nothing, an exit code, an [`End`], or a `Result` of those.
pub trait IntoEnd {
    /// The end that it means.
    fn into_end(self) -> End;
}

impl IntoEnd for () {
    fn into_end(self) -> End {
        End::Done
    }
}

impl IntoEnd for End {
    fn into_end(self) -> End {
        self
    }
}

/// An exit code: zero is success, as for a process.
impl IntoEnd for i32 {
    fn into_end(self) -> End {
        if self == 0 {
            End::Done
        } else {
            End::Failed(Failure::new(format!("exit code {self}")).with_code(self))
        }
    }
}

/// A future that is one endless loop gives the type that has no name yet; this is how to name it.
#[doc(hidden)]
pub trait Gives {
    /// What it gives.
    type Output;
}

impl<T> Gives for fn() -> T {
    type Output = T;
}

/// A task that never returns: it ends by a panic, or is aborted.
impl IntoEnd for <fn() -> ! as Gives>::Output {
    fn into_end(self) -> End {
        self
    }
}

impl<T: IntoEnd, E: IntoFailure> IntoEnd for Result<T, E> {
    fn into_end(self) -> End {
        match self {
            Ok(end) => end.into_end(),
            Err(error) => End::Failed(error.into_failure()),
        }
    }
}

/// What became of a run, as its supervisor sees it.
#[derive(Debug)]
pub(crate) enum Fate {
    Ended(End),
    Panicked(Box<str>),
    /// Its future was dropped before it was over.
    Aborted,
}

impl Fate {
    /// What a panic said, where it said anything in words.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Fate {
        let words = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Fate::Panicked(match words {
            Some(words) => format!("panicked: {words}").into(),
            None => "panicked".into(),
        })
    }

    /// What the core is told of it.
    ///
    /// A task has no output, so its life alone is its sign of life.
    pub(crate) fn report(self, policy: &Policy, now: Wall) -> ExitReport {
        let found = |class, evidence, resets_at| Some(Finding { class, evidence, resets_at });
        match self {
            Fate::Ended(End::Done) => Status::Exited(0).into(),
            Fate::Ended(End::Voluntary) => ExitReport {
                status: Status::Exited(0),
                finding: found(Class::Voluntary, None, None),
                spoke: true,
            },
            Fate::Ended(End::Failed(failure)) => {
                let status = Status::Exited(failure.exit_code);
                let by_code = policy.class_of(status);
                // A failure with a code of zero is one all the same.
                let by_code = if by_code == Class::Done { Class::Error } else { by_code };
                let class = failure.class.unwrap_or(by_code);
                let resets_at = failure.resets.map(|resets| match resets {
                    Resets::In(span) => now + span,
                    Resets::At(time) => time,
                });
                let finding = found(class, Some(failure.message), resets_at);
                ExitReport { status, finding, spoke: true }
            }
            Fate::Panicked(message) => {
                let status = Status::Exited(PANICKED);
                let finding = found(policy.class_of(status), Some(message), None);
                ExitReport { status, finding, spoke: true }
            }
            Fate::Aborted => Status::Signaled(Signal::KILL).into(),
        }
    }
}
