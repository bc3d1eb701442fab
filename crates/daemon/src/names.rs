//! Which agent a name means: across projects two may have the same (ADR 9).
//!
//! Everything that is kept of an agent or a group is kept under its key. The first project that has a
//! name gets it as its key; in every other project that has it too, the key is `project+name`. Who has
//! which is decided once and on disk before it is used: no agent ever gets another's history, logs,
//! balance or goal. A config is keyed when it is taken in, so that all behind it know keys alone; what
//! people are shown is made of them where it leaves us.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use defib_config::Config;
use defib_core::Name;
use defib_history::{Event, History, Intent, Intents};
use serde_json::Value;

use crate::recipe::Project;
use crate::wire::{AgentLine, AgentStatus, GroupStatus};

/// What the keys begin with under which a project's are on disk.
const STORED: &str = "names/";
/// No folder may have a longer name, in bytes; some room is for what is put behind it.
const LONGEST_KEY: usize = 200;
/// Where events name groups.
const GROUP_FIELDS: [&str; 2] = ["group", "to"];

/// The keys of everything that any project ever had.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By project, then by the name that its file says.
    keys: BTreeMap<Name, BTreeMap<Name, Name>>,
    /// Which project has a name as its key.
    holders: BTreeMap<Name, Name>,
    /// Whether any key is not the name itself.
    shared: bool,
    /// What has a key that may not be on disk: projects, and the names that their files say.
    unstored: BTreeSet<(Name, Name)>,
}

impl Names {
    /// What is on disk, and what the projects say that are there: those that an earlier daemon has taken
    /// in have their keys, those that were read from their files get theirs.
    pub(crate) fn begin(
        intents: &Intents,
        projects: &mut BTreeMap<Name, Project>,
        history: &History,
    ) -> Names {
        let (names, unstored) = Names::known(intents, projects);
        history.store_later(unstored);
        names
    }

    fn known(intents: &Intents, projects: &mut BTreeMap<Name, Project>) -> (Names, Vec<Intent>) {
        let mut names = Names::default();
        for (key, text) in &intents.kept {
            let project = key.strip_prefix(STORED).and_then(|name| Name::parse(name).ok());
            let keys = serde_json::from_str::<Vec<Name>>(text).ok();
            for (project, keys) in project.into_iter().zip(keys) {
                names.know(&project, keys);
            }
        }
        for (project, taken) in projects.iter() {
            let keys = declared(&taken.config).filter(|name| !name.is_plain());
            names.know(project, keys.cloned().collect());
        }
        for project in projects.values() {
            names.claim(&project.config);
        }
        for project in projects.values_mut() {
            names.put_keys(&mut project.config);
        }
        let all = projects.keys().filter_map(|project| names.to_be_stored(project));
        let unstored = all.filter(|(key, value)| intents.kept.get(key) != Some(value));
        let unstored = unstored.map(|(key, value)| Intent::Keep { key, value });
        let unstored = unstored.collect();
        // Whoever takes them stores them, however long that takes.
        names.unstored.clear();
        (names, unstored)
    }

    fn know(&mut self, project: &Name, keys: Vec<Name>) {
        for key in keys {
            self.shared |= !key.is_plain();
            if key.is_plain() {
                self.holders.entry(key.clone()).or_insert_with(|| project.clone());
            }
            self.keys.entry(project.clone()).or_default().entry(key.plain()).or_insert(key);
        }
    }

    /// Gives everything that a config declares its key, so that nobody else gets it meanwhile. Gives
    /// what has to be on disk before they are used, where any may not be: a disk that was full when
    /// they were claimed has none of them.
    pub(crate) fn claim(&mut self, config: &Config) -> Option<Intent> {
        let project = &config.project;
        let names = declared(config).map(Name::plain);
        let new: Vec<Name> = names.filter(|name| !self.has(project, name)).collect();
        self.unstored.extend(new.iter().map(|name| (project.clone(), name.clone())));
        let keys = new.iter().map(|name| self.key(project, name)).collect();
        self.know(project, keys);
        if !self.is_unstored(config) {
            return None;
        }
        self.to_be_stored(project).map(|(key, value)| Intent::Keep { key, value })
    }

    /// What was claimed for a config is on disk.
    pub(crate) fn note_stored(&mut self, config: &Config) {
        for name in declared(config) {
            self.unstored.remove(&(config.project.clone(), name.plain()));
        }
    }

    fn is_unstored(&self, config: &Config) -> bool {
        let of = |name: &Name| (config.project.clone(), name.plain());
        !self.unstored.is_empty() && declared(config).any(|name| self.unstored.contains(&of(name)))
    }

    /// What is on disk for a project: under which key, and what.
    fn to_be_stored(&self, project: &Name) -> Option<(String, String)> {
        let keys: Vec<&Name> = self.keys.get(project)?.values().collect();
        let value = serde_json::to_string(&keys).ok()?;
        Some((format!("{STORED}{project}"), value))
    }

    fn has(&self, project: &Name, name: &Name) -> bool {
        self.keys.get(project).is_some_and(|keys| keys.contains_key(name))
    }

    /// The key of what a project calls so, or what it would be.
    pub(crate) fn key(&self, project: &Name, name: &Name) -> Name {
        if let Some(key) = self.keys.get(project).and_then(|keys| keys.get(name)) {
            return key.clone();
        }
        match self.holders.get(name) {
            Some(holder) if holder != project => Name::keyed(project, name),
            Some(_) | None => name.clone(),
        }
    }

    /// What has this name in a project that is no longer there, or in none that we know of: what is kept
    /// of it can still be looked at.
    pub(crate) fn past(&self, text: &str) -> Option<Name> {
        match text.split_once('/') {
            Some((project, name)) => {
                let (project, name) = (Name::parse(project).ok()?, Name::parse(name).ok()?);
                self.keys.get(&project)?.get(&name).cloned()
            }
            None => Name::parse(text).ok(),
        }
    }

    /// A name that would be too long for a folder.
    pub(crate) fn too_long(&self, config: &Config) -> Option<Name> {
        let mut keys = declared(config).map(|name| self.key(&config.project, &name.plain()));
        keys.find(|key| !key.is_plain() && key.as_str().len() > LONGEST_KEY)
    }

    /// Puts the keys where a config has names. What it says of others is about its own.
    pub(crate) fn put_keys(&self, config: &mut Config) {
        if !self.shared {
            return;
        }
        let project = config.project.clone();
        let put = |name: &mut Name| *name = self.key(&project, &name.plain());
        for agent in &mut config.agents {
            put(&mut agent.name);
            agent.after.iter_mut().for_each(put);
        }
        for group in &mut config.groups {
            put(&mut group.name);
            group.members.iter_mut().for_each(put);
        }
    }

    /// What keys are shown as. A name that several have is for that one of them whose project is up, if
    /// it is the only one; all others are shown with their project.
    pub(crate) fn shown<'p>(
        &self,
        projects: impl Iterator<Item = (&'p Project, bool)>,
    ) -> BTreeMap<Name, Name> {
        let mut shown = BTreeMap::new();
        if !self.shared {
            return shown;
        }
        let mut there: BTreeMap<Name, Vec<(&Name, &Name, bool)>> = BTreeMap::new();
        for (project, is_up) in projects {
            for key in declared(&project.config) {
                let all = there.entry(key.plain()).or_default();
                all.push((&project.config.project, key, is_up));
            }
        }
        // Of those that are gone there may still be a history.
        for (project, keys) in &self.keys {
            for (name, key) in keys {
                let all = there.get(name).map(Vec::as_slice).unwrap_or_default();
                let plain = only(all).map(|(_, key, _)| *key);
                let is_alone = all.is_empty() && key == name;
                let written = if plain == Some(key) || is_alone {
                    name.clone()
                } else {
                    Name::in_full(project, name)
                };
                if written != *key {
                    shown.insert(key.clone(), written);
                }
            }
        }
        shown
    }
}

/// The one that a plain name means, if it means one: the only one, or the only one that is up.
pub(crate) fn only<P, K>(all: &[(P, K, bool)]) -> Option<&(P, K, bool)> {
    let mut up = all.iter().filter(|(_, _, is_up)| *is_up);
    match (all, up.next(), up.next()) {
        ([one], _, _) => Some(one),
        (_, Some(one), None) => Some(one),
        (_, _, _) => None,
    }
}

/// Everything that a config gives a name.
fn declared(config: &Config) -> impl Iterator<Item = &Name> {
    let agents = config.agents.iter().map(|agent| &agent.name);
    agents.chain(config.groups.iter().map(|group| &group.name))
}

/// A name in a config that comes from outside and is not as it would be in a file.
pub(crate) fn not_plain(config: &Config) -> Option<&Name> {
    let after = config.agents.iter().flat_map(|agent| &agent.after);
    let members = config.groups.iter().flat_map(|group| &group.members);
    let mut all = declared(config).chain(after).chain(members).chain([&config.project]);
    all.find(|name| !name.is_plain())
}

/// What keys are shown as, for everybody who shows any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown(Arc<RwLock<Arc<BTreeMap<Name, Name>>>>);

impl Shown {
    /// Takes what holds from now on. Says whether it is something else.
    pub(crate) fn put(&self, now: BTreeMap<Name, Name>) -> bool {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = **shown != now;
        if is_other {
            *shown = Arc::new(now);
        }
        is_other
    }

    fn table(&self) -> Arc<BTreeMap<Name, Name>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What one is shown as.
    pub(crate) fn name(&self, key: &Name) -> Name {
        // What is no longer declared is shown as it was known.
        self.table().get(key).cloned().unwrap_or_else(|| key.written())
    }

    /// An agent as it is shown.
    pub(crate) fn status(&self, mut status: AgentStatus) -> AgentStatus {
        status.name = self.name(&status.name);
        status.group = status.group.map(|group| self.name(&group));
        status
    }

    /// Agents as they are shown.
    pub(crate) fn statuses(&self, all: Vec<AgentStatus>) -> Vec<AgentStatus> {
        all.into_iter().map(|status| self.status(status)).collect()
    }

    /// Agents in a few words, as they are shown.
    pub(crate) fn lines(&self, mut all: Vec<AgentLine>) -> Vec<AgentLine> {
        for line in &mut all {
            line.name = self.name(&line.name);
        }
        all
    }

    /// A group as it is shown, with all that is below it.
    pub(crate) fn group(&self, mut group: GroupStatus) -> GroupStatus {
        group.name = self.name(&group.name);
        for member in &mut group.members {
            member.name = self.name(&member.name);
            member.group = member.group.take().map(|group| self.group(group));
        }
        group
    }

    /// An event as it is shown.
    pub(crate) fn event(&self, mut event: Event) -> Event {
        event.agent = event.agent.map(|agent| self.name(&agent));
        // Most events are about no group, and need not be taken apart.
        if !event.body.text().contains("\"group\"") {
            return event;
        }
        let mut said = event.body.entries();
        let mut is_other = false;
        for field in GROUP_FIELDS {
            if let Some(Value::String(text)) = said.get_mut(field)
                && let Ok(key) = Name::known(text)
            {
                *text = self.name(&key).into();
                is_other = true;
            }
        }
        if is_other {
            event.body = said.into();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn name(text: &str) -> Name {
        Name::known(text).unwrap()
    }

    fn project(of: &str, agents: &[&str]) -> Project {
        let mut text = format!("[project]\nname = \"{of}\"\n");
        for agent in agents {
            text += &format!("[agent.{agent}]\ncommand = [\"true\"]\nafter = [\"base\"]\n");
        }
        text += "[agent.base]\ncommand = [\"true\"]\n[group.all]\nmembers = [\"base\"]\n";
        let config = defib_config::parse_in(Path::new("/"), &text).config.unwrap();
        let mode = crate::wire::Mode::Continuous;
        Project { path: PathBuf::from("/"), config, mode, environment: BTreeMap::new() }
    }

    fn keys(project: &Project) -> Vec<&str> {
        declared(&project.config).map(Name::as_str).collect()
    }

    #[test]
    fn whoever_comes_first_keeps_its_name_and_what_it_says_is_about_its_own() {
        let (mut names, mut a, mut b) =
            (Names::default(), project("a", &["web"]), project("b", &["web", "x"]));
        names.claim(&a.config);
        names.claim(&b.config);
        names.put_keys(&mut a.config);
        names.put_keys(&mut b.config);
        assert_eq!(keys(&a), ["web", "base", "all"]);
        assert_eq!(keys(&b), ["b+web", "x", "b+base", "b+all"]);
        assert_eq!(b.config.agents[0].after, [name("b+base")]);
        assert_eq!(b.config.groups[0].members, [name("b+base")]);
    }

    #[test]
    fn keys_are_to_be_stored_until_they_are() {
        let (mut names, a) = (Names::default(), project("a", &["web"]));
        let first = names.claim(&a.config);
        assert!(first.is_some());
        assert_eq!(names.claim(&a.config), first, "the disk was full, and it is tried again");
        // Another one of the same project is on its way when this one is on disk.
        let more = project("a", &["web", "x"]);
        let second = names.claim(&more.config);
        names.note_stored(&a.config);
        assert!(names.claim(&a.config).is_none(), "all of it is known");
        assert_eq!(names.claim(&more.config), second);
        names.note_stored(&more.config);
        assert!(names.claim(&more.config).is_none());
    }

    #[test]
    fn keys_are_the_same_after_a_start_whoever_is_left() {
        let (mut names, a, b) = (Names::default(), project("a", &["web"]), project("b", &["web"]));
        for project in [&a, &b] {
            assert!(names.claim(&project.config).is_some());
        }
        let kept = ["a", "b"].into_iter().filter_map(|of| names.to_be_stored(&name(of)));
        let intents = Intents { kept: kept.collect(), ..Intents::default() };
        let mut left = BTreeMap::from([(name("b"), b)]);
        let (_, new) = Names::known(&intents, &mut left);
        assert_eq!(keys(&left[&name("b")]), ["b+web", "b+base", "b+all"]);
        assert!(new.is_empty());
        // The keeper has them with their keys, and the disk may have been lost.
        let (again, new) = Names::known(&Intents::default(), &mut left);
        assert_eq!(again.key(&name("b"), &name("web")), name("b+web"));
        assert_eq!(new.len(), 1, "it is stored again: {new:?}");
    }

    #[test]
    fn a_name_is_shown_plain_where_it_means_one() {
        let (mut names, mut a, mut b) =
            (Names::default(), project("a", &["web"]), project("b", &["web"]));
        for project in [&mut a, &mut b] {
            names.claim(&project.config);
            names.put_keys(&mut project.config);
        }
        let shown = |of: &[(&Project, bool)]| {
            let all = names.shown(of.iter().copied());
            ["web", "b+web", "b+all"].map(|key| all.get(&name(key)).map(ToString::to_string))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&[(&a, true), (&b, true)]), [some("a/web"), some("b/web"), some("b/all")]);
        assert_eq!(shown(&[(&a, false), (&b, true)]), [some("a/web"), some("web"), some("all")]);
        assert_eq!(shown(&[(&a, true), (&b, false)]), [None, some("b/web"), some("b/all")]);
        assert_eq!(
            shown(&[(&a, false), (&b, false)]),
            [some("a/web"), some("b/web"), some("b/all")]
        );
        assert_eq!(shown(&[(&b, true)]), [some("a/web"), some("web"), some("all")], "a is gone");
        assert_eq!(shown(&[]), [None, some("b/web"), some("b/all")]);
    }
}
