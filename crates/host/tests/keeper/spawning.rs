//! What a run is given, and what is said when it cannot be had.

use std::process::Command;

use defib_host::protocol::{How, Leftovers, News, Request, Stage, TerminalSize};

use crate::harness::{FIXTURE, Keeper, WAYS, key, order, read_all, read_until};

#[test]
fn a_run_has_the_folder_environment_and_arguments_of_its_order_and_nothing_else() {
    for way in WAYS {
        let keeper = Keeper::start(way);
        let mut daemon = keeper.welcomed();
        let folder = std::fs::canonicalize(&keeper.folder).unwrap().display().to_string();
        let mut order = order("a", 1, &["show", "two words", "", "ünï"]);
        order.cwd.clone_from(&folder);
        order.env = vec![("X".into(), "1 2".into()), ("EMPTY".into(), String::new())];
        order.umask = Some(0o027);
        order.rlimits = vec![(4, 0)];
        let (_, output) = daemon.spawn(order);
        assert_eq!(daemon.exit_of(&key("a", 1)).how, How::Exited(0));
        let text = read_all(&output);
        let variables: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("variable ")).collect();
        let [run, home, x, empty] = variables.as_slice() else { panic!("{variables:?}") };
        assert!(run.starts_with("DEFIB_RUN_KEY=") && run.contains("a/1/"), "{run}");
        assert!(home.starts_with("DEFIB_HOME_KEY=") && home.ends_with(&keeper.home_key), "{home}");
        assert_eq!((*x, *empty), ("X=1 2", "EMPTY="));
        let arguments: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("argument ")).collect();
        let program = format!("0 {FIXTURE}");
        assert_eq!(arguments, [&program, "1 show", "2 two words", "3 ", "4 ünï"]);
        let has = |fact: &str| assert!(text.lines().any(|line| line == fact), "{fact}: {text}");
        has(&format!("folder {folder}"));
        has("input null");
        has("leader true");
        has("umask 27");
        has("cores 0");
        has("open 3");
        has("SigBlk 0000000000000000");
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        has(&format!("files {}", files.current.unwrap_or(0)));
        let oom = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        has(&format!("oom {}", oom.trim()));
    }
}

#[test]
fn a_run_is_killed_for_want_of_memory_no_later_than_it_would_be_without_a_keeper() {
    let mut command = Command::new("sh");
    let script = "echo 300 > /proc/self/oom_score_adj && exec \"$0\" \"$@\"";
    command.args(["-c", script, FIXTURE]);
    let keeper = Keeper::start_by(command, &[]);
    let mut daemon = keeper.welcomed();
    let own = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", keeper.process.id()));
    assert!(own.unwrap().trim().parse::<i32>().unwrap() <= 0);
    let (_, output) = daemon.spawn(order("a", 1, &["show"]));
    daemon.exit_of(&key("a", 1));
    assert!(read_all(&output).lines().any(|line| line == "oom 300"));
}

#[test]
fn exit_codes_and_signals_are_told_as_they_were() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    for (run, code) in [(1, 0), (2, 1), (3, 255)] {
        let mut order = order("a", run, &[]);
        order.argv = vec!["sh".into(), "-c".into(), format!("exit {code}")];
        daemon.spawn(order);
        assert_eq!(daemon.exit_of(&key("a", run)).how, How::Exited(code));
    }
    for (run, signal) in [(4, 9), (5, 15), (6, 6)] {
        daemon.spawn(order("a", run, &["signal", &signal.to_string()]));
        assert_eq!(daemon.exit_of(&key("a", run)).how, How::Signaled(signal));
    }
}

#[test]
fn a_terminal_controls_its_session_has_its_size_and_is_new_each_time() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    for run in 1..=3 {
        let mut order = order("a", run, &["terminal"]);
        order.terminal = Some(TerminalSize { rows: 33, columns: 77 });
        order.leftovers = Leftovers::Keep;
        let (_, output) = daemon.spawn(order);
        let text = read_until(&output, |text| text.contains("done"));
        assert!(text.starts_with("controlling true\nsize 33 77\nname /dev/pts/"), "{text}");
        // Nothing of the run before is to be seen: the first line is this run's.
        daemon.exit_of(&key("a", run));
    }
}

#[test]
fn what_cannot_be_spawned_is_said_with_its_stage_and_error() {
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    let plain = keeper.path("plain");
    std::fs::write(&plain, "not a program").unwrap();
    let script = keeper.path("script");
    std::fs::write(&script, "echo no interpreter line").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let cases = [
        (vec!["no-such-program-anywhere"], "/", Stage::Program, libc::ENOENT),
        (vec!["/no/such/program"], "/", Stage::Program, libc::ENOENT),
        (vec![plain.as_str()], "/", Stage::Program, libc::EACCES),
        (vec![script.as_str()], "/", Stage::Program, libc::ENOEXEC),
        (vec!["/"], "/", Stage::Program, libc::EACCES),
        (vec![""], "/", Stage::Program, libc::ENOENT),
        (vec![], "/", Stage::Program, libc::EINVAL),
        (vec!["a\0b"], "/", Stage::Program, libc::EINVAL),
        (vec!["true"], "/no/such/folder", Stage::Folder, libc::ENOENT),
        (vec!["true"], plain.as_str(), Stage::Folder, libc::ENOTDIR),
    ];
    for (run, (argv, cwd, stage, errno)) in (1..).zip(cases) {
        let mut order = order("a", run, &[]);
        order.argv = argv.iter().map(|text| (*text).to_owned()).collect();
        order.cwd = cwd.to_owned();
        daemon.ask(Request::Spawn(Box::new(order)));
        let (news, fd) = daemon.try_next().unwrap();
        assert_eq!(news, News::NotSpawned { key: key("a", run), errno, stage }, "{argv:?}");
        assert!(fd.is_none());
    }
    let mut order = order("a", 100, &["idle"]);
    order.user = Some("no-such-user".to_owned());
    daemon.ask(Request::Spawn(Box::new(order)));
    let (news, _) = daemon.try_next().unwrap();
    let (errno, stage) = (libc::ENOENT, Stage::User);
    assert_eq!(news, News::NotSpawned { key: key("a", 100), errno, stage });
}

#[test]
fn a_run_becomes_the_user_it_is_to_run_as() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can choose");
        return;
    }
    let keeper = Keeper::start(&[]);
    let mut daemon = keeper.welcomed();
    for (run, user) in [(1, "nobody"), (2, "65534"), (3, "65534:65534")] {
        let mut order = order("a", run, &[]);
        order.user = Some(user.to_owned());
        order.argv = ["sh", "-c", "id -u; id -G"].map(str::to_owned).to_vec();
        order.terminal = Some(TerminalSize { rows: 24, columns: 80 });
        let (_, output) = daemon.spawn(order);
        let text = read_until(&output, |text| text.lines().count() == 2 && text.ends_with('\n'));
        assert_eq!(text, "65534\n65534\n", "{user}");
        daemon.exit_of(&key("a", run));
    }
}
