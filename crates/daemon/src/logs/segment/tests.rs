use super::super::runs::INDEX;
use super::super::{Extent, LogReader};
use super::*;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

const SMALL: Rotation = Rotation { max_size: 64, keep: 1000 };

fn all(folder: &Path) -> Vec<u8> {
    let mut reader = LogReader::open(folder, Extent::LastLines(usize::MAX)).unwrap();
    let mut bytes = Vec::new();
    loop {
        let more = reader.read(7).unwrap();
        if more.is_empty() {
            return bytes;
        }
        bytes.extend(more);
    }
}

fn last(folder: &Path, extent: Extent) -> String {
    let mut reader = LogReader::open(folder, extent).unwrap();
    let mut text = String::new();
    loop {
        let more = reader.read(1 << 20).unwrap();
        if more.is_empty() {
            return text;
        }
        text.push_str(&String::from_utf8(more).unwrap());
    }
}

proptest! {
    #[test]
    fn no_byte_is_lost_and_no_line_split_by_rotation(
        chunks in proptest::collection::vec("[a-c\n]{0,40}", 0..60),
        reopen in 0usize..60,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
        let mut expected = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            if at == reopen {
                writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
            }
            writer.append(chunk.as_bytes()).unwrap();
            expected.extend_from_slice(chunk.as_bytes());
        }
        prop_assert_eq!(all(folder.path()), expected);
        let numbers = segments(folder.path());
        for number in &numbers[..numbers.len() - 1] {
            let full = fs::read(segment_path(folder.path(), *number)).unwrap();
            prop_assert!(full.ends_with(b"\n"), "segment {number} ends inside a line");
        }
    }
}

#[test]
fn a_rotation_that_was_cut_short_is_finished_by_the_next_writer() {
    let folder = tempfile::tempdir().unwrap();
    for carried in ["", "th", "thr"] {
        fs::write(segment_path(folder.path(), 1), "one\ntwo\nthr").unwrap();
        fs::write(segment_path(folder.path(), 2), carried).unwrap();
        let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
        writer.append(b"ee\n").unwrap();
        assert_eq!(all(folder.path()), b"one\ntwo\nthree\n", "after {carried:?}");
        assert_eq!(fs::read(segment_path(folder.path(), 1)).unwrap(), b"one\ntwo\n");
    }
}

/// What a follower sees, who looks whenever `look` is called.
struct Follower {
    reader: LogReader,
    seen: Vec<u8>,
}

impl Follower {
    fn of(folder: &Path) -> Follower {
        let reader = LogReader::open(folder, Extent::LastLines(usize::MAX)).unwrap();
        Follower { reader, seen: Vec::new() }
    }

    fn look(&mut self) {
        loop {
            let more = self.reader.read(7).unwrap();
            if more.is_empty() {
                return;
            }
            self.seen.extend(more);
        }
    }
}

proptest! {
    #[test]
    fn a_follower_sees_every_byte_once_across_rotations_and_other_readers(
        chunks in proptest::collection::vec("[a-c\n]{0,40}", 0..60),
        looks in proptest::collection::vec(0u8..3, 60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
        let mut follower = Follower::of(folder.path());
        for (chunk, look) in chunks.iter().zip(looks) {
            writer.append(chunk.as_bytes()).unwrap();
            if look > 0 {
                follower.look();
            }
            if look > 1 {
                let place = follower.reader.place();
                follower.reader = LogReader::resume(folder.path(), place, None);
            }
        }
        follower.look();
        prop_assert_eq!(follower.seen, chunks.concat().into_bytes());
    }
}

#[test]
fn a_follower_waits_while_an_unfinished_line_is_carried_over() {
    for behind in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (full, next) = (segment_path(folder.path(), 1), segment_path(folder.path(), 2));
        fs::write(&full, "one\ntwo\nthr").unwrap();
        let mut follower = Follower::of(folder.path());
        // Each step of a rotation, seen by one who had read everything and by one who comes now.
        for carried in ["", "th", "thr"] {
            if !behind {
                follower.look();
                assert_eq!(follower.seen, b"one\ntwo\nthr", "with {carried:?} carried over");
            }
            fs::write(&next, carried).unwrap();
        }
        follower.look();
        fs::write(&full, "one\ntwo\n").unwrap();
        follower.look();
        fs::write(&next, "three\n").unwrap();
        follower.look();
        assert_eq!(follower.seen, b"one\ntwo\nthree\n");
    }
}

proptest! {
    #[test]
    fn who_does_not_follow_gets_the_last_lines_of_that_moment_whatever_is_written_after_it(
        before in proptest::collection::vec("[a-c\n]{0,40}", 0..40),
        after in proptest::collection::vec("[a-c\n]{0,40}", 0..40),
        lines in 0usize..6,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
        for chunk in &before {
            writer.append(chunk.as_bytes()).unwrap();
        }
        let extent = Extent::LastLines(lines);
        let mut reader = LogReader::open_until_now(folder.path(), extent).unwrap();
        let mut seen = Vec::new();
        let mut look = || {
            let more = reader.read(7).unwrap();
            seen.extend_from_slice(&more);
            !more.is_empty()
        };
        for chunk in &after {
            writer.append(chunk.as_bytes()).unwrap();
            look();
        }
        while look() {
            writer.append(b"and on\n").unwrap();
        }
        let whole = before.concat();
        let of_then: Vec<&str> = whole.split_inclusive('\n').collect();
        let last = of_then[of_then.len().saturating_sub(lines)..].concat();
        prop_assert_eq!(String::from_utf8(seen).unwrap(), last);
    }
}

#[test]
fn lines_that_are_pruned_before_they_are_read_are_replaced_by_as_many_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), Rotation { keep: 1, ..SMALL }).unwrap();
    writer.append(b"early\n".repeat(5).as_slice()).unwrap();
    let extent = Extent::LastLines(2);
    let mut reader = LogReader::open_until_now(folder.path(), extent).unwrap();
    for _ in 0..100 {
        writer.append(b"a line that is written later\n").unwrap();
    }
    assert_eq!(reader.read(1 << 20).unwrap(), b"a line that is written later\n".repeat(2));
    assert!(reader.read(1 << 20).unwrap().is_empty());
}

#[test]
fn who_follows_a_run_is_at_the_end_where_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    writer.begin_run(RunId(1)).unwrap();
    writer.append(b"first").unwrap();
    let mut reader = LogReader::open(folder.path(), Extent::Run(RunId(1), 9)).unwrap();
    assert_eq!(reader.read(100).unwrap(), b"first");
    assert!(reader.read(100).unwrap().is_empty() && !reader.is_over());
    writer.begin_run(RunId(2)).unwrap();
    writer.append(b"second\n").unwrap();
    let mut resumed = LogReader::resume(folder.path(), reader.place(), Some(RunId(1)));
    for reader in [&mut reader, &mut resumed] {
        assert_eq!(reader.read(100).unwrap(), b"\n");
        assert!(reader.is_over() && reader.read(100).unwrap().is_empty());
    }
}

#[test]
fn only_so_many_segments_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer =
        SegmentWriter::open(folder.path(), Rotation { max_size: 64, keep: 3 }).unwrap();
    for run in 1..=100u64 {
        writer.begin_run(RunId(run)).unwrap();
        writer.append(format!("{run:060}\n").as_bytes()).unwrap();
    }
    assert_eq!(segments(folder.path()).len(), 4);
    let entries = index(folder.path());
    assert!(entries.len() < 10, "the index forgets what is gone: {}", entries.len());
    assert!(last(folder.path(), Extent::Run(RunId(100), 10)).ends_with("100\n"));
}

#[test]
fn the_last_lines_and_the_lines_of_a_run_are_found_across_segments() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    for run in 1..=3u64 {
        writer.begin_run(RunId(run)).unwrap();
        for line in 0..10 {
            writer.append(format!("run {run} line {line}\n").as_bytes()).unwrap();
        }
    }
    assert_eq!(last(folder.path(), Extent::LastLines(2)), "run 3 line 8\nrun 3 line 9\n");
    let second = last(folder.path(), Extent::Run(RunId(2), usize::MAX));
    assert_eq!(second.lines().count(), 10);
    assert!(second.lines().all(|line| line.starts_with("run 2")), "{second}");
    let end = last(folder.path(), Extent::Run(RunId(2), 1));
    assert_eq!(end, "run 2 line 9\n");
    assert!(LogReader::open(folder.path(), Extent::Run(RunId(9), 1)).is_err());
}

#[test]
fn a_run_that_was_noted_began_where_it_was_noted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    let first = writer.begin_run(RunId(1)).unwrap();
    writer.append(b"one\n").unwrap();
    let second = writer.begin_run(RunId(2)).unwrap();
    writer.append(b"two\n").unwrap();
    assert_eq!((first.offset, second.offset), (0, 4));
    let mut next = SegmentWriter::open(folder.path(), SMALL).unwrap();
    assert_eq!(next.begin_run(RunId(2)).unwrap(), second, "to the next daemon too");
    assert_eq!(next.begin_run(RunId(1)).unwrap(), first);
    assert_eq!(next.begin_run(RunId(3)).unwrap().offset, 8);
}

#[test]
fn a_run_that_ended_inside_a_line_does_not_run_into_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    writer.begin_run(RunId(1)).unwrap();
    writer.append(b"no end").unwrap();
    writer.begin_run(RunId(2)).unwrap();
    writer.append(b"next\n").unwrap();
    assert_eq!(last(folder.path(), Extent::Run(RunId(1), 9)), "no end\n");
    assert_eq!(last(folder.path(), Extent::Run(RunId(2), 9)), "next\n");
}

#[test]
fn a_line_without_an_end_is_split_only_when_it_is_enormous() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    let block = vec![b'x'; 1 << 16];
    for _ in 0..40 {
        writer.append(&block).unwrap();
    }
    assert_eq!(all(folder.path()).len(), 40 << 16);
    assert!(segments(folder.path()).len() > 1);
}

const LARGE: Rotation = Rotation { max_size: 1 << 20, keep: 3 };
const ALONE: Rotation = Rotation { max_size: 100_000, keep: 0 };

#[test]
fn the_tail_of_a_log_that_somebody_has_cut_short_is_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    writer.begin_run(RunId(1)).unwrap();
    writer.append(b"one\n").unwrap();
    let start = writer.begin_run(RunId(2)).unwrap();
    writer.append(b"two\n").unwrap();
    fs::write(segment_path(folder.path(), 1), "").unwrap();
    let mut next = SegmentWriter::open(folder.path(), LARGE).unwrap();
    assert_eq!(next.tail_since(start, 100).unwrap(), b"", "to who opens it now");
    assert_eq!(writer.tail_since(start, 100).unwrap(), b"", "to who had it open");
    let start = next.begin_run(RunId(2)).unwrap();
    assert_eq!(start, Place::FIRST, "it goes on where the file ends");
    next.append(b"three\n").unwrap();
    assert_eq!(next.tail_since(start, 100).unwrap(), b"three\n");
}

#[test]
fn a_run_begins_where_a_log_ends_that_somebody_has_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    writer.begin_run(RunId(1)).unwrap();
    writer.append(b"no end").unwrap();
    fs::write(segment_path(folder.path(), 1), "").unwrap();
    assert_eq!(writer.begin_run(RunId(2)).unwrap(), Place::FIRST);
    writer.append(b"two\n").unwrap();
    assert_eq!(all(folder.path()), b"two\n");
}

#[test]
fn the_tail_goes_back_over_as_many_segments_as_it_takes_and_over_those_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), SMALL).unwrap();
    writer.begin_run(RunId(1)).unwrap();
    writer.append(b"of the first\n").unwrap();
    let start = writer.begin_run(RunId(2)).unwrap();
    for line in 0..100 {
        writer.append(format!("line {line} of the second\n").as_bytes()).unwrap();
    }
    let written = all(folder.path()).split_off(b"of the first\n".len());
    assert_eq!(writer.tail_since(start, 1000).unwrap(), written[written.len() - 1000..]);
    assert_eq!(writer.tail_since(start, 1 << 20).unwrap(), written, "no more than the run's");
    let numbers = segments(folder.path());
    fs::remove_file(segment_path(folder.path(), numbers[numbers.len() - 2])).unwrap();
    let left = all(folder.path());
    assert_eq!(writer.tail_since(start, 1000).unwrap(), left[left.len() - 1000..]);
}

#[test]
fn a_log_that_keeps_no_full_segment_keeps_enough_for_the_tail() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), ALONE).unwrap();
    let start = writer.begin_run(RunId(1)).unwrap();
    let mut written = Vec::new();
    for line in 0..10_000 {
        let line = format!("line {line} of what is said\n");
        writer.append(line.as_bytes()).unwrap();
        written.extend_from_slice(line.as_bytes());
        let tail = writer.tail_since(start, 64 << 10).unwrap();
        let enough = written.len().saturating_sub(64 << 10);
        assert!(tail == written[enough..], "{} bytes after {line}", tail.len());
        let kept = segments(folder.path()).len();
        let most = if writer.place().offset < 64 << 10 { 2 } else { 1 };
        assert!(kept <= most, "{kept} segments, {} bytes in the last", writer.place().offset);
    }
    assert!(writer.place().segment > 2, "it did rotate");
}

/// Puts something in the place of a file that can be opened, and never written.
fn without_space(path: &Path) {
    std::os::unix::fs::symlink("/dev/full", path).unwrap();
}

#[test]
fn a_run_that_could_not_be_noted_is_noted_when_there_is_space_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    without_space(&folder.path().join(INDEX));
    assert!(writer.begin_run(RunId(1)).is_err());
    fs::remove_file(folder.path().join(INDEX)).unwrap();
    let start = writer.begin_run(RunId(1)).unwrap();
    assert_eq!(index(folder.path()), [(RunId(1), start)]);
}

#[test]
fn a_line_of_the_index_that_was_cut_short_is_none_and_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(INDEX);
    let whole = [(RunId(1), Place::FIRST), (RunId(4), Place { segment: 1, offset: 120 })];
    fs::write(&path, b"1 1 0\n2 1 42 1 99\n3 1\n\xff\xff\xff\n4 1 120\n5 1 12").unwrap();
    assert_eq!(index(folder.path()), whole);
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    let start = writer.begin_run(RunId(5)).unwrap();
    assert_eq!(index(folder.path()), [&whole[..], &[(RunId(5), start)]].concat());
}

#[test]
fn runs_without_a_word_do_not_fill_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    for run in 1..=40_000u64 {
        writer.begin_run(RunId(run)).unwrap();
        if run % 10_000 == 7 {
            writer.append(format!("run {run}\n").as_bytes()).unwrap();
        }
    }
    let size = fs::metadata(folder.path().join(INDEX)).unwrap().len();
    assert!(size < 270_000, "{size} bytes");
    for run in [7, 10_007, 30_007] {
        assert_eq!(last(folder.path(), Extent::Run(RunId(run), 9)), format!("run {run}\n"));
    }
    assert_eq!(last(folder.path(), Extent::Run(RunId(40_000), 9)), "", "the last are known");
    assert_eq!(last(folder.path(), Extent::Run(RunId(39_000), 9)), "");
}

#[test]
fn an_index_of_runs_that_all_said_something_is_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SegmentWriter::open(folder.path(), LARGE).unwrap();
    for run in 1..=40_000u64 {
        writer.begin_run(RunId(run)).unwrap();
        writer.append(b".\n").unwrap();
    }
    let size = fs::metadata(folder.path().join(INDEX)).unwrap().len();
    assert!(size < 270_000, "{size} bytes");
    assert_eq!(last(folder.path(), Extent::Run(RunId(40_000), 9)), ".\n");
    assert!(LogReader::open(folder.path(), Extent::Run(RunId(1), 9)).is_err());
}
