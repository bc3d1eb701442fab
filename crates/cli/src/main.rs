//! `defib`: keeps long-running AI agents alive, and knows why they died.
//!
//! This is the edge: arguments become requests, answers become text, failures become an exit code
//! with a message and a next step. No rule of supervision is written here.

#![forbid(unsafe_code)]

mod client;
mod commands;
mod deploy;
mod failure;
mod home;
mod interrupt;
mod output;
mod table;
mod tty;
mod tui;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use commands::{Command, Context};

/// Keeps long-running AI agents alive, and knows why they died.
#[derive(Debug, Parser)]
#[command(name = "defib", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    /// The daemon's folder; else the XDG state folder's `defib`
    #[arg(long, global = true, env = "DEFIB_HOME", value_name = "DIR", hide_env_values = true)]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Arguments { home, command } = Arguments::parse();
    match command.run(&Context { home }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
