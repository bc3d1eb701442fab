//! What projects say of the daemon itself. There is one daemon, so they may not contradict each other.

use std::sync::Arc;

use defib_config::Config;
use defib_config::config::{History, Server};
use defib_core::Name;

use super::Engine;
use super::ask::Failed;
use crate::doors::Site;
use crate::notify::Roll;
use crate::recipe::Project;
use crate::wire::{ErrorCode, ErrorDetail, UpRequest};

impl Engine {
    /// Says to the doors where they should be.
    pub(super) fn tell_site(&self) {
        let said = self.projects.values().find(|one| one.config.server != Server::default());
        // Where nobody says anything, it is the same whoever is up: else the door would close and open
        // again, perhaps elsewhere, for a project that has no wish of its own.
        let site = said.map_or_else(
            || Site { server: Server::default(), folder: self.home.clone() },
            |one| Site { server: one.config.server.clone(), folder: one.config.folder.clone() },
        );
        self.site.send_if_modified(|known| {
            let is_new = known.as_ref().is_none_or(|known| *known != site);
            *known = Some(site);
            is_new
        });
    }

    /// What one of the projects says of the daemon; those that do, agree.
    pub(super) fn said_by_one<T>(&self, what: impl Fn(&Config) -> Option<T>) -> Option<T> {
        self.projects.values().find_map(|project| what(&project.config))
    }

    /// Says to the history how long it is to keep what.
    pub(super) fn tell_history(&self) {
        let keep = self.said_by_one(|config| config.history.keep);
        self.history.keep(keep.unwrap_or(History::DEFAULT_KEEP));
    }

    /// Says to the exporter whom figures are sent to.
    pub(super) fn tell_exporter(&self) {
        let target = self.projects.values().find_map(Project::export);
        self.export.send_if_modified(|known| {
            let is_new = *known != target;
            *known = target;
            is_new
        });
    }

    /// Says to the herald who is to be told, and from which event on those are who are new.
    pub(super) fn tell_roll(&self, since: Option<u64>) {
        let channels = self.projects.values().flat_map(Project::channels).map(Arc::new).collect();
        // The herald ends only with the process.
        let _ = self.roll.send(Roll { channels, since });
    }

    /// The channels of an agent's project that want to be told of something.
    pub(super) fn channels_for(&self, project: Option<&Name>, what: &str) -> Vec<String> {
        let project = project.and_then(|name| self.projects.get(name));
        let channels = project.into_iter().flat_map(|project| &project.config.notify);
        let told = channels.filter(|notify| notify.on.iter().any(|topic| topic.word() == what));
        told.map(|notify| notify.name.to_string()).collect()
    }

    /// A project may not contradict another that is up.
    pub(super) fn check_agreement(&self, request: &UpRequest) -> Result<(), Failed> {
        let new = &request.config;
        for known in self.projects.values().map(|project| &project.config) {
            if known.project == new.project {
                continue;
            }
            let what = if disagree(&known.server, &new.server) {
                "[server]"
            } else if disagree(&known.history, &new.history) {
                "[history]"
            } else if disagree(&known.supervisor, &new.supervisor) {
                "[supervisor]"
            } else if disagree(&known.metrics, &new.metrics) {
                "[metrics]"
            } else {
                continue;
            };
            return Err(ErrorDetail {
                code: ErrorCode::Config,
                message: format!("{what} is not what project {} says", known.project),
                hint: Some(format!(
                    "there is one daemon: say {what} in one of them, or the same in both"
                )),
            });
        }
        Ok(())
    }
}

/// Whether two both say something, and not the same.
fn disagree<T: Default + PartialEq>(one: &T, other: &T) -> bool {
    let silent = T::default();
    *one != silent && *other != silent && one != other
}
