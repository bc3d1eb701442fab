//! What an autopsy of a 64 KiB tail costs: `cargo bench -p defib-autopsy`. It must be under 5 ms.

use std::collections::BTreeMap;

use defib_autopsy::{Autopsy, Case, Kind, LINES_BYTES};
use defib_core::Wall;
use defib_core::run::Status;
use divan::Bencher;
use jiff::tz::TimeZone;

fn main() {
    divan::main();
}

/// What tails are made of, the worst that are known.
const TAILS: [(&str, &str); 7] = [
    ("text", "2026-10-07T12:00:00Z ERROR agent::loop: the request failed: nobody knows why\n"),
    (
        "records",
        "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}}\n",
    ),
    ("colours", "\u{1b}[31m\u{1b}[1mx\u{1b}[0m"),
    ("one-line", "error: error: "),
    ("not-text", "\u{fffd}\u{0}\u{1}"),
    ("nested", "{\"a\":[{"),
    ("no-end", "{\n"),
];

#[divan::bench(args = ["text", "records", "colours", "one-line", "not-text", "nested", "no-end"], consts = [0, 1, 6])]
fn a_tail_of_64_kib<const KIND: usize>(bencher: Bencher, name: &str) {
    let piece = TAILS.iter().find(|(known, _)| *known == name).map_or("", |(_, piece)| piece);
    let tail = piece.repeat(LINES_BYTES / piece.len() + 1);
    let (zone, exit_codes) = (TimeZone::UTC, BTreeMap::new());
    let autopsy = Autopsy::default();
    let case = Case {
        kind: Kind::ALL[KIND],
        status: Status::Exited(1),
        oom: false,
        tail: &tail.as_bytes()[..LINES_BYTES],
        now: Wall::from_millis(0),
        zone: &zone,
        exit_codes: &exit_codes,
    };
    bencher.bench_local(|| autopsy.examine(&case));
}
