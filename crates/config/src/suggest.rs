//! Near misses: the word somebody probably meant, and user text made fit for a message.
//!
//! A suggestion is made only where it is likely; none is better than a wild guess. Text from a file
//! is shown cut and without control characters, so that it cannot play with the terminal.

/// No word of ours is longer; comparing more would only cost time.
const LONGEST: usize = 64;

/// The longest stretch of user text that a message shows, in characters.
const SHOWN: usize = 60;

/// The candidate that a word was probably meant to be.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let folded = fold(word)?;
    let longest_way = (folded.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = fold(candidate)?;
            let way = strsim::damerau_levenshtein(&folded, &other);
            (way <= longest_way).then_some((way, candidate))
        })
        .min_by_key(|(way, _)| *way)
        .map(|(_, candidate)| candidate)
}

/// Capitals, `-` and `_` are no difference between what is written and what is meant.
fn fold(word: &str) -> Option<String> {
    (word.len() <= LONGEST).then(|| word.to_lowercase().replace('-', "_"))
}

/// Text from a file, in backquotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(visible).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

fn visible(c: char) -> Box<dyn Iterator<Item = char>> {
    if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) }
}

/// Words as a sentence lists them: `a`, `b` and `c`.
pub(crate) fn listed<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_suggested_and_far_ones_are_not() {
        let keys = ["command", "cwd", "env", "env_pass", "stop_timeout"];
        for (word, meant) in [
            ("comand", Some("command")),
            ("cmomand", Some("command")),
            ("env-pass", Some("env_pass")),
            ("Command", Some("command")),
            ("stoptimeout", Some("stop_timeout")),
            ("xyz", None),
            ("workingdirectory", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
        assert_eq!(nearest(&"command".repeat(100), keys), None);
    }

    #[test]
    fn user_text_cannot_play_with_the_terminal_and_is_cut() {
        assert_eq!(quoted("a\u{1b}[31m\n"), "`a\\u{1b}[31m\\n`");
        assert_eq!(quoted(&"é".repeat(61)), format!("`{}…`", "é".repeat(60)));
    }
}
