//! What tokens come to, on a machine as it is.

use super::*;
use defib_core::{Name, RunId};
use defib_host::protocol::{Leftovers, RunKey};

fn order(cwd: &Path, env: &[(&str, &str)]) -> SpawnOrder {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    SpawnOrder {
        key: RunKey { agent: Name::parse("a").unwrap(), run: RunId(1) },
        argv: vec!["/bin/sh".to_owned()],
        env: env.collect(),
        cwd: text(cwd),
        terminal: None,
        umask: None,
        user: None,
        leftovers: Leftovers::Kill,
        rlimits: Vec::new(),
        memory: None,
    }
}

fn confined(cwd: &Path, tokens: &[&str], env: &[(&str, &str)]) -> Option<Confined> {
    let tokens: Vec<Capability> =
        tokens.iter().map(|token| Capability::parse(token).unwrap()).collect();
    let state = cwd.join("state");
    let situation = Situation {
        cwd: cwd.to_owned(),
        heartbeat: Some(state.join("heartbeat")),
        state,
        probe: None,
        meter: Some(4318),
        home: cwd.join("home"),
        isolation: IsolationKind::Landlock,
    };
    confine(&tokens, &order(cwd, env), &situation)
}

fn access(confined: &Confined, path: &Path) -> Access {
    let mut all = Access::default();
    for (place, access) in &confined.profile.paths {
        if Path::new(place) == path {
            all.read |= access.read;
            all.write |= access.write;
            all.exec |= access.exec;
        }
    }
    all
}

#[test]
fn paths_are_relative_to_the_agents_folder_and_to_its_home() {
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path();
    std::fs::create_dir_all(cwd.join("sub")).unwrap();
    let home = [("HOME", cwd.to_str().unwrap())];
    let confined = confined(cwd, &["read:sub", "write:~/sub", "read:~nobody"], &home).unwrap();
    let place = text(&cwd.join("sub"));
    for access in [READ, WRITE] {
        assert!(confined.profile.paths.contains(&(place.clone(), access)), "{access:?}");
    }
    let [(token, why)] = confined.warnings.as_slice() else { panic!("{:?}", confined.warnings) };
    assert_eq!(token.to_string(), "read:~nobody");
    assert!(why.starts_with("there is no "), "{why}");
}

#[test]
fn write_does_not_imply_read_and_the_workspace_is_both() {
    let folder = tempfile::tempdir().unwrap();
    let cwd = folder.path();
    let only = confined(cwd, &["write:."], &[]).unwrap();
    assert_eq!(access(&only, &cwd.join(".")), WRITE);
    let temporary = [("TMPDIR", "/var/tmp")];
    let whole = confined(cwd, &["workspace_rw"], &temporary).unwrap();
    assert_eq!(access(&whole, cwd), READ_WRITE);
    assert_eq!(access(&whole, Path::new("/var/tmp")), READ_WRITE);
    assert_eq!(access(&whole, Path::new("/tmp")), Access::default());
}

#[test]
fn without_tokens_there_is_what_a_program_needs_and_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let bare = confined(folder.path(), &[], &[]).unwrap();
    assert!(access(&bare, Path::new("/bin/sh")).exec, "its own command");
    assert_eq!(access(&bare, &folder.path().join("state")), READ_WRITE);
    assert_eq!(access(&bare, Path::new("/etc/resolv.conf")), Access::default());
    let Profile { connect, listen, udp, subprocess, .. } = bare.profile;
    assert_eq!(connect, Ports::Only(vec![4318]), "its own channel");
    assert_eq!((listen, udp, subprocess), (Ports::default(), false, false));
}

#[test]
fn tokens_for_the_network_open_what_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let some = confined(folder.path(), &["net:443", "listen:8080"], &[]).unwrap();
    assert_eq!(some.profile.connect, Ports::Only(vec![4318, 443]));
    assert_eq!(some.profile.listen, Ports::Only(vec![8080]));
    assert!(some.profile.udp && access(&some, Path::new("/etc/hosts")).read);
    let inward = confined(folder.path(), &["listen:8080"], &[]).unwrap();
    assert!(!inward.profile.udp);
    let all = confined(folder.path(), &["net:443", "net", "listen:8080"], &[]).unwrap();
    assert_eq!((all.profile.connect, all.profile.listen), (Ports::All, Ports::All));
}

#[test]
fn the_privileged_are_not_confined() {
    assert_eq!(confined(Path::new("/"), &["read:/", "privileged"], &[]), None);
}
