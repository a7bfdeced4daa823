//! Messages of vici: sections, lists and key-values, each with a name.
//!
//! The format is that of strongSwan's vici plugin (README.md there, "Message format"): a type of one byte,
//! a name with a length of one byte, a value with a length of two bytes. A message ends with its packet.
//! Limits: [`MAX_DEPTH`] nested sections; [`super::packet`] limits the length.

use std::fmt;
use zeroize::Zeroizing;

/// Maximum depth of nested sections. The deepest request has four.
pub const MAX_DEPTH: usize = 16;

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

/// The bytes of a value, which may be a secret.
pub type Bytes = Zeroizing<Vec<u8>>;

/// The elements of a message, or of a section in it, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section(pub Vec<Element>);

/// A named element.
#[derive(Clone, PartialEq, Eq)]
pub enum Element {
    /// A nested section.
    Section(String, Section),
    /// A key with a value.
    Value(String, Bytes),
    /// A list of values.
    List(String, Vec<Bytes>),
}

impl fmt::Debug for Element {
    /// Writes no value, because it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(name, section) => f.debug_tuple(name).field(section).finish(),
            Self::Value(name, value) => write!(f, "{name} = {} bytes", value.len()),
            Self::List(name, items) => write!(f, "{name} = {} items", items.len()),
        }
    }
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    /// An element ends after the message, or a section or list is not closed.
    Truncated,
    /// An element has an unknown type, or stands where its type may not.
    UnexpectedType(u8),
    /// A name is empty or not UTF-8.
    Name,
    /// More than [`MAX_DEPTH`] sections are nested.
    Depth,
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message ends inside an element, a section or a list"),
            Self::UnexpectedType(kind) => write!(f, "an element of type {kind} is not allowed here"),
            Self::Name => f.write_str("a name is empty or not UTF-8"),
            Self::Depth => write!(f, "more than {MAX_DEPTH} sections are nested"),
        }
    }
}

impl std::error::Error for MessageFault {}

impl Section {
    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut reader = Reader { rest: bytes };
        let mut enclosing: Vec<(String, Self)> = Vec::new();
        let mut section = Self::default();
        while let Some(kind) = reader.take_type() {
            match kind {
                SECTION_START if enclosing.len() >= MAX_DEPTH => return Err(MessageFault::Depth),
                SECTION_START => enclosing.push((reader.name()?, std::mem::take(&mut section))),
                SECTION_END => {
                    let (name, around) = enclosing.pop().ok_or(MessageFault::UnexpectedType(kind))?;
                    let closed = std::mem::replace(&mut section, around);
                    section.0.push(Element::Section(name, closed));
                }
                KEY_VALUE => section.0.push(Element::Value(reader.name()?, reader.value()?)),
                LIST_START => section.0.push(Element::List(reader.name()?, reader.items()?)),
                _ => return Err(MessageFault::UnexpectedType(kind)),
            }
        }
        if enclosing.is_empty() { Ok(section) } else { Err(MessageFault::Truncated) }
    }

    /// The value of a key as text; `None` if there is no such key, or its value is not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.value(name)?).ok()
    }

    /// The value of a key.
    pub fn value(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find_map(|element| match element {
            Element::Value(key, value) if key == name => Some(value),
            _ => None,
        })
    }

    /// The items of a list; empty if there is no such list.
    pub fn list(&self, name: &str) -> &[Bytes] {
        let found = self.0.iter().find_map(|element| match element {
            Element::List(key, items) if key == name => Some(items),
            _ => None,
        });
        found.map_or(&[], Vec::as_slice)
    }

    /// The nested sections, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|element| match element {
            Element::Section(name, section) => Some((name.as_str(), section)),
            _ => None,
        })
    }

    /// Whether a key has one of the values that mean yes: strongSwan's words.
    pub fn is_true(&self, name: &str) -> bool {
        let words = ["yes", "true", "enabled", "1"];
        self.text(name).is_some_and(|text| words.iter().any(|word| word.eq_ignore_ascii_case(text)))
    }
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take_type(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], MessageFault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(MessageFault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn name(&mut self) -> Result<String, MessageFault> {
        let len = self.take_type().ok_or(MessageFault::Truncated)?;
        let name = str::from_utf8(self.take(len.into())?).map_err(|_| MessageFault::Name)?;
        if name.is_empty() { Err(MessageFault::Name) } else { Ok(name.to_owned()) }
    }

    fn value(&mut self) -> Result<Bytes, MessageFault> {
        let len = *self.take(2)?.as_array().ok_or(MessageFault::Truncated)?;
        Ok(Zeroizing::new(self.take(u16::from_be_bytes(len).into())?.to_vec()))
    }

    /// The items of a list, up to its end.
    fn items(&mut self) -> Result<Vec<Bytes>, MessageFault> {
        let mut items = Vec::new();
        loop {
            match self.take_type().ok_or(MessageFault::Truncated)? {
                LIST_ITEM => items.push(self.value()?),
                LIST_END => return Ok(items),
                other => return Err(MessageFault::UnexpectedType(other)),
            }
        }
    }
}

/// Encodes a message. Closures fill nested sections, so every section is closed.
#[derive(Debug, Clone, Default)]
pub struct MessageWriter {
    bytes: Vec<u8>,
}

impl MessageWriter {
    /// Encodes a message that `fill` writes.
    pub fn message(fill: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self::default();
        fill(&mut writer);
        writer.bytes
    }

    /// Writes a key with a value. Only the first 65,535 bytes of the value fit.
    pub fn value(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.named(KEY_VALUE, name);
        self.counted(value.as_ref());
    }

    /// Writes a key with a value that is formatted as text.
    pub fn display(&mut self, name: &str, value: impl fmt::Display) {
        self.value(name, value.to_string());
    }

    /// Writes a key only if there is a value.
    pub fn optional(&mut self, name: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.display(name, value);
        }
    }

    /// Writes `name = yes` if `is_set`, and otherwise nothing, as strongSwan does.
    pub fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.value(name, "yes");
        }
    }

    /// Writes a list.
    pub fn list<T: AsRef<[u8]>>(&mut self, name: &str, items: impl IntoIterator<Item = T>) {
        self.named(LIST_START, name);
        for item in items {
            self.bytes.push(LIST_ITEM);
            self.counted(item.as_ref());
        }
        self.bytes.push(LIST_END);
    }

    /// Writes a nested section that `fill` writes.
    pub fn section(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.named(SECTION_START, name);
        fill(self);
        self.bytes.push(SECTION_END);
    }

    /// Writes elements that were decoded.
    pub fn elements(&mut self, section: &Section) {
        for element in &section.0 {
            match element {
                Element::Section(name, nested) => self.section(name, |writer| writer.elements(nested)),
                Element::Value(name, value) => self.value(name, value),
                Element::List(name, items) => self.list(name, items.iter()),
            }
        }
    }

    /// Writes a type and a name. Only the first 255 bytes of the name fit, to the last whole character.
    fn named(&mut self, kind: u8, name: &str) {
        let name = name.get(..name.floor_char_boundary(usize::from(u8::MAX))).unwrap_or(name);
        self.bytes.extend([kind, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
        self.bytes.extend(name.as_bytes());
    }

    fn counted(&mut self, value: &[u8]) {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.bytes.extend(len.to_be_bytes());
        self.bytes.extend(value.iter().take(len.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Zeroizing::new)
    }

    fn section() -> impl Strategy<Value = Section> {
        let name = "[a-z\u{e9}]{1,8}";
        let leaf = prop_oneof![
            (name, bytes()).prop_map(|(name, value)| Element::Value(name, value)),
            (name, prop::collection::vec(bytes(), 0..4)).prop_map(|(name, items)| Element::List(name, items)),
        ];
        let element = leaf.prop_recursive(5, 40, 6, move |inner| {
            (name, prop::collection::vec(inner, 0..6))
                .prop_map(|(name, elements)| Element::Section(name, Section(elements)))
        });
        prop::collection::vec(element, 0..6).prop_map(Section)
    }

    fn encode(section: &Section) -> Vec<u8> {
        MessageWriter::message(|writer| writer.elements(section))
    }

    proptest! {
        #[test]
        fn messages_survive_encoding_and_decoding(message in section()) {
            prop_assert_eq!(Section::decode(&encode(&message)), Ok(message));
        }

        #[test]
        fn what_decodes_has_one_encoding(bytes in prop::collection::vec(0..9u8, 0..64)) {
            if let Ok(message) = Section::decode(&bytes) {
                prop_assert_eq!(encode(&message), bytes);
            }
        }

        #[test]
        fn a_part_of_a_message_is_rejected_or_ends_between_elements(message in section(), at in any::<prop::sample::Index>()) {
            let bytes = encode(&message);
            let part = &bytes[..at.index(bytes.len() + 1)];
            if let Ok(decoded) = Section::decode(part) {
                prop_assert_eq!(encode(&decoded), part);
            }
        }
    }

    /// The example of strongSwan's README.md, "Encoding example".
    #[test]
    fn the_example_of_the_specification() {
        let bytes =
            b"\x03\x04key1\0\x06value1\x01\x08section1\x01\x0bsub-section\x03\x04key2\0\x06value2\x02\
                      \x04\x05list1\x05\0\x05item1\x05\0\x05item2\x06\x02";
        let written = MessageWriter::message(|message| {
            message.value("key1", "value1");
            message.section("section1", |section| {
                section.section("sub-section", |nested| nested.value("key2", "value2"));
                section.list("list1", ["item1", "item2"]);
            });
        });
        assert_eq!(written, bytes);
        let message = Section::decode(bytes).unwrap();
        assert_eq!(message.text("key1"), Some("value1"));
        let (name, section) = message.sections().next().unwrap();
        assert_eq!((name, section.list("list1").len()), ("section1", 2));
        assert_eq!(section.sections().next().unwrap().1.text("key2"), Some("value2"));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let nested = |depth: usize| [b"\x01\x01a".repeat(depth), vec![2; depth]].concat();
        assert!(Section::decode(&nested(MAX_DEPTH)).is_ok());
        for (bytes, fault) in [
            (&nested(MAX_DEPTH + 1)[..], MessageFault::Depth),
            (b"\x02", MessageFault::UnexpectedType(2)),
            (b"\x05\0\0", MessageFault::UnexpectedType(5)),
            (b"\x06", MessageFault::UnexpectedType(6)),
            (b"\0", MessageFault::UnexpectedType(0)),
            (b"\x04\x01a\x03\x01b\0\0\x06", MessageFault::UnexpectedType(3)),
            (b"\x01\x01a", MessageFault::Truncated),
            (b"\x04\x01a", MessageFault::Truncated),
            (b"\x03\x01a\0\x02x", MessageFault::Truncated),
            (b"\x03\x05a", MessageFault::Truncated),
            (b"\x03\0\0\0", MessageFault::Name),
            (b"\x03\x01\xff\0\0", MessageFault::Name),
        ] {
            assert_eq!(Section::decode(bytes), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn long_names_and_values_are_cut() {
        let name = "\u{e9}".repeat(200);
        let bytes = MessageWriter::message(|message| message.value(&name, vec![7; 70_000]));
        let message = Section::decode(&bytes).unwrap();
        assert_eq!(message.value(&"\u{e9}".repeat(127)).map(|value| value.len()), Some(65_535));
    }

    #[test]
    fn debug_output_contains_no_value() {
        let message = Section(vec![Element::Value("data".into(), Zeroizing::new(b"secret".to_vec()))]);
        assert_eq!(format!("{message:?}"), "Section([data = 6 bytes])");
    }
}
