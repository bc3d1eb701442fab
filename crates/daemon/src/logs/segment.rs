//! Writing an agent's log: one open segment, rotation at line ends, the index of runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use defib_core::RunId;
use defib_host::output::{Moved, splice_to};

use super::{INDEX, Place, index, segment_path, segments};

/// A line that is longer than this may be split by a rotation: it would fill any memory.
const LONGEST_LINE: u64 = 1 << 20;
/// How much is moved at once, so that one flooding agent does not hold up the others.
const CHUNK: usize = 1 << 20;

/// When a log begins its next segment, and how many it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// A segment that has reached this size is full.
    pub max_size: u64,
    /// How many full segments are kept beside the open one.
    pub keep: u32,
}

/// The log of one agent, open for writing.
#[derive(Debug)]
pub struct SegmentWriter {
    folder: PathBuf,
    rotation: Rotation,
    number: u64,
    file: File,
    size: u64,
    /// The last run that the index knows of.
    last_run: RunId,
    /// The index, once a run was noted in it.
    index: Option<File>,
}

impl SegmentWriter {
    /// Opens an agent's log where its last writer left it, whatever became of that.
    pub fn open(folder: &Path, rotation: Rotation) -> io::Result<SegmentWriter> {
        fs::create_dir_all(folder)?;
        let number = segments(folder).last().copied().unwrap_or(1);
        let file = open_segment(folder, number)?;
        finish_a_rotation_that_was_cut_short(folder, number, &file)?;
        let size = file.metadata()?.len();
        let last_run = index(folder).last().map_or(RunId(0), |(run, _)| *run);
        let folder = folder.to_owned();
        Ok(SegmentWriter { folder, rotation, number, file, size, last_run, index: None })
    }

    /// Changes when the log rotates.
    pub fn set_rotation(&mut self, rotation: Rotation) {
        self.rotation = rotation;
    }

    /// Whether somebody has removed the open segment: what is written to it nobody can read.
    pub(super) fn was_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Where the next byte goes.
    pub fn place(&self) -> Place {
        Place { segment: self.number, offset: self.size }
    }

    /// Notes that a run begins here, and says where that is. A run that is noted already began where
    /// it was noted. The index is read only then: it grows with every run.
    pub fn begin_run(&mut self, run: RunId) -> io::Result<Place> {
        if run <= self.last_run {
            let noted = index(&self.folder).into_iter().rfind(|(noted, _)| *noted == run);
            return Ok(noted.map_or_else(|| self.place(), |(_, place)| place));
        }
        self.end_line()?;
        self.last_run = run;
        let place @ Place { segment, offset } = self.place();
        let index = match self.index.take() {
            Some(index) => index,
            None => open_index(&self.folder)?,
        };
        let index = self.index.insert(index);
        index.write_all(format!("{run} {segment} {offset}\n").as_bytes())?;
        Ok(place)
    }

    /// Moves what is in a pipe to the log, without a copy. What was moved is in the file, also if
    /// this process dies the moment after.
    pub(super) fn splice_from(&mut self, pipe: BorrowedFd<'_>) -> io::Result<Moved> {
        let moved = splice_to(pipe, &self.file, self.size, CHUNK)?;
        if let Moved::Bytes(bytes) = moved {
            self.size += bytes as u64;
            self.rotate_if_full()?;
        }
        Ok(moved)
    }

    /// Appends bytes that were read from a terminal.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        self.rotate_if_full()
    }

    /// The last bytes of the current run, at most `most`, across segments.
    pub(super) fn tail_since(&self, start: Place, most: u64) -> io::Result<Vec<u8>> {
        let begin = if start.segment == self.number { start.offset } else { 0 };
        let from = begin.max(self.size.saturating_sub(most));
        let mut bytes = vec![0; usize::try_from(self.size - from).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, from)?;
        let missing = most.saturating_sub(bytes.len() as u64);
        if missing > 0 && start.segment < self.number {
            let before = File::open(segment_path(&self.folder, self.number - 1))?;
            let size = before.metadata()?.len();
            let begin = if start.segment == self.number - 1 { start.offset } else { 0 };
            let from = begin.max(size.saturating_sub(missing)).min(size);
            let mut earlier = vec![0; usize::try_from(size - from).unwrap_or(0)];
            before.read_exact_at(&mut earlier, from)?;
            earlier.append(&mut bytes);
            bytes = earlier;
        }
        Ok(bytes)
    }

    /// A run that ended without a line end must not run into the next one.
    fn end_line(&mut self) -> io::Result<()> {
        if self.size > 0 && self.byte_at(self.size - 1)? != b'\n' {
            self.append(b"\n")?;
        }
        Ok(())
    }

    fn byte_at(&self, offset: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset)?;
        Ok(byte[0])
    }

    fn rotate_if_full(&mut self) -> io::Result<()> {
        if self.size >= self.rotation.max_size {
            self.rotate()?;
        }
        Ok(())
    }

    /// Begins the next segment at the beginning of a line: what the full one has of an unfinished
    /// line is written to the next first, and only then taken from the full one.
    fn rotate(&mut self) -> io::Result<()> {
        let line_start = last_line_start(&self.file, self.size)?;
        if line_start == 0 && self.size < self.rotation.max_size.saturating_add(LONGEST_LINE) {
            // All of it is one line; perhaps its end comes.
            return Ok(());
        }
        let kept = if line_start == 0 { self.size } else { line_start };
        let mut carried = vec![0; usize::try_from(self.size - kept).unwrap_or(0)];
        self.file.read_exact_at(&mut carried, kept)?;
        let next = open_segment(&self.folder, self.number + 1)?;
        next.write_all_at(&carried, 0)?;
        self.file.set_len(kept)?;
        (self.file, self.number, self.size) = (next, self.number + 1, carried.len() as u64);
        self.prune();
        Ok(())
    }

    fn prune(&mut self) {
        let oldest = self.number.saturating_sub(self.rotation.keep.into());
        for number in segments(&self.folder).into_iter().take_while(|number| *number < oldest) {
            // A segment that cannot be removed now is removed after the next rotation.
            let _ = fs::remove_file(segment_path(&self.folder, number));
        }
        // Runs whose output is gone need no entry; whoever reads the index meanwhile sees the old one
        // or the new one.
        let entries = index(&self.folder);
        let gone = entries.partition_point(|(_, place)| place.segment < oldest);
        if gone > 1 {
            let line = |(run, Place { segment, offset }): &(RunId, Place)| {
                format!("{run} {segment} {offset}\n")
            };
            let text: String = entries[gone - 1..].iter().map(line).collect();
            let new = self.folder.join("runs.new");
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, self.folder.join(INDEX)));
            self.index = None;
        }
    }
}

/// Where the unfinished last line of a segment begins; its size where there is none, zero where the
/// line is longer than any that is carried over.
pub(super) fn last_line_start(file: &File, size: u64) -> io::Result<u64> {
    let from = size.saturating_sub(LONGEST_LINE);
    let mut end = size;
    let mut block = vec![0; 4096];
    while end > from {
        let start = end.saturating_sub(block.len() as u64).max(from);
        let part = &mut block[..usize::try_from(end - start).unwrap_or(0)];
        file.read_exact_at(part, start)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The last writer may have died after it had carried an unfinished line over and before it had
/// taken it from the full segment.
fn finish_a_rotation_that_was_cut_short(folder: &Path, number: u64, open: &File) -> io::Result<()> {
    let before = segment_path(folder, number.saturating_sub(1));
    let Ok(full) = OpenOptions::new().read(true).write(true).open(before) else { return Ok(()) };
    let size = full.metadata()?.len();
    let line_start = last_line_start(&full, size)?;
    if line_start == 0 || line_start == size {
        return Ok(());
    }
    let mut unfinished = vec![0; usize::try_from(size - line_start).unwrap_or(0)];
    full.read_exact_at(&mut unfinished, line_start)?;
    let carried_len = usize::try_from(open.metadata()?.len()).unwrap_or(usize::MAX);
    if carried_len > unfinished.len() {
        return Ok(());
    }
    let mut carried = vec![0; carried_len];
    open.read_exact_at(&mut carried, 0)?;
    // The next segment has all of the line, or a part, or nothing yet.
    if unfinished.starts_with(&carried) {
        open.write_all_at(&unfinished, 0)?;
        full.set_len(line_start)?;
    }
    Ok(())
}

fn open_index(folder: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join(INDEX))
}

fn open_segment(folder: &Path, number: u64) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(segment_path(folder, number))
}

#[cfg(test)]
mod tests {
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
}
