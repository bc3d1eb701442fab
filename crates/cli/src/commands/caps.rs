//! `defib caps`, `defib grant` and `defib revoke`: what an agent may do.

use std::fmt::Write as _;

use defib_core::Capability;
use defib_daemon::wire::{CapabilityChange, CapabilityRequest, Caps};

use super::{Context, segment};
use crate::failure::{Code, Failure};
use crate::output;
use crate::table::{Cell, table};

/// Show what an agent may do: its tokens, what each gives, what this kernel enforces and what not
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  defib caps reviewer\n  defib caps reviewer --json")]
pub(crate) struct ShowCaps {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Let an agent do more, from its next start on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Capabilities: read:PATH write:PATH exec:PATH net net:PORT listen:PORT workspace_rw read_anywhere
subprocess privileged. Paths are relative to the agent's folder.

Examples:
  defib grant reviewer read:/etc/ssl net:443
  defib restart reviewer")]
pub(crate) struct Grant {
    #[command(flatten)]
    change: Change,
}

/// Let an agent do less, from its next start on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defib revoke reviewer net
  defib restart reviewer")]
pub(crate) struct Revoke {
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// The capabilities
    #[arg(value_name = "CAP", required = true)]
    capabilities: Vec<String>,
}

impl ShowCaps {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let path = format!("/api/v1/agents/{}/caps", segment(&self.name)?);
        let caps: Caps = context.client()?.get(&path)?;
        if self.json { output::json(&caps) } else { output::print(&shown(&caps)) }
    }
}

impl Grant {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        self.change.run(context, CapabilityChange::Grant)
    }
}

impl Revoke {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        self.change.run(context, CapabilityChange::Revoke)
    }
}

impl Change {
    fn run(&self, context: &Context, change: CapabilityChange) -> Result<(), Failure> {
        // What is malformed is said before anybody is asked.
        for token in &self.capabilities {
            Capability::parse(token)
                .map_err(|bad| Failure::new(Code::Usage, &bad).hint(bad.help()))?;
        }
        let path = format!("/api/v1/agents/{}/{}", segment(&self.name)?, change.word());
        let request = CapabilityRequest { capabilities: self.capabilities.clone() };
        let caps: Caps = context.client()?.post(&path, &request)?;
        let (name, done) = (
            &caps.agent,
            match change {
                CapabilityChange::Grant => "granted",
                CapabilityChange::Revoke => "revoked",
            },
        );
        let mut text = format!("{name}: {done} {}\n", self.capabilities.join(" "));
        // A String takes whatever is written to it.
        if caps.capabilities_pending.is_some() {
            let _ = writeln!(
                text,
                "Its run goes on as it began; `defib restart {name}` applies the change."
            );
        }
        for warning in &caps.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        output::print(&text)
    }
}

fn shown(caps: &Caps) -> String {
    let name = &caps.agent;
    let list = |tokens: &[String]| match tokens {
        [] => "no capabilities".to_owned(),
        tokens => tokens.join(" "),
    };
    let mut text = match (&caps.capabilities, caps.run) {
        (None, Some(run)) => format!("Run {run} of {name} has no sandbox.\n"),
        (None, None) => format!("{name} has no sandbox.\n"),
        (Some(tokens), Some(run)) => format!("Run {run} of {name} has: {}\n", list(tokens)),
        (Some(tokens), None) => format!("{name} has: {}\n", list(tokens)),
    };
    // A String takes whatever is written to it.
    if let Some(pending) = &caps.capabilities_pending {
        let _ = writeln!(text, "Its next run gets: {}", list(pending));
        let _ = writeln!(text, "`defib restart {name}` applies that.");
    }
    if !caps.revoked.is_empty() {
        let _ = writeln!(text, "Revoked by an operator: {}", caps.revoked.join(" "));
    }
    if !caps.tokens.is_empty() {
        let rows = caps.tokens.iter().map(|token| {
            [&token.capability, &token.by, &token.gives].map(|text| Cell::new(text.as_str())).into()
        });
        let rows: Vec<Vec<Cell>> = rows.collect();
        let _ = write!(text, "\n{}", table(&["TOKEN", "BY", "GIVES"], &rows));
    }
    let kernel = match (caps.landlock_abi, caps.seccomp) {
        (0, true) => "no Landlock, system calls are filtered".to_owned(),
        (0, false) => "no Landlock, no filters of system calls".to_owned(),
        (abi, true) => format!("Landlock {abi}, system calls are filtered"),
        (abi, false) => format!("Landlock {abi}, no filters of system calls"),
    };
    let sort = match caps.isolation.as_deref() {
        Some("namespaces") => ", namespaces of its own",
        Some(_) | None => "",
    };
    for (title, lines) in [
        ("Beside its tokens".to_owned(), &caps.implied),
        (format!("Enforced here ({kernel}{sort})"), &caps.enforced),
        ("Not enforced".to_owned(), &caps.not_enforced),
        ("Warnings".to_owned(), &caps.warnings),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}:");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}
