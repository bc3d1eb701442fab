//! `defib top`.

use std::io::IsTerminal;

use super::Context;
use crate::failure::{Code, Failure};
use crate::tui;

/// Show every agent on a full screen, live, with keys to steer them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What flaps comes first, then what is crashed-out or halted, then the rest. Arrows select an agent; w \
says why it is as it is, l shows what it writes, e what was decided. s starts, x stops, r restarts, v \
revives, k kills, f funds, c grants a capability, a attaches. / filters, g shows groups, ? every key, q quits. It works from \
80 by 24 on, without colours where NO_COLOR is set, and goes on when the daemon is replaced.

Examples:
  defib top
  defib --home /srv/agents top
  ssh -t host defib top")]
pub(crate) struct Top {}

impl Top {
    #[expect(clippy::unused_self, reason = "every command is run like this")]
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if !is_terminal || is_dumb {
            return Err(Failure::new(Code::Usage, "this is no terminal to draw a screen on")
                .hint("`defib status` prints the same, `defib events -f` what happens"));
        }
        tui::run(&context.home()?)
    }
}
