//! Supervise async tasks inside your own program, by the same decisions as defib itself.
//!
//! A [`Supervisor`] keeps [`Task`]s alive: it restarts those that fail or panic after a growing
//! delay, stops when a limit says that it is a crash loop, waits for quotas, leaves alone what has
//! finished or wants to be left alone, restarts [groups](Group) by their strategy, and ends
//! everything in order. Every decision is made by `defib-core`, the very code that decides about
//! processes in the `defib` daemon; here there is only what carries decisions out in tokio.
//!
//! ```
//! use defib_tasks::{Failure, Preset, Supervisor, Task};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let supervisor = Supervisor::builder()
//!     .task(Task::new("reviewer", |context| async move {
//!         loop {
//!             tokio::select! {
//!                 () = context.stopped() => return Ok::<(), Failure>(()),
//!                 outcome = review() => outcome?,
//!             }
//!             context.beat();
//!         }
//!     }).preset(Preset::Ecology))
//!     .start()?;
//! # tokio::time::sleep(std::time::Duration::from_secs(60)).await;
//! supervisor.shutdown().await;
//! # Ok(())
//! # }
//! # async fn review() -> Result<(), std::io::Error> {
//! #     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
//! #     Ok(())
//! # }
//! ```
//!
//! | a run that … | died of | and by default |
//! | --- | --- | --- |
//! | returns `()` or `Ok(())` | `done` | rests |
//! | returns an error, or panics | `error` | is restarted after a delay, until a limit trips |
//! | returns [`Failure::of`] a class | that class | a quota is waited for, a missing login halts … |
//! | called [`Context::shutdown`], or returns [`End::Voluntary`] | `voluntary` | rests, under every policy |
//! | has nothing left to spend ([`Task::solvent_while`], [`Context::set_broke`]) | `broke` | halts until it is funded |
//! | does not [beat](Context::beat) in time, where its policy wants that | `timeout` | is ended and restarted |
//!
//! [`AgentLoop`] is for agents that work in iterations. [`celistra`], [`ecology`] and [`weft`] have the
//! types of three documented systems, under the names that their readers know.

#![forbid(unsafe_code)]

mod agent_loop;
mod clock;
mod context;
mod driver;
mod end;
mod error;
mod event;
mod plan;
mod roster;
mod run;
mod sight;
mod supervisor;
mod task;

pub mod celistra;
pub mod ecology;
pub mod weft;

pub use agent_loop::{AgentLoop, Looping, Next};
pub use context::Context;
pub use end::{End, Failure, IntoEnd, IntoFailure};
pub use error::Error;
pub use event::{Event, Events};
pub use sight::{Death, Sight};
pub use supervisor::{Builder, Handle, Supervisor};
pub use task::{Group, Task};

pub use defib_core::backoff::{Backoff, Growth};
pub use defib_core::class::Kind;
pub use defib_core::limit::{Limit, Span};
pub use defib_core::policy::{Heartbeat, Mode, Order, Policy, Ready};
pub use defib_core::record::{Cause, Trip, WaitReason};
pub use defib_core::{Class, Preset, Reason, Record, Remedy, State, Strategy, Verdict, What};
