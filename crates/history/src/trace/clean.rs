//! Output as lines of text: no terminal escapes, no control characters, no half characters.

/// The lines of an output. A lone carriage return ends a line as well, as a progress bar means it.
pub(crate) fn lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => lines.push(std::mem::take(&mut line)),
            // A PTY writes `\r\r\n` for a program that wrote `\r\n` itself.
            '\r' => {
                while chars.next_if_eq(&'\r').is_some() {}
                if chars.peek() != Some(&'\n') {
                    lines.push(std::mem::take(&mut line));
                }
            }
            '\x1b' => skip_escape(&mut chars),
            '\t' => line.push('\t'),
            other if other.is_control() => {}
            other => line.push(other),
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Goes past an escape sequence. One that does not end on its line ends with it.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            while chars.next_if(|c| matches!(c, '\x20'..='\x3f')).is_some() {}
            chars.next_if(|c| matches!(c, '\x40'..='\x7e'));
        }
        // A command to the terminal with a text, ended by a bell or by `ESC \`.
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next_if(|c| *c != '\n') {
                if c == '\x07' {
                    return;
                }
                if c == '\x1b' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some(c) if !c.is_control() => drop(chars.next()),
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_not_show_is_gone() {
        for (output, clean) in [
            (&b"a\nb"[..], &["a", "b"][..]),
            (b"a\r\nb\r\r\n", &["a", "b"]),
            (b"10%\r20%\rdone\n", &["10%", "20%", "done"]),
            (b"\x1b[1;31mred\x1b[0m x\x1b[K", &["red x"]),
            (b"\x1b]0;title\x07text", &["text"]),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", &["link"]),
            (b"\x1b]never ends\nnext", &["", "next"]),
            (b"\x1b", &[]),
            (b"\x1b[", &[]),
            (b"\xff\tx\0\x08", &["\u{fffd}\tx"]),
        ] {
            assert_eq!(lines(output), clean, "{:?}", String::from_utf8_lossy(output));
        }
    }
}
