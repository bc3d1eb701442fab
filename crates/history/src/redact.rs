//! Redaction: values that must not be stored are taken out of what is.
//!
//! Whoever knows a secret names it; nothing is guessed. Every occurrence goes, also where several
//! overlap, and also the part of one that a cut left. Of a secret of several lines, such as a private
//! key, each line is one by itself: a terminal ends lines differently, and a program may write some of
//! them only.
//!
//! Time and memory are linear in the secrets and in the text, and bounded: a long secret is looked for in
//! pieces, and with more than a mebibyte of secrets the whole text is one.

use std::borrow::Cow;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What stands where a secret was.
const MASK: &str = "[redacted]";
/// A shorter value is found in ordinary text too often to be a secret.
const SHORTEST: usize = 6;
/// A shorter line of a longer secret is the brace or the word that many texts have.
const SHORTEST_LINE: usize = 8;
/// The shortest part of a secret that is taken out where a cut left it.
const SHORTEST_REST: usize = 4;
/// A longer secret is looked for in pieces of this length, in bytes. Comparing the ends of a text with the
/// parts of a piece takes time that is quadratic in this.
const PIECE: usize = 256;
/// The most bytes of secrets that are looked for.
const MOST_BYTES: usize = 1 << 20;

/// Takes the secrets out of a text. For many texts, make a [`Redactor`] once.
pub fn redact<'t>(text: &'t str, secrets: &[String]) -> Cow<'t, str> {
    Redactor::new(secrets).text(text)
}

/// Takes a set of secrets out of texts.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    secrets: Vec<Vec<u8>>,
    finder: Finder,
}

#[derive(Debug, Clone, Default)]
enum Finder {
    #[default]
    Nothing,
    Some(AhoCorasick),
    /// There are too many secrets to look for: everything is one.
    Everything,
}

impl Redactor {
    /// One for these secrets. Values of less than six bytes are not looked for, nor are lines of less
    /// than eight by themselves.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S]) -> Redactor {
        let whole = secrets.iter().map(AsRef::as_ref).filter(|secret| secret.len() >= SHORTEST);
        let parts = whole.flat_map(|secret| lines_of(secret).chain([secret])).flat_map(pieces_of);
        let mut secrets: Vec<&[u8]> = parts.collect();
        secrets.sort_unstable();
        secrets.dedup();
        let bytes: usize = secrets.iter().map(|secret| secret.len()).sum();
        // The other kinds take memory for every byte value in every state.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let finder = match bytes {
            0 => Finder::Nothing,
            1..=MOST_BYTES => AhoCorasick::builder()
                .kind(kind)
                .build(&secrets)
                .map_or(Finder::Everything, Finder::Some),
            _ => Finder::Everything,
        };
        Redactor { secrets: secrets.into_iter().map(<[u8]>::to_vec).collect(), finder }
    }

    /// One that takes everything out: for texts with secrets that are not known.
    pub fn everything() -> Redactor {
        Redactor { secrets: Vec::new(), finder: Finder::Everything }
    }

    /// Whether it takes everything out.
    pub fn hides_everything(&self) -> bool {
        matches!(self.finder, Finder::Everything)
    }

    /// The text without the secrets.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A secret may begin or end inside a character where it is no text itself.
            Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }),
        }
    }

    /// The bytes without the secrets.
    pub fn bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        match &self.finder {
            Finder::Nothing => Cow::Borrowed(bytes),
            Finder::Everything => Cow::Owned(MASK.into()),
            Finder::Some(finder) => {
                let found = finder.find_overlapping_iter(bytes).map(|found| found.range());
                mask(bytes, merged(found.collect()))
            }
        }
    }

    /// A piece of a longer text without the secrets, and without what cuts left of one at its ends.
    pub fn piece(&self, text: &str) -> String {
        let clean = self.without_end(&self.text(text));
        let bytes = clean.as_bytes();
        match self.secrets.iter().filter_map(|secret| rest_at_front(bytes, secret)).max() {
            Some(rest) => format!("{MASK}{}", String::from_utf8_lossy(&bytes[rest..])),
            None => clean,
        }
    }

    /// The beginning of a text, at most `max` characters of it, without the secrets: they are taken
    /// out before it is cut. Whoever made a text longer than that may have cut it already.
    pub fn beginning(&self, text: &str, max: usize) -> String {
        let is_long = text.chars().nth(max).is_some();
        let clean = self.text(text);
        let clean = if is_long { Cow::Owned(self.without_end(&clean)) } else { clean };
        clean.chars().take(max).collect()
    }

    /// The text without the beginning of a secret that a cut left at its end.
    fn without_end(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        match self.secrets.iter().filter_map(|secret| beginning_at_end(bytes, secret)).max() {
            Some(long) => {
                format!("{}{MASK}", String::from_utf8_lossy(&bytes[..bytes.len() - long]))
            }
            None => text.to_owned(),
        }
    }

    /// The end of an output, at most `max` bytes of it, without the secrets and without what a cut
    /// left of one at its front.
    pub fn tail(&self, output: &[u8], max: usize) -> Vec<u8> {
        let clean = self.bytes(output);
        let cut = clean.len().saturating_sub(max);
        let tail = &clean[cut..];
        // The caller may have cut already, so the front is looked at in any case.
        let rest = self.secrets.iter().filter_map(|secret| rest_at_front(tail, secret)).max();
        tail[rest.unwrap_or(0)..].to_vec()
    }
}

/// A secret in pieces that cover it; one that is short enough is a piece itself.
fn pieces_of(secret: &[u8]) -> impl Iterator<Item = &[u8]> {
    // The last piece ends with the secret and is not shorter than the others.
    let last = &secret[secret.len().saturating_sub(PIECE)..];
    secret.chunks_exact(PIECE).chain([last])
}

/// The lines of a secret that has several, where they are long enough to be secrets by themselves. An
/// environment file has a line break written as `\n`, and so has JSON.
fn lines_of(secret: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(secret);
    let lines = std::iter::from_fn(move || {
        let text = rest?;
        let real = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map(|at| (at, 1));
        let written = text.windows(2).position(|pair| pair == br"\n").map(|at| (at, 2));
        let (line, next) = match real.into_iter().chain(written).min() {
            Some((at, long)) => (&text[..at], Some(&text[at + long..])),
            None => (text, None),
        };
        rest = next;
        Some(line.trim_ascii())
    });
    lines.filter(|line| line.len() >= SHORTEST_LINE)
}

/// How long the longest beginning of the secret is that the text ends with.
fn beginning_at_end(text: &[u8], secret: &[u8]) -> Option<usize> {
    (SHORTEST_REST..secret.len()).rev().find(|long| text.ends_with(&secret[..*long]))
}

/// How long the longest end of the secret is that the tail begins with.
fn rest_at_front(tail: &[u8], secret: &[u8]) -> Option<usize> {
    (SHORTEST_REST..secret.len())
        .rev()
        .find(|rest| tail.starts_with(&secret[secret.len() - rest..]))
}

/// Ranges in order, those that touch made one.
fn merged(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in found {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => merged.push(range),
        }
    }
    merged
}

fn mask(bytes: &[u8], secrets: Vec<Range<usize>>) -> Cow<'_, [u8]> {
    if secrets.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let mut clean = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for Range { start, end } in secrets {
        clean.extend_from_slice(&bytes[at..start]);
        clean.extend_from_slice(MASK.as_bytes());
        at = end;
    }
    clean.extend_from_slice(&bytes[at..]);
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(text: &str, secrets: &[&str]) -> String {
        let secrets: Vec<String> = secrets.iter().map(|secret| String::from(*secret)).collect();
        redact(text, &secrets).into_owned()
    }

    #[test]
    fn a_secret_goes_wherever_it_stands_and_however_often() {
        for (text, secrets, clean) in [
            ("nothing here", &["sk-123456"][..], "nothing here"),
            ("sk-123456", &["sk-123456"], "[redacted]"),
            ("a sk-123456 b sk-123456", &["sk-123456"], "a [redacted] b [redacted]"),
            ("key=.*+?^$(x)|[y]\\d!", &[".*+?^$(x)|[y]\\d"], "key=[redacted]!"),
            ("xabcdefghix", &["abcdef", "defghi"], "x[redacted]x"),
            ("xabcdefx", &["abcdefx", "bcdefx", "abcdef"], "x[redacted]"),
            ("aaaaaaaaaaaa", &["aaaaaa"], "[redacted]"),
            ("pässwört!", &["pässwört"], "[redacted]!"),
            ("short 12345 stays", &["12345", ""], "short 12345 stays"),
        ] {
            assert_eq!(with(text, secrets), clean, "{text}");
        }
    }

    #[test]
    fn text_without_a_secret_is_not_copied() {
        assert!(matches!(redact("plain", &["secret-value".into()]), Cow::Borrowed(_)));
    }

    #[test]
    fn the_end_of_a_secret_that_a_cut_left_goes_as_well() {
        let redactor = Redactor::new(&["sk-verysecretvalue"]);
        assert_eq!(redactor.tail(b"sk-verysecretvalue\nend\n", 8), b"ed]\nend\n");
        assert_eq!(redactor.tail(b"secretvalue\nend\n", 100), b"\nend\n");
        assert_eq!(redactor.tail(b"value of it\n", 100), b" of it\n");
    }

    #[test]
    fn what_a_cut_left_of_a_secret_goes_at_both_ends_of_a_piece() {
        let redactor = Redactor::new(&["sk-verysecretvalue"]);
        for (piece, clean) in [
            ("allow sk-verys", "allow [redacted]"),
            ("cretvalue to be used?", "[redacted] to be used?"),
            ("allow sk-verysecretvalue?", "allow [redacted]?"),
            ("allow sk-?", "allow sk-?"),
            ("verysecretvalue sk-very", "[redacted] [redacted]"),
        ] {
            assert_eq!(redactor.piece(piece), clean, "{piece}");
        }
    }

    #[test]
    fn secrets_go_before_a_beginning_is_cut_off() {
        let redactor = Redactor::new(&["sk-verysecretvalue"]);
        assert_eq!(redactor.beginning("key sk-verysecretvalue", 8), "key [red");
        assert_eq!(redactor.beginning("key sk-verysecretvalue", 100), "key [redacted]");
        // It was cut before, and gets shorter than what may be kept.
        assert_eq!(
            redactor.beginning("sk-verysecretvalue sk-verysecret", 25),
            "[redacted] [redacted]"
        );
        assert_eq!(redactor.beginning("the end is sk-very", 100), "the end is sk-very");
    }

    #[test]
    fn each_line_of_a_secret_of_several_is_one() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQ\r\n}\nend\n";
        let written = "first-part\\nsecond-part";
        let redactor = Redactor::new(&[key, written]);
        for (text, clean) in [
            (key, "[redacted]"),
            ("MIIEvQIBADANBg\r\nkqhkiG9w0BAQ\r\n", "[redacted]\r\n[redacted]\r\n"),
            ("a }\nb end\n", "a }\nb end\n"),
            ("first-part\nsecond-part", "[redacted]\n[redacted]"),
        ] {
            assert_eq!(redactor.text(text), clean, "{text}");
        }
        assert_eq!(redactor.tail(b"QIBADANBg\r\nbye", 100), b"\r\nbye");
    }

    #[test]
    fn long_secret_goes_as_a_whole_and_where_a_cut_left_a_part() {
        let numbers: String = (0..2000).map(|number| format!("{number:05}")).collect();
        for secret in ["a".repeat(200_000), numbers, "ab".repeat(70_001)] {
            let redactor = Redactor::new(&[&secret]);
            assert_eq!(redactor.text(&format!("x {secret} y")), "x [redacted] y");
            let half = secret.len() / 2;
            let cut = redactor.piece(&format!("x {}", &secret[..half]));
            assert!(cut.replace(MASK, "").len() < "x ".len() + SHORTEST_REST, "{cut}");
            let tail = redactor.tail(&secret.as_bytes()[half..], 1 << 20);
            let left = String::from_utf8_lossy(&tail).replace(MASK, "");
            assert!(left.len() < SHORTEST_REST, "{left}");
        }
    }

    #[test]
    fn with_too_many_bytes_of_secrets_everything_is_one() {
        let secrets: Vec<String> = (0..9000).map(|number| format!("{number:0200}")).collect();
        assert_eq!(redact("plain text", &secrets), MASK);
    }

    /// Goal: no secret takes time or memory beyond its length. Method: the two causes of such costs are
    /// looked for: long patterns, whose ends are compared in quadratic time, and a table for all byte values.
    #[test]
    fn long_secret_is_looked_for_in_short_pieces_and_without_a_table() {
        for secret in ["a".repeat(200_000), (0..40_000).map(|n| format!("{n:05}")).collect()] {
            let redactor = Redactor::new(&[&secret]);
            assert!(redactor.secrets.iter().all(|piece| piece.len() <= PIECE));
            let bytes: usize = redactor.secrets.iter().map(Vec::len).sum();
            assert!(bytes <= secret.len() + PIECE, "{bytes}");
            let Finder::Some(finder) = &redactor.finder else { panic!("{:?}", redactor.finder) };
            assert_eq!(finder.kind(), AhoCorasickKind::ContiguousNFA);
        }
    }

    #[test]
    fn a_megabyte_of_near_misses_takes_one_pass() {
        let secrets: Vec<String> = (6..60).map(|n| "a".repeat(n) + "b").collect();
        let text = "a".repeat(1 << 20);
        let began = std::time::Instant::now();
        assert_eq!(redact(&text, &secrets), text);
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn no_secret_is_left(
            parts in proptest::collection::vec("[ab]{0,9}", 0..20),
            secrets in proptest::collection::vec("[ab]{6,8}", 1..4),
        ) {
            let clean = redact(&parts.concat(), &secrets).into_owned();
            for secret in &secrets {
                prop_assert!(!clean.contains(secret.as_str()));
            }
        }
    }
}
