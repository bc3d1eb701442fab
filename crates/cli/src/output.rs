//! Writing to standard output: colours only on a terminal, and no complaint when a reader such as
//! `head` has seen enough.

use std::borrow::Cow;
use std::io::{self, Write};

use anstream::ColorChoice;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::{Code, Failure};

/// Writes a text, without its colours where nobody would see them.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    draw("", text, "")
}

/// Writes a text like [`print`], between words to a terminal that are no colours and always go out.
pub(crate) fn draw(before: &str, text: &str, after: &str) -> Result<(), Failure> {
    let text: Cow<'_, str> = match anstream::AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(text).to_string().into(),
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => text.into(),
    };
    // In one piece: a table of a thousand lines is not a thousand writes.
    raw(format!("{before}{text}{after}").as_bytes()).map(drop)
}

/// Whether anybody can read what is written. A pipe says that its reader has gone before it is written
/// to, which those who only say what has changed may not do for long.
pub(crate) fn is_read() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let found = rustix::event::poll(&mut polled, Some(&at_once));
    found.is_err() || !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// So many of something that a word of English stands for.
pub(crate) fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// Writes a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::new(Code::Failed, error))?;
    print(&format!("{text}\n"))
}

/// Writes bytes as they are. Says whether the reader wants more.
pub(crate) fn raw(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(Code::Failed, format!("cannot write to standard output: {error}")))
        }
    }
}
