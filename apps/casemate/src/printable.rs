//! Escapes untrusted text for terminals.
//!
//! A name that a peer, a file or another process chose may contain control characters. Printed unescaped,
//! they move the cursor, change colours, rename the window or reverse the direction of the following
//! text. All printed text is therefore escaped.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes text for one line: control characters, line breaks and characters that change the direction
/// become `\u{..}`.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, write_escaped)
}

/// Like [`line()`], but keeps line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| is_unsafe(character) && character != '\n', write_escaped)
}

/// Escapes every string in a JSON value, including keys.
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

/// Formats a value as one line of JSON. The characters that [`line()`] escapes become JSON's `\u` with four
/// hexadecimal digits.
pub fn json(value: &Value) -> String {
    json_text(&value.to_string()).into_owned()
}

/// Like [`json`] for text that is JSON already. Outside of strings JSON has none of these characters.
pub fn json_text(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe, |character, escaped| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn escape(text: &str, is_bad: impl Fn(char) -> bool, write: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().saturating_add(16));
    for character in text.chars() {
        if is_bad(character) {
            write(character, &mut escaped);
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

fn write_escaped(character: char, text: &mut String) {
    text.extend(character.escape_unicode());
}

/// Control characters (C0, DEL, C1), line and paragraph separators, marks and overrides of the writing
/// direction, and zero-width characters, which hide differences between names.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(character, '\u{ad}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\r\nb\x07\x7f\u{202e}\u{2028}c";

    #[test]
    fn unsafe_characters_are_escaped() {
        for text in [line(HOSTILE), lines(HOSTILE)] {
            assert!(!text.contains(|character| is_unsafe(character) && character != '\n'), "{text}");
        }
        assert_eq!(line("a\x1b[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(lines("a\x1b\nb"), "a\\u{1b}\nb");
        assert!(matches!(line("Grüße 会社 🙂"), Cow::Borrowed(_)), "harmless text is unchanged");
    }

    #[test]
    fn values_are_fully_escaped_and_json_keeps_its_meaning() {
        let hostile = json!({"a\x1b": [HOSTILE, {"b": HOSTILE}], "n": 5});
        let shown = value(hostile.clone()).to_string();
        assert!(!shown.contains(is_unsafe), "{shown}");
        let text = json(&hostile);
        assert!(!text.contains(is_unsafe), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
    }
}
