//! Parser for NIST's `.rsp` format and similar formats: paragraphs of `Name = hex` lines, `[Name = value]`
//! headings, `#` comments.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A paragraph. Names that it lacks are looked up in previous paragraphs and headings.
pub(crate) struct Record {
    /// Line number of the start of the paragraph, to identify the case.
    pub(crate) line: usize,
    own: BTreeMap<String, String>,
    inherited: BTreeMap<String, String>,
}

/// Returns the paragraphs that contain `key`; names are not case-sensitive.
pub(crate) fn records(text: &str, key: &str) -> Vec<Record> {
    let mut before = BTreeMap::new();
    let mut records = Vec::new();
    for (line, own) in paragraphs(text) {
        if own.contains_key(&key.to_lowercase()) {
            records.push(Record { line, own: own.clone(), inherited: before.clone() });
        }
        before.extend(own);
    }
    records
}

fn paragraphs(text: &str) -> Vec<(usize, BTreeMap<String, String>)> {
    let mut paragraphs = vec![(1, BTreeMap::new())];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            paragraphs.push((number + 2, BTreeMap::new()));
        } else if !line.starts_with('#') {
            let line = line.trim_start_matches('[').trim_end_matches(']');
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let fields = &mut paragraphs.last_mut().unwrap().1;
            fields.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    paragraphs
}

impl Record {
    /// Whether the paragraph itself contains the name, e.g. a `FAIL` line.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.own.contains_key(&name.to_lowercase())
    }

    /// Value as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        let name = name.to_lowercase();
        let value = self.own.get(&name).or_else(|| self.inherited.get(&name));
        value.unwrap_or_else(|| panic!("the record at line {} has no {name}", self.line))
    }

    /// Value as a decimal number.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.text(name).parse().unwrap()
    }

    /// Value as a byte string in hex.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        hex(self.text(name))
    }
}

/// Decodes hex.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii(), "not hex: {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_inherits_missing_names() {
        let text = "# c\n[Len = 8]\n\nKey = 0A\n\nCount = 0\nMsg =\n\nCount = 1\nMsg = ff\nFAIL\n";
        let records = records(text, "count");
        assert_eq!(records.len(), 2);
        assert_eq!((records[1].line, records[1].number("LEN"), records[1].bytes("key")), (9, 8, vec![10]));
        assert_eq!((records[0].bytes("Msg"), records[1].bytes("Msg")), (vec![], vec![255]));
        assert_eq!((records[0].has("fail"), records[1].has("fail")), (false, true));
    }
}
