//! What must not be stored or shown of what an agent writes or says.
//!
//! A run's secrets are known from when it is spawned: what its project is given later is not what it
//! has. They are looked for in every line that becomes evidence, so the search is made ready once. Its
//! token is known by its hash alone, also to a daemon that has taken the run over, and is found by that.
//! Whatever is cut is cut afterwards: a part of a secret is none that anybody knows.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use defib_autopsy::EVIDENCE_CHARS;
use defib_core::Name;
use defib_history::{Redactor, redact};
use defib_host::protocol::RunKey;

use super::Engine;
use crate::liveness::TokenHash;

/// Secrets with more bytes than this are made ready to be searched on a thread of their own.
const MANY_BYTES: usize = 16 << 10;

/// The secrets of an agent's latest run.
#[derive(Debug)]
pub(super) struct Secrets {
    values: Arc<[String]>,
    redactor: Arc<OnceLock<Redactor>>,
}

impl Secrets {
    fn new(values: Vec<String>) -> Secrets {
        let secrets = Secrets { values: values.into(), redactor: Arc::default() };
        if secrets.values.iter().map(String::len).sum::<usize>() > MANY_BYTES {
            let (values, redactor) = (secrets.values.clone(), secrets.redactor.clone());
            // Without a thread the first use makes it ready.
            let _ = std::thread::Builder::new()
                .name("secrets".to_owned())
                .spawn(move || redactor.get_or_init(|| Redactor::new(&values)).clone());
        }
        secrets
    }

    fn hides_everything(&self) -> bool {
        self.redactor().hides_everything()
    }

    fn redactor(&self) -> &Redactor {
        self.redactor.get_or_init(|| Redactor::new(&self.values))
    }
}

impl Engine {
    /// A run of the agent begins, or is taken over: these are the values that it was given.
    pub(super) fn learn_secrets(&mut self, name: &Name) {
        let file = self.env_text(name);
        let recipe = self.recipe(name);
        let values = recipe.map(|(project, agent)| project.secrets(agent, file.as_ref()));
        let values = values.unwrap_or_default();
        if matches!(file, Some(Err(_))) {
            // The file cannot be read now, so the secrets in it are unknown.
            let redactor = Arc::new(OnceLock::from(Redactor::everything()));
            self.secrets.insert(name.clone(), Secrets { values: values.into(), redactor });
        } else if values.is_empty() {
            self.secrets.remove(name);
        } else if self.secrets.get(name).is_none_or(|known| *known.values != *values) {
            self.secrets.insert(name.clone(), Secrets::new(values));
        }
    }

    /// What takes the secrets of a run out of what it wrote.
    pub(super) fn redactor(&self, key: &RunKey, output: &[u8]) -> Redactor {
        let secrets = self.secrets.get(&key.agent);
        let own = self.own.get(&key.agent).filter(|own| own.run == key.run);
        let tokens: Vec<&str> = match own {
            Some(own) => own.hash.found_in(output).into_iter().collect(),
            None => TokenHash::named_in(output).collect(),
        };
        if tokens.is_empty() || secrets.is_some_and(Secrets::hides_everything) {
            return secrets.map(|secrets| secrets.redactor().clone()).unwrap_or_default();
        }
        let values = secrets.map(|secrets| &*secrets.values).unwrap_or_default();
        let values = values.iter().map(String::as_str).chain(tokens);
        Redactor::new(&values.collect::<Vec<_>>())
    }

    /// What an agent wrote or said, fit to be stored and shown.
    pub(super) fn without_secrets(&self, name: &Name, text: &str) -> String {
        let text = self.without_token(name, text);
        match self.secrets.get(name) {
            Some(secrets) => secrets.redactor().text(&text).into_owned(),
            None => text.into_owned(),
        }
    }

    /// The line that says what a run died of, fit to be stored and shown.
    pub(super) fn evidence_without_secrets(&self, name: &Name, line: &str) -> String {
        let line = self.without_token(name, line);
        match self.secrets.get(name) {
            Some(secrets) => secrets.redactor().beginning(&line, EVIDENCE_CHARS),
            None => line.chars().take(EVIDENCE_CHARS).collect(),
        }
    }

    /// A row of an agent's screen, fit to be shown. What is longer than a row was cut by the screen.
    pub(super) fn row_without_secrets(&self, name: &Name, row: &str) -> String {
        let row = self.without_token(name, row);
        match self.secrets.get(name) {
            Some(secrets) => secrets.redactor().piece(&row),
            None => row.into_owned(),
        }
    }

    fn without_token<'t>(&self, name: &Name, text: &'t str) -> Cow<'t, str> {
        let own = self.own.get(name);
        match own.and_then(|own| own.hash.found_in(text.as_bytes())) {
            Some(token) => redact(text, &[token.to_owned()]),
            None => Cow::Borrowed(text),
        }
    }
}
