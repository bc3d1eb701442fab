//! What several tests of the binary share.

use std::time::{Duration, Instant};

/// Waits for something to be so.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
