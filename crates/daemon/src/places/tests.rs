use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

fn guarded(path: PathBuf, own: &Path) -> AgentFile {
    AgentFile { path, own: own.to_owned(), guarded: true, owner: None, in_state: false }
}

#[test]
fn a_symlink_in_the_agent_s_folder_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let (own, victim) = (root.path().join("own"), root.path().join("victim"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&victim).unwrap();
    symlink(&victim, own.join("folder")).unwrap();
    fs::write(victim.join("secret"), "x").unwrap();
    symlink(victim.join("secret"), own.join("file")).unwrap();
    symlink(victim.join("new"), own.join("dangling")).unwrap();
    for path in ["folder/beat", "folder/deep/beat", "folder/secret", "file", "dangling"] {
        let file = guarded(own.join(path), &own);
        assert!(file.make().is_err(), "{path}");
        assert_eq!(file.stat().map(|stat| stat.st_ino), None, "{path}");
        assert!(!file.may_be_granted(), "{path}");
    }
    let there: Vec<_> = fs::read_dir(&victim).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(there, ["secret"]);
}

#[test]
fn a_way_out_of_the_agent_s_folder_by_dots_follows_no_symlink_either() {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::create_dir(root.path().join("victim")).unwrap();
    symlink("../victim", own.join("link")).unwrap();
    let file = guarded(own.join("link/../own/link/beat"), &own);
    assert!(file.make().is_err());
    assert!(!root.path().join("victim/beat").exists());
}

#[test]
fn folders_that_are_missing_are_made_and_the_file_with_them() {
    let root = tempfile::tempdir().unwrap();
    let file = guarded(root.path().join("a/b/beat"), root.path());
    assert!(file.folder(false).is_err());
    file.make().unwrap();
    assert!(root.path().join("a/b/beat").is_file());
    assert!(file.may_be_granted());
    assert!(file.make().is_err(), "what is there is left as it is");
}

#[test]
fn a_hard_link_and_a_pipe_are_not_granted() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("victim"), "x").unwrap();
    fs::hard_link(root.path().join("victim"), root.path().join("beat")).unwrap();
    assert!(!guarded(root.path().join("beat"), root.path()).may_be_granted());
    let fifo = root.path().join("fifo");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    let file = guarded(fifo, root.path());
    assert!(file.make().is_err() && file.stat().is_none() && !file.may_be_granted());
}

#[test]
fn an_operator_s_symlink_above_the_agent_s_folder_is_followed() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("real/own")).unwrap();
    symlink(root.path().join("real"), root.path().join("link")).unwrap();
    // By way of the working folder, and by an absolute path beside it.
    let own = root.path().join("link/own");
    guarded(own.join("beat"), &own).make().unwrap();
    guarded(root.path().join("link/beat"), &own).make().unwrap();
    assert!(root.path().join("real/own/beat").is_file());
    assert!(root.path().join("real/beat").is_file());
}

#[test]
fn a_state_folder_outside_is_its_user_s_alone_below_folders_that_nobody_else_can_write() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: no folder can be given to another user");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let outside = Outside { root: root.path().join("r"), home: "0123".to_owned() };
    let owner = Owner { user: 65534, group: 65533 };
    for _ in 0..2 {
        outside.make_state("web", owner).unwrap();
        let made = fs::metadata(outside.state("web")).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (65534, 65533, 0o700));
        for above in ["r", "r/0123", "r/0123/state"] {
            let above = fs::metadata(root.path().join(above)).unwrap();
            assert_eq!((above.uid(), above.mode() & 0o7777), (0, 0o711));
        }
        // The user may have changed both.
        fs::set_permissions(
            outside.state("web"),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
    }
    // Nothing is made in a folder that others can write, nor through a symlink.
    let open = root.path().join("r/0123/state");
    fs::remove_dir_all(&open).unwrap();
    symlink("/tmp", &open).unwrap();
    assert!(outside.make_state("web", owner).is_err());
    fs::set_permissions(root.path().join("r"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    assert!(outside.make_state("web", owner).is_err());
}
