//! Whether what somebody waits for can still come about: another may have asked for the opposite.

use defib_core::{AgentId, Goal, Name, State};

use super::Engine;
use super::ask::{Failed, failed};
use crate::wire::{Action, ErrorCode};

impl Engine {
    /// Whether a project that was taken down is down, or all of them are. An error where somebody wants
    /// some of it up again.
    pub(super) fn is_down(&self, project: Option<&Name>) -> Result<bool, Failed> {
        let of_project =
            |id: &AgentId| project.is_none_or(|project| self.supervisor.project(*id) == project);
        let mut is_down = true;
        for id in self.supervisor.declared().map(|(id, _)| id).filter(of_project) {
            let may_live = matches!(
                self.supervisor.sight(id).state,
                State::Starting
                    | State::Running
                    | State::Stopping
                    | State::Backoff
                    | State::Waiting
            );
            if may_live && self.supervisor.goal(id) == Goal::Up {
                return Err(self.turned_back(id));
            }
            is_down &= !may_live;
        }
        Ok(is_down)
    }

    /// Whether what was asked of agents is still wanted.
    pub(super) fn is_still_wanted(&self, name: &str, action: Action) -> Result<(), Failed> {
        let is_other = |id: &AgentId| match (action, self.supervisor.goal(*id)) {
            (Action::Stop, Goal::Up) => true,
            (Action::Stop, Goal::Stopped | Goal::Down) => false,
            (Action::Start | Action::Restart, goal) => goal != Goal::Up,
            // Whoever is stopped after it was put back has been put back.
            (Action::Revive, _) => false,
        };
        let ids = self.ids_in(&self.scope(name)?);
        ids.into_iter().find(is_other).map_or(Ok(()), |id| Err(self.turned_back(id)))
    }

    pub(super) fn turned_back(&self, id: AgentId) -> Failed {
        let shown = self.handle.shown.name(self.supervisor.name(id));
        let what = match self.supervisor.goal(id) {
            Goal::Up => "started again",
            Goal::Stopped => "stopped",
            Goal::Down => "taken down",
        };
        let hint = format!("`defib status {shown}` shows what became of it");
        failed(ErrorCode::Failed, format!("{shown} was {what} meanwhile"), Some(hint))
    }
}
