//! `defib schema`.

use crate::failure::{Code, Failure};
use crate::output;

/// Print the JSON Schema of `defib.toml`, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  defib schema > defib.schema.json")]
pub(crate) struct Schema {}

impl Schema {
    #[expect(clippy::unused_self, reason = "every command is run this way")]
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&defib_config::schema())
            .map_err(|error| Failure::new(Code::Failed, error))?;
        output::print(&format!("{text}\n"))
    }
}
