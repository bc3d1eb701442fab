//! Chores of this repository. `cargo xtask` lists them.

#![forbid(unsafe_code)]

mod planted;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask CHORE

  planted [WORD]   plant each known bug (or those whose rule has WORD in it) and see that the tests
                   or the simulator notice; prints caught / planted
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let outcome = match words.next().as_deref() {
        Some("planted") => planted::run(words.next().as_deref()),
        Some(other) => Err(format!("no chore is called {other:?}\n\n{HELP}")),
        None => {
            print!("{HELP}");
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
