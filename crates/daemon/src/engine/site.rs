//! What projects say of the daemon itself. There is one daemon, so they may not contradict each other.

use defib_config::config::Server;

use super::Engine;
use super::ask::Failed;
use crate::doors::Site;
use crate::wire::{ErrorCode, ErrorDetail, UpRequest};

impl Engine {
    /// Says to the doors where they should be.
    pub(super) fn tell_site(&self) {
        let said = self.projects.values().find(|one| one.config.server != Server::default());
        let site = said.or_else(|| self.projects.values().next()).map_or_else(
            || Site { server: Server::default(), folder: self.home.clone() },
            |one| Site { server: one.config.server.clone(), folder: one.config.folder.clone() },
        );
        self.site.send_if_modified(|known| {
            let is_new = known.as_ref().is_none_or(|known| *known != site);
            *known = Some(site);
            is_new
        });
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
