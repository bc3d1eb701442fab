//! The list and the tests are one: nothing is on only one side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("../../../docs/conformance.md");
/// So many behaviours the documents have at the least.
const FEWEST: usize = 90;

/// The behaviours: number and test, by the rows `| 000-01 | … | `test` |`.
fn listed() -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for line in LIST.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, behaviour, test, _] = cells.as_slice() else { continue };
        let Some((document, count)) = number.split_once('-') else { continue };
        if document.len() != 3 || !document.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        assert!(!behaviour.is_empty(), "{number} says nothing");
        let test = test.trim_matches('`').to_owned();
        let is_numbered = test.starts_with(&format!("c{document}_{count}_"));
        assert!(is_numbered || is_of_tasks(&test), "{number} names {test}");
        let twice = rows.insert((*number).to_owned(), test);
        assert_eq!(twice, None, "{number} is there twice");
    }
    rows
}

/// Whether it is a test of the crate for tasks, `tasks::FILE::TEST`, and is there.
fn is_of_tasks(test: &str) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let ["tasks", file, function] = parts.as_slice() else { return false };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = root.join("crates/tasks/tests/tasks").join(file).with_extension("rs");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    run_of(&text).any(|name| name == *function)
}

/// The tests of a file that are run: functions that are told to be tests, and not to be left out.
fn run_of(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_test, mut is_left_out) = (false, false);
    text.lines().map(str::trim).filter_map(move |line| {
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        is_left_out |= line.starts_with("#[ignore");
        let (before, after) = line.split_once("fn ")?;
        if !matches!(before, "" | "async " | "pub " | "const ") {
            return None;
        }
        let is_run = std::mem::take(&mut is_test) && !std::mem::take(&mut is_left_out);
        is_run.then(|| after.split(['(', '<']).next().unwrap_or_default())
    })
}

/// The names of all conformance tests: functions under `#[test]` that begin with a number.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut open: Vec<PathBuf> = vec![root.join("tests/tests/conformance")];
    open.extend(
        std::fs::read_dir(root.join("crates")).unwrap().map(|of| of.unwrap().path().join("tests")),
    );
    let mut names = BTreeSet::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            for name in run_of(&text) {
                let digits = name.get(1..4).unwrap_or_default();
                let numbered = digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit());
                if name.starts_with('c') && numbered {
                    assert!(names.insert(name.to_owned()), "{name} is there twice");
                }
            }
        }
    }
    names
}

#[test]
fn every_behaviour_has_a_test_and_every_test_a_behaviour() {
    let (listed, tests) = (listed(), tests());
    let named = listed.values().filter(|test| !test.contains("::"));
    let named: BTreeSet<String> = named.cloned().collect();
    let without_test: Vec<&String> = named.difference(&tests).collect();
    let without_behaviour: Vec<&String> = tests.difference(&named).collect();
    assert!(without_test.is_empty(), "no such tests: {without_test:#?}");
    assert!(without_behaviour.is_empty(), "not in docs/conformance.md: {without_behaviour:#?}");
    assert!(listed.len() >= FEWEST, "only {} behaviours", listed.len());
    for document in ["000", "001", "002", "003", "004"] {
        assert!(listed.keys().any(|number| number.starts_with(document)), "nothing of {document}");
    }
}

#[test]
fn only_what_is_run_is_a_test() {
    let text = "#[test]\nfn a() {\n    fn inside() {}\n}\n\n#[test]\n#[ignore = \"slow\"]\nfn b() {}\n\n\
                #[ignore]\n#[test]\nfn c() {}\nfn d() {}\n#[tokio::test(start_paused = true)]\nasync fn e() {}\n";
    assert_eq!(run_of(text).collect::<Vec<_>>(), ["a", "e"]);
}
