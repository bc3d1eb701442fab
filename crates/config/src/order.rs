//! Names and who waits for whom: one namespace, groups that form a forest, starts that can happen.
//!
//! Every name is looked up, every group has one place, and no agent waits for something that waits
//! for it, be it through `after` or through its place in a group. Groups may nest and chains may
//! run as deep as a file can write them, so nothing here recurses, and no check looks at a pair of
//! names twice.

mod cycle;

use std::collections::{HashMap, HashSet};

use defib_core::name::Name;

use crate::diagnostic::Findings;
use crate::lower::Spelled;
use crate::source::Span;
use crate::suggest::nearest;

use cycle::{Edge, Graph};

/// How many names are looked at for suggestions, for all unknown names of a file together.
const MOST_LOOKS: usize = 100_000;

/// All names of a file, and what they have to do with each other.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) agents: Vec<Agent>,
    pub(crate) groups: Vec<Group>,
    /// Names that are declared, but whose tables were wrong as a whole.
    pub(crate) unusable: HashSet<Name>,
    /// Whether all declared names are known; else an unknown one may be right.
    pub(crate) whole: bool,
}

/// An agent, as far as names go.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: Spelled,
    pub(crate) after: Vec<Spelled>,
    pub(crate) enabled: bool,
}

/// A group, as far as names go.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Spelled,
    pub(crate) members: Vec<Spelled>,
}

/// What a name stands for: agents come first, groups after them.
type Id = usize;

impl Order {
    /// Tells of everything that cannot be.
    pub(crate) fn check(&self, findings: &mut Findings) {
        let mut names = self.names(findings);
        let forest = self.forest(&mut names, findings);
        let mut waits = Vec::new();
        for (id, agent) in self.agents.iter().enumerate() {
            for other in &agent.after {
                if let Some(on) = names.look_up(other, findings) {
                    self.warn_of_disabled(agent, on, other, findings);
                    waits.push(Edge { from: id, to: on, span: Some(other.span) });
                }
            }
        }
        let places = self.places(&forest);
        let fine = self.check_cycles(&waits, &forest, findings)
            & self.check_against_places(&waits, &places, findings);
        if fine {
            self.check_together(waits, &places, &forest, findings);
        }
    }

    fn spelled(&self, id: Id) -> &Spelled {
        match self.agents.get(id) {
            Some(agent) => &agent.name,
            None => &self.groups[id - self.agents.len()].name,
        }
    }

    fn group_id(&self, index: usize) -> Id {
        self.agents.len() + index
    }

    fn len(&self) -> usize {
        self.agents.len() + self.groups.len()
    }

    fn names(&self, findings: &mut Findings) -> Names<'_> {
        let mut ids = HashMap::new();
        for id in 0..self.len() {
            let spelled = self.spelled(id);
            if let Some(first) = ids.insert(&spelled.name, id) {
                findings
                    .error(spelled.span, format!("`{}` is both an agent and a group", spelled.name))
                    .label("the group")
                    .related(self.spelled(first).span, "the agent")
                    .help("agents and groups share their names; call one of them otherwise");
            }
        }
        Names { ids, unusable: &self.unusable, whole: self.whole, looks_left: MOST_LOOKS }
    }

    /// Gives everything its one place in a group, and tells of second places and of circles.
    fn forest(&self, names: &mut Names<'_>, findings: &mut Findings) -> Forest {
        let mut parents: Vec<Option<(Id, Span)>> = vec![None; self.len()];
        for (index, group) in self.groups.iter().enumerate() {
            for member in &group.members {
                let Some(id) = names.look_up(member, findings) else {
                    continue;
                };
                match parents[id] {
                    Some((parent, first)) => {
                        let message = if parent == self.group_id(index) {
                            format!("`{}` is a member twice", member.name)
                        } else {
                            format!("`{}` is a member of two groups", member.name)
                        };
                        findings
                            .error(member.span, message)
                            .label("here again")
                            .related(first, "a member already here")
                            .help("every agent and every group has one place");
                    }
                    None => parents[id] = Some((self.group_id(index), member.span)),
                }
            }
        }
        self.break_circles(&mut parents, findings);
        let mut members = vec![Vec::new(); self.groups.len()];
        for (index, group) in self.groups.iter().enumerate() {
            for member in &group.members {
                // The same member of the same group, and not its second mention.
                if let Some(id) = names.known(member)
                    && parents[id] == Some((self.group_id(index), member.span))
                {
                    members[index].push(id);
                }
            }
        }
        Forest { parents, members }
    }

    /// Walks from every group to its root; whoever comes round again is in itself.
    fn break_circles(&self, parents: &mut [Option<(Id, Span)>], findings: &mut Findings) {
        let mut walk_of = vec![usize::MAX; self.len()];
        for index in 0..self.groups.len() {
            let mut at = self.group_id(index);
            while walk_of[at] == usize::MAX {
                walk_of[at] = index;
                let Some((parent, span)) = parents[at] else {
                    break;
                };
                if walk_of[parent] == index {
                    let name = &self.spelled(at).name;
                    let message = if parent == at {
                        format!("group `{name}` is a member of itself")
                    } else {
                        format!("group `{name}` is inside itself")
                    };
                    findings
                        .error(span, message)
                        .label("this closes the circle")
                        .help("groups form a tree: take it out of one of them");
                    parents[at] = None;
                    break;
                }
                at = parent;
            }
        }
    }

    fn warn_of_disabled(&self, agent: &Agent, on: Id, spelled: &Spelled, findings: &mut Findings) {
        if let Some(other) = self.agents.get(on)
            && !other.enabled
            && agent.enabled
        {
            findings
                .warning(
                    spelled.span,
                    format!("`{}` is waited for, but it is not enabled", spelled.name),
                )
                .label("waits until somebody starts it")
                .related(other.name.span, "`enabled = false`")
                .help("enable it, or do not wait for it");
        }
    }

    /// Where each agent comes in the start of its outermost group, and what each group covers.
    fn places(&self, forest: &Forest) -> Places {
        let mut places = Places {
            agents: vec![None; self.agents.len()],
            groups: vec![None; self.groups.len()],
            flat: Vec::new(),
        };
        for root in (0..self.groups.len()).filter(|i| forest.parents[self.group_id(*i)].is_none()) {
            let mut flat = Vec::new();
            let mut open = vec![Step::Enter(self.group_id(root))];
            while let Some(step) = open.pop() {
                match step {
                    Step::Enter(id) if id < self.agents.len() => {
                        places.agents[id] = Some((root, flat.len()));
                        flat.push(id);
                    }
                    Step::Enter(id) => {
                        let index = id - self.agents.len();
                        open.push(Step::Leave { index, first: flat.len() });
                        open.extend(forest.members[index].iter().rev().map(|id| Step::Enter(*id)));
                    }
                    Step::Leave { index, first } => {
                        places.groups[index] = Some((root, first..flat.len()));
                    }
                }
            }
            places.flat.push(flat);
        }
        places
    }

    /// Tells of agents that wait for each other, or for themselves.
    fn check_cycles(&self, waits: &[Edge], forest: &Forest, findings: &mut Findings) -> bool {
        let graph = Graph::new(self.len(), waits.iter().copied().chain(self.made_of(forest)));
        let cycles = graph.cycles();
        for cycle in &cycles {
            self.tell_cycle(cycle, findings);
        }
        cycles.is_empty()
    }

    /// Tells of members that wait for somebody who comes after them in their group.
    fn check_against_places(
        &self,
        waits: &[Edge],
        places: &Places,
        findings: &mut Findings,
    ) -> bool {
        let mut fine = true;
        for wait in waits {
            let Some((root, own)) = places.agents[wait.from] else {
                continue;
            };
            let last = match wait.to.checked_sub(self.agents.len()) {
                None => places.agents[wait.to].filter(|other| other.0 == root).map(|other| other.1),
                Some(group) => places.groups[group]
                    .as_ref()
                    // Who waits for a group it is in waits for itself, which is a cycle.
                    .filter(|(other, range)| *other == root && !range.contains(&own))
                    .and_then(|(_, range)| range.clone().last()),
            };
            if last.is_some_and(|last| last > own) {
                fine = false;
                let (name, other) = (&self.spelled(wait.from).name, &self.spelled(wait.to).name);
                findings
                    .error(
                        wait.span.unwrap_or(Span::START),
                        format!("`{name}` waits for `{other}`, which its group starts later"),
                    )
                    .label("starts later")
                    .related(self.groups[root].name.span, "by the order of the members here")
                    .help(format!("put `{other}` before `{name}` in `members`"));
            }
        }
        fine
    }

    /// Tells of groups that wait for each other only through the order of their members.
    fn check_together(
        &self,
        waits: Vec<Edge>,
        places: &Places,
        forest: &Forest,
        findings: &mut Findings,
    ) {
        let in_order = places.flat.iter().flat_map(|flat| {
            flat.windows(2).map(|pair| Edge { from: pair[1], to: pair[0], span: None })
        });
        let edges = waits.into_iter().chain(self.made_of(forest)).chain(in_order);
        for cycle in Graph::new(self.len(), edges).cycles() {
            self.tell_cycle(&cycle, findings);
        }
    }

    /// A group is ready when its members are.
    fn made_of<'o>(&'o self, forest: &'o Forest) -> impl Iterator<Item = Edge> + 'o {
        forest.members.iter().enumerate().flat_map(move |(index, members)| {
            members.iter().map(move |member| Edge {
                from: self.group_id(index),
                to: *member,
                span: None,
            })
        })
    }

    fn tell_cycle(&self, cycle: &[Edge], findings: &mut Findings) {
        let mut written = cycle.iter().filter_map(|edge| Some((edge, edge.span?)));
        // Groups form a forest and members an order, so a cycle has at least one written wait.
        let Some((first, span)) = written.next() else {
            return;
        };
        let name = |id| &self.spelled(id).name;
        let message = if first.from == first.to {
            format!("`{}` waits for itself", name(first.from))
        } else {
            let way = cycle.iter().skip_while(|edge| *edge != first).take(6);
            let way: Vec<_> = way.map(|edge| format!("`{}`", name(edge.to))).collect();
            format!("`{}` waits for {}", name(first.from), way.join(", which waits for "))
        };
        let diagnostic = findings.error(span, message);
        diagnostic.label("none of them could ever start");
        diagnostic.help("take out one of these waits");
        for (edge, span) in written.take(5) {
            diagnostic.related(span, format!("`{}` waits here", name(edge.from)));
        }
    }
}

/// A step of a walk through a group.
enum Step {
    Enter(Id),
    Leave { index: usize, first: usize },
}

/// Who is in which group, without circles.
struct Forest {
    /// By id: the group, and where it says so.
    parents: Vec<Option<(Id, Span)>>,
    /// By group: its members that have their place there.
    members: Vec<Vec<Id>>,
}

/// The order of starts: by outermost group, and inside it.
struct Places {
    agents: Vec<Option<(usize, usize)>>,
    groups: Vec<Option<(usize, std::ops::Range<usize>)>>,
    flat: Vec<Vec<Id>>,
}

/// What each name stands for.
struct Names<'o> {
    ids: HashMap<&'o Name, Id>,
    unusable: &'o HashSet<Name>,
    whole: bool,
    looks_left: usize,
}

impl Names<'_> {
    fn known(&self, spelled: &Spelled) -> Option<Id> {
        self.ids.get(&spelled.name).copied()
    }

    /// What a name stands for; tells of one that stands for nothing.
    fn look_up(&mut self, spelled: &Spelled, findings: &mut Findings) -> Option<Id> {
        let known = self.known(spelled);
        if known.is_some() || !self.whole || self.unusable.contains(&spelled.name) {
            return known;
        }
        let diagnostic =
            findings.error(spelled.span, format!("no agent or group is called `{}`", spelled.name));
        diagnostic.label("unknown name");
        if let Some(left) = self.looks_left.checked_sub(self.ids.len()) {
            self.looks_left = left;
            let names = self.ids.keys().map(|name| name.as_str());
            if let Some(meant) = nearest(spelled.name.as_str(), names) {
                diagnostic.help(format!("did you mean `{meant}`?"));
                return None;
            }
        }
        diagnostic.help("declare it, or take it out");
        None
    }
}
