//! What aider says it used: a line for people after each message, with the tokens of the message and
//! the cost of the message and of the session. The cost may stand on a line of its own.

use super::{Running, Used};

#[derive(Debug, Default)]
pub(super) struct Tally {
    tokens: f64,
    cost: Running,
}

impl Tally {
    pub(super) fn take(&mut self, line: &str) {
        let line = plain(line);
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Tokens: ") {
            self.take_tokens(rest.split(". ").next().unwrap_or(rest).trim_end_matches('.'));
            if let Some((_, cost)) = rest.split_once(" Cost: ") {
                self.take_cost(cost);
            }
        } else if let Some(cost) = line.strip_prefix("Cost: ") {
            self.take_cost(cost);
        }
    }

    /// `4.2k sent, 1.1k received`. What was cached is part of what was sent.
    fn take_tokens(&mut self, text: &str) {
        for part in text.split(", ") {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            if matches!(word.trim(), "sent" | "received") {
                self.tokens += short(number).unwrap_or(0.0);
            }
        }
    }

    /// `$0.02 message, $0.05 session.`
    fn take_cost(&mut self, text: &str) {
        for part in text.split(", ") {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            let cost = number.strip_prefix('$').and_then(short);
            if let (Some(cost), "session") = (cost, word.trim_end_matches('.').trim()) {
                self.cost.take(Some("session"), cost);
            }
        }
    }

    pub(super) fn used(&self) -> Used {
        Used { tokens: self.tokens, usd: self.cost.total(), estimated: 0.0 }
    }
}

/// `4.2k`, `1.5M`, `1,234`.
fn short(text: &str) -> Option<f64> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',')) {
        return None;
    }
    digits.replace(',', "").parse::<f64>().ok().map(|number| number * times)
}

/// A line without what colours it.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            text.push(character);
            continue;
        }
        // A sequence ends with a letter; what is none ends at once.
        if characters.next() == Some('[') {
            for character in characters.by_ref() {
                if character.is_ascii_alphabetic() {
                    break;
                }
            }
        }
    }
    text
}
