//! `defib dashboard`.

use defib_daemon::wire::LoginLink;
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::output;

/// Print a link that logs a browser in
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The link can be used once, within ten minutes. The browser stays logged in for twelve hours.

Examples:
  defib dashboard
  xdg-open \"$(defib dashboard)\"")]
pub(crate) struct Dashboard {}

impl Dashboard {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let link: LoginLink = context.client()?.post("/api/v1/links", &json!({}))?;
        output::print(&format!("{}\n", link.url))
    }
}
