//! How pieces of logs go over the socket: each with whose it is and where in that log it ends.
//!
//! A frame is a line, `NAME SEGMENT OFFSET LENGTH`, and so many bytes. Whoever reads frames takes them
//! whole or not at all, and so knows after a lost connection from where to go on.

use defib_core::Name;

use super::Place;

/// No head of a frame is as long as this: a name has at most 64 characters.
const LONGEST_HEAD: usize = 1024;

/// A piece of an agent's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Whose.
    pub agent: Name,
    /// Where it ends: from here on the log is to be read after it.
    pub end: Place,
    /// The piece.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The frame as it goes over the socket.
    pub fn encode(&self) -> Vec<u8> {
        let Place { segment, offset } = self.end;
        let head = format!("{} {segment} {offset} {}\n", self.agent, self.bytes.len());
        [head.as_bytes(), &self.bytes].concat()
    }
}

/// Frames out of what comes over the socket, however that is cut.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

/// What came is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFrame;

impl Frames {
    /// Takes what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has come.
    pub fn take(&mut self) -> Result<Option<Frame>, NoFrame> {
        let Some(head_len) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            let is_short = self.buffer.len() < LONGEST_HEAD;
            return if is_short { Ok(None) } else { Err(NoFrame) };
        };
        let (agent, end, length) = head(&self.buffer[..head_len]).ok_or(NoFrame)?;
        let whole = (head_len + 1).checked_add(length).ok_or(NoFrame)?;
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let rest = self.buffer.split_off(whole);
        let bytes = std::mem::replace(&mut self.buffer, rest).split_off(head_len + 1);
        Ok(Some(Frame { agent, end, bytes }))
    }
}

fn head(line: &[u8]) -> Option<(Name, Place, usize)> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let agent = Name::known(words.next()?).ok()?;
    let end = Place { segment: words.next()?.parse().ok()?, offset: words.next()?.parse().ok()? };
    let length = words.next()?.parse().ok()?;
    words.next().is_none().then_some((agent, end, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            pieces in proptest::collection::vec(
                ("([a-z]{1,3}[+/])?[a-z0-9._-]{1,9}x", any::<u64>(), any::<u64>(), any::<Vec<u8>>()), 0..6),
            cut in 1usize..50,
        ) {
            let frames: Vec<Frame> = pieces.into_iter().filter_map(|(name, segment, offset, bytes)| {
                let agent = Name::known(&name).ok()?;
                Some(Frame { agent, end: Place { segment, offset }, bytes })
            }).collect();
            let sent: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
            let (mut reader, mut come) = (Frames::default(), Vec::new());
            for part in sent.chunks(cut) {
                reader.push(part);
                while let Some(frame) = reader.take().unwrap() {
                    come.push(frame);
                }
            }
            prop_assert_eq!(come, frames);
        }

        #[test]
        fn any_bytes_give_a_frame_or_none_or_an_error(bytes in any::<Vec<u8>>()) {
            let mut reader = Frames::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.take() {}
        }
    }

    #[test]
    fn what_is_no_frame_is_said() {
        for text in [
            "a 1 2\n",
            "a 1 2 3 4\n",
            "a b 1 2 3\n",
            "a 1 2 -3\nxxx",
            "a 1 2 99999999999999999999\n",
        ] {
            let mut reader = Frames::default();
            reader.push(text.as_bytes());
            assert_eq!(reader.take(), Err(NoFrame), "{text:?}");
        }
    }
}
