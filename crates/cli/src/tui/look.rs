//! How things look: colours where the terminal has them, and shapes, so that no state is told by its
//! colour alone.

use defib_core::State;
use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) has_colours: bool,
    /// Whether it shows more than ASCII.
    pub(crate) has_shapes: bool,
}

impl Look {
    /// What the terminal on standard output shows, by its environment.
    pub(crate) fn find() -> Look {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        let variables = ["LC_ALL", "LC_CTYPE", "LANG"];
        // The first that is set decides, as everywhere.
        let locale = variables
            .into_iter()
            .filter_map(|name| std::env::var(name).ok())
            .find(|value| !value.is_empty())
            .unwrap_or_default()
            .to_lowercase();
        Look {
            has_colours: choice != anstream::ColorChoice::Never,
            has_shapes: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// The shape of a state.
    pub(crate) const fn shape(self, state: State) -> char {
        let (shape, plain) = match state {
            State::Running => ('●', '*'),
            State::Starting => ('◐', '+'),
            State::Stopping => ('◑', '-'),
            State::Backoff => ('↻', '@'),
            State::Waiting => ('◷', '.'),
            State::Idle => ('·', '_'),
            State::Stopped => ('○', 'o'),
            State::Done => ('✓', 'v'),
            State::Halted => ('■', '#'),
            State::CrashedOut => ('✖', 'X'),
        };
        if self.has_shapes { shape } else { plain }
    }

    /// What stands for what was cut off.
    pub(crate) const fn ellipsis(self) -> &'static str {
        if self.has_shapes { "…" } else { "." }
    }

    /// The style of a state.
    pub(crate) fn state(self, state: State) -> Style {
        match state {
            State::Running | State::Done => self.coloured(Color::Green),
            State::Starting | State::Stopping | State::Backoff => self.coloured(Color::Yellow),
            State::Waiting => self.coloured(Color::Cyan),
            State::Halted | State::CrashedOut => self.loud(),
            State::Idle | State::Stopped => dim(),
        }
    }

    /// What needs a person.
    pub(crate) fn loud(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is worth a look.
    pub(crate) fn warned(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// A line that cannot be overlooked.
    pub(crate) fn banner(self) -> Style {
        self.loud().add_modifier(Modifier::REVERSED)
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}

/// What is there for whoever looks for it.
pub(crate) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// Heads and titles.
pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// What is selected or has the focus.
pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}
