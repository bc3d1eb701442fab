//! `defib ledger`.

use defib_daemon::wire::LedgerLine;

use super::{Context, segment};
use crate::failure::Failure;
use crate::output;
use crate::table::{Cell, table};

/// Show what an agent was given and what it spent, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  defib ledger reviewer")]
pub(crate) struct Ledger {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Ledger {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = format!("/api/v1/agents/{}/ledger", segment(&self.name)?);
        let lines: Vec<LedgerLine> = context.client()?.get(&path)?;
        if self.json {
            return output::json(&lines);
        }
        if lines.is_empty() {
            let name = &self.name;
            return output::print(&format!(
                "nothing was given to {name}, and it spent nothing that we know of\n"
            ));
        }
        let rows: Vec<Vec<Cell>> = lines.iter().map(row).collect();
        output::print(&table(&["AT", "WHAT", "AMOUNT", "UNIT", "BALANCE", "BY"], &rows))
    }
}

fn row(line: &LedgerLine) -> Vec<Cell> {
    let by = match line.run {
        Some(run) => format!("run {run}, {}", line.by),
        None => line.by.clone(),
    };
    vec![
        Cell::new(line.at.as_str()),
        Cell::new(line.what.as_str()),
        Cell::new(number(line.amount)),
        Cell::new(line.unit.as_str()),
        Cell::new(line.balance.map(number).unwrap_or_default()),
        Cell::new(by),
    ]
}

/// A number to the millionth, without what says nothing.
pub(crate) fn number(amount: f64) -> String {
    let text = format!("{amount:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
