//! What the engine makes of money: who may not be started, and whose run is to end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use defib_config::config::{Budget, Burn, Command};
use defib_core::run::Finding;
use defib_core::{Class, Input, Name, RunId, Wall};
use defib_host::clock::now;
use defib_host::protocol::{Request, RunKey};
use serde_json::{Map, Value};

use super::ask::Ask;
use super::{Engine, EngineHandle};
use crate::coroner::Examined;
use crate::ledger::{Amounts, Clerk, Ledger, Notice, amount, end_of_day, micros, moment};
use crate::meter::burn::{Burning, FACTOR};
use crate::meter::coverage::{self, UnmeteredUnit};
use crate::meter::otlp::{Kept, Receiver, telemetry};
use crate::meter::prices::Prices;
use crate::meter::{Kind, Meters};
use crate::notices::{BURN_ALARM, NOTIFIED};

/// What the engine needs to know about money.
pub(super) struct Money {
    ledger: Ledger,
    pub(super) meters: Meters,
    /// Where agents send what they use; nothing before one may.
    otlp: Option<Receiver>,
    /// Runs that are ended for what they spent, and why.
    overspent: BTreeMap<Name, (RunId, String)>,
    /// Runs that ended well and reported nothing of what their budgets bound, with their commands.
    silent: BTreeMap<Name, (RunId, Command)>,
}

impl Money {
    /// Puts the clerk and the meters to work. `kept` is what an earlier daemon let agents send to.
    pub(super) fn start(
        home: PathBuf,
        handle: &EngineHandle,
        clerk: Clerk,
        kept: Option<&Vec<u8>>,
    ) -> io::Result<Money> {
        let (ledger, told) = (handle.ledger().clone(), handle.clone());
        clerk.start(move |notice| told.tell(Ask::Ledger(notice)))?;
        let told = handle.clone();
        let finished = move |key, finished| told.tell(Ask::Finished(key, finished));
        let meters = Meters::start(home, ledger.clone(), finished)?;
        let kept = kept.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let otlp = kept.and_then(|kept| Receiver::start(kept, ledger.clone()).ok());
        Ok(Money { ledger, meters, otlp, overspent: BTreeMap::new(), silent: BTreeMap::new() })
    }
}

impl Engine {
    /// The ledger has something to say.
    pub(super) fn hear_ledger(&mut self, notice: Notice) {
        match notice {
            Notice::Changed(agents, waiting) => {
                for agent in agents {
                    self.weigh(&agent);
                }
                if let Some((receipt, answer)) = waiting {
                    // Whoever asked may have gone.
                    let _ = answer.send(Ok(receipt));
                }
            }
            Notice::Burning(agent, run, burning) => self.burns(agent, run, &burning),
            Notice::Funded(entry) => {
                let body = [
                    ("amount", amount(entry.micros).into()),
                    ("unit", entry.unit.into()),
                    ("balance", entry.balance.map(amount).into()),
                    ("by", entry.source.into()),
                ];
                self.tell("funded", Some(RunKey { agent: entry.agent, run: RunId(0) }), body);
            }
            Notice::Spent { agent, run, amounts } => {
                let balances = self.money.ledger.look(&agent, |purse| purse.balances.clone());
                let left = shown(&balances.unwrap_or_default());
                let body = [("amounts", shown(&amounts)), ("balance", left)];
                self.tell("spent", Some(RunKey { agent, run }), body);
            }
        }
    }

    /// Gives every declared agent its opening balance, unless it had it before, and tells the core
    /// who has nothing left. What is told comes before any start that follows.
    pub(super) fn open_purses(&mut self) {
        let agents = self.projects.values().flat_map(|project| &project.config.agents);
        let opening: Vec<_> =
            agents.map(|agent| (agent.name.clone(), agent.budget.balance.clone())).collect();
        for (name, balances) in opening {
            if !balances.is_empty() {
                self.money.ledger.give_opening(name.clone(), balances);
            }
            self.weigh(&name);
        }
    }

    /// Tells the core who may not be started, before anything that may start somebody.
    pub(super) fn warn_of_the_spent(&mut self) {
        for name in self.supervisor.known_names() {
            let Some(agent) = self.supervisor.known(&name) else { continue };
            let budget = self.budget_of(&name);
            if self.is_broke(&name, &budget) {
                self.handle(Input::BalanceSeen { agent, empty: true });
            }
            if let Some(until) = self.spent_until(&name, &budget) {
                self.handle(Input::AllowanceSeen { agent, spent_until: Some(until) });
            }
        }
    }

    fn budget_of(&self, name: &Name) -> Arc<Budget> {
        self.recipe(name).map(|(_, agent)| agent.budget.clone()).unwrap_or_default()
    }

    /// Compares what an agent has and spends with what it may.
    pub(super) fn weigh(&mut self, name: &Name) {
        let Some(agent) = self.supervisor.known(name) else { return };
        let budget = self.budget_of(name);
        let empty = self.is_broke(name, &budget);
        self.handle(Input::BalanceSeen { agent, empty });
        let spent_until = self.spent_until(name, &budget);
        self.handle(Input::AllowanceSeen { agent, spent_until });
        let Some(run) = self.supervisor.sight(agent).run else { return };
        if let Some(evidence) = self.excess(name, run, &budget) {
            self.money.overspent.insert(name.clone(), (run, evidence));
            self.handle(Input::Overspent { agent, run });
        }
    }

    /// Whether nothing is left of something that the agent was given.
    fn is_broke(&self, name: &Name, budget: &Budget) -> bool {
        let has_nothing = self.money.ledger.look(name, |purse| purse.empty_unit().is_some());
        // An opening balance of nothing counts before it has been written down.
        let given_nothing = budget.balance.iter().any(|(unit, given)| {
            let is_unopened = self.money.ledger.look(name, |purse| purse.is_unopened(unit));
            *given <= 0.0 && is_unopened.unwrap_or(true)
        });
        has_nothing.unwrap_or(false) || given_nothing
    }

    /// Until when an agent may spend nothing, where it has spent more than it may on a day.
    fn spent_until(&self, name: &Name, budget: &Budget) -> Option<Wall> {
        if budget.per_day.is_empty() {
            return None;
        }
        let now = now().wall;
        let today = moment(now).date;
        let is_over = |(unit, most): (&String, &f64)| {
            let spent = self.money.ledger.look(name, |purse| purse.on_day(&today, unit));
            spent.is_some_and(|spent| spent > micros(*most))
        };
        budget.per_day.iter().any(is_over).then(|| end_of_day(now))
    }

    /// Somebody is told that an agent burns, and it is stopped where that is wanted.
    fn burns(&mut self, name: Name, run: RunId, burning: &Burning) {
        let wanted = self.budget_of(&name).burn;
        if wanted == Burn::Off {
            return;
        }
        let (unit, per_minute, baseline) =
            (&burning.unit, amount(burning.per_minute), amount(burning.baseline));
        let body = [
            ("unit", unit.as_str().into()),
            ("per_minute", per_minute.into()),
            ("baseline", baseline.into()),
            ("factor", FACTOR.into()),
            ("stopped", (wanted == Burn::Stop).into()),
        ];
        let key = RunKey { agent: name.clone(), run };
        self.tell(BURN_ALARM, Some(key.clone()), body);
        let channels = self.channels_for(self.project_name_of(&name).as_ref(), BURN_ALARM);
        let body = [("what", BURN_ALARM.into()), ("channels", channels.into())];
        self.tell(NOTIFIED, Some(key), body);
        if let (Burn::Stop, Some(agent)) = (wanted, self.supervisor.known(&name)) {
            let evidence =
                format!("it spent {per_minute} {unit} in a minute, where {baseline} are usual");
            self.money.overspent.insert(name, (run, evidence));
            self.handle(Input::Overspent { agent, run });
        }
    }

    /// Reads what a run prints, where that says what it uses.
    pub(super) fn meter(&self, key: &RunKey) {
        if let Some(kind) = Kind::of(self.kind(&key.agent)) {
            let recipe = self.recipe(&key.agent);
            let prices = recipe.map(|(project, agent)| {
                Prices::new(project.config.prices.clone(), coverage::model_of(&agent.command))
            });
            let prices = prices.unwrap_or_default();
            self.money.meters.watch(key.agent.clone(), key.run, kind, prices);
        }
    }

    /// A dead run has been examined, so all that it wrote is in its log. What it spent with its last
    /// words has a say in what becomes of it, and is on disk before its report is let go of.
    pub(super) fn await_meter(&mut self, examined: Examined) {
        let RunKey { agent, run } = examined.key.clone();
        self.meter(&examined.key);
        if !self.money.meters.is_watching(&agent, run) {
            return self.examined(examined);
        }
        let handle = self.handle.clone();
        let tell = move || handle.tell(Ask::Metered(Box::new(examined)));
        self.money.meters.finish(agent, run, tell);
    }

    /// Gives a run what it needs to send what it uses, where it is of a kind that may or where it
    /// matters, and turns the sending on where its budget has bounds for that. Says to which port of ours.
    pub(super) fn admit(&mut self, key: &RunKey, env: &mut Vec<(String, String)>) -> Option<u16> {
        let (_, agent) = self.recipe(&key.agent)?;
        let exports = match Kind::of(self.kind(&key.agent)) {
            Some(Kind::Claude | Kind::Codex | Kind::Gemini) => true,
            Some(Kind::Opencode | Kind::Aider) | None => false,
        };
        if !exports && !has_bounds(&agent.budget) {
            return None;
        }
        if self.money.otlp.is_none() {
            // Without it there is one meter less, and nothing else.
            self.money.otlp = Receiver::start(Kept::default(), self.money.ledger.clone()).ok();
        }
        let (_, agent) = self.recipe(&key.agent)?;
        let variable = |name: &str| env_value(env, name);
        let is_bounded = !coverage::bounded(&agent.budget).is_empty();
        let telemetry = telemetry(self.kind(&key.agent), &variable).filter(|_| is_bounded);
        let kept = self.money.otlp.as_ref().and_then(|receiver| receiver.admit(key, env))?;
        for (name, value) in telemetry.into_iter().flatten() {
            if env_value(env, name).is_none() {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
        if let Ok(bytes) = serde_json::to_vec(&kept) {
            self.send(&Request::Keep { key: "otlp".to_owned(), bytes });
        }
        Some(kept.port)
    }

    /// Why a run must not be started: nothing would measure what its budget bounds. `env` is what the
    /// run has of its own, before anything of ours.
    pub(super) fn unmetered_refusal(
        &self,
        name: &Name,
        env: &[(String, String)],
        can_send: bool,
    ) -> Option<String> {
        let (_, agent) = self.recipe(name)?;
        // Without a receiver it is as if the run sent elsewhere.
        let elsewhere = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(String::new);
        let variable = |name: &str| {
            env_value(env, name).or_else(|| if can_send { None } else { elsewhere(name) })
        };
        let mut unmetered = coverage::unmetered(agent, variable);
        unmetered.extend(self.silent_units(name));
        coverage::refusal(agent, &unmetered)
    }

    /// The units of an agent's budget that nothing measures.
    pub(super) fn unmetered_of(&self, name: &Name) -> Vec<UnmeteredUnit> {
        let Some((project, agent)) = self.recipe(name) else { return Vec::new() };
        let unmetered = coverage::unmetered(agent, |name| project.variable(agent, name));
        if unmetered.is_empty() { self.silent_units(name) } else { unmetered }
    }

    /// Notes whether a run that ended well reported anything of what its budget bounds. A model that has
    /// done its work has used tokens: if none were reported, nothing measures them.
    pub(super) fn note_silence(&mut self, key: &RunKey, class: Class) {
        let Some((_, agent)) = self.recipe(&key.agent) else { return };
        let units = coverage::bounded(&agent.budget);
        let reported = |unit: &&str| {
            let spent = self.money.ledger.look(&key.agent, |purse| purse.in_run(key.run, unit));
            spent.is_some_and(|spent| spent > 0)
        };
        if units.iter().any(reported) {
            self.money.silent.remove(&key.agent);
        } else if class == Class::Done && !units.is_empty() {
            let command = agent.command.clone();
            self.money.silent.insert(key.agent.clone(), (key.run, command));
        }
    }

    /// An operator starts an agent: its next run shows whether it is metered now.
    pub(super) fn forget_silence(&mut self, names: impl Iterator<Item = Name>) {
        for name in names {
            self.money.silent.remove(&name);
        }
    }

    /// The units of an agent's budget of which its last run that ended well reported nothing.
    fn silent_units(&self, name: &Name) -> Vec<UnmeteredUnit> {
        let silent = self.money.silent.get(name).zip(self.recipe(name));
        let Some(((run, command), (_, agent))) = silent else { return Vec::new() };
        if *command != agent.command {
            return Vec::new();
        }
        coverage::silent(agent, *run)
    }

    /// Whether usd that an agent spends are counted by estimated prices.
    pub(super) fn is_estimated(&self, name: &Name) -> bool {
        self.recipe(name).is_some_and(|(_, agent)| coverage::estimated(agent))
    }

    /// What a run has spent beyond what one may, in words.
    fn excess(&self, name: &Name, run: RunId, budget: &Budget) -> Option<String> {
        budget.per_run.iter().find_map(|(unit, most)| {
            let spent = self.money.ledger.look(name, |purse| purse.in_run(run, unit))?;
            (spent > micros(*most))
                .then(|| format!("it spent {} of the {most} {unit} that a run may", amount(spent)))
        })
    }

    /// What an agent has left, by unit.
    pub(super) fn balances_of(&self, name: &Name) -> Option<BTreeMap<String, f64>> {
        let balances = self.money.ledger.look(name, |purse| purse.balances.clone())?;
        (!balances.is_empty()).then(|| numbers(&balances))
    }

    /// What an agent has spent since there is a ledger of it.
    pub(super) fn spent_of(&self, name: &Name) -> Option<BTreeMap<String, f64>> {
        let spent = self.money.ledger.look(name, |purse| purse.spent.clone())?;
        if spent.is_empty() {
            return None;
        }
        let mut spent = numbers(&spent);
        for unit in ["tokens", "usd"] {
            spent.entry(unit.to_owned()).or_insert(0.0);
        }
        Some(spent)
    }

    /// Why a run was ended for money, where it was.
    pub(super) fn overspent(&mut self, key: &RunKey) -> Option<Finding> {
        let (run, _) = self.money.overspent.get(&key.agent)?;
        if *run != key.run {
            return None;
        }
        let (_, evidence) = self.money.overspent.remove(&key.agent)?;
        let (class, evidence) = (Class::Budget, Some(evidence.into()));
        Some(Finding { class, evidence, resets_at: None })
    }
}

fn env_value(env: &[(String, String)], name: &str) -> Option<String> {
    env.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
}

/// Whether a budget bounds anything.
fn has_bounds(budget: &Budget) -> bool {
    let Budget { balance, per_run, per_day, burn: _, unmetered: _ } = budget;
    !(balance.is_empty() && per_run.is_empty() && per_day.is_empty())
}

fn numbers(amounts: &Amounts) -> BTreeMap<String, f64> {
    amounts.iter().map(|(unit, micros)| (unit.clone(), amount(*micros))).collect()
}

/// Amounts as JSON shows them.
fn shown(amounts: &Amounts) -> Value {
    let fields = amounts.iter().map(|(unit, micros)| (unit.clone(), amount(*micros).into()));
    Value::Object(fields.collect::<Map<String, Value>>())
}
