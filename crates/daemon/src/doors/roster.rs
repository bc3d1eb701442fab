//! Who may come in: tokens, sessions of browsers, and links that log one in.
//!
//! Each is known by its hash alone. Secrets are 256 bits from the kernel and are looked up by what they
//! hash to, so that how long a look takes says nothing about a secret. Tokens and sessions are on disk
//! before they are given out; links are in memory, and a daemon that ends takes them along.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use defib_core::{Mono, Now, Wall};
use defib_history::{Intent, Intents};
use serde::{Deserialize, Serialize};

use super::caller::Role;
use crate::liveness::{TokenHash, mint};

/// How long a link can be used.
pub(super) const LINK: Duration = Duration::from_secs(600);
/// How long a browser stays logged in.
pub(crate) const SESSION: Duration = Duration::from_secs(12 * 3600);
/// So many links can be open; the oldest goes when there is one more.
const LINKS: usize = 64;
/// So many browsers can be logged in; the one that would have to leave first goes.
const SESSIONS: usize = 1024;
/// By what a token is told from other secrets, in a leaked file for instance.
const PREFIX: &str = "defib_";

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenEntry {
    hash: TokenHash,
    pub(crate) role: Role,
    pub(crate) created_ms: i64,
    pub(crate) created_by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    by: String,
    until_ms: i64,
}

#[derive(Debug)]
struct Link {
    by: String,
    until: Mono,
}

/// Who may come in.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tokens: BTreeMap<String, TokenEntry>,
    names: HashMap<TokenHash, String>,
    sessions: HashMap<TokenHash, Session>,
    links: HashMap<TokenHash, Link>,
}

/// A secret that was made, to be given out once its intents are on disk.
pub(crate) struct Made {
    pub(crate) secret: String,
    pub(crate) intents: Vec<Intent>,
}

/// Why a token was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// There is one of that name.
    Taken,
    /// The kernel has no random bytes.
    NoRandom,
}

impl Roster {
    /// Those that were written down.
    pub(crate) fn stored(intents: &Intents, at: Wall) -> Roster {
        let mut inner = Inner::default();
        for (key, value) in &intents.kept {
            if let Some(name) = key.strip_prefix("door/token/")
                && let Ok(entry) = serde_json::from_str::<TokenEntry>(value)
            {
                inner.names.insert(entry.hash, name.to_owned());
                inner.tokens.insert(name.to_owned(), entry);
            }
            if let Some(hash) = key.strip_prefix("door/session/").and_then(TokenHash::from_hex)
                && let Ok(session) = serde_json::from_str::<Session>(value)
                && session.until_ms > at.as_millis()
            {
                inner.sessions.insert(hash, session);
            }
        }
        Roster { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token that this is, and what it may do.
    pub(crate) fn token(&self, secret: &str) -> Option<(String, Role)> {
        let inner = self.lock();
        let name = inner.names.get(&TokenHash::of(secret))?;
        Some((name.clone(), inner.tokens.get(name)?.role))
    }

    /// Makes a token. It is good at once; it is given out when it is on disk.
    pub(crate) fn new_token(
        &self,
        name: &str,
        role: Role,
        by: String,
        at: Wall,
    ) -> Result<Made, NotMade> {
        let (secret, _) = mint().ok_or(NotMade::NoRandom)?;
        let secret = format!("{PREFIX}{secret}");
        let hash = TokenHash::of(&secret);
        let entry = TokenEntry { hash, role, created_ms: at.as_millis(), created_by: by };
        let mut inner = self.lock();
        if inner.tokens.contains_key(name) {
            return Err(NotMade::Taken);
        }
        let value = serde_json::to_string(&entry).unwrap_or_default();
        inner.names.insert(hash, name.to_owned());
        inner.tokens.insert(name.to_owned(), entry);
        Ok(Made {
            secret,
            intents: vec![Intent::Keep { key: format!("door/token/{name}"), value }],
        })
    }

    /// A name for a token of this role that nobody has.
    pub(crate) fn free_name(&self, role: Role) -> String {
        let inner = self.lock();
        let mut number = 1_u32;
        loop {
            let name = format!("{role}-{number}");
            if !inner.tokens.contains_key(&name) {
                return name;
            }
            number = number.saturating_add(1);
        }
    }

    /// Every token, by name.
    pub(crate) fn tokens(&self) -> Vec<(String, TokenEntry)> {
        let inner = self.lock();
        inner.tokens.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Takes a token away, and with it the browsers that it logged in. Nothing if there is none.
    pub(crate) fn revoke(&self, name: &str) -> Option<Vec<Intent>> {
        let mut inner = self.lock();
        let entry = inner.tokens.remove(name)?;
        inner.names.remove(&entry.hash);
        let by = format!("token:{name}");
        inner.links.retain(|_, link| link.by != by);
        let mut gone = vec![Intent::Drop { key: format!("door/token/{name}") }];
        inner.sessions.retain(|hash, session| {
            let stays = session.by != by;
            if !stays {
                gone.push(dropped(*hash));
            }
            stays
        });
        Some(gone)
    }

    /// Makes a link. Nothing if the kernel has no random bytes.
    pub(crate) fn new_link(&self, by: String, at: Mono) -> Option<String> {
        let (secret, hash) = mint()?;
        let mut inner = self.lock();
        inner.links.retain(|_, link| link.until > at);
        if inner.links.len() >= LINKS {
            let oldest = inner.links.iter().min_by_key(|(_, link)| link.until);
            if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
                inner.links.remove(&oldest);
            }
        }
        inner.links.insert(hash, Link { by, until: at + LINK });
        Some(secret)
    }

    /// Uses a link up and makes a session of it. Nothing if it was none, or not any more.
    pub(crate) fn log_in(&self, link: &str, at: Now) -> Option<Made> {
        let mut inner = self.lock();
        let link = inner.links.remove(&TokenHash::of(link)).filter(|link| link.until > at.mono)?;
        let (secret, hash) = mint()?;
        let mut intents = inner.make_room(at.wall);
        let until_ms = at.wall.as_millis().saturating_add(span_ms(SESSION));
        let session = Session { by: link.by, until_ms };
        let value = serde_json::to_string(&session).unwrap_or_default();
        inner.sessions.insert(hash, session);
        intents.push(Intent::Keep { key: session_key(hash), value });
        Some(Made { secret, intents })
    }

    /// Who had the link made by which this session was logged in.
    pub(crate) fn session(&self, secret: &str, at: Wall) -> Option<String> {
        let inner = self.lock();
        let session = inner.sessions.get(&TokenHash::of(secret))?;
        (session.until_ms > at.as_millis()).then(|| session.by.clone())
    }

    /// Ends a session.
    pub(crate) fn log_out(&self, secret: &str) -> Option<Intent> {
        let hash = TokenHash::of(secret);
        self.lock().sessions.remove(&hash).map(|_| dropped(hash))
    }
}

impl Inner {
    /// Forgets sessions that are over, and the one that is over next where there are too many.
    fn make_room(&mut self, at: Wall) -> Vec<Intent> {
        let mut gone: Vec<TokenHash> = Vec::new();
        let over = |session: &Session| session.until_ms <= at.as_millis();
        gone.extend(self.sessions.iter().filter(|(_, one)| over(one)).map(|(hash, _)| *hash));
        if self.sessions.len() - gone.len() >= SESSIONS {
            let next = self.sessions.iter().filter(|(_, one)| !over(one));
            gone.extend(next.min_by_key(|(_, one)| one.until_ms).map(|(hash, _)| *hash));
        }
        gone.into_iter()
            .map(|hash| {
                self.sessions.remove(&hash);
                dropped(hash)
            })
            .collect()
    }
}

fn span_ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn session_key(hash: TokenHash) -> String {
    format!("door/session/{}", hash.hex())
}

fn dropped(hash: TokenHash) -> Intent {
    Intent::Drop { key: session_key(hash) }
}
