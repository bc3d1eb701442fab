//! The keeper: parent of every agent.
//!
//! A brain that parses the world's output will have bugs; agents must not die of them. So their
//! parent is a process that does so little that it can be read in one sitting: it spawns, signals,
//! reaps, holds file descriptors and bytes for the daemon, and restarts the daemon. This is the only
//! crate with `unsafe` in it.
//!
//! A keeper is a process that calls [`run`] and nothing else. It starts the daemon, which begins with
//! [`inherited`]: its [`Channel`] to the keeper, over which it sends [`protocol::Request`]s and gets
//! [`protocol::News`], and the listening socket that outlives it. The channel never blocks: register
//! it for reading (and for writing while [`Channel::queued_bytes`] is not zero) and call
//! [`Channel::receive`] until it says `None`.
//!
//! The descriptor of a run's output comes with `Spawned`, `Held`, and with an `Exited` that is told
//! again (on a new connection or by inquiry): what the run wrote last may still be in there.
//!
//! After a keeper was killed, [`sweep`] ends what it left behind, and its daemon becomes the next one.
//!
//! For the daemon, and of no use to the keeper: [`output`], [`clock`], [`wake`], [`home`],
//! [`usage`], [`activity`], what the kernel can hold a sandbox to ([`sandbox`]), and what comes to the sockets of [`notify`].

pub mod activity;
mod ancestry;
mod cgroup;
mod channel;
mod child;
pub mod claim;
pub mod clock;
mod daemon;
mod descent;
mod entrance;
mod errno;
mod footprint;
mod front;
pub mod home;
mod inherited;
mod keeper;
mod kinship;
mod launch;
mod memory;
pub mod notify;
pub mod odd_files;
pub mod output;
mod pidfd;
pub mod protocol;
mod runs;
pub mod sandbox;
mod spawner;
mod standing;
mod stat;
mod tree;
mod turns;
pub mod usage;
mod wait;
pub mod wake;

pub use channel::{Channel, ChannelError, Flushed, MAX_DESCRIPTORS};
pub use daemon::{KEEPER_FD, LISTENER_FD, inherited, leave_sockets};
pub use descent::{HOME_KEY, RUN_KEY, Swept, is_of_run, sweep};
pub use entrance::Entrance;
pub use footprint::{pack, release_memory, settle_allocator};
pub use front::Front;
pub use inherited::close_inherited;
pub use keeper::{KeeperOptions, run};
pub use kinship::{Kinship, Peer};
pub use launch::account;
pub use runs::spawn_deadline;
pub use sandbox::namespaces::run_confined;
pub use standing::{
    Bounds, be_prompt, descriptor_limit, hide_memory, hold_signals, in_background,
    raise_descriptor_limit,
};

/// One line on standard error, or none: a keeper does not wait for somebody to read.
fn say(text: &str) {
    use rustix::event::{PollFd, PollFlags};
    let error = rustix::stdio::stderr();
    let mut polled = [PollFd::from_borrowed_fd(error, PollFlags::OUT)];
    let at_once = rustix::time::Timespec::default();
    if rustix::event::poll(&mut polled, Some(&at_once)) == Ok(1) {
        let _ = rustix::io::write(error, format!("defib-keeper: {text}\n").as_bytes());
    }
}
