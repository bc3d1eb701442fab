//! What the core is told and what it orders.
//!
//! Inputs are what the world or an operator said (`Exited`, `BeatSeen`, `StopAsked`); effects are
//! orders (`Spawn`, `Signal`). What was decided on the way is in [`record`](crate::record).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::{AgentId, GroupId, Name, RunId};
use crate::record::Record;
use crate::run::ExitReport;
use crate::time::Wall;
use crate::topology::Topology;

/// Whom an operator means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One agent.
    Agent(AgentId),
    /// The members of a group, at any depth.
    Group(GroupId),
    /// These agents, in the order of their start.
    Agents(Box<[AgentId]>),
    /// The agents of one project.
    Project(Name),
    /// Every agent.
    All,
}

/// What the world told us.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed; nothing else has happened.
    Tick,

    /// The declared agents and groups are these, all of them, from now on.
    Apply(Box<Topology>),
    /// The machine or the daemon came up: start what should be up.
    Booted,
    /// An operator brings a project up.
    UpAsked(Scope),
    /// An operator takes a project down, and with it what it remembers of deaths.
    DownAsked(Scope),
    /// An operator starts agents.
    StartAsked(Scope),
    /// An operator stops agents.
    StopAsked {
        /// Whom.
        scope: Scope,
        /// Without asking them first.
        kill: bool,
    },
    /// An operator restarts agents.
    RestartAsked {
        /// Whom.
        scope: Scope,
        /// As fresh sessions.
        fresh: bool,
    },
    /// An operator says that what was wrong has been put right.
    ReviveAsked(Scope),
    /// We are to end, in order; goals stay as they are.
    CloseAsked,

    /// The run was spawned.
    Spawned {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run is ready for those who wait for it.
    Readied {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run's process is gone, and what it left is being looked at: [`Exited`](Input::Exited)
    /// follows. From here on it is held to nothing that a living run is held to.
    Ended {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run ended, or could not be spawned.
    Exited {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// How.
        report: ExitReport,
    },
    /// The run showed that it lives.
    BeatSeen {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run did something: output, CPU time, children.
    ActivitySeen {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run stands at a prompt that only a person can answer, or no longer does.
    PromptSeen {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// Whether it does.
        waiting: bool,
    },
    /// The run printed the record that ends its work, or has begun to work again since.
    FinishSeen {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// Whether its work is over.
        finished: bool,
    },
    /// The run finished its work and has not exited for as long as it may.
    Lingered {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run asked for more time: it is not ended for silence, nor killed while it stops, before
    /// that has passed.
    Extended {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// How much, from now on.
        by: Duration,
    },
    /// The run failed its probe as often as it may.
    ProbeFailed {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The run spent more than it may.
    Overspent {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The agent asked for its own shutdown.
    ShutdownWished {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// What the agent waits for has come.
    WaitOver(AgentId),
    /// The agent's trigger came.
    Triggered(AgentId),
    /// The agent's balance is known.
    BalanceSeen {
        /// Whose.
        agent: AgentId,
        /// Whether it is zero or below.
        empty: bool,
    },
    /// What the agent may spend in a stretch of time is known.
    AllowanceSeen {
        /// Whose.
        agent: AgentId,
        /// Until when it may spend nothing, where it has spent what it may.
        spent_until: Option<Wall>,
    },
    /// After a restore: the run that the host holds for the agent, if any. Comes after every exit
    /// report that was waiting for us.
    Found {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: Option<RunId>,
    },
    /// The machine slept: silence during that time means nothing.
    Slept(Duration),
}

impl Input {
    /// Whether it is something that a run shows of itself, by which its own deadlines move.
    pub const fn is_sign(&self) -> bool {
        matches!(
            self,
            Input::BeatSeen { .. }
                | Input::ActivitySeen { .. }
                | Input::Extended { .. }
                | Input::FinishSeen { .. }
                | Input::Ended { .. }
        )
    }
}

/// How a run is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ask {
    /// By the agent's stop signal.
    Stop,
    /// By the kill of its whole tree.
    Kill,
}

/// What an operator wants of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// It should be up.
    Up,
    /// An operator stopped it by name.
    Stopped,
    /// Its project is down.
    Down,
}

/// An order to the host. Orders are carried out in the order they are given and never block; what
/// comes of them comes back as inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Store the goal, durably, before any order after this one is carried out.
    StoreGoal {
        /// Whose.
        agent: AgentId,
        /// The goal.
        goal: Goal,
    },
    /// Spawn this run. A host that knows the run already does nothing.
    Spawn {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// As a fresh session, not as a resumed one.
        fresh: bool,
    },
    /// Ask the run to end.
    Signal {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
        /// How.
        ask: Ask,
    },
    /// Say what became of the run: send its exit report again, or one that nobody saw it end.
    Inquire {
        /// Whose.
        agent: AgentId,
        /// Which.
        run: RunId,
    },
    /// The agent is gone from the supervisor.
    Forget {
        /// Whose.
        agent: AgentId,
    },
}

/// What one call of [`handle`](crate::Supervisor::handle) leaves to be done, in this order: keep
/// what was touched, number and store the records, then carry out the effects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outbox {
    /// Agents whose [`Life`](crate::Life) changed.
    pub touched: Vec<AgentId>,
    /// What was decided.
    pub records: Vec<Record>,
    /// What is to be done.
    pub effects: Vec<Effect>,
    /// How many inputs spoke of a run that is over. They changed nothing.
    pub stale: u32,
}

impl Outbox {
    /// Empties it, keeping its room.
    pub fn clear(&mut self) {
        self.touched.clear();
        self.records.clear();
        self.effects.clear();
        self.stale = 0;
    }
}
