//! Whether a run's last words sound like something that its sandbox refused, and which token would
//! permit it.
//!
//! A guess from what programs print: it is said as one. The kernel does not tell a supervisor what it
//! refused to whom.

use std::path::Path;

use defib_core::{Capability, Class};

use crate::wire::{AgentStatus, Refused};

/// How far from the end a refusal still has to do with the end.
const NEAR: usize = 20;
/// How many lines above may say what was being done.
const ABOVE: usize = 4;
/// How programs say that they were refused.
const REFUSALS: [&str; 10] = [
    "permission denied",
    "operation not permitted",
    "eacces",
    "eperm",
    "permissiondenied",
    "[errno 13]",
    "read-only file system",
    "erofs",
    "[errno 30]",
    "cannot fork",
];

/// No line of an agent's is told further than this.
const WIDEST: usize = 200;

/// What a run was refused near its end, where the agent is confined and the run did not end well.
pub(crate) fn refused(agent: &AgentStatus, class: Class, tail: &[u8]) -> Option<Refused> {
    let tokens = agent.capabilities.as_ref()?;
    let ended_well =
        matches!(class, Class::Done | Class::Voluntary | Class::Stopped | Class::Group);
    if ended_well || tokens.iter().any(|token| token == "privileged") {
        return None;
    }
    let lines: Vec<String> = tail.split(|byte| *byte == b'\n').map(defib_autopsy::plain).collect();
    let Denied { line, capability } = denied(lines.join("\n").trim_end())?;
    let name = &agent.name;
    let text = match &capability {
        Some(wanted) if has(tokens, wanted) => format!(
            "It has {wanted} or more by now. If it had that then, it was not the sandbox: look at the \
             permissions of the file."
        ),
        Some(wanted) => format!(
            "`defib grant {name} {wanted}` and `defib restart {name}` would permit it, if it was."
        ),
        None => format!("`defib caps {name}` shows what it may do."),
    };
    let line = line.chars().take(WIDEST).collect();
    Some(Refused { line, capability: capability.map(|token| token.to_string()), text })
}

/// Something that was refused.
#[derive(Debug, PartialEq, Eq)]
struct Denied {
    /// The line that says so.
    line: String,
    /// What would permit it, where that can be told.
    capability: Option<Capability>,
}

/// What a confined run was refused near its end, by its last words.
fn denied(words: &str) -> Option<Denied> {
    let lines: Vec<&str> = words.lines().collect();
    let from = lines.len().saturating_sub(NEAR);
    let is_refusal = |line: &str| {
        let line = line.to_ascii_lowercase();
        REFUSALS.iter().any(|refusal| line.contains(refusal))
    };
    let at =
        (from..lines.len()).rev().find(|at| lines.get(*at).is_some_and(|it| is_refusal(it)))?;
    let line = (*lines.get(at)?).trim();
    let above = lines.get(at.saturating_sub(ABOVE)..at)?.join("\n").to_ascii_lowercase();
    Some(Denied { line: line.to_owned(), capability: permitting(line, &above) })
}

/// Whether one of an agent's tokens says the same already: then it was not the sandbox.
fn has(tokens: &[String], wanted: &Capability) -> bool {
    let parsed = tokens.iter().filter_map(|token| Capability::parse(token).ok());
    parsed.into_iter().any(|token| match (&token, wanted) {
        (Capability::Privileged, _) | (Capability::Net, Capability::NetPort(_)) => true,
        (Capability::Net, Capability::Listen(_)) => true,
        (Capability::ReadAnywhere, Capability::Read(_)) => true,
        (Capability::Read(held), Capability::Read(path))
        | (Capability::Write(held), Capability::Write(path))
        | (Capability::Exec(held), Capability::Exec(path)) => Path::new(path).starts_with(held),
        (held, wanted) => *held == *wanted,
    })
}

fn permitting(line: &str, above: &str) -> Option<Capability> {
    let low = line.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| low.contains(word));
    let either = |words: &[&str]| says(words) || words.iter().any(|word| above.contains(word));
    if let Some(path) = path_in(line) {
        return Some(of_path(&low, line, path));
    }
    if either(&["fork", "subprocess", "posix_spawn"]) || (says(&["spawn"]) && says(&["eperm"])) {
        return Some(Capability::Subprocess);
    }
    let port = port_in(line);
    if either(&["bind", "listen"]) {
        return port.map(Capability::Listen);
    }
    if either(&["connect", "socket", "getaddrinfo"]) || port.is_some() {
        return Some(port.map_or(Capability::Net, Capability::NetPort));
    }
    None
}

fn of_path(low: &str, line: &str, path: &str) -> Capability {
    let says = |words: &[&str]| words.iter().any(|word| low.contains(word));
    let by_shell = ["sh: ", "bash: ", "dash: ", "zsh: ", "/sh: ", "/bash: "]
        .iter()
        .any(|shell| line.starts_with(shell) || (shell.starts_with('/') && line.contains(shell)));
    let writes = [
        "write",
        "writing",
        "creat",
        "mkdir",
        "touch",
        "remove",
        "unlink",
        "rename",
        "rmdir",
        "delete",
        "copyfile",
        "tee:",
        "o_wronly",
        "read-only file",
        "erofs",
    ];
    if says(&writes) {
        // What is not there yet cannot be granted, but its folder can.
        let folder = Path::new(path).parent().filter(|folder| *folder != Path::new("/"));
        let place = folder.map_or(path.to_owned(), |folder| folder.display().to_string());
        return Capability::Write(place);
    }
    if says(&["exec", "spawn", "interpreter"]) || (by_shell && !says(&["cannot open"])) {
        return Capability::Exec(path.to_owned());
    }
    Capability::Read(path.to_owned())
}

/// The first absolute path in a line that does not stand before a colon as its speaker.
fn path_in(line: &str) -> Option<&str> {
    for quote in ['\'', '"', '`', '‘'] {
        let end = if quote == '‘' { '’' } else { quote };
        let mut rest = line;
        while let Some((_, after)) = rest.split_once(quote) {
            let Some((inside, next)) = after.split_once(end) else { break };
            if inside.len() > 1 && inside.starts_with('/') {
                return Some(inside);
            }
            rest = next;
        }
    }
    // A program that says its own path before a colon speaks of another.
    let words = line.split_ascii_whitespace().enumerate();
    let mut found = words.filter(|(at, word)| *at > 0 && word.starts_with('/'));
    let (_, word) = found.next()?;
    let path = word.trim_end_matches([':', ',', ')', '.', ';']);
    (path.len() > 1).then_some(path)
}

/// The port in a line: after an address or after the word.
fn port_in(line: &str) -> Option<u16> {
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || c == ',' || c == '(').collect();
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u16>().ok().filter(|port| *port > 0)
    };
    let after_word = words.windows(2).find_map(|pair| match pair {
        [word, next] if word.eq_ignore_ascii_case("port") => number(next),
        _ => None,
    });
    after_word.or_else(|| {
        words.iter().find_map(|word| {
            let (host, port) = word.trim_end_matches([':', ')', '.']).rsplit_once(':')?;
            let is_host = host.contains('.') || host.contains(']') || host == "localhost";
            let whole = port.chars().all(|c| c.is_ascii_digit());
            if is_host && whole { number(port) } else { None }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_of_a_refusal_leads_to_a_token() {
        for (line, token) in [
            ("cat: /etc/shadow: Permission denied", "read:/etc/shadow"),
            ("PermissionError: [Errno 13] Permission denied: '/etc/x y'", "read:/etc/x y"),
            ("Error: EACCES: permission denied, open '/root/.npmrc'", "read:/root/.npmrc"),
            ("ls: cannot open directory '/root': Permission denied", "read:/root"),
            ("Error: EACCES: permission denied, mkdir '/srv/out/new'", "write:/srv/out"),
            ("touch: cannot touch '/srv/a': Permission denied", "write:/srv"),
            ("/bin/sh: 1: cannot create /srv/x/y: Permission denied", "write:/srv/x"),
            ("rm: cannot remove '/srv/a/b': Read-only file system", "write:/srv/a"),
            ("OSError: [Errno 30] Read-only file system: '/srv/a/b'", "write:/srv/a"),
            ("Error: EROFS: read-only file system, open '/srv/a/b'", "write:/srv/a"),
            ("sh: 1: /usr/bin/git: Permission denied", "exec:/usr/bin/git"),
            ("bash: line 1: /opt/tool: Permission denied", "exec:/opt/tool"),
            ("Error: spawn /usr/bin/git EACCES", "exec:/usr/bin/git"),
            ("/bin/sh: 1: Cannot fork", "subprocess"),
            ("Error: spawn EPERM", "subprocess"),
            ("connect EACCES 140.82.121.4:443 - Local (0.0.0.0:0)", "net:443"),
            ("curl: (7) failed to connect to example.org port 443: Permission denied", "net:443"),
            ("Error: listen EACCES: permission denied 127.0.0.1:8080", "listen:8080"),
            ("socket: Operation not permitted", "net"),
        ] {
            let found = denied(line).unwrap();
            assert_eq!(found.capability.map(|it| it.to_string()).as_deref(), Some(token), "{line}");
        }
    }

    #[test]
    fn the_lines_above_say_what_was_being_done() {
        let trace = "  File \"x.py\", line 3, in _execute_child\n    self.pid = _fork_exec(\n\
                     PermissionError: [Errno 1] Operation not permitted";
        assert_eq!(denied(trace).unwrap().capability, Some(Capability::Subprocess));
        let trace = "    sock.connect(sa)\nPermissionError: [Errno 13] Permission denied";
        assert_eq!(denied(trace).unwrap().capability, Some(Capability::Net));
        assert_eq!(denied("Permission denied").unwrap().capability, None);
    }

    #[test]
    fn what_was_long_ago_or_no_refusal_is_none() {
        let long_ago = format!("x: Permission denied\n{}", "on\n".repeat(NEAR));
        assert_eq!(denied(&long_ago), None);
        assert_eq!(denied("it failed\n"), None);
        assert_eq!(denied(""), None);
    }

    #[test]
    fn a_token_that_says_the_same_is_known() {
        let tokens = ["read:/etc", "net"].map(str::to_owned);
        let wanted = |token| has(&tokens, &Capability::parse(token).unwrap());
        assert!(wanted("read:/etc/shadow") && wanted("net:443") && wanted("net"));
        assert!(!wanted("read:/etcetera") && !wanted("write:/etc") && !wanted("subprocess"));
    }
}
