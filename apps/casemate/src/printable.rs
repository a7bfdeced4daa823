//! Text from elsewhere, made safe to print on a terminal.
//!
//! A name that a peer, a file or another process chose may contain control characters. Printed as they are,
//! they move the cursor, change colours, rename the window or reverse the direction of what follows. So they
//! are escaped wherever text is printed.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The text on one line: control characters, line breaks and characters that change direction become
/// `\u{..}`.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, write_escaped)
}

/// The same, but line breaks stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |sign| is_unsafe(sign) && sign != '\n', write_escaped)
}

/// Escapes every string in a value, keys too.
pub fn value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(line(&text).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(self::value).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(fields.map(|(name, item)| (line(&name).into_owned(), self::value(item))).collect())
        }
        other => other,
    }
}

/// A value as one line of JSON, with the characters that [`line()`] escapes in the form `\uXXXX` of JSON.
pub fn json(value: &Value) -> String {
    json_text(&value.to_string()).into_owned()
}

/// The same for what is one line of JSON already. Outside of strings JSON has no such characters.
pub fn json_text(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, |sign, escaped| {
        for unit in sign.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn escape(text: &str, is_bad: impl Fn(char) -> bool, write: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().saturating_add(16));
    for sign in text.chars() {
        if is_bad(sign) {
            write(sign, &mut escaped);
        } else {
            escaped.push(sign);
        }
    }
    Cow::Owned(escaped)
}

fn write_escaped(sign: char, text: &mut String) {
    text.extend(sign.escape_unicode());
}

/// Control characters (C0, DEL, C1), line and paragraph separators, marks and overrides of the writing
/// direction, and characters without width, which hide differences between names.
fn is_unsafe(sign: char) -> bool {
    sign.is_control()
        || matches!(sign, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(sign, '\u{ad}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\r\nb\x07\x7f\u{202e}\u{2028}c";

    #[test]
    fn no_unsafe_character_is_left() {
        for text in [line(HOSTILE), lines(HOSTILE)] {
            assert!(!text.contains(|sign| is_unsafe(sign) && sign != '\n'), "{text}");
        }
        assert_eq!(line("a\x1b[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(lines("a\x1b\nb"), "a\\u{1b}\nb");
        assert!(matches!(line("Grüße 会社 🙂"), Cow::Borrowed(_)), "text that is harmless stays as it is");
    }

    #[test]
    fn values_are_escaped_throughout_and_json_means_the_same() {
        let hostile = json!({"a\x1b": [HOSTILE, {"b": HOSTILE}], "n": 5});
        let shown = value(hostile.clone()).to_string();
        assert!(!shown.contains(is_unsafe), "{shown}");
        let text = json(&hostile);
        assert!(!text.contains(is_unsafe), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
    }
}
