//! `defib logs`.

use super::{Context, segment};
use crate::failure::Failure;
use crate::output;

/// Print what agents wrote
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib logs reviewer
  defib logs -f -n 20 reviewer
  defib logs --run 3 reviewer")]
pub(crate) struct Logs {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Go on as it writes
    #[arg(short, long)]
    follow: bool,
    /// The last so many lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Of this run only
    #[arg(long, value_name = "N")]
    run: Option<u64>,
}

impl Logs {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let mut path = format!(
            "/api/v1/agents/{}/logs?lines={}&follow={}",
            segment(&self.name)?,
            self.lines,
            self.follow
        );
        if let Some(run) = self.run {
            path.push_str(&format!("&run={run}"));
        }
        context.client()?.stream(&path, output::raw)
    }
}
