//! `${NAME}` in a compose file: text with holes that a shell fills in the same way.

use super::phrase::{Launch, Phrase, identifier};

/// A text with `$NAME`, `${NAME:-default}` and the like; `$$` is a dollar. What is no such thing is
/// kept as it stands. The variables are passed on: needed where there is neither default nor error.
pub(super) fn phrase(text: &str, launch: &mut Launch) -> Phrase {
    let mut phrase = Phrase::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        phrase.push(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            phrase.push("$");
            rest = after;
            continue;
        }
        let plain = identifier(rest);
        if !plain.is_empty() {
            launch.pass(plain, false);
            phrase.push_hole(format!("${{{plain}}}"), None);
            rest = &rest[plain.len()..];
            continue;
        }
        let Some(inside) = rest.strip_prefix('{').and_then(braced) else {
            phrase.push("$");
            continue;
        };
        rest = &rest[inside.len() + 2..];
        hole(inside, &mut phrase, launch);
    }
    phrase.push(rest);
    phrase
}

/// What stands before the brace that closes this one.
fn braced(rest: &str) -> Option<&str> {
    let mut open = 1;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(&rest[..at]);
        }
    }
    None
}

fn hole(inside: &str, phrase: &mut Phrase, launch: &mut Launch) {
    let name = identifier(inside);
    let operator = &inside[name.len()..];
    let marks = [":-", "-", ":?", "?", ":+", "+"];
    let found = marks.iter().find_map(|mark| Some((*mark, operator.strip_prefix(mark)?)));
    if name.is_empty() || !operator.is_empty() && found.is_none() {
        phrase.push(&format!("${{{inside}}}"));
        return;
    }
    launch.pass(name, false);
    let Some((mark, word)) = found else {
        phrase.push_hole(format!("${{{name}}}"), None);
        return;
    };
    // What stands in a default may have holes of its own.
    let inner = self::phrase(word, launch);
    let default = mark.ends_with('-').then(|| inner.filled());
    let word: String = word
        .chars()
        .flat_map(|c| matches!(c, '"' | '`' | '\\').then_some('\\').into_iter().chain([c]))
        .collect();
    phrase.push_hole(format!("${{{name}{mark}{word}}}"), default);
}

#[cfg(test)]
mod tests {
    use super::super::phrase::Piece;
    use super::*;

    #[test]
    fn holes_are_those_of_compose() {
        for (text, told) in [
            ("a$$b", "a$b"),
            ("$A/x", "<${A}>/x"),
            ("${A}", "<${A}>"),
            ("${A:-b c}d", "<${A:-b c}>d"),
            ("${A:-${B:-c}}", "<${A:-${B:-c}}>"),
            ("${A:?must be set}", "<${A:?must be set}>"),
            ("$ 5 ${} ${A ${1}", "$ 5 ${} ${A ${1}"),
            ("${A-\"}", "<${A-\\\"}>"),
        ] {
            let show = |piece: &Piece| match piece {
                Piece::Plain(text) => text.clone(),
                Piece::Hole { shell, .. } => format!("<{shell}>"),
            };
            let phrase = phrase(text, &mut Launch::default());
            assert_eq!(phrase.0.iter().map(show).collect::<String>(), told, "{text}");
        }
        assert_eq!(phrase("${A:-${B:-c}}", &mut Launch::default()).filled(), "c");
    }
}
