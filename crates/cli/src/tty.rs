//! The caller's terminal: its size, and ways of reading it that are undone in the end.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A terminal that is read in another way than usual, until this is dropped.
pub(crate) struct Changed {
    before: Termios,
}

/// Every byte as it is typed, also Ctrl-C.
pub(crate) fn raw() -> io::Result<Changed> {
    change(Termios::make_raw)
}

/// Every key as it is pressed and not shown; Ctrl-C does what it always does.
pub(crate) fn keys() -> io::Result<Changed> {
    change(|modes| modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO))
}

fn change(how: impl FnOnce(&mut Termios)) -> io::Result<Changed> {
    let before = tcgetattr(io::stdin())?;
    let mut modes = before.clone();
    how(&mut modes);
    tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
    Ok(Changed { before })
}

impl Drop for Changed {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing any more.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Rows and columns of the terminal on standard output, if it is one.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}
