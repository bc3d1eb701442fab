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

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use commands::{Command, Context};

/// Keeps long-running AI agents alive, and knows why they died.
#[derive(Debug, Parser)]
#[command(name = "defib", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    /// The daemon's folder; else the XDG state folder's `defib`
    #[arg(
        long,
        global = true,
        env = "DEFIB_HOME",
        value_name = "DIR",
        value_hint = clap::ValueHint::DirPath,
        hide_env_values = true
    )]
    home: Option<OsString>,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Arguments { home, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Who says nothing wants to know what can be said, also where a variable says something.
        Err(error)
            if error.kind() == ErrorKind::MissingSubcommand && std::env::args_os().len() < 2 =>
        {
            anstream::eprint!("{}", Arguments::command().render_help().ansi());
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    // A variable that is set to nothing is one that is not set.
    let home = home.filter(|home| !home.is_empty()).map(PathBuf::from);
    match command.run(&Context { home }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
