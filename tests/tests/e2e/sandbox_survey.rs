//! The survey of sandboxes: which system calls are open and which are shut, with which tokens.
//!
//! A confined process makes each call (`crates/host/survey`). The table of results is
//! `docs/generated/sandbox-survey.md`; `DEFIB_UPDATE=1 cargo nextest run -p defib-e2e -E 'test(sandbox_survey::)'`
//! writes it anew, and a change of it is reviewed as a diff.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use defib_daemon::GAPS;
use defib_e2e::Bench;
use serde_json::Value;

use crate::bench;

const SURVEY: &str = env!("CARGO_BIN_EXE_survey");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/sandbox-survey.md");
const GUIDE: &str = include_str!("../../../docs/guide/sandbox.md");
/// A user that nothing else on the machine has.
const USER: u32 = 61_236;
/// Calls that replace or end the process: each has a run of its own.
const ENDING: [&str; 6] = [
    "exec/granted",
    "exec/state-file",
    "exec/loader",
    "exec/memfd-path",
    "exec/memfd-fd",
    "kernel/i386",
];

/// A way to be confined.
struct Column {
    name: &'static str,
    tokens: &'static [&'static str],
    settings: &'static str,
    user: u32,
}

const fn column(name: &'static str, tokens: &'static [&'static str]) -> Column {
    Column { name, tokens, settings: "", user: 0 }
}

/// `WORLD` in a token is the folder of the column, `PORT` and `FREE` are its ports.
const EACH: &[&str] = &[
    "read:WORLD/readable",
    "write:WORLD/writable",
    "exec:/usr/bin/true",
    "net",
    "workspace_rw",
    "subprocess",
];

const COLUMNS: [Column; 18] = [
    column("none", &[]),
    column("read", &["read:WORLD/readable"]),
    column("write", &["write:WORLD/writable"]),
    column("write-root", &["write:/"]),
    column("exec", &["exec:/usr/bin/true"]),
    column("net", &["net"]),
    column("net-port", &["net:PORT"]),
    column("listen", &["listen:FREE"]),
    column("workspace", &["workspace_rw"]),
    column("anywhere", &["read_anywhere"]),
    column("subprocess", &["subprocess"]),
    column("all", EACH),
    Column { user: USER, ..column("user", &[]) },
    Column { user: USER, ..column("user-all", EACH) },
    Column { settings: NAMESPACES, ..column("ns", &[]) },
    Column { settings: NAMESPACES, ..column("ns-all", EACH) },
    Column { settings: NAMESPACES, user: USER, ..column("ns-user", &[]) },
    Column { settings: NAMESPACES, user: USER, ..column("ns-user-all", EACH) },
];
const NAMESPACES: &str = "isolation = \"namespaces\"\n";

impl Column {
    /// Whether tokens or the agent's own network open what a gap names, so that it says nothing of the gap.
    fn excuses(&self, gap: &str, call: &str) -> bool {
        let has = |token: &str| self.tokens.contains(&token);
        match gap {
            "listen" => has("net") || (!self.settings.is_empty() && !has("net:PORT")),
            "attributes" => has("write:/") && !call.ends_with("-home"),
            _ => false,
        }
    }
}

/// What a column's calls are made on. The process, the sockets and the files belong to the column's user.
struct World {
    folder: PathBuf,
    outside: Child,
    listener: TcpListener,
    free: u16,
    abstract_name: String,
    _sockets: [UnixListener; 2],
}

impl World {
    fn new(root: &Path, column: &Column) -> World {
        let folder = root.join(column.name);
        let at = |name: &str| folder.join(name);
        let folders = [
            "",
            "outside",
            "outside/folder",
            "outside/empty",
            "readable",
            "writable",
            "room",
            "tmp",
        ];
        for name in folders {
            fs::create_dir(at(name)).unwrap();
        }
        let files =
            ["outside/file", "outside/spare", "outside/spare2", "readable/file", "writable/file"];
        for name in files {
            fs::write(at(name), "x").unwrap();
            fs::set_permissions(at(name), PermissionsExt::from_mode(0o644)).unwrap();
        }
        symlink("file", at("outside/link")).unwrap();
        let abstract_name = format!("defib-survey-{}", folder.display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets = [
            UnixListener::bind(at("outside/socket")).unwrap(),
            UnixListener::bind_addr(&address).unwrap(),
        ];
        for name in folders.iter().chain(&files).chain(&["outside/socket"]) {
            chown(at(name), Some(column.user), Some(column.user)).unwrap();
        }
        let mut sleep = Command::new("/bin/sleep");
        let outside = sleep.arg("100000").uid(column.user).gid(column.user).process_group(0);
        World {
            outside: outside.spawn().unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            free: defib_e2e::free_port(),
            abstract_name,
            _sockets: sockets,
            folder,
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The agents that make a column's calls.
    fn agents(&self, column: &Column, survey: &str, home: &str) -> Vec<(String, String)> {
        let folder = self.folder.display().to_string();
        let numbers = [("PORT", self.port()), ("FREE", self.free)];
        let tokens: Vec<String> = column
            .tokens
            .iter()
            .map(|token| {
                let token = token.replace("WORLD", &folder);
                numbers
                    .iter()
                    .fold(token, |token, (word, port)| token.replace(word, &port.to_string()))
            })
            .collect();
        let user = match column.user {
            0 => String::new(),
            user => format!("user = \"{user}:{user}\"\n"),
        };
        let settings = format!(
            "capabilities = {}\nrestart = \"never\"\ncwd = {}\nenv = {{ TMPDIR = {} }}\n{user}{}",
            Value::from(tokens),
            Value::from(format!("{folder}/room")),
            Value::from(format!("{folder}/tmp")),
            column.settings
        );
        let calls = ["all"].into_iter().chain(ENDING);
        let agent = |calls: &str| {
            let name = format!("{}-{}", column.name, calls.replace('/', "-"));
            let words = [
                survey,
                &folder,
                calls,
                &self.outside.id().to_string(),
                &self.port().to_string(),
                &self.free.to_string(),
                home,
                &self.abstract_name,
            ];
            (
                name.clone(),
                format!("[agent.{name}]\ncommand = {}\n{settings}\n", Value::from(&words[..])),
            )
        };
        calls.map(agent).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

/// The result of each call, by group and name, and the gap that the call would show.
#[derive(Default)]
struct Results {
    calls: BTreeMap<String, String>,
    gaps: BTreeMap<String, String>,
}

impl Results {
    fn read(&mut self, log: &str) {
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, gap, result @ ..] = words.as_slice() else { continue };
            let known = match result {
                ["open"] => "open",
                ["absent"] => "absent",
                ["shut", errno] => errno,
                _ => continue,
            };
            self.calls.insert((*name).to_owned(), known.to_owned());
            self.gaps.insert((*name).to_owned(), (*gap).to_owned());
        }
    }
}

/// Goal: every call has the result that the table says, and what is open without a token is what `defib caps` and
/// the guide list. Method: agents with each set of tokens make every call; calls that end the process have an agent
/// of their own. On a kernel other than the table's, differences are printed and do not fail the test.
#[test]
fn every_call_is_open_or_shut_as_the_table_caps_and_the_guide_say() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can give an agent another user");
        return;
    }
    let bench = bench();
    let root = tempfile::Builder::new().prefix("ds").tempdir_in("/tmp").unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(bench.project().parent().unwrap(), PermissionsExt::from_mode(0o755))
        .unwrap();
    let survey = root.path().join("survey");
    fs::copy(SURVEY, &survey).unwrap();
    fs::set_permissions(&survey, PermissionsExt::from_mode(0o755)).unwrap();
    let home = bench.home().display().to_string();
    let worlds = COLUMNS.each_ref().map(|column| World::new(root.path(), column));
    let agents: Vec<Vec<(String, String)>> = COLUMNS
        .iter()
        .zip(&worlds)
        .map(|(column, world)| world.agents(column, survey.to_str().unwrap(), &home))
        .collect();
    let parts: Vec<String> = agents.iter().flatten().map(|(_, part)| part.clone()).collect();
    let events = bench.up(&parts);
    let mut results = Vec::new();
    for (column, agents) in COLUMNS.iter().zip(&agents) {
        let mut found = Results::default();
        for (name, _) in agents {
            let died = events.of(name, "run-died");
            if name.ends_with("-all") && name.strip_suffix("-all") == Some(column.name) {
                bench.await_log(name, |log| log.contains("surveyed all"));
            }
            found.read(&bench.log(name));
            if died["signal"] == "SIGSYS" {
                found.calls.insert("kernel/i386".to_owned(), "SIGSYS".to_owned());
            }
        }
        assert!(found.calls.len() >= 100, "{}: {} calls", column.name, found.calls.len());
        results.push(found);
    }
    let said: Vec<BTreeSet<&str>> =
        COLUMNS.iter().map(|column| listed(&bench, &format!("{}-all", column.name))).collect();
    for ((column, found), said) in COLUMNS.iter().zip(&results).zip(&said) {
        compare_with_caps(column, found, said);
    }
    for gap in GAPS {
        assert!(GUIDE.contains(gap.text), "the guide does not list: {}", gap.text);
    }
    compare_with_table(&table(&results, &said));
}

/// The gaps that `defib caps` lists for an agent.
fn listed(bench: &Bench, agent: &str) -> BTreeSet<&'static str> {
    let caps = bench.defib(&["caps", agent, "--json"]).good().json();
    let lines = caps["not_enforced"].as_array().unwrap().clone();
    let gap = |line: &Value| {
        let gap = GAPS.iter().find(|gap| gap.text == line.as_str().unwrap());
        gap.unwrap_or_else(|| panic!("not in the list of gaps: {line}")).key
    };
    lines.iter().map(gap).collect()
}

fn compare_with_caps(column: &Column, found: &Results, said: &BTreeSet<&str>) {
    let mut shown: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (call, gap) in
        found.gaps.iter().filter(|(call, gap)| *gap != "-" && !column.excuses(gap, call))
    {
        let open = shown.entry(gap).or_default();
        if found.calls[call] == "open" {
            open.push(call);
        }
    }
    for (gap, open) in shown {
        let name = column.name;
        assert_eq!(
            said.contains(gap),
            !open.is_empty(),
            "{name}, {gap}: `defib caps` against {open:?}"
        );
    }
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<&str> = release.trim().split('.').take(2).collect();
    format!("Linux {} on {}", version.join("."), std::env::consts::ARCH)
}

fn table(results: &[Results], said: &[BTreeSet<&str>]) -> String {
    let mut text = format!(
        "# The survey of sandboxes\n\nGenerated by `DEFIB_UPDATE=1 cargo nextest run -p defib-e2e -E \
         'test(sandbox_survey::)'`; do not edit.\n\nKernel: {}\n\nA confined process makes each call. `open`: the \
         call passed. An error: the kernel refused it. `SIGSYS`: the process was ended. `absent`: this kernel does \
         not have it.\n\nColumns: the tokens of the agent. `write-root` is `write:/`, `anywhere` is `read_anywhere`, \
         `all` is one token of each kind. `user` agents have a user of their own under a daemon of root; the others \
         run as root. `ns` agents have `isolation = \"namespaces\"`.\n\n## Open without a token\n\n",
        kernel()
    );
    for gap in GAPS {
        let columns = COLUMNS.iter().zip(said).filter(|(_, said)| said.contains(gap.key));
        let columns: Vec<&str> = columns.map(|(column, _)| column.name).collect();
        let columns = match columns.len() {
            0 => "no column here".to_owned(),
            all if all == COLUMNS.len() => "every column".to_owned(),
            _ => columns.join(", "),
        };
        writeln!(text, "- `{}`: {}. In: {columns}.", gap.key, gap.text).unwrap();
    }
    let calls: BTreeSet<&String> = results.iter().flat_map(|found| found.calls.keys()).collect();
    let mut group = "";
    for call in calls {
        let (of, name) = call.split_once('/').unwrap();
        if of != group {
            group = of;
            let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
            write!(text, "\n## {group}\n\n| call | gap | {} |\n", names.join(" | ")).unwrap();
            writeln!(text, "{}|", "| --- ".repeat(COLUMNS.len() + 2)).unwrap();
        }
        let gap = results.iter().find_map(|found| found.gaps.get(call)).map_or("-", String::as_str);
        let cells = results.iter().map(|found| found.calls.get(call).map_or("?", String::as_str));
        let cells: Vec<&str> = cells.collect();
        writeln!(text, "| {name} | {gap} | {} |", cells.join(" | ")).unwrap();
    }
    text
}

fn compare_with_table(found: &str) {
    if std::env::var_os("DEFIB_UPDATE").is_some() {
        fs::write(TABLE, found).unwrap();
        return;
    }
    let stored = fs::read_to_string(TABLE).unwrap_or_default();
    let lines: BTreeSet<&str> = stored.lines().collect();
    let now: BTreeSet<&str> = found.lines().collect();
    let gone = lines.difference(&now).map(|line| format!("- {line}\n"));
    let differences: String =
        gone.chain(now.difference(&lines).map(|line| format!("+ {line}\n"))).collect();
    if stored.contains(&format!("\nKernel: {}\n", kernel())) {
        assert!(
            stored == found,
            "the sandbox differs from docs/generated/sandbox-survey.md; if that is meant, write it with \
             DEFIB_UPDATE=1\n{differences}"
        );
    } else {
        println!(
            "the table is of another kernel, so differences do not fail the test:\n{differences}"
        );
    }
}
