//! Numbered lines with a checksum, and a count of those that are missing, doubled or broken.

use std::collections::BTreeSet;
use std::fmt;

/// The longest filler of a line, in characters. Lengths differ so that lines end at every offset.
const LONGEST: u64 = 90;

/// The line with this number, without its end.
pub fn summed_line(number: u64) -> String {
    let length = number.wrapping_mul(2_654_435_761) % LONGEST;
    let filler: String =
        (0..length).map(|at| char::from(b'a' + ((number + at) % 26).to_le_bytes()[0])).collect();
    let text = format!("{number:010} {filler}");
    format!("{text} {:016x}", checksum(&text))
}

/// FNV-1a.
fn checksum(text: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What was found in a log that should have the lines 1 to `expected`, each once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCount {
    /// Lines that are there as they were written.
    pub whole: u64,
    /// Lines of which no whole copy is there.
    pub lost: u64,
    /// Further copies of a line.
    pub doubled: u64,
    /// Lines that no agent wrote in this form.
    pub broken: u64,
    /// Lines that come after a line with a higher number.
    pub late: u64,
}

impl LineCount {
    /// Counts the lines of a log. A terminal's lines end with a carriage return too.
    pub fn of(log: &str, expected: u64) -> LineCount {
        let (mut count, mut seen, mut highest) = (LineCount::default(), BTreeSet::new(), 0);
        for line in log.lines() {
            let number = line.get(..10).and_then(|text| text.parse::<u64>().ok());
            let Some(number) = number.filter(|number| summed_line(*number) == line) else {
                count.broken += 1;
                continue;
            };
            count.doubled += u64::from(!seen.insert(number));
            count.late += u64::from(number < highest);
            highest = highest.max(number);
        }
        count.whole = seen.len() as u64;
        count.lost = (1..=expected).filter(|number| !seen.contains(number)).count() as u64;
        count
    }

    /// Whether every line is there once, whole and in order.
    pub fn is_good(&self) -> bool {
        (self.lost, self.doubled, self.broken, self.late) == (0, 0, 0, 0)
    }
}

impl std::ops::AddAssign for LineCount {
    fn add_assign(&mut self, other: LineCount) {
        self.whole += other.whole;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.broken += other.broken;
        self.late += other.late;
    }
}

impl fmt::Display for LineCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LineCount { whole, lost, doubled, broken, late } = self;
        write!(f, "{whole} whole, {lost} lost, {doubled} doubled, {broken} broken, {late} late")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_damage_is_counted() {
        let lines: Vec<String> = (1..=9).map(summed_line).collect();
        let text = |order: &[usize]| -> String {
            order.iter().map(|at| format!("{}\r\n", lines[at - 1])).collect()
        };
        assert!(LineCount::of(&text(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 9).is_good());
        let damaged = format!("{}{}", text(&[1, 2, 2, 5, 4]), &lines[5][..20]);
        let count = LineCount::of(&damaged, 6);
        let expected = LineCount { whole: 4, lost: 2, doubled: 1, broken: 1, late: 1 };
        assert_eq!(count, expected);
    }
}
