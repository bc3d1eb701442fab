//! Threads for system calls on the paths of agents.
//!
//! Such a call can block for ever, on a file system that does not answer. So neither the engine nor the
//! vigil makes one: a worker does, and the waiting thread has a deadline. A worker that is stuck stays
//! stuck until the kernel returns from its call. [`MOST_STUCK`] bounds how many of them one agent can hold.
//!
//! A daemon that is killed while a worker is stuck stays in the process table. The keeper does not wait for
//! it: a worker has none of the daemon's sockets ([`defib_host::leave_sockets`]), so its connections end. A job
//! must not use sockets, nor hand descriptors to another thread.
//!
//! Threads are started on demand and end when nothing is left to do. There are few of them, and more only
//! while one takes long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use defib_core::Name;

/// Number of threads that work at once if none of them takes long.
const USUAL: usize = 4;
/// Maximum number of threads.
const MOST: usize = 256;
/// A job that takes longer than this does not count as one that works.
const LONG: Duration = Duration::from_millis(20);
/// Maximum number of jobs of one agent that are begun at the same time.
const MOST_STUCK: usize = 3;
/// Bytes of stack: jobs open, read and look at files.
const STACK: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// The way to the workers.
#[derive(Clone, Default)]
pub(crate) struct Workers(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Name, Job)>,
    /// The jobs that were begun, each by a number of its own: whose it is and since when.
    begun: BTreeMap<u64, (Name, Instant)>,
    last_number: u64,
    threads: usize,
}

impl Workers {
    /// Has something done for an agent. Nothing is done, and the answer is false, if too much of the same
    /// agent is stuck.
    pub(crate) fn run(&self, agent: &Name, job: impl FnOnce() + Send + 'static) -> bool {
        let mut queue = self.queue();
        let begun = queue.begun.values().filter(|(whose, _)| whose == agent).count();
        if begun >= MOST_STUCK {
            return false;
        }
        queue.waiting.push_back((agent.clone(), Box::new(job)));
        self.grow(&mut queue);
        true
    }

    /// Has something done and waits for it, but not for long.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        agent: &Name,
        patience: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = mpsc::sync_channel(1);
        // Nobody may wait any more.
        self.run(agent, move || drop(send.try_send(job()))).then_some(())?;
        receive.recv_timeout(patience).ok()
    }

    /// Starts one more thread if it is time for that. Says when to call this again.
    pub(crate) fn look(&self) -> Option<Instant> {
        let mut queue = self.queue();
        self.grow(&mut queue);
        let latest = queue.begun.values().map(|(_, since)| *since + LONG).max();
        latest.filter(|_| !queue.waiting.is_empty() && queue.threads < MOST)
    }

    fn grow(&self, queue: &mut Queue) {
        let now = Instant::now();
        let working = queue.begun.values().filter(|(_, since)| now - *since < LONG).count();
        let idle = queue.threads - queue.begun.len().min(queue.threads);
        if queue.waiting.is_empty() || idle + working >= USUAL || queue.threads >= MOST {
            return;
        }
        let workers = self.clone();
        let named = thread::Builder::new().name("worker".to_owned()).stack_size(STACK);
        let work = move || {
            defib_host::leave_sockets();
            workers.work();
        };
        if named.spawn(work).is_ok() {
            queue.threads += 1;
        }
    }

    fn work(&self) {
        let mut queue = self.queue();
        while let Some((agent, job)) = queue.waiting.pop_front() {
            queue.last_number += 1;
            let number = queue.last_number;
            queue.begun.insert(number, (agent, Instant::now()));
            drop(queue);
            job();
            queue = self.queue();
            queue.begun.remove(&number);
        }
        queue.threads -= 1;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that panics holds it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workers")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn stuck_jobs_of_one_agent_delay_no_other_and_are_bounded() {
        let workers = Workers::default();
        let (stuck, other) = (Name::parse("stuck").unwrap(), Name::parse("other").unwrap());
        let barrier = Arc::new(Barrier::new(MOST_STUCK + 1));
        for _ in 0..MOST_STUCK {
            let barrier = barrier.clone();
            let wait = move || {
                barrier.wait();
            };
            assert!(workers.run(&stuck, wait));
        }
        let patience = Duration::from_secs(60);
        assert_eq!(workers.ask(&other, patience, || 7), Some(7));
        while workers.queue().begun.len() < MOST_STUCK {
            thread::yield_now();
        }
        assert!(!workers.run(&stuck, || {}));
        barrier.wait();
        while workers.queue().threads > 0 {
            thread::yield_now();
        }
        assert_eq!(workers.ask(&stuck, patience, || 8), Some(8));
        assert_eq!(workers.look(), None);
    }
}
