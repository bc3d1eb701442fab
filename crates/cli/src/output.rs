//! Writing to standard output: colours only on a terminal, and no complaint when a reader such as
//! `head` has seen enough.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstream::ColorChoice;
use defib_core::screen;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::{Code, Failure};

/// Writes a text, without its colours if standard output is not a terminal. On a terminal, control sequences that
/// an agent put into the text are removed.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    draw("", text, "")
}

/// Writes a text like [`print`]. `before` and `after` are our own words to the terminal and pass unchanged.
pub(crate) fn draw(before: &str, text: &str, after: &str) -> Result<(), Failure> {
    let is_coloured = anstream::AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    let text: Cow<'_, str> = match (io::stdout().is_terminal(), is_coloured) {
        (true, true) => screen::coloured(text).into(),
        (true, false) => screen::plain(text).into(),
        (false, true) => text.into(),
        (false, false) => anstream::adapter::strip_str(text).to_string().into(),
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

/// Writes a line, with an agent's words made harmless if it goes to a terminal. Says whether the reader
/// wants more.
pub(crate) fn line(text: &str) -> Result<bool, Failure> {
    let text = if io::stdout().is_terminal() { screen::plain(text) } else { text.to_owned() };
    raw(format!("{text}\n").as_bytes())
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
