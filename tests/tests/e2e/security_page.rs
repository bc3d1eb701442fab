//! SECURITY.md names the test that holds each promise; this module checks that those tests exist.

use std::path::Path;

#[test]
fn every_promise_in_the_threat_model_names_an_existing_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let (_, promised) = page.split_once("\n## Promised\n").unwrap();
    let (table, _) = promised.split_once("\n## ").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 10, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').rsplitn(2, '|').collect();
        let tests: Vec<&str> = cells[0].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test holds this promise: {row}");
        for test in tests {
            let module = root.join("tests/tests/e2e").join(test).with_extension("rs");
            assert!(module.exists() || root.join(test).exists(), "{test} does not exist: {row}");
        }
    }
}
