//! What agents write: captured, rotated, read back.
//!
//! Each agent has a folder with numbered segments, `00000001.log` and on, and an index that says at
//! which byte of which segment each run begins. A segment is only ever appended to, and rotation is
//! the beginning of the next one at the beginning of a line, so that no line is split, lost or
//! doubled, whoever dies in between. The oldest segments go when there are more than are to be kept.
//! There is no folder before the first run has written something or has ended.

mod activity;
mod frame;
mod log;
mod losses;
mod prompts;
mod reader;
mod room;
mod runs;
mod scribe;
mod segment;

pub(crate) use activity::Activity;
pub use frame::{Frame, Frames, NoFrame};
pub(crate) use reader::last_of_run;
pub use reader::{Extent, LogReader};
pub(crate) use runs::last_run;
pub use scribe::{Scribe, ScribeEvent, Source};
pub use segment::{Rotation, SegmentWriter};

use std::path::{Path, PathBuf};

use defib_core::Name;
use serde::{Deserialize, Serialize};

/// How much of a run's last output is looked at: by whoever asks what it died of, and by whoever comes
/// to its terminal later.
const TAIL: usize = defib_history::TAIL_MAX;

/// A place in an agent's log.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct Place {
    /// In which segment.
    pub segment: u64,
    /// At which byte of it.
    pub offset: u64,
}

impl Place {
    /// Where a log begins.
    const FIRST: Place = Place { segment: 1, offset: 0 };
}

/// The folder of an agent's logs.
pub fn folder(home: &Path, agent: &Name) -> PathBuf {
    home.join("logs").join(agent.as_str())
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.log"))
}

/// The numbers of the segments there are, in order.
fn segments(folder: &Path) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_suffix(".log")?.parse::<u64>().ok()
    };
    let mut numbers: Vec<u64> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// When the newest segment was last written, in milliseconds since the epoch.
pub fn last_written(folder: &Path) -> Option<i64> {
    let newest = segments(folder).into_iter().next_back()?;
    let metadata = std::fs::metadata(segment_path(folder, newest)).ok()?;
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().filter(|_| metadata.len() > 0)
}
