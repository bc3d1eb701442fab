//! defib beside other supervisors and beside the floor: same child, same run, ratios.
//!
//! Usually run by `scripts/bench`, which builds and installs what it needs. It measures and prints;
//! whether a target was met is said, and nothing depends on it.

#![forbid(unsafe_code)]

mod floor;
mod ground;
mod items;
mod job;
mod outcome;
mod peers;
mod processes;
mod reports;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, Rlimit};

use items::{Bench, ITEMS};
use peers::{DEFIB, FLOOR};

/// Compares defib with other supervisors and with the floor
#[derive(Debug, Parser)]
#[command(name = "scripts/bench")]
struct Arguments {
    /// The items to run; none means all
    #[arg(value_name = "ITEM", value_parser = ITEMS.iter().map(|item| item.0).collect::<Vec<_>>())]
    items: Vec<String>,
    /// Only these peers; the floor and defib always run
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Option<Vec<String>>,
    /// Small counts: to see that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Write the figures here as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The defib to measure
    #[arg(long, value_name = "FILE")]
    defib: PathBuf,
    /// The folder that peers were installed in
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    installed: PathBuf,
}

fn main() -> ExitCode {
    // Before anything else is parsed: the floor has nothing to do with the rest.
    let mut words = std::env::args_os().skip(1);
    let result = match (words.next(), words.next()) {
        (Some(word), Some(list)) if word == "--be-floor" => floor::run(list.as_ref()),
        _ => compare(&Arguments::parse()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("bench: {error}");
        ExitCode::FAILURE
    })
}

fn compare(arguments: &Arguments) -> io::Result<ExitCode> {
    ground::leave_on_interrupt();
    processes::adopt_orphans();
    raise_descriptors();
    let defib = std::path::absolute(&arguments.defib)?;
    let installed = std::path::absolute(&arguments.installed)?;
    let mut supervisors = peers::all(&defib, &installed);
    supervisors.retain(|supervisor| {
        let name = supervisor.name();
        let always = name == FLOOR || name == DEFIB;
        let wanted =
            arguments.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| peer == name));
        let there = supervisor.program().exists();
        if !there && (wanted || always) {
            println!("{name} is not there and left out ({})", supervisor.program().display());
        }
        there && (wanted || always)
    });
    let bench = Bench {
        supervisors,
        defib: peers::Defib::new(&defib),
        ground: ground::Ground::new()?,
        quick: arguments.quick,
    };
    let mut told = Vec::new();
    for (letter, run) in ITEMS {
        if !arguments.items.is_empty() && !arguments.items.iter().any(|item| item == letter) {
            continue;
        }
        let outcome = run(&bench);
        processes::end_all();
        match outcome {
            Ok(outcome) => {
                print!("{}", outcome.text());
                told.push(outcome.json());
            }
            Err(error) => println!("\n({letter}) could not be measured: {error}"),
        }
    }
    if let Some(path) = &arguments.json {
        std::fs::write(path, format!("{:#}\n", serde_json::Value::from(told)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A thousand children have pipes by the thousand.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // With fewer, the supervisors that need more say so.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}
