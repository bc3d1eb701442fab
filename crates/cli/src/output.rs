//! Writing to standard output: colours only on a terminal, and no complaint when a reader such as
//! `head` has seen enough.

use std::io::{self, Write};

use anstream::ColorChoice;

use crate::failure::{Code, Failure};

/// Writes a text, without its colours where nobody would see them.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let plain;
    // In one piece: a table of a thousand lines is not a thousand writes.
    let text = match anstream::AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => {
            plain = anstream::adapter::strip_str(text).to_string();
            &plain
        }
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => text,
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Failed, format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
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
