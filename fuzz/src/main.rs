//! Fuzzes the targets without coverage, lists them, or writes their seed inputs to files.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use defib_fuzz::{Outcome, Target, all, corpus, fuzz};

const USAGE: &str = "\
usage: defib-fuzz [--seconds N] [--seed S] [TARGET...]   fuzz each target for N seconds (default 10)
       defib-fuzz --list                                 print the names of the targets
       defib-fuzz --unpack FOLDER                        write seeds and corpus to FOLDER/TARGET/seed-N
       defib-fuzz --pack TARGET FOLDER                   keep the files of FOLDER as the corpus of TARGET
";

/// The parsed command line.
struct Arguments {
    seconds: u64,
    seed: u64,
    targets: Vec<Target>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => {
            for target in all() {
                println!("{}", target.name);
            }
            ExitCode::SUCCESS
        }
        ["--unpack", folder] => done(unpack(Path::new(folder))),
        ["--pack", name, folder] => match all().iter().find(|target| target.name == name) {
            Some(target) => done(corpus::pack(target, Path::new(folder))),
            None => refuse(&format!("there is no target {name:?}; --list prints the names")),
        },
        _ => parse(&words).map_or_else(|message| refuse(&message), |arguments| run(&arguments)),
    }
}

fn done(result: std::io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&format!("cannot read or write the corpus: {error}")),
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("{message}\n{USAGE}");
    ExitCode::from(2)
}

fn parse(words: &[&str]) -> Result<Arguments, String> {
    let (mut seconds, mut seed, mut names) = (10, 1, Vec::new());
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let number = |text: Option<&str>| {
            let number = text.and_then(|text| text.parse::<u64>().ok());
            number.ok_or(format!("{word} needs a whole number"))
        };
        match word {
            "--seconds" => seconds = number(words.next())?,
            "--seed" => seed = number(words.next())?,
            name => names.push(name),
        }
    }
    let mut targets = all();
    if let Some(unknown) = names.iter().find(|name| targets.iter().all(|one| one.name != **name)) {
        return Err(format!("there is no target {unknown:?}; --list prints the names"));
    }
    targets.retain(|target| names.is_empty() || names.contains(&target.name));
    Ok(Arguments { seconds, seed, targets })
}

fn unpack(folder: &Path) -> std::io::Result<()> {
    all().iter().try_for_each(|target| corpus::unpack(target, &folder.join(target.name)))
}

fn run(arguments: &Arguments) -> ExitCode {
    let Arguments { seconds, seed, targets } = arguments;
    // The report below has the panic's message and the input; the default hook would print it twice.
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = false;
    for target in targets {
        let within = Duration::from_secs(*seconds);
        let Outcome { tried, finding } = fuzz(target, *seed, within, u64::MAX);
        match finding {
            None => println!("{:<20} {tried} inputs, no finding", target.name),
            Some(finding) => {
                found = true;
                println!("{:<20} {}, input {tried} of seed {seed}", target.name, finding.what);
                println!("{:?}", String::from_utf8_lossy(&finding.input));
                println!("{:02x?}", finding.input);
            }
        }
    }
    ExitCode::from(u8::from(found))
}
