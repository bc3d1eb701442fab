//! The terminal as a full screen, and as it was before: on quit, on a panic, for as long as somebody
//! is attached.

use std::io;
use std::sync::Once;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};

/// The terminal while it is ours. It is as it was when this is dropped.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<io::Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn enter() -> io::Result<Screen> {
        static HOOKED: Once = Once::new();
        HOOKED.call_once(restore_on_panic);
        enable_raw_mode()?;
        let taken = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        // From here on it is given back, however this ends.
        let mut screen = match taken {
            Ok(terminal) => Screen { terminal },
            Err(error) => {
                leave();
                return Err(error);
            }
        };
        screen.clear()?;
        Ok(screen)
    }

    /// Empties it: whatever stood there, all is drawn anew. The terminal is asked nothing, unlike by
    /// `Terminal::clear`: an answer would have to be found among the keys.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back. One that has gone needs nothing any more.
fn leave() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// What a panic says is to be read on a terminal as it was.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        before(panic);
        // A view without one of its threads would show something old for ever.
        if std::thread::current().name() != Some("main") {
            std::process::exit(101);
        }
    }));
}
