//! `defib audit`.

use std::path::Path;

use defib_daemon::audit::{self, Entry, Verdict};
use defib_history::{Intents, Reader};
use serde_json::json;

use super::Context;
use crate::failure::{Code, Failure};
use crate::output;
use crate::table::{Cell, table};

/// Show what operators did, or whether that account was tampered with
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each entry carries a hash over the one before it. --verify exits with 1 if an entry was changed or is \
missing, and names the first. Whoever may write the daemon's folder can write all of it anew: to \
notice that, note the hash that --verify prints somewhere else.

Examples:
  defib audit
  defib audit -n 1000 --json
  defib audit --verify")]
pub(crate) struct Audit {
    /// Look whether every entry is as it was written
    #[arg(long)]
    verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show so many entries, the newest
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 100)]
    last: usize,
}

impl Audit {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let home = context.home()?;
        let unreadable = |error: std::io::Error| {
            Failure::new(Code::Failed, format!("the audit cannot be read: {error}"))
        };
        if self.verify {
            let verdict = audit::verify(home.path(), &intents(home.path())).map_err(unreadable)?;
            return self.tell(&verdict);
        }
        let mut entries = audit::read(home.path()).map_err(unreadable)?;
        let entries = entries.split_off(entries.len().saturating_sub(self.last));
        if self.json {
            return output::json(&entries);
        }
        if entries.is_empty() {
            return output::print("nothing has been done here yet\n");
        }
        let rows: Vec<Vec<Cell>> = entries.into_iter().map(row).collect();
        output::print(&table(&["", "AT", "WHO", "WHAT", "OUTCOME", "WITH"], &rows))
    }

    fn tell(&self, verdict: &Verdict) -> Result<(), Failure> {
        match verdict {
            Verdict::Whole { entries, last } if self.json => {
                output::json(&json!({ "whole": true, "entries": entries, "last": last }))
            }
            Verdict::Whole { entries, last } => output::print(&format!(
                "all {entries} entries are as they were written; the last one's hash is {last}\n"
            )),
            Verdict::Broken { number, why } => {
                if self.json {
                    output::json(&json!({ "whole": false, "first_broken": number, "why": why }))?;
                }
                Err(Failure::new(Code::Failed, format!("entry {number}: {why}"))
                    .hint("what is before it can be relied on, what comes after it cannot"))
            }
        }
    }
}

/// What was kept of the audit elsewhere; nothing where that cannot be read.
fn intents(home: &Path) -> Intents {
    let reader = Reader::open(&home.join("history.db"));
    reader.and_then(|reader| reader.intents()).unwrap_or_default()
}

fn row(entry: Entry) -> Vec<Cell> {
    let Entry { number, at, who, what, detail, outcome } = entry;
    let detail = detail.map(|detail| detail.to_string()).unwrap_or_default();
    [number.to_string(), at, who, what, outcome, detail].map(Cell::new).to_vec()
}
