//! The comparison runs at all, without a supervisor to compare with: the floor, its child, the
//! figures. How fast anything is, no test says.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_floor_replaces_every_child_that_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let figures = folder.path().join("figures.json");
    let out = Command::new(env!("CARGO_BIN_EXE_defib-bench"))
        .args(["a", "--quick", "--peers", "none", "--defib", "not-there", "--json"])
        .arg(&figures)
        .env("TMPDIR", folder.path())
        .output()
        .expect("defib-bench");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("defib is not there and left out"), "{said}");
    let text = std::fs::read_to_string(&figures).expect("figures");
    let items: Value = serde_json::from_str(&text).expect("JSON");
    let row = &items[0]["rows"][0];
    assert_eq!(row["name"], "floor", "{text}");
    assert_eq!(row["figures"]["kills"], 20.0, "{text}");
    assert_eq!(row["note"], "", "{text}");
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 1, "only the figures are left behind");
}
