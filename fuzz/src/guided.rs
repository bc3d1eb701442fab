//! Coverage-guided fuzzing: libFuzzer drives the target that `DEFIB_FUZZ_TARGET` names.
//!
//! `scripts/fuzz` builds and runs this program; see there for the compiler flags.

#![no_main]

use std::sync::OnceLock;

use defib_fuzz::{Target, all};

static TARGET: OnceLock<Target> = OnceLock::new();

/// Finds the target once per process.
fn target() -> Target {
    let name = std::env::var("DEFIB_FUZZ_TARGET").unwrap_or_default();
    let found = all().into_iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("DEFIB_FUZZ_TARGET is {name:?}, which is not a target"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.get_or_init(target).run)(bytes));
