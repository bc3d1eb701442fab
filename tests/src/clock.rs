//! A wall clock that a test can set, for one keeper and its daemons and for nothing else.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Bench, await_that};

/// What is loaded in front of the keeper's C library, and of its daemons'.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock/moved.c");

/// The clock by which a bench's keeper and daemon go.
pub struct MovedClock(PathBuf);

impl MovedClock {
    /// Starts a keeper with this clock, as a service manager would: `up` gives it nothing of the
    /// caller's environment. The clock shows the right time at first.
    pub fn start(bench: &Bench) -> MovedClock {
        let (library, file) = (bench.project().join("clock.so"), bench.project().join("clock"));
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &PathBuf::from(SOURCE)])
            .status()
            .expect("a C compiler, which SQLite needs as well");
        assert!(built.success(), "{SOURCE} does not build");
        let clock = MovedClock(file);
        clock.set(0);
        let home = bench.home().display().to_string();
        let mut command = bench.command(&["internal", "keeper", "--home", &home]);
        command.env("LD_PRELOAD", &library).env("MOVED_CLOCK", &clock.0);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut keeper = command.spawn().unwrap();
        std::thread::spawn(move || keeper.wait());
        await_that("a daemon", || {
            let told = bench.defib(&["version", "--json"]).good().json();
            told["daemon"]["pid"].is_u64()
        });
        clock
    }

    /// Sets it so many seconds before or after the right time.
    pub fn set(&self, seconds: i64) {
        // Replaced in one step: whoever reads it meanwhile reads the old one or the new one.
        let new = self.0.with_extension("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }
}
