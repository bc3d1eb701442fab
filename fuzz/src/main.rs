//! `fuzz [--seconds N] [--seed S] [TARGET…]`: throws things at parsers, each for so long.

use std::process::ExitCode;
use std::time::Duration;

use defib_fuzz::{Outcome, all, fuzz};

fn main() -> ExitCode {
    let (mut seconds, mut seed, mut names) = (10, 1, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match word.as_str() {
            "--seconds" => seconds = number().unwrap_or(seconds),
            "--seed" => seed = number().unwrap_or(seed),
            _ => names.push(word),
        }
    }
    let known = all();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|one| one.name == **name)) {
        let known: Vec<&str> = known.iter().map(|one| one.name).collect();
        eprintln!("no target is called {unknown:?}; there are: {}", known.join(", "));
        return ExitCode::from(2);
    }
    // What panics is told once, with the input.
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = false;
    for target in known.iter().filter(|one| names.is_empty() || names.iter().any(|n| n == one.name))
    {
        let Outcome { tried, finding } = fuzz(target, seed, Duration::from_secs(seconds), u64::MAX);
        match finding {
            None => println!("{:<12} {tried} inputs, nothing found", target.name),
            Some(finding) => {
                found = true;
                println!("{:<12} {}, input {tried} of seed {seed}", target.name, finding.what);
                println!("{:?}", String::from_utf8_lossy(&finding.input));
                println!("{:02x?}", finding.input);
            }
        }
    }
    ExitCode::from(u8::from(found))
}
