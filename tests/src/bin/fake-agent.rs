//! A scripted child. Its arguments are words that are done one after the other; at the end of them
//! it exits with 0.
//!
//! | word | what it does |
//! | --- | --- |
//! | `print TEXT`, `eprint TEXT` | a line on standard output, or error |
//! | `raw TEXT` | the text without an end of line |
//! | `lines N` | so many numbered lines, as fast as it can |
//! | `lines-until FILE` | numbered lines in bursts until the file is there, then `END` and their number |
//! | `waves N FILE` | for each byte in the file, N numbered lines as fast as it can; at a `.`, `END` and their number |
//! | `sums N FROM` | N numbered lines with checksums, the first with the number FROM |
//! | `sum-waves N FILE` | as `waves`, with lines that have checksums and without `END` |
//! | `flood` | numbered lines, as fast as it can, for ever |
//! | `exit N` | ends with this code |
//! | `signal NAME` | sends itself the signal (`KILL`, `STOP`, `SEGV`, `USR1`, …) |
//! | `sleep MS`, `forever` | waits |
//! | `await FILE`, `await-text FILE` | waits until the file is there, or has something in it |
//! | `rest-if FILE` | if the file is there, says `resting` and waits for ever |
//! | `ignore NAME` | ignores the signal from here on, and so do its descendants |
//! | `env NAME` | prints `NAME=value`, or `NAME unset` |
//! | `environ`, `cwd`, `argv`, `pid` | prints what it was given |
//! | `tty` | whether input and output are a terminal, which, and its size |
//! | `stdin` | reads its input to the end and prints what came |
//! | `open-files` | prints the numbers of its open descriptors |
//! | `child SCRIPT` | a child that does the script (words with single spaces) and shares the streams |
//! | `double-fork SCRIPT` | a grandchild in a session of its own, whose parent has ended |
//! | `port PORT` | holds the port from here on; exits with 98 if somebody else has it |
//! | `count FILE` | appends a line with its run number and process id |
//! | `touch FILE` | makes the file |
//! | `beat`, `beat-until FILE` | touches its heartbeat file: once, or every 50 ms until the file is there |
//! | `notify TEXT` | a datagram to its notify socket; `|` ends a line |
//! | `run LINE` | a program with arguments (single spaces); says `ran` and the exit code |
//! | `try WHAT ON` | tries one thing that a sandbox may forbid, and says what came of it; see `attempt` |
//! | `busy-until FILE` | uses CPU time until the file is there |
//! | `burn MS` | uses CPU time until it has had so much in all |
//! | `allocate MIB` | has so much memory from here on |
//! | `stop-siblings` | stops, for ever, each process of its user that has not executed its program yet |
//! | `fail-until N FILE` | counts in the file, and exits with 1 unless this is at least the Nth time |

use std::fs::OpenOptions;
use std::io::{IsTerminal, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::Duration;

use defib_e2e::attempt::attempt;
use rustix::process::Signal;

/// So much is written at once by `lines-until`, of one line each.
const BURST: u64 = 200;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    words.reverse();
    // Held until the end.
    let mut ports = Vec::new();
    let mut memory = Vec::new();
    while let Some(word) = words.pop() {
        let mut next = || words.pop().unwrap_or_else(|| panic!("{word} needs a word"));
        match word.as_str() {
            "print" => say(&next()),
            "eprint" => eprintln!("{}", next()),
            "raw" => {
                print!("{}", next());
                std::io::stdout().flush().expect("output");
            }
            "lines" => lines(number(&next())),
            "lines-until" => lines_until(Path::new(&next())),
            "waves" => {
                let size = number(&next());
                waves(size, Path::new(&next()));
            }
            "sums" => {
                let count = number(&next());
                let first = number(&next());
                sums(first, count);
            }
            "sum-waves" => {
                let size = number(&next());
                sum_waves(size, Path::new(&next()));
            }
            "flood" => lines(u64::MAX),
            "exit" => exit(i32::try_from(number(&next())).expect("a code")),
            "signal" => {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, signal(&next())).expect("a signal to itself");
            }
            "sleep" => sleep(Duration::from_millis(number(&next()))),
            "forever" => forever(),
            "await" => await_file(Path::new(&next())),
            "await-text" => await_text(Path::new(&next())),
            "rest-if" => {
                if Path::new(&next()).exists() {
                    say("resting");
                    forever();
                }
            }
            "ignore" => ignore(&next(), words.drain(..).rev().collect()),
            "env" => {
                let name = next();
                say(&match std::env::var(&name) {
                    Ok(value) => format!("{name}={value}"),
                    Err(_) => format!("{name} unset"),
                });
            }
            "environ" => std::env::vars().for_each(|(name, value)| say(&format!("{name}={value}"))),
            "cwd" => say(&std::env::current_dir().expect("a folder").display().to_string()),
            "argv" => say(&std::env::args().collect::<Vec<_>>().join("|")),
            "pid" => say(&std::process::id().to_string()),
            "tty" => tty(),
            "stdin" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).expect("input");
                say(&format!("stdin {text:?}"));
            }
            "open-files" => open_files(),
            "child" => drop(script(&next()).spawn().expect("a child")),
            "double-fork" => double_fork(&next()),
            "between" => between(&next()),
            "port" => {
                let port = u16::try_from(number(&next())).expect("a port");
                ports.push(listen(port));
            }
            "count" => {
                let run = std::env::var("DEFIB_RUN").unwrap_or_default();
                append(&next(), &format!("{run} {}\n", std::process::id()));
            }
            "touch" => append(&next(), ""),
            "beat" => beat(),
            "beat-until" => beat_until(Path::new(&next())),
            "notify" => notify(&next().replace('|', "\n")),
            "run" => run(&next()),
            "try" => try_it(&next(), &next()),
            "busy-until" => {
                let file = next();
                while !Path::new(&file).exists() {
                    work();
                }
            }
            "burn" => burn(Duration::from_millis(number(&next()))),
            "allocate" => memory.push(allocate(number(&next()))),
            "fail-until" => fail_until(number(&next()), &next()),
            "stop-siblings" => stop_siblings(),
            other => panic!("no such word: {other}"),
        }
    }
}

/// Such a process still has the name of the keeper's or of a spawner.
fn stop_siblings() {
    let own = format!("\nUid:\t{}\t", rustix::process::getuid().as_raw());
    let mut last = 0;
    loop {
        // The number that was given last is the last field.
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let newest = text.trim().rsplit(' ').next().and_then(|text| text.parse().ok());
        let newest: i32 = newest.expect("the last field of loadavg");
        for pid in (last.max(newest - 50)..=newest).filter_map(rustix::process::Pid::from_raw) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            if status.contains(&own) && status.starts_with("Name:\tdefib-") {
                let _ = rustix::process::kill_process(pid, Signal::STOP);
            }
        }
        last = newest - 3;
    }
}

/// Counts its calls in the file, and exits with 1 before call number `wanted`.
fn fail_until(wanted: u64, file: &str) {
    append(file, "x\n");
    let calls = std::fs::read_to_string(file).expect("the count").lines().count();
    if (calls as u64) < wanted {
        exit(1);
    }
}

fn listen(port: u16) -> TcpListener {
    TcpListener::bind(("127.0.0.1", port)).unwrap_or_else(|_| {
        say("somebody has the port");
        exit(98);
    })
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn signal(name: &str) -> Signal {
    match name {
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "USR1" => Signal::USR1,
        "SEGV" => Signal::SEGV,
        "ABRT" => Signal::ABORT,
        other => panic!("no such signal: {other}"),
    }
}

fn say(text: &str) {
    println!("{text}");
}

/// The form of a numbered line; whoever checks them knows it too.
fn line(number: u64) -> String {
    format!("line {number:010} of what an agent writes\n")
}

/// Lines are written in pieces that end anywhere, as those of a program with a buffer do.
struct Pieces(Vec<u8>);

impl Pieces {
    const SIZE: usize = 4999;

    fn line(&mut self, number: u64) {
        self.0.extend(line(number).as_bytes());
        if self.0.len() >= Self::SIZE {
            let rest = self.0.split_off(Self::SIZE);
            self.write();
            self.0 = rest;
        }
    }

    fn write(&mut self) {
        std::io::stderr().write_all(&self.0).expect("output");
        self.0.clear();
    }
}

fn lines(count: u64) {
    let mut pieces = Pieces(Vec::new());
    for number in 1..=count {
        pieces.line(number);
    }
    pieces.write();
}

fn lines_until(file: &Path) {
    let mut pieces = Pieces(Vec::new());
    let mut written = 0;
    while !file.exists() {
        (written + 1..=written + BURST).for_each(|number| pieces.line(number));
        written += BURST;
        sleep(Duration::from_millis(2));
    }
    pieces.write();
    say(&format!("END {written}"));
}

fn waves(size: u64, file: &Path) {
    let mut pieces = Pieces(Vec::new());
    let (mut waves, mut written) = (0, 0);
    loop {
        let wanted = std::fs::read(file).unwrap_or_default();
        match wanted.get(waves) {
            Some(b'.') => break,
            Some(_) => {
                (written + 1..=written + size).for_each(|number| pieces.line(number));
                (waves, written) = (waves + 1, written + size);
            }
            None => sleep(Duration::from_millis(2)),
        }
    }
    pieces.write();
    say(&format!("END {written}"));
}

/// Writes in pieces that end within lines.
fn sums(first: u64, count: u64) {
    let lines = (first..first + count).map(|number| defib_e2e::summed_line(number) + "\n");
    let text: String = lines.collect();
    for piece in text.as_bytes().chunks(Pieces::SIZE) {
        std::io::stderr().write_all(piece).expect("output");
    }
}

fn sum_waves(size: u64, file: &Path) {
    let mut waves: u64 = 0;
    loop {
        let wanted = std::fs::read(file).unwrap_or_default();
        match wanted.get(usize::try_from(waves).expect("a count")) {
            Some(b'.') => return,
            Some(_) => {
                sums(waves * size + 1, size);
                waves += 1;
            }
            None => sleep(Duration::from_millis(2)),
        }
    }
}

fn forever() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}

fn await_file(file: &Path) {
    while !file.exists() {
        sleep(Duration::from_millis(2));
    }
}

/// A file is there a moment before what is written to it is.
fn await_text(file: &Path) {
    while !file.metadata().is_ok_and(|file| file.len() > 0) {
        sleep(Duration::from_millis(2));
    }
}

/// What is ignored stays so across an exec, and a shell can ignore a signal without unsafe code.
fn ignore(name: &str, rest: Vec<String>) {
    let own = std::env::current_exe().expect("this program");
    let line = format!("trap '' {name}; exec \"$0\" \"$@\"");
    let error = Command::new("/bin/sh").arg("-c").arg(line).arg(own).args(rest).exec();
    panic!("no shell: {error}");
}

fn script(words: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(words.split(' '));
    command
}

fn double_fork(words: &str) {
    let mut between = Command::new(std::env::current_exe().expect("this program"));
    between.args(["between", words]).status().expect("the process between");
}

/// The process that a daemon's first process ends to be forgotten.
fn between(words: &str) {
    rustix::process::setsid().expect("a session");
    drop(script(words).stdin(Stdio::null()).spawn().expect("a grandchild"));
}

fn open_files() {
    let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<String> = numbers.collect();
    numbers.sort();
    // The last one is that of the folder itself.
    say(&format!("open files {}", numbers.join(" ")));
}

fn tty() {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    if !input.is_terminal() || !output.is_terminal() {
        let target = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
        say(&format!("no terminal, input {}", target.display()));
        return;
    }
    let name = rustix::termios::ttyname(&input, Vec::new()).expect("a name");
    let size = rustix::termios::tcgetwinsize(&output).expect("a size");
    let inode = rustix::fs::fstat(&output).expect("a file").st_ino;
    let name = name.to_string_lossy();
    say(&format!("terminal {name} inode {inode} rows {} columns {}", size.ws_row, size.ws_col));
}

/// A moment of CPU time.
fn work() {
    std::hint::black_box((0..1_000_000_u64).fold(0, u64::wrapping_add));
}

fn burn(enough: Duration) {
    let had = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    while Duration::try_from(had()).expect("a span") < enough {
        work();
    }
}

/// Written to, or the system would only have promised it.
fn allocate(mib: u64) -> Vec<u8> {
    std::hint::black_box(vec![1; usize::try_from(mib << 20).expect("a size")])
}

fn beat_until(file: &Path) {
    while !file.exists() {
        beat();
        sleep(Duration::from_millis(50));
    }
}

fn beat() {
    let file = std::env::var("DEFIB_HEARTBEAT_FILE").expect("a heartbeat file");
    let file = OpenOptions::new().create(true).append(true).open(file).expect("the file");
    file.set_modified(std::time::SystemTime::now()).expect("a touch");
}

fn notify(text: &str) {
    let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    let path = std::env::var("NOTIFY_SOCKET").expect("a notify socket");
    socket.send_to(text.as_bytes(), path).expect("a datagram");
}

fn try_it(what: &str, on: &str) {
    say(&format!("{what} {on}: {}", attempt(what, on)));
}

fn run(line: &str) {
    let (program, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = rest.split(' ').filter(|word| !word.is_empty());
    let status = Command::new(program).args(words).status().expect("a program");
    say(&format!("ran {}", status.code().unwrap_or(-1)));
}

fn append(file: &str, text: &str) {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
}
