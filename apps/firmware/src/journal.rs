//! Lines for the console, as many as it has time for: strangers decide how often something is worth a line, and a serial line is
//! slow.

use alloc::format;
use alloc::string::String;
use smoltcp::time::Instant;

/// Lines in a second.
const LINES: u32 = 20;

/// What was told in the present second.
#[derive(Debug, Default)]
pub struct Journal {
    second: i64,
    told: u32,
    left_out: u32,
}

impl Journal {
    /// Says a line, unless there were many in this second already. What was left out is counted, and said by the next line.
    pub fn tell(&mut self, now: Instant, line: String, mut say: impl FnMut(&str)) {
        if now.secs() != self.second {
            let left_out = self.left_out;
            *self = Self { second: now.secs(), ..Self::default() };
            if left_out > 0 {
                say(&format!("{left_out} lines were left out"));
            }
        }
        if self.told < LINES {
            self.told = self.told.saturating_add(1);
            say(&line);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn a_flood_of_lines_is_cut_and_counted() {
        let (mut journal, mut said) = (Journal::default(), Vec::new());
        for at in [100, 1_100] {
            for number in 0..50 {
                let now = Instant::from_millis(at + number);
                journal.tell(now, number.to_string(), |line| said.push(line.to_string()));
            }
        }
        assert_eq!(said.len(), 41);
        assert_eq!((said[0].as_str(), said[19].as_str()), ("0", "19"));
        assert_eq!((said[20].as_str(), said[21].as_str()), ("30 lines were left out", "0"));
    }
}
