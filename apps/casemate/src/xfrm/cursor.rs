//! A cursor over the words of one command, with readers for the values that all commands share.

use super::LineProblem;
use super::words::Word;
use casemate_sa::{AddrRange, Mode, Protocol};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

/// Maximum length of a word in a message: long enough for every name, address and number, too short for a
/// key in the wrong place.
const MAX_SHOWN_LEN: usize = 49;
const MAX_SHOWN_HEX_LEN: usize = 18;

/// A command being read.
pub(super) struct Cursor<'a> {
    words: &'a [Word<'a>],
    next: usize,
    /// Index of the key that was read last.
    key: Option<usize>,
}

/// Unsigned integer types.
pub(super) trait Number: TryFrom<u64> {
    /// Largest value.
    const MAX: u64;
}

impl Number for u8 {
    const MAX: u64 = 0xFF;
}

impl Number for u16 {
    const MAX: u64 = 0xFFFF;
}

impl Number for u32 {
    const MAX: u64 = 0xFFFF_FFFF;
}

impl Number for u64 {
    const MAX: u64 = u64::MAX;
}

impl<'a> Cursor<'a> {
    /// Starts at the first word of a command.
    pub(super) fn new(words: &'a [Word<'a>]) -> Self {
        Self { words, next: 0, key: None }
    }

    /// The next word, without taking it.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|word| word.text)
    }

    /// Takes the next word.
    pub(super) fn take(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.next = self.next.saturating_add(1);
        Some(word)
    }

    /// Takes the next word if `wanted` accepts it.
    pub(super) fn take_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        if wanted(self.peek()?) { self.take() } else { None }
    }

    /// Takes the word that must follow the last one.
    pub(super) fn value(&mut self, expected: &str) -> Result<&'a str, LineProblem> {
        match self.take() {
            Some(word) => Ok(word),
            None => {
                Err(self.problem(format!("the command ends after {}: {expected} was expected", self.shown())))
            }
        }
    }

    /// Takes a key. No message shows it.
    pub(super) fn key(&mut self) -> Result<&'a str, LineProblem> {
        let key = self.value("a key")?;
        self.key = self.next.checked_sub(1);
        Ok(key)
    }

    /// A problem at the last word.
    pub(super) fn problem(&self, text: impl Into<String>) -> LineProblem {
        LineProblem::new(self.line(), text)
    }

    /// A problem with the value that was taken last: `VALUE after KEY: EXPECTED was expected`.
    pub(super) fn unexpected(&self, expected: impl Display) -> LineProblem {
        let (key, value) = (self.shown_before(2), self.shown());
        self.problem(format!("{value} after {key}: {expected} was expected"))
    }

    /// The last word, quoted for a message.
    pub(super) fn shown(&self) -> String {
        self.shown_before(1)
    }

    /// A word, quoted for a message. A key is not shown, nor a word that may be a key in the wrong place.
    fn shown_before(&self, count: usize) -> String {
        match self.before(count) {
            _ if self.key.is_some() && self.key == self.next.checked_sub(count) => "the key".into(),
            word if word.len() > MAX_SHOWN_LEN || (word.contains("0x") && word.len() > MAX_SHOWN_HEX_LEN) => {
                format!("a word of {} characters", word.len())
            }
            word => format!("`{word}`"),
        }
    }

    /// Takes the next word and returns a problem at it.
    pub(super) fn problem_at_next(&mut self, text: impl Into<String>) -> LineProblem {
        self.take();
        self.problem(text)
    }

    /// The line of the last word.
    pub(super) fn line(&self) -> usize {
        self.word_before(1).or(self.words.first().copied()).map_or(1, |word| word.line)
    }

    /// The text of the last word.
    pub(super) fn last(&self) -> &'a str {
        self.before(1)
    }

    fn before(&self, count: usize) -> &'a str {
        self.word_before(count).map_or("", |word| word.text)
    }

    fn word_before(&self, count: usize) -> Option<Word<'a>> {
        self.words.get(self.next.checked_sub(count)?).copied()
    }

    /// Takes a number.
    pub(super) fn number<N: Number>(&mut self) -> Result<N, LineProblem> {
        let word = self.value("a number")?;
        self.number_in(word).ok_or_else(|| self.unexpected(format_args!("a number from 0 to {}", N::MAX)))
    }

    /// Parses `word` as a number; `None` if it is malformed or too large.
    pub(super) fn number_in<N: Number>(&self, word: &str) -> Option<N> {
        number(word).and_then(|value| N::try_from(value).ok())
    }

    /// Takes a single address. As in iproute2, a prefix length after it is allowed and ignored.
    pub(super) fn addr(&mut self) -> Result<IpAddr, LineProblem> {
        self.value("an IP address")?;
        self.addr_in_last()
    }

    /// Parses the last word as an address.
    pub(super) fn addr_in_last(&self) -> Result<IpAddr, LineProblem> {
        let (addr, _) =
            split_prefix(self.last()).ok_or_else(|| self.unexpected("an IPv4 or IPv6 address"))?;
        Ok(addr)
    }

    /// Takes an address or a prefix.
    pub(super) fn prefix(&mut self) -> Result<AddrRange, LineProblem> {
        let word = self.value("an address or prefix")?;
        prefix(word).ok_or_else(|| self.unexpected("an address or a prefix such as 10.1.0.0/16 or fd00::/64"))
    }

    /// Takes `esp` or `ah`.
    pub(super) fn ipsec_protocol(&mut self) -> Result<Protocol, LineProblem> {
        match self.value("esp or ah")? {
            "esp" => Ok(Protocol::Esp),
            "ah" => Ok(Protocol::Ah),
            other @ ("comp" | "route2" | "hao") => {
                Err(self.problem(format!("`proto {other}` is not supported: esp or ah was expected")))
            }
            _ => Err(self.unexpected("esp or ah")),
        }
    }

    /// Takes `transport` or `tunnel`.
    pub(super) fn mode(&mut self) -> Result<Mode, LineProblem> {
        match self.value("transport or tunnel")? {
            "transport" => Ok(Mode::Transport),
            "tunnel" => Ok(Mode::Tunnel),
            other @ ("beet" | "ro" | "in_trigger") => {
                Err(self
                    .problem(format!("`mode {other}` is not supported: transport or tunnel was expected")))
            }
            _ => Err(self.unexpected("transport or tunnel")),
        }
    }
}

/// Stores the value of a word; a second value is an error.
pub(super) fn set_once<T>(
    slot: &mut Option<T>,
    value: T,
    key: &str,
    cursor: &Cursor<'_>,
) -> Result<(), LineProblem> {
    if slot.replace(value).is_some() {
        return Err(cursor.problem(format!("`{key}` is given twice: one was expected")));
    }
    Ok(())
}

/// Parses a number in one of the bases of `strtoul`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Parses an address or a prefix.
pub(crate) fn prefix(text: &str) -> Option<AddrRange> {
    let (addr, len) = split_prefix(text)?;
    match len {
        Some(len) => AddrRange::prefix(addr, len).ok(),
        None => Some(AddrRange::single(addr)),
    }
}

/// Parses an address with an optional prefix length or netmask.
fn split_prefix(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let Some((addr, len)) = text.split_once('/') else {
        return Some((address(text)?, None));
    };
    let addr = address(addr)?;
    let len = match (number(len), len.parse::<Ipv4Addr>()) {
        (Some(len), _) => u8::try_from(len).ok()?,
        (None, Ok(mask)) if addr.is_ipv4() => netmask(mask)?,
        _ => return None,
    };
    Some((addr, Some(len)))
}

/// Parses an address. As in iproute2, trailing zero bytes of IPv4 may be missing (`10.1` is 10.1.0.0).
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(addr) = text.parse() {
        return Some(addr);
    }
    let parts = text.split('.').count();
    let missing = 4usize.checked_sub(parts)?;
    format!("{text}{}", ".0".repeat(missing)).parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// The prefix length of a netmask such as 255.255.0.0.
fn netmask(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let len = bits.leading_ones();
    if len.checked_add(bits.trailing_zeros()).is_some_and(|sum| sum >= 32) {
        u8::try_from(len).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_syntax_of_strtoul() {
        for (text, value) in [("0", 0), ("7", 7), ("0x10", 16), ("0XfF", 255), ("010", 8), ("00", 0)] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in ["", "-1", "+1", "0x", "0x+1", "08", "1k", "99999999999999999999"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_and_prefixes() {
        let ok = |text: &str| split_prefix(text).map(|(addr, len)| (addr.to_string(), len));
        assert_eq!(ok("10.1/16"), Some(("10.1.0.0".into(), Some(16))));
        assert_eq!(ok("10.1.2.3"), Some(("10.1.2.3".into(), None)));
        assert_eq!(ok("10.0.0.0/255.255.0.0"), Some(("10.0.0.0".into(), Some(16))));
        assert_eq!(ok("0.0.0.0/0.0.0.0"), Some(("0.0.0.0".into(), Some(0))));
        assert_eq!(ok("fd00::/8"), Some(("fd00::".into(), Some(8))));
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/255.0.255.0",
            "fd00::/255.0.0.0",
            "1.2.3.4.5",
            "any",
            "10.0.0.0/300",
        ] {
            assert_eq!(ok(text), None, "{text}");
        }
    }
}
