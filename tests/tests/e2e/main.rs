//! The product as its users meet it: the real binary, real processes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agent_commands;
mod api;
mod audit;
mod bad_input;
mod budget;
mod causes;
mod clock;
mod closing;
mod daemon_death;
mod demo;
mod doors;
mod durability;
mod environment;
mod heads;
mod history;
mod hostile_output;
mod hostile_terminal;
mod hung_start;
mod import;
mod impostor;
mod isolation;
mod isolation_namespaces;
mod json;
mod keeper_death;
mod lifecycle;
mod linger;
mod liveness;
mod logs;
mod loops;
mod lost_socket;
mod many;
mod metering;
mod names;
mod no_ghosts;
mod notifications;
mod notify;
mod odd_files;
mod otlp;
mod own;
mod own_user;
mod probe;
mod recovery;
mod reload;
mod respawn;
mod sandbox;
mod sandbox_survey;
mod scenarios;
mod secrets;
mod security_page;
mod simulate;
mod stopping;
mod storm;
mod terminal;
mod terminal_storm;
mod tls;
mod top;
mod trees;
mod trust;
mod usage;

use defib_e2e::Bench;

/// The scripted child.
const FAKE_AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");

/// A home and a project for one test.
fn bench() -> Bench {
    defib_e2e::bench(FAKE_AGENT)
}

/// Whether to take the time that the long forms of tests need.
fn is_long() -> bool {
    std::env::var_os("DEFIB_LONG").is_some_and(|value| value == "1")
}
