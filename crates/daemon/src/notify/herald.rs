//! The herald: the thread that hears events, keeps the accounts of all channels, and sends.
//!
//! It decides nothing: what is told is the accounts' business, how it arrives is `deliver`'s.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use defib_core::{Name, Wall};
use defib_history::{Event, EventFilter, Intent, Reader, Take};
use defib_host::clock::now;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::account::{Account, Fate, Terms};
use super::deliver::{Channel, deliver};
use super::message::Sender;
use super::{Heralds, Roll};
use crate::engine::{Ask, EngineHandle};
use crate::post::Refused;
use crate::wire::{ChannelFailure, ChannelStatus, ChannelTest, stamp};

/// How many events of the past are read at a time.
const PIECE: u32 = 2_000;
/// An account that only moved on is written down this often.
const LAZILY: Duration = Duration::from_secs(30);
/// A clock that is set, or a machine that slept, is noticed after this time at the latest.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// What is due is due by then.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// What the keys of accounts begin with.
const KEY: &str = "notify/";

/// Whether a key of what is kept is of an account.
pub(crate) fn is_ours(key: &str) -> bool {
    key.starts_with(KEY)
}

/// Somebody wants to see that messages arrive.
#[derive(Debug)]
pub(crate) struct Call {
    /// Through which channel; nothing is all of them.
    pub(crate) name: Option<String>,
    pub(crate) answer: oneshot::Sender<Vec<ChannelTest>>,
}

/// What came of an attempt.
struct Outcome {
    key: String,
    id: String,
    result: Result<(), Refused>,
    /// Whether it was a test, which nothing waits for.
    is_test: bool,
}

/// The next event; never, where nobody listens.
async fn next_of(
    live: Option<&mut broadcast::Receiver<Arc<Event>>>,
) -> Result<Arc<Event>, RecvError> {
    match live {
        Some(live) => live.recv().await,
        None => std::future::pending().await,
    }
}

/// One channel, and its account.
struct Post {
    channel: Arc<Channel>,
    terms: Terms,
    account: Account,
    /// Whether an attempt is being made.
    is_busy: bool,
    /// Whether the account has changed since it was written down.
    is_dirty: bool,
}

/// The herald.
pub(crate) struct Herald {
    engine: EngineHandle,
    history: PathBuf,
    host: String,
    rolls: watch::Receiver<Roll>,
    /// What happens, where there is a channel that may have to tell of it.
    live: Option<broadcast::Receiver<Arc<Event>>>,
    calls: mpsc::UnboundedReceiver<Call>,
    outcomes: (mpsc::UnboundedSender<Outcome>, mpsc::UnboundedReceiver<Outcome>),
    /// Accounts of channels that are not up, by key.
    stored: BTreeMap<String, String>,
    posts: BTreeMap<String, Post>,
    written: Instant,
    shown: watch::Sender<Vec<ChannelStatus>>,
}

impl Herald {
    /// Starts the thread. `stored` is what was kept of accounts.
    pub(crate) fn start(
        engine: EngineHandle,
        history: PathBuf,
        rolls: watch::Receiver<Roll>,
        stored: BTreeMap<String, String>,
    ) -> io::Result<Heralds> {
        let (call, calls) = mpsc::unbounded_channel();
        let (shown, channels) = watch::channel(Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let uname = rustix::system::uname();
        let herald = Herald {
            live: None,
            engine,
            history,
            host: uname.nodename().to_string_lossy().into_owned(),
            rolls,
            calls,
            outcomes: mpsc::unbounded_channel(),
            stored,
            posts: BTreeMap::new(),
            written: Instant::now(),
            shown,
        };
        let work = move || runtime.block_on(herald.work());
        std::thread::Builder::new().name("herald".to_owned()).spawn(work)?;
        Ok(Heralds { call, channels })
    }

    async fn work(mut self) {
        self.rolls.mark_changed();
        loop {
            let sleep = self.sleep();
            tokio::select! {
                changed = self.rolls.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.call_the_roll().await;
                }
                event = next_of(self.live.as_mut()) => match event {
                    Ok(event) => self.hear(&event).await,
                    Err(RecvError::Lagged(_)) => self.catch_up_all().await,
                    Err(RecvError::Closed) => return,
                },
                Some(call) = self.calls.recv() => self.test(call),
                Some(outcome) = self.outcomes.1.recv() => self.settle(outcome),
                () = tokio::time::sleep(sleep) => {}
            }
            self.hear_the_rest().await;
            self.announce().await;
            self.send();
            self.write_lazily();
            self.show();
        }
    }

    /// Shows how the channels are.
    fn show(&self) {
        let all: Vec<ChannelStatus> = self.posts.values().map(Post::shown).collect();
        self.shown.send_if_modified(|shown| {
            let is_new = *shown != all;
            *shown = all;
            is_new
        });
    }

    /// What is decided in one piece is heard in one piece.
    async fn hear_the_rest(&mut self) {
        while let Some(live) = &mut self.live {
            match live.try_recv() {
                Ok(event) => self.hear(&event).await,
                Err(TryRecvError::Lagged(_)) => self.catch_up_all().await,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    async fn hear(&mut self, event: &Event) {
        let has_gap = self.posts.values().any(|post| post.account.upto + 1 < event.seq);
        if has_gap {
            self.catch_up_all().await;
        }
        for post in self.posts.values_mut() {
            post.hear(event);
        }
    }

    /// Reads what the accounts have not heard.
    async fn catch_up_all(&mut self) {
        let from = self.posts.values().map(|post| post.account.upto).min();
        let Some(mut from) = from else { return };
        loop {
            let filter = EventFilter {
                after: Some(from),
                take: Take::First(PIECE),
                ..EventFilter::default()
            };
            let piece = self.read(filter).await;
            for event in &piece {
                for post in self.posts.values_mut() {
                    post.hear(event);
                }
            }
            match piece.last() {
                Some(last) if piece.len() >= PIECE as usize => from = last.seq,
                Some(_) | None => return,
            }
        }
    }

    /// What is in the history, once everything that was decided before is. A history that cannot be
    /// read has nothing to tell; that it cannot is said elsewhere.
    async fn read(&self, filter: EventFilter) -> Vec<Event> {
        let (engine, path) = (self.engine.clone(), self.history.clone());
        let read = move || {
            engine.flush_history();
            Reader::open(&path)?.events(&filter)
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// The channels are others than before.
    async fn call_the_roll(&mut self) {
        let roll = self.rolls.borrow_and_update().clone();
        let mut before = std::mem::take(&mut self.posts);
        for channel in roll.channels {
            let key = format!("{KEY}{}/{}", channel.project, channel.notify.name);
            let terms = self.terms(&channel);
            let post = if let Some(mut post) = before.remove(&key) {
                if post.channel != channel {
                    post.account.try_now(now().wall);
                }
                Post { channel, terms, ..post }
            } else {
                let stored = self.stored.remove(&key);
                let account = stored.and_then(|text| serde_json::from_str(&text).ok());
                let account = match (account, roll.since) {
                    (Some(account), _) => account,
                    (None, Some(since)) => Account::beginning(since),
                    (None, None) => Account::beginning(self.last_applied().await),
                };
                Post { channel, terms, account, is_busy: false, is_dirty: true }
            };
            self.posts.insert(key, post);
        }
        // A project that is down may come up again, and its messages are still to be delivered.
        for (key, post) in before {
            let text = serde_json::to_string(&post.account).unwrap_or_default();
            self.engine.store_later(Intent::Keep { key: key.clone(), value: text.clone() });
            self.stored.insert(key, text);
        }
        // Before the past is read: what happens meanwhile comes by the one or by the other.
        let is_needed = !self.posts.is_empty();
        let live = self.live.take().filter(|_| is_needed);
        self.live = live.or_else(|| is_needed.then(|| self.engine.subscribe()));
        self.catch_up_all().await;
        // From here on the next daemon knows from where to read on.
        let all: Vec<String> = self.posts.keys().cloned().collect();
        self.write(&all).await;
    }

    /// The event by which a config was last applied: a channel that no account is known of was new
    /// in it.
    async fn last_applied(&self) -> u64 {
        let filter = EventFilter {
            kinds: vec!["config-applied".to_owned()],
            take: Take::Last(1),
            ..EventFilter::default()
        };
        self.read(filter).await.last().map_or(0, |event| event.seq)
    }

    fn terms(&self, channel: &Channel) -> Terms {
        Terms {
            on: channel.notify.on.clone(),
            cooldown: channel.notify.cooldown,
            sender: self.sender(channel),
        }
    }

    fn sender(&self, channel: &Channel) -> Sender {
        Sender {
            channel: channel.notify.name.clone(),
            project: channel.project.clone(),
            host: self.host.clone(),
        }
    }

    /// Makes the messages that are due, and sees that they are on disk.
    async fn announce(&mut self) {
        let at = now().wall;
        let mut new = Vec::new();
        for (key, post) in &mut self.posts {
            if post.account.announce(&post.terms, at) {
                new.push(key.clone());
            }
        }
        if !new.is_empty() {
            self.write(&new).await;
        }
    }

    /// Writes accounts down; returns when they are on disk. A disk that fails keeps nobody from being
    /// told.
    async fn write(&mut self, keys: &[String]) {
        let mut intents = Vec::new();
        for key in keys {
            let Some(post) = self.posts.get_mut(key) else { continue };
            intents.extend(post.written(key));
        }
        let engine = self.engine.clone();
        let _ = tokio::task::spawn_blocking(move || engine.store_all(intents)).await;
    }

    fn write_lazily(&mut self) {
        if self.written.elapsed() < LAZILY {
            return;
        }
        self.written = Instant::now();
        for (key, post) in self.posts.iter_mut().filter(|(_, post)| post.is_dirty) {
            if let Some(intent) = post.written(key) {
                self.engine.store_later(intent);
            }
        }
    }

    /// Makes an attempt for each channel that has something to deliver.
    fn send(&mut self) {
        let at = now().wall;
        for (key, post) in &mut self.posts {
            let letter = post.account.next_letter().filter(|letter| letter.due <= at);
            let Some(letter) = letter.filter(|_| !post.is_busy) else { continue };
            let (key, id) = (key.clone(), letter.message.id.clone());
            let attempt = Box::pin(deliver(post.channel.clone(), letter.message.clone(), at));
            let outcomes = self.outcomes.0.clone();
            post.is_busy = true;
            tokio::spawn(async move {
                let result = attempt.await;
                // The herald ends only with the process.
                let _ = outcomes.send(Outcome { key, id, result, is_test: false });
            });
        }
    }

    fn settle(&mut self, outcome: Outcome) {
        let Outcome { key, id, result, is_test } = outcome;
        let Some(post) = self.posts.get_mut(&key) else { return };
        post.is_busy &= is_test;
        post.is_dirty = true;
        let refused = match result {
            // What waits can arrive as well.
            Ok(()) if is_test => {
                post.account.delivered(&id);
                return post.account.try_now(now().wall);
            }
            Ok(()) => {
                post.account.delivered(&id);
                if let Some(intent) = post.written(&key) {
                    self.engine.store_later(intent);
                }
                return;
            }
            Err(refused) => refused,
        };
        let (failures, again) = match post.account.failed(&id, &refused, now().wall) {
            // Once is enough to know; the rest is the same again.
            Some(Fate::Again(delay, 1)) => (1, Some(delay)),
            Some(Fate::Again(..)) | None => return,
            Some(Fate::GivenUp(failures)) => (failures, None),
        };
        let Channel { project, notify, .. } = &*post.channel;
        let body = vec![
            ("channel", notify.name.as_str().into()),
            ("project", project.as_str().into()),
            ("message", id.into()),
            ("why", refused.why.into()),
            ("attempts", failures.into()),
            ("given_up", again.is_none().into()),
            ("delay_ms", again.map(defib_core::time::millis).into()),
        ];
        self.engine.tell(Ask::Say("notify-failed", body));
    }

    /// Sends a test message and answers when each has arrived or has not.
    fn test(&self, call: Call) {
        let Call { name, answer } = call;
        let is_meant =
            |channel: &&Arc<Channel>| name.as_ref().is_none_or(|name| names(channel, name));
        let posts = self.posts.iter().filter(|(_, post)| is_meant(&&post.channel));
        let (at, began) = (now().wall, Instant::now());
        let id = format!("test-{}", at.as_millis());
        let attempts = posts.map(|(key, Post { channel, .. })| {
            let message = self.sender(channel).test(id.clone(), at);
            (key.clone(), channel.clone(), tokio::spawn(deliver(channel.clone(), message, at)))
        });
        let attempts: Vec<_> = attempts.collect();
        let outcomes = self.outcomes.0.clone();
        tokio::spawn(async move {
            let mut all = Vec::new();
            for (key, channel, attempt) in attempts {
                let result = attempt.await.unwrap_or_else(|e| Err(e.to_string().into()));
                let (id, told) = (id.clone(), result.clone());
                let _ = outcomes.send(Outcome { key, id, result: told, is_test: true });
                all.push(ChannelTest {
                    project: channel.project.clone(),
                    channel: channel.notify.name.clone(),
                    way: channel.way().to_owned(),
                    delivered: result.is_ok(),
                    why: result.err().map(|refused| refused.why),
                    took_ms: defib_core::time::millis(began.elapsed()),
                });
            }
            // Whoever asked may have gone.
            let _ = answer.send(all);
        });
    }

    /// How long there is nothing to do.
    fn sleep(&self) -> Duration {
        let at = now().wall;
        let of = |post: &Post| -> Option<Wall> {
            let letter = post.account.next_letter().filter(|_| !post.is_busy);
            let letter = letter.map(|letter| letter.due);
            letter.into_iter().chain(post.account.next_deadline(&post.terms, at)).min()
        };
        let next = self.posts.values().filter_map(of).min();
        let wait = match next {
            Some(next) => next.since(at).clamp(SHORTEST_SLEEP, LONGEST_SLEEP),
            None => Duration::from_secs(3600),
        };
        if self.posts.values().any(|post| post.is_dirty) { wait.min(LAZILY) } else { wait }
    }
}

impl Post {
    fn hear(&mut self, event: &Event) {
        if event.seq > self.account.upto {
            self.account.hear(event, &self.channel.project);
            self.is_dirty = true;
        }
    }

    /// How the channel is.
    fn shown(&self) -> ChannelStatus {
        let failure = self.account.setback().map(|setback| ChannelFailure {
            channel: self.channel.notify.name.clone(),
            at: stamp(setback.at),
            why: setback.why.clone(),
            attempts: setback.attempts,
            given_up: setback.given_up,
        });
        ChannelStatus {
            project: self.channel.project.clone(),
            channel: self.channel.notify.name.clone(),
            way: self.channel.way().to_owned(),
            waiting: self.account.count_waiting() as u64,
            failure,
        }
    }

    /// The account, as it is written down.
    fn written(&mut self, key: &str) -> Option<Intent> {
        let value = serde_json::to_string(&self.account).ok()?;
        self.is_dirty = false;
        Some(Intent::Keep { key: key.to_owned(), value })
    }
}

/// Whether a name means a channel: its own, or with its project before it.
fn names(channel: &Channel, name: &str) -> bool {
    let own: &Name = &channel.notify.name;
    own.as_str() == name || format!("{}/{own}", channel.project) == name
}
