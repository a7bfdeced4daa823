//! Distinguished names as strongSwan writes them in its configuration: `C=CH, O=strongSwan Project, CN=moon.strongswan.org`.
//!
//! Parts are divided by commas; a comma within a value has a backslash before it, and so has a backslash. Spaces around a value are not part
//! of it.

use crate::DnPattern;
use crate::dn::{IA5_STRING, PRINTABLE_STRING, SET, UTF8_STRING};
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::der::{OID, SEQUENCE, write};
use core::fmt;

/// Why a text is no distinguished name. Parts are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnTextFault {
    /// The part is not `ATTRIBUTE=VALUE`.
    Form(usize),
    /// The attribute is not one of those that have a short name here.
    Attribute(usize),
}

impl fmt::Display for DnTextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(part) => write!(f, "part {part} of the distinguished name, expected ATTRIBUTE=VALUE"),
            Self::Attribute(part) => {
                write!(f, "part {part} of the distinguished name has an unknown attribute, expected")
                    .and_then(|()| NAMES.iter().try_for_each(|(name, ..)| write!(f, " {name}")))
            }
        }
    }
}

impl core::error::Error for DnTextFault {}

/// Short names of strongSwan, contents of OBJECT IDENTIFIERs (RFC 4519, RFC 5280 appendix A.1), and the string type if there is only one.
const NAMES: &[(&str, &[u8], Option<u8>)] = &[
    ("C", &[0x55, 4, 6], Some(PRINTABLE_STRING)),
    ("ST", &[0x55, 4, 8], None),
    ("L", &[0x55, 4, 7], None),
    ("O", &[0x55, 4, 10], None),
    ("OU", &[0x55, 4, 11], None),
    ("CN", &[0x55, 4, 3], None),
    ("S", &[0x55, 4, 4], None),
    ("G", &[0x55, 4, 42], None),
    ("I", &[0x55, 4, 43], None),
    ("T", &[0x55, 4, 12], None),
    ("D", &[0x55, 4, 13], None),
    ("SN", &[0x55, 4, 5], Some(PRINTABLE_STRING)),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], Some(IA5_STRING)),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1], None),
    ("E", &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1], Some(IA5_STRING)),
    ("emailAddress", &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1], Some(IA5_STRING)),
];

/// One `ATTRIBUTE=VALUE`.
struct Part {
    oid: &'static [u8],
    tag: Option<u8>,
    value: String,
}

/// The Name in DER. A value is a PrintableString if it can be one, else a UTF8String (RFC 5280 section 4.1.2.4).
pub fn dn_from_text(text: &str) -> Result<Vec<u8>, DnTextFault> {
    let rdns: Vec<u8> = parts(text)?
        .iter()
        .flat_map(|part| {
            let tag =
                part.tag.unwrap_or(if is_printable(&part.value) { PRINTABLE_STRING } else { UTF8_STRING });
            let attribute = [write(OID, &[part.oid]), write(tag, &[part.value.as_bytes()])].concat();
            write(SET, &[&write(SEQUENCE, &[&attribute])])
        })
        .collect();
    Ok(write(SEQUENCE, &[&rdns]))
}

impl DnPattern {
    /// From a text in which a value may be `*`, which stands for any.
    pub fn from_text(text: &str) -> Result<Self, DnTextFault> {
        Ok(Self::new(parts(text)?.iter().map(|part| (part.oid, &part.value[..]))))
    }
}

fn parts(text: &str) -> Result<Vec<Part>, DnTextFault> {
    divided(text).into_iter().enumerate().map(|(at, part)| named(&part, at.saturating_add(1))).collect()
}

fn named(part: &str, at: usize) -> Result<Part, DnTextFault> {
    let (name, value) = part.split_once('=').ok_or(DnTextFault::Form(at))?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || value.is_empty() {
        return Err(DnTextFault::Form(at));
    }
    let known = NAMES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (_, oid, tag) = known.ok_or(DnTextFault::Attribute(at))?;
    let tag = match tag {
        // A value that does not fit its type is written in the one that fits all.
        Some(PRINTABLE_STRING) if !is_printable(value) => Some(UTF8_STRING),
        Some(IA5_STRING) if !value.is_ascii() => Some(UTF8_STRING),
        tag => *tag,
    };
    Ok(Part { oid, tag, value: value.into() })
}

/// At commas without a backslash, which is taken off.
fn divided(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_escaped) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            ',' if !is_escaped => parts.push(core::mem::take(&mut part)),
            _ => {
                part.push(character);
                is_escaped = false;
            }
        }
    }
    parts.push(part);
    parts
}

/// The characters of PrintableString (X.680 section 41.4).
fn is_printable(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::same_dn;

    #[test]
    fn a_name_as_openssl_encodes_it() {
        // openssl req -subj "/C=CH/O=Casemate Test/CN=mö,n" -utf8, with the string types of RFC 5280.
        let known = b"\x30\x38\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02CH\x31\x16\x30\x14\x06\x03\x55\x04\x0a\x13\x0d\
            Casemate Test\x31\x11\x30\x0f\x06\x03\x55\x04\x03\x0c\x08m\xc3\xb6,n\\ x";
        let known = [&[0x30, known.len() as u8 - 2], &known[2..]].concat();
        assert_eq!(dn_from_text("C=CH, O=Casemate Test,cn = mö\\,n\\\\ x "), Ok(known));
    }

    #[test]
    fn what_is_no_name() {
        for (text, fault) in [
            ("", DnTextFault::Form(1)),
            ("C=CH,", DnTextFault::Form(2)),
            ("C=CH, CN=", DnTextFault::Form(2)),
            ("=CH", DnTextFault::Form(1)),
            ("moon.strongswan.org", DnTextFault::Form(1)),
            ("C=CH, X=moon", DnTextFault::Attribute(2)),
        ] {
            assert_eq!(dn_from_text(text), Err(fault), "{text}");
            assert_eq!(DnPattern::from_text(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn patterns_mean_names() {
        let name = dn_from_text("C=CH, O=strongSwan Project, CN=moon").unwrap();
        for (text, means) in [
            ("C=CH, O=*, CN=*", true),
            ("c=ch, o=strongswan  project, cn=MOON", true),
            ("C=CH, O=*", false),
            ("C=CH, O=*, CN=sun", false),
            ("C=CH, CN=*, O=*", false),
        ] {
            assert_eq!(DnPattern::from_text(text).unwrap().matches(&name), means, "{text}");
        }
        assert!(same_dn(&name, &dn_from_text("C=ch,O=STRONGSWAN PROJECT,CN=moon").unwrap()));
    }
}
