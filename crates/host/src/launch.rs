//! From an order to a plan.
//!
//! Everything that can fail before there is a process fails here, with the stage it failed at: texts
//! with a NUL inside, an unknown user, no more descriptors. The program's candidates are listed here,
//! in the order of the order's `PATH`; which of them runs shows in the child, who has the run's user
//! and folder. It refuses to guess: a script without an interpreter line is an error, not a shell's.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Gid, Uid};
use rustix::pty::OpenptFlags;

use crate::child::{Fault, Identity, Plan, Streams, Texts};
use crate::output::{Relay, RunOutput, set_window_size};
use crate::protocol::{SpawnOrder, Stage, TerminalSize};
use crate::standing::Standing;

/// Where programs are looked for if the order has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The plan of a run. `marks` are the variables by which what descends from it is known again; they
/// come before the order's own and replace any of the same name.
pub(crate) fn plan_run(
    order: &SpawnOrder,
    marks: &[(&str, &str)],
    standing: &Standing,
) -> Result<Plan, Fault> {
    let malformed = |stage| Fault { stage, errno: Errno::INVAL };
    let program = order.argv.first().ok_or(malformed(Stage::Program))?;
    let path = order.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    let own = order.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let own = own.filter(|(name, _)| !marks.iter().any(|(mark, _)| mark == name));
    let environment = marks.iter().copied().chain(own);
    let environment = environment.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]);
    let mut limits = standing.limits_before();
    limits.extend(order.rlimits.iter().map(|&(resource, bound)| (resource, bound, bound)));
    Ok(Plan {
        programs: candidates(program, path).ok_or(malformed(Stage::Program))?,
        arguments: arguments(order.argv.iter().map(String::as_bytes))
            .ok_or(malformed(Stage::Program))?,
        environment: Texts::new(environment).ok_or(malformed(Stage::Program))?,
        folder: Some(CString::new(order.cwd.as_str()).map_err(|_| malformed(Stage::Folder))?),
        streams: if order.terminal.is_some() { Streams::Terminal } else { Streams::Output },
        umask: order.umask,
        identity: identity(order.user.as_deref()).map_err(Fault::at(Stage::User))?,
        limits,
        oom_score: standing.oom_score_before(),
        dies_with_keeper: true,
        door: None,
        confinement: None,
    })
}

/// Arguments as `execve` wants them.
pub(crate) fn arguments<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Texts> {
    Texts::new(texts.map(|text| [text, &[], &[]]))
}

/// The files that a program's name may mean. Relative ones are relative to the run's folder.
pub(crate) fn candidates(program: &str, path: Option<&str>) -> Option<Vec<CString>> {
    if program.is_empty() || program.contains('/') {
        return Some(vec![CString::new(program).ok()?]);
    }
    let folders = path.unwrap_or(DEFAULT_PATH).split(':');
    let files = folders.map(|folder| match folder {
        "" => CString::new(format!("./{program}")).ok(),
        folder => CString::new(format!("{folder}/{program}")).ok(),
    });
    files.collect()
}

/// Whom to become: a name, a number, or two numbers `user:group`. `None`: nobody else.
///
/// Names are looked up in /etc/passwd and /etc/group and nowhere else: a keeper that asks a directory
/// on the network can hang on it. A daemon that has asked can say the numbers.
fn identity(wanted: Option<&str>) -> Result<Option<Identity>, Errno> {
    let Some(wanted) = wanted else { return Ok(None) };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let found = find_identity(wanted, &read("/etc/passwd"), &read("/etc/group"))?;
    let own = rustix::process::geteuid();
    match own.is_root() {
        true => Ok(Some(found)),
        false if found.user == own => Ok(None),
        false => Err(Errno::PERM),
    }
}

/// The numbers of the user and the group that a run with this `user` has, as the keeper looks them up.
/// `None` if the user is not known.
pub fn account(wanted: &str) -> Option<(u32, u32)> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let found = find_identity(wanted, &read("/etc/passwd"), "").ok()?;
    Some((found.user.as_raw(), found.group.as_raw()))
}

fn find_identity(wanted: &str, passwd: &str, group: &str) -> Result<Identity, Errno> {
    if let Some((user, group)) = wanted.split_once(':') {
        let number = |text: &str| text.parse::<u32>().map_err(|_| Errno::INVAL);
        let (user, group) = (Uid::from_raw(number(user)?), Gid::from_raw(number(group)?));
        return Ok(Identity { user, group, groups: vec![group] });
    }
    let entry = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, user, main) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        (name == wanted || user == wanted).then_some((name, user.parse().ok()?, main.parse().ok()?))
    });
    let Some((name, user, main)) = entry else {
        return Err(Errno::NOENT);
    };
    let mut groups = vec![Gid::from_raw(main)];
    groups.extend(group.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(2);
        let (number, members) = (fields.next()?, fields.next()?);
        members.split(',').any(|member| member == name).then_some(())?;
        number.parse().ok().map(Gid::from_raw)
    }));
    groups.dedup();
    Ok(Identity { user: Uid::from_raw(user), group: Gid::from_raw(main), groups })
}

/// The two ends of a run's output.
pub(crate) struct Output {
    /// The nonblocking end, which the keeper holds.
    pub(crate) ours: RunOutput,
    /// What the child gets.
    pub(crate) theirs: OwnedFd,
}

/// A terminal of its own for a run, and never seen before.
pub(crate) fn new_terminal(size: TerminalSize) -> Result<Output, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    set_window_size(&ours, size)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let relay = Some(Box::new(Relay { read, write }));
    Ok(Output { ours: RunOutput { source: ours, relay }, theirs })
}

/// One pipe for output and errors, so that their order is kept.
pub(crate) fn new_pipe() -> Result<Output, Errno> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok(Output { ours: RunOutput { source: ours, relay: None }, theirs })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nann:x:1001:\nwheel:x:10:bob,ann\n";

    #[test]
    fn a_user_is_found_by_name_by_number_and_by_two_numbers() {
        let group = Gid::from_raw(1001);
        let ann =
            Identity { user: Uid::from_raw(1000), group, groups: vec![group, Gid::from_raw(10)] };
        assert_eq!(find_identity("ann", PASSWD, GROUP), Ok(ann.clone()));
        assert_eq!(find_identity("1000", PASSWD, GROUP), Ok(ann.clone()));
        let numbers = Identity { groups: vec![group], ..ann };
        assert_eq!(find_identity("1000:1001", PASSWD, GROUP), Ok(numbers));
        assert_eq!(find_identity("eve", PASSWD, GROUP), Err(Errno::NOENT));
        assert_eq!(find_identity("1000:staff", PASSWD, GROUP), Err(Errno::INVAL));
    }

    #[test]
    fn a_name_means_a_file_in_each_folder_of_path_and_a_path_means_itself() {
        let texts = |program, path| {
            let found = candidates(program, path).unwrap();
            found.into_iter().map(|text| text.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(texts("x", Some("/a:/b")), ["/a/x", "/b/x"]);
        assert_eq!(texts("x", Some(":rel")), ["./x", "rel/x"]);
        assert_eq!(texts("./x", Some("/a")), ["./x"]);
        assert_eq!(texts("", Some("/a")), [""]);
        assert_eq!(texts("x", None), ["/usr/local/bin/x", "/usr/bin/x", "/bin/x"]);
    }
}
