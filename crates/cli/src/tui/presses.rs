//! What a key press does: to what is shown, and outside.

#![allow(clippy::wildcard_enum_match_arm, reason = "most keys mean nothing in most places")]

use defib_core::{Capability, Name};
use defib_daemon::wire::{Action, CapabilityChange};

use super::app::{App, Effect, Focus, Prompt};
use super::keys::Press;
use super::pane::Kind;
use super::rows::Order;

impl App {
    /// Takes a key press.
    pub(crate) fn press(&mut self, press: Press) -> Vec<Effect> {
        match press {
            Press::Interrupt => return vec![Effect::Quit],
            Press::Redraw => return vec![Effect::Redraw],
            _ => {}
        }
        if self.shows_help {
            self.shows_help = false;
            return Vec::new();
        }
        // What was said has been read.
        self.notice = None;
        match self.prompt.take() {
            Some(Prompt::Filter { before }) => self.press_filter(before, press),
            Some(Prompt::Search(text)) => self.press_search(text, press),
            Some(Prompt::Kill(name)) => match press {
                Press::Char('y' | 'Y') => self.ask(name, Action::Stop, true),
                _ => self.say(format!("{name} was not killed")),
            },
            Some(Prompt::Fund { name, text }) => self.press_fund(name, text, press),
            Some(Prompt::Change { name, text }) => self.press_change(name, text, press),
            None => self.press_plain(press),
        }
    }

    fn press_plain(&mut self, press: Press) -> Vec<Effect> {
        match press {
            Press::Char('q') => return vec![Effect::Quit],
            Press::Char('?') => self.shows_help = true,
            Press::Char('s') => return self.on_selected(Action::Start),
            Press::Char('x') => return self.on_selected(Action::Stop),
            Press::Char('r') => return self.on_selected(Action::Restart),
            Press::Char('v') => return self.on_selected(Action::Revive),
            Press::Char('k') => self.prompt = self.selected().cloned().map(Prompt::Kill),
            Press::Char('f') => return self.begin_fund(),
            Press::Char('c') => return self.begin_change(),
            Press::Char('a') => return self.attach(),
            Press::Char('w') => return self.toggle(Kind::Why),
            Press::Enter if self.focus == Focus::List => return self.toggle(Kind::Why),
            Press::Char('l') => return self.toggle(Kind::Logs),
            Press::Char('e') => return self.toggle(Kind::Events),
            Press::Tab if self.pane.is_some() => {
                self.focus = match self.focus {
                    Focus::List => Focus::Pane,
                    Focus::Pane => Focus::List,
                };
                self.is_zoomed &= self.focus == Focus::Pane;
            }
            Press::Char('z') if self.pane.is_some() => {
                self.is_zoomed = !self.is_zoomed;
                self.focus = Focus::Pane;
            }
            Press::Char('o') => {
                let (order, words) = match self.wish.order {
                    Order::Need => (Order::Name, "by name"),
                    Order::Name => (Order::Need, "what needs a look first"),
                };
                (self.wish.order, self.wish.tree) = (order, false);
                self.arrange();
                return self.say(format!("order: {words}"));
            }
            Press::Char('g') => {
                self.wish.tree = !self.wish.tree;
                self.arrange();
            }
            Press::Char('/') => {
                self.prompt = Some(match (&self.pane, self.focus) {
                    (Some(pane), Focus::Pane) => Prompt::Search(pane.search.clone()),
                    _ => Prompt::Filter { before: self.wish.filter.clone() },
                });
            }
            Press::Char(key @ ('n' | 'N')) => return self.seek(key == 'n'),
            Press::Escape => return self.back(),
            _ => return self.travel(press),
        }
        Vec::new()
    }

    /// Moves the selection, or scrolls the pane that has the focus.
    fn travel(&mut self, press: Press) -> Vec<Effect> {
        if let (Some(pane), Focus::Pane) = (&mut self.pane, self.focus) {
            match press {
                Press::Up => pane.up(1),
                Press::Down => pane.down(1),
                Press::PageUp => pane.up(pane.page()),
                Press::PageDown => pane.down(pane.page()),
                Press::Home => pane.up(usize::MAX / 2),
                Press::End => pane.down(usize::MAX),
                Press::Left => pane.step_left(),
                Press::Right => pane.step_right(),
                _ => {}
            }
            return Vec::new();
        }
        let at = self.position().unwrap_or(0);
        let page = self.height.saturating_sub(1).max(1);
        match press {
            Press::Up => self.select(at.saturating_sub(1)),
            Press::Down => self.select(at + 1),
            Press::PageUp => self.select(at.saturating_sub(page)),
            Press::PageDown => self.select(at + page),
            Press::Home => self.select(0),
            Press::End => self.select(usize::MAX),
            // Long lines are moved sideways wherever the focus is: the list has none.
            Press::Left | Press::Right => {
                if let Some(pane) = &mut self.pane {
                    if press == Press::Left { pane.step_left() } else { pane.step_right() }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// One step back: the search, then the pane, then the filter.
    fn back(&mut self) -> Vec<Effect> {
        match &mut self.pane {
            Some(pane) if !pane.search.is_empty() => {
                pane.search.clear();
                Vec::new()
            }
            Some(_) => self.close(),
            None => {
                self.wish.filter.clear();
                self.arrange();
                Vec::new()
            }
        }
    }

    fn toggle(&mut self, kind: Kind) -> Vec<Effect> {
        match &self.pane {
            Some(pane) if pane.kind == kind => self.close(),
            Some(_) | None => self.open(kind),
        }
    }

    fn press_filter(&mut self, before: String, press: Press) -> Vec<Effect> {
        match press {
            Press::Enter => return Vec::new(),
            Press::Escape => self.wish.filter.clone_from(&before),
            _ => {
                edit(&mut self.wish.filter, press);
                self.prompt = Some(Prompt::Filter { before });
            }
        }
        self.arrange();
        // What is typed narrows the list, and the pane with it.
        let at = self.position().unwrap_or(0);
        self.select(at)
    }

    fn press_search(&mut self, mut text: String, press: Press) -> Vec<Effect> {
        let Some(pane) = &mut self.pane else { return Vec::new() };
        match press {
            Press::Escape => {}
            Press::Enter => {
                pane.search = text;
                if !pane.search.is_empty() && !pane.seek_last() {
                    let text = format!("{:?} is not there", pane.search);
                    return self.say(text);
                }
            }
            _ => {
                edit(&mut text, press);
                self.prompt = Some(Prompt::Search(text));
            }
        }
        Vec::new()
    }

    fn seek(&mut self, is_up: bool) -> Vec<Effect> {
        let Some(pane) = self.pane.as_mut().filter(|pane| !pane.search.is_empty()) else {
            return self.say("/ searches in the pane that has the focus".to_owned());
        };
        if pane.seek(is_up) {
            return Vec::new();
        }
        let (text, way) = (pane.search.clone(), if is_up { "above" } else { "below" });
        self.say(format!("no more {text:?} {way}"))
    }

    fn begin_fund(&mut self) -> Vec<Effect> {
        let Some(agent) = self.selected_agent() else {
            return self.complain("select an agent to fund".to_owned());
        };
        self.prompt = Some(Prompt::Fund { name: agent.name.clone(), text: String::new() });
        Vec::new()
    }

    fn press_fund(&mut self, name: Name, mut text: String, press: Press) -> Vec<Effect> {
        match press {
            Press::Escape => self.say(format!("{name} was not funded")),
            Press::Enter => {
                let Some((amount, unit)) = amount(&text) else {
                    self.prompt = Some(Prompt::Fund { name, text });
                    return self.complain("an amount above zero and a unit".to_owned());
                };
                self.notice = Some((format!("fund {name}: asked"), false));
                vec![Effect::Fund { name, amount, unit }]
            }
            _ => {
                edit(&mut text, press);
                self.prompt = Some(Prompt::Fund { name, text });
                Vec::new()
            }
        }
    }

    fn begin_change(&mut self) -> Vec<Effect> {
        let Some(agent) = self.selected_agent() else {
            return self.complain("select an agent whose capabilities to change".to_owned());
        };
        self.prompt = Some(Prompt::Change { name: agent.name.clone(), text: String::new() });
        Vec::new()
    }

    fn press_change(&mut self, name: Name, mut text: String, press: Press) -> Vec<Effect> {
        match press {
            Press::Escape => self.say(format!("{name} may do what it could")),
            Press::Enter => {
                let (change, token) = match text.trim().strip_prefix('-') {
                    Some(token) => (CapabilityChange::Revoke, token.trim_start()),
                    None => (CapabilityChange::Grant, text.trim()),
                };
                if let Err(bad) = Capability::parse(token) {
                    self.prompt = Some(Prompt::Change { name, text });
                    return self.complain(bad.to_string());
                }
                self.notice = Some((format!("{} {name} {token}: asked", change.word()), false));
                vec![Effect::Change { name, change, token: token.to_owned() }]
            }
            _ => {
                edit(&mut text, press);
                self.prompt = Some(Prompt::Change { name, text });
                Vec::new()
            }
        }
    }

    fn attach(&mut self) -> Vec<Effect> {
        match self.selected_agent() {
            None => self.complain("select an agent to attach to".to_owned()),
            Some(agent) if !agent.pty => {
                let text = format!("{} has no terminal; `pty = true` gives it one", agent.name);
                self.complain(text)
            }
            Some(agent) => vec![Effect::Attach(agent.name.clone())],
        }
    }

    fn on_selected(&mut self, action: Action) -> Vec<Effect> {
        match self.selected().cloned() {
            Some(name) => self.ask(name, action, false),
            None => self.complain("there is no agent to do that to".to_owned()),
        }
    }

    fn ask(&mut self, name: Name, action: Action, kill: bool) -> Vec<Effect> {
        let word = if kill { "kill" } else { action.word() };
        self.notice = Some((format!("{word} {name}: asked"), false));
        vec![Effect::Act { name, action, kill }]
    }

    fn say(&mut self, text: String) -> Vec<Effect> {
        self.notice = Some((text, false));
        Vec::new()
    }

    fn complain(&mut self, text: String) -> Vec<Effect> {
        self.notice = Some((text, true));
        Vec::new()
    }
}

/// What a key does to a text that is being typed.
fn edit(text: &mut String, press: Press) {
    match press {
        Press::Char(character) => text.push(character),
        Press::Backspace => drop(text.pop()),
        Press::Erase => text.clear(),
        _ => {}
    }
}

/// An amount and its unit.
fn amount(text: &str) -> Option<(f64, String)> {
    let mut words = text.split_whitespace();
    let amount: f64 = words.next()?.parse().ok()?;
    let unit = words.next()?.to_owned();
    (words.next().is_none() && amount.is_finite() && amount > 0.0).then_some((amount, unit))
}
