//! What the tests run: a keeper, its daemon, and agents of all manners.
//!
//! The daemon sends its channel to the test and waits: the test is the daemon's mind. An agent prints
//! what it is and does, one line a fact, so that a test waits for a line and not for a while.

#![allow(clippy::unwrap_used, reason = "it is a test that it runs at all")]

use std::ffi::CString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};

use defib_host::{Channel, Flushed, KeeperOptions};
use rustix::process::Signal;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["keeper", folder, home_key, flags @ ..] => keeper(folder, home_key, flags),
        ["daemon", socket] => daemon(socket),
        ["die"] => return ExitCode::FAILURE,
        ["sweep", folder, home_key] => {
            let swept = defib_host::sweep(home_key, &Path::new(folder).join("cgroups"));
            println!("killed {} left {}", swept.killed, swept.left);
        }
        ["show", ..] => show(),
        ["idle"] => idle(),
        ["stubborn"] => {
            ignore_term();
            idle();
        }
        ["lines", count] => lines(count.parse().unwrap()),
        ["signal", number] => {
            let signal = Signal::from_named_raw(number.parse().unwrap()).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
            idle();
        }
        ["leave", then @ ..] => leave(then),
        ["left"] => left(),
        ["unmarked", words @ ..] => unmarked(words),
        ["terminal"] => terminal(),
        ["stop-starting"] => stop_starting(),
        ["bench", count] => bench(count.parse().unwrap()),
        other => panic!("{other:?}?"),
    }
    ExitCode::SUCCESS
}

/// A keeper whose daemon is this program.
fn keeper(folder: &str, home_key: &str, flags: &[&str]) {
    let own = std::env::current_exe().unwrap();
    let listener = UnixListener::bind(format!("{folder}/listener")).unwrap();
    let daemon = if flags.contains(&"broken") {
        vec!["die".into()]
    } else {
        vec!["daemon".into(), format!("{folder}/test").into()]
    };
    if flags.contains(&"no-clone3") {
        forbid_clone3();
    }
    let options = KeeperOptions {
        daemon_program: own,
        daemon_args: daemon,
        listener: listener.into(),
        entrance: None,
        log: None,
        home_key: home_key.to_owned(),
        kept: Vec::new(),
        cgroups: !flags.contains(&"walk"),
        places: Path::new(folder).join("cgroups"),
    };
    let code = defib_host::run(options).unwrap();
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

/// As containers do it.
fn forbid_clone3() {
    let number = u32::try_from(libc::SYS_clone3).unwrap();
    let code = |code: u32| u16::try_from(code).unwrap();
    let not_there = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let (load, compare) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ);
    let step = |step: u32, jt, jf, k| libc::sock_filter { code: code(step), jt, jf, k };
    let mut steps = [
        step(load, 0, 0, 0),
        step(compare | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, not_there),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps outlive the calls, which copy them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// Stops every process of its own user that has not executed its program yet: such a process still has the
/// name of the spawner.
fn stop_starting() {
    println!("looking");
    let mut last = 0;
    let own: u32 = rustix::process::getuid().as_raw();
    loop {
        // The number that was given last is the last field.
        let text = std::fs::read_to_string("/proc/loadavg").unwrap();
        let newest: i32 = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
        for pid in (last.max(newest - 50)..=newest).filter_map(rustix::process::Pid::from_raw) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let is_own = status.contains(&format!("\nUid:\t{own}\t"));
            if is_own && status.starts_with("Name:\tdefib-") {
                let _ = rustix::process::kill_process(pid, Signal::STOP);
            }
        }
        last = newest - 3;
    }
}

/// Lets the test be the daemon; exits when the test says so.
fn daemon(socket: &str) {
    let slots = defib_host::inherited().unwrap();
    let (channel, listener) = slots;
    // The test may be over, and have taken its socket along.
    let Ok(mut connection) = UnixStream::connect(socket) else { return };
    let duplicate: OwnedFd = connection.try_clone().unwrap().into();
    let mut introduction: Channel<u32, ()> = Channel::new(duplicate);
    let fds = [channel.as_fd(), listener.as_fd()];
    introduction.send(&std::process::id(), &fds).unwrap();
    assert_eq!(introduction.flush(), Ok(Flushed::All));
    // From here on only the test holds the channel.
    drop((channel, listener, introduction));
    let mut end = [0];
    let _ = connection.read(&mut end);
}

/// Everything that an agent can know of itself.
fn show() {
    let stdin = rustix::fs::fstat(rustix::stdio::stdin()).unwrap();
    let null = rustix::fs::stat("/dev/null").unwrap();
    println!("folder {}", std::env::current_dir().unwrap().display());
    for (index, argument) in std::env::args_os().enumerate() {
        println!("argument {index} {}", argument.display());
    }
    for (name, value) in std::env::vars() {
        println!("variable {name}={value}");
    }
    println!("input {}", if stdin.st_rdev == null.st_rdev { "null" } else { "other" });
    let pid = rustix::process::getpid();
    println!("leader {}", rustix::process::getsid(None) == Ok(pid));
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    println!("umask {:o}", mask.as_raw_mode());
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    println!("files {}", files.current.unwrap_or(0));
    let cores = rustix::process::getrlimit(rustix::process::Resource::Core);
    println!("cores {}", cores.current.unwrap_or(u64::MAX));
    let identity = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    println!("identity {} {}", identity.0, identity.1);
    let read = |path| std::fs::read_to_string(path).unwrap();
    println!("oom {}", read("/proc/self/oom_score_adj").trim());
    for line in read("/proc/self/status").lines() {
        if ["SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name)) {
            println!("{}", line.replace(":\t", " "));
        }
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // One of them is the listing itself.
    println!("open {}", open - 1);
    println!("done");
}

fn idle() -> ! {
    println!("pid {}", std::process::id());
    loop {
        std::thread::park();
    }
}

fn ignore_term() {
    // SAFETY: ignoring a signal runs nothing.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

fn lines(count: u64) {
    let mut output = std::io::stdout().lock();
    for number in 0..count {
        writeln!(output, "{number}").unwrap();
    }
}

/// Leaves a grandchild behind that is hard to find: forked twice, in a session of its own.
fn leave(then: &[&str]) {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new("setsid").arg("-f").arg(own).arg("left").spawn().unwrap();
    child.wait().unwrap();
    // The grandchild says when it is ready, through what it holds open.
    if then == ["idle"] {
        idle();
    }
    // Wait for it to have a port, or killing it too early would prove nothing.
    let ready = std::env::var("READY").unwrap();
    while !std::path::Path::new(&ready).exists() {
        std::thread::yield_now();
    }
}

/// The grandchild: ignores TERM, holds a port and its standard output.
fn left() {
    ignore_term();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let facts = format!("left {} {}\n", std::process::id(), port.local_addr().unwrap().port());
    print!("{facts}");
    std::io::stdout().flush().unwrap();
    if let Ok(ready) = std::env::var("READY") {
        let draft = format!("{ready}.draft");
        std::fs::write(&draft, facts).unwrap();
        std::fs::rename(draft, ready).unwrap();
    }
    loop {
        std::thread::park();
    }
}

/// Runs this program with an environment that says nothing of us.
fn unmarked(words: &[&str]) {
    use std::os::unix::process::CommandExt;
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.args(words).env_clear();
    if let Ok(ready) = std::env::var("READY") {
        command.env("READY", ready);
    }
    if let Ok(path) = std::env::var("PATH") {
        command.env("PATH", path);
    }
    panic!("{}", command.exec());
}

/// Facts of the terminal, by opening it the way only its own session can.
fn terminal() {
    let controlling = std::fs::File::open("/dev/tty");
    println!("controlling {}", controlling.is_ok());
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdin()).unwrap();
    println!("size {} {}", size.ws_row, size.ws_col);
    let name = rustix::termios::ttyname(rustix::stdio::stdout(), Vec::new()).unwrap();
    println!("name {}", name.to_string_lossy());
    println!("done");
}

/// The floor: spawn and wait, one after the other, and nothing else.
fn bench(count: u32) {
    let program = CString::new("/bin/true").unwrap();
    let path = CString::new(format!("PATH={}", std::env::var("PATH").unwrap())).unwrap();
    let arguments = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let environment = [path.as_ptr().cast_mut(), std::ptr::null_mut()];
    let begin = std::time::Instant::now();
    for _ in 0..count {
        let (mut pid, mut status) = (0, 0);
        // SAFETY: all texts end with a NUL, both arrays with a null pointer, and all outlive the calls.
        unsafe {
            let spawned = libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            );
            assert_eq!(spawned, 0);
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        }
        assert_eq!(status, 0);
    }
    println!("nanoseconds {}", begin.elapsed().as_nanos() / u128::from(count));
}
