//! What comes from outside: keys, signals, and what the daemon tells. Each has a thread that waits for
//! it and sends it on; none wakes up while nothing happens.

use std::io::{PipeWriter, stdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use defib_core::Name;
use defib_daemon::logs::{Frames, Place};
use defib_daemon::wire::{AgentStatus, GroupStatus, LogRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::app::{News, PAST_EVENTS};
use super::keys::{Press, Presses};
use crate::client::{Client, Ended};
use crate::commands::segment;
use crate::failure::{Code, Failure};
use crate::home::Home;

/// However much happens, the list is not asked for more often.
const LISTS_EVERY: Duration = Duration::from_millis(200);
/// What a change adds up to is asked for so long after it, with all that came meanwhile.
const TOTALS_AFTER: Duration = Duration::from_secs(2);
/// How often a daemon that is away is looked for.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How many lines of the past a log begins with.
const PAST_LINES: usize = 1_000;

/// How long the rest of a key may take to come.
const AMID: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Something that has come.
#[derive(Debug)]
pub(crate) enum Happening {
    Press(Press),
    /// The terminal has another size.
    Resized,
    /// The view is to end: Ctrl-C from outside, TERM.
    End,
    /// The terminal has gone.
    HangUp,
    News(News),
}

/// Listens to keys until it is dropped: whoever else reads the terminal then has it alone.
pub(crate) struct Keys {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub(crate) fn listen(sender: Sender<Happening>) -> Result<Keys, Failure> {
        let (stopped, stop) = std::io::pipe().map_err(|error| Failure::new(Code::Failed, error))?;
        let thread = std::thread::spawn(move || {
            let (stdin, mut presses, mut block) = (stdin(), Presses::default(), [0; 1024]);
            loop {
                let mut waits =
                    [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
                let woken = poll(&mut waits, presses.is_amid().then_some(&AMID));
                let heard: Vec<Press> = match woken {
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) if !waits[1].revents().is_empty() => return,
                    Ok(0) => presses.rest().into_iter().collect(),
                    Ok(_) => match rustix::io::read(&stdin, &mut block) {
                        Ok(0) | Err(Errno::IO) => {
                            let _ = sender.send(Happening::HangUp);
                            return;
                        }
                        Ok(read) => presses.take(&block[..read]),
                        Err(_) => continue,
                    },
                };
                for press in heard {
                    if sender.send(Happening::Press(press)).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Keys { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Listens to signals until the process ends.
pub(crate) fn listen_to_signals(sender: Sender<Happening>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::Failed, error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    // A signal that comes from now on is heard, and ends nothing by itself.
    let (mut resized, mut interrupted, mut ended, mut hung_up) = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let hear = |kind| signal(kind).map_err(failed);
        Ok::<_, Failure>((
            hear(SignalKind::window_change())?,
            hear(SignalKind::interrupt())?,
            hear(SignalKind::terminate())?,
            hear(SignalKind::hangup())?,
        ))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let happening = tokio::select! {
                    _ = resized.recv() => Happening::Resized,
                    _ = interrupted.recv() => Happening::End,
                    _ = ended.recv() => Happening::End,
                    _ = hung_up.recv() => Happening::HangUp,
                };
                if sender.send(happening).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

/// The agents, and their groups where any is in one.
pub(crate) fn list(client: &Client) -> Result<News, Failure> {
    let agents: Vec<AgentStatus> = client.get("/api/v1/agents")?;
    let groups: Vec<GroupStatus> = if agents.iter().any(|agent| agent.group.is_some()) {
        client.get("/api/v1/groups")?
    } else {
        Vec::new()
    };
    Ok(News::Listed { agents, groups })
}

/// Asks for the list whenever somebody says that it may have changed; and after that, less often, for
/// what it all adds up to.
pub(crate) fn keep_listed(client: Client, sender: Sender<Happening>) -> Sender<()> {
    let (changed, changes) = channel::<()>();
    std::thread::spawn(move || {
        let mut due = Some(Instant::now());
        loop {
            let change = match due {
                // However much goes on happening.
                Some(at) if at <= Instant::now() => Err(RecvTimeoutError::Timeout),
                Some(at) => changes.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            // Whether the daemon is away is for the one to say who follows its events.
            let news = match change {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    due = None;
                    client.get("/api/v1/totals?since=24h").map(News::Totals)
                }
                Ok(()) => {
                    // What has been said until now is answered by this list.
                    while changes.try_recv().is_ok() {}
                    due.get_or_insert_with(|| Instant::now() + TOTALS_AFTER);
                    list(&client)
                }
            };
            if let Ok(news) = news
                && sender.send(Happening::News(news)).is_err()
            {
                return;
            }
            std::thread::sleep(LISTS_EVERY);
        }
    });
    changed
}

/// Follows events, through the daemon's deaths. After each of them, the list may have changed.
pub(crate) fn follow_events(client: Client, sender: Sender<Happening>, changed: Sender<()>) {
    std::thread::spawn(move || {
        let mut after = None;
        loop {
            let from = match after {
                Some(seq) => format!("after={seq}"),
                None => format!("last={PAST_EVENTS}"),
            };
            let mut buffer = Vec::new();
            // However the stream came to its end, the daemon is looked for again.
            let _ = client.stream(&format!("/api/v1/events?{from}&follow=true"), |bytes| {
                let events = events(&mut buffer, bytes);
                after = events.last().and_then(|event| event["seq"].as_u64()).or(after);
                if events.is_empty() {
                    return Ok(true);
                }
                let is_heard = sender.send(Happening::News(News::Events(events))).is_ok();
                Ok(is_heard && changed.send(()).is_ok())
            });
            loop {
                if sender.send(Happening::News(News::Away)).is_err() {
                    return;
                }
                if client.is_up() {
                    break;
                }
                std::thread::sleep(LOOKS_EVERY);
            }
            if changed.send(()).is_err() {
                return;
            }
        }
    });
}

/// The events in what has come, as far as they have come whole.
fn events(buffer: &mut Vec<u8>, bytes: &[u8]) -> Vec<Value> {
    buffer.extend_from_slice(bytes);
    let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = buffer.drain(..=end).collect();
    whole
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line.strip_prefix(b"data: ")?).ok())
        .collect()
}

/// Answers why, for the agent that was asked for last.
pub(crate) fn answer_why(client: Client, sender: Sender<Happening>) -> Sender<Name> {
    let (ask, asked): (Sender<Name>, Receiver<Name>) = channel();
    std::thread::spawn(move || {
        while let Ok(first) = asked.recv() {
            let agent = asked.try_iter().last().unwrap_or(first);
            let answer = segment(agent.as_str())
                .and_then(|name| client.get(&format!("/api/v1/agents/{name}/why")));
            if sender.send(Happening::News(News::Why { agent, answer })).is_err() {
                return;
            }
        }
    });
    ask
}

/// Whose log is wanted, and by which number its pieces are known; none where no log is.
pub(crate) type Watch = Option<(Name, u64)>;

/// Follows the log that was asked for last, through the daemon's deaths.
pub(crate) fn follow_log(
    home: &Home,
    sender: Sender<Happening>,
) -> Result<UnboundedSender<Watch>, Failure> {
    let (ask, mut asked) = unbounded_channel::<Watch>();
    let client = Client::new(home.clone())?;
    std::thread::spawn(move || {
        let mut next = asked.blocking_recv();
        while let Some(watch) = next {
            let watch = latest(watch, &mut asked);
            next = match watch {
                Some((name, number)) => follow_one(&client, &sender, &mut asked, &name, number),
                // Not without the runtime: it is what closes the last connection.
                None => client.block_on(asked.recv()),
            };
        }
    });
    Ok(ask)
}

fn latest(first: Watch, asked: &mut UnboundedReceiver<Watch>) -> Watch {
    let mut last = first;
    while let Ok(watch) = asked.try_recv() {
        last = watch;
    }
    last
}

/// Follows one log until something else is asked for.
fn follow_one(
    client: &Client,
    sender: &Sender<Happening>,
    asked: &mut UnboundedReceiver<Watch>,
    name: &Name,
    watch: u64,
) -> Option<Watch> {
    let mut after: Option<Place> = None;
    loop {
        let request = LogRequest {
            agents: vec![(name.clone(), after)],
            lines: PAST_LINES,
            run: None,
            follow: true,
        };
        let (mut frames, mut next) = (Frames::default(), None);
        let stop = async { next = Some(asked.recv().await) };
        let ended = client.post_stream_until("/api/v1/logs", &request, stop, |bytes| {
            frames.push(bytes);
            let nonsense = |_| Failure::new(Code::Failed, "the daemon's answer makes no sense");
            while let Some(frame) = frames.take().map_err(nonsense)? {
                after = Some(frame.end);
                let news = News::Log { watch, bytes: frame.bytes };
                if sender.send(Happening::News(news)).is_err() {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        if let Some(next) = next {
            return next;
        }
        match ended {
            Ok(Ended::Enough) => return None,
            Ok(Ended::Complete | Ended::Lost) => {}
            Err(failure) if failure.is_lost() || failure.is(Code::NoDaemon) => {}
            // Such as an agent that is no longer there: that is said, and nothing more is to come.
            Err(failure) => {
                let bytes = format!("{failure}\n").into_bytes();
                let _ = sender.send(Happening::News(News::Log { watch, bytes }));
                return client.block_on(asked.recv());
            }
        }
        std::thread::sleep(LOOKS_EVERY);
        if let Ok(next) = asked.try_recv() {
            return Some(next);
        }
    }
}
