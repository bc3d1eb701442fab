//! What must not be stored or shown of what an agent writes or says.
//!
//! A run's secrets are known from when it is spawned: what its project is given later is not what it
//! has. They are looked for in every line that becomes evidence, so the search is made ready once.

use defib_core::Name;
use defib_history::Redactor;

use super::Engine;

/// The secrets of an agent's latest run.
#[derive(Debug)]
pub(super) struct Secrets {
    values: Vec<String>,
    redactor: Redactor,
}

impl Engine {
    /// A run of the agent begins, or is taken over: these are the values that it was given.
    pub(super) fn learn_secrets(&mut self, name: &Name) {
        let recipe = self.recipe(name);
        let values = recipe.map(|(project, agent)| project.secrets(agent)).unwrap_or_default();
        if values.is_empty() {
            self.secrets.remove(name);
        } else if self.secrets.get(name).is_none_or(|known| known.values != values) {
            let redactor = Redactor::new(&values);
            self.secrets.insert(name.clone(), Secrets { values, redactor });
        }
    }

    /// What takes the secrets of an agent out.
    pub(super) fn redactor(&self, name: &Name) -> Redactor {
        self.secrets.get(name).map(|secrets| secrets.redactor.clone()).unwrap_or_default()
    }

    /// What an agent wrote or said, fit to be stored and shown.
    pub(super) fn without_secrets(&self, name: &Name, text: &str) -> String {
        match self.secrets.get(name) {
            Some(secrets) => secrets.redactor.text(text).into_owned(),
            None => text.to_owned(),
        }
    }
}
