//! Comparison of distinguished names, and patterns (RFC 5280 section 7.1).
//!
//! Strings are prepared as in RFC 4518 section 2 and then compared: the string type does not matter, letters
//! are case-folded, leading and trailing spaces are removed, several spaces count as one, and characters
//! without width are removed. The order of relative distinguished names matters; the order of the attributes
//! within one does not. Unicode is not normalised, so names that differ only in normalisation are different.
//! A value that is not a string, or contains a character that RFC 4518 section 2.4 prohibits, is compared
//! byte for byte.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::der::{Malformed, OID, Reader, SEQUENCE, Value, write};

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0C;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const UNIVERSAL_STRING: u8 = 0x1C;
const BMP_STRING: u8 = 0x1E;

/// emailAddress (RFC 5280 section 4.1.2.6): contents of the OBJECT IDENTIFIER.
const EMAIL_ADDRESS: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1];

/// AttributeTypeAndValue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attribute<'a> {
    pub(crate) oid: &'a [u8],
    pub(crate) value: Value<'a>,
}

/// Iterator over the relative distinguished names of a Name.
struct Rdns<'a>(Reader<'a>);

impl<'a> Rdns<'a> {
    fn of(name: &'a [u8]) -> Result<Self, Malformed> {
        Reader::only(SEQUENCE, name).map(Self)
    }

    /// Attributes of the next relative distinguished name; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<Attribute<'a>>>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut set = self.0.read_nested(SET)?;
        let mut attributes = Vec::new();
        loop {
            let mut reader = set.read_nested(SEQUENCE)?;
            attributes.push(Attribute { oid: reader.read(OID)?, value: reader.read_any()? });
            reader.finish()?;
            if set.is_empty() {
                return Ok(Some(attributes));
            }
        }
    }
}

/// Checks that the bytes are a Name.
pub(crate) fn check(name: &[u8]) -> Result<(), Malformed> {
    let mut rdns = Rdns::of(name)?;
    while rdns.next()?.is_some() {}
    Ok(())
}

/// Whether a Name is empty.
pub(crate) fn is_empty(name: &[u8]) -> bool {
    name == [SEQUENCE, 0]
}

/// Whether two Names in DER are equal; `false` if one is malformed.
pub fn same_dn(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return check(a).is_ok();
    }
    same_parts(a, b, |a, b| a.is_none() && b.is_none()).unwrap_or(false)
}

/// Whether `name` is `base` or below it (RFC 5280 section 4.2.1.10).
pub(crate) fn is_within(name: &[u8], base: &[u8]) -> Result<bool, Malformed> {
    same_parts(name, base, |_, base| base.is_none())
}

/// Attributes of a relative distinguished name in comparable form, sorted because a SET has no order.
type Comparable<'a> = Vec<(&'a [u8], Cow<'a, [u8]>)>;

fn comparable<'a>(attributes: &[Attribute<'a>]) -> Comparable<'a> {
    let value = |value: Value<'a>| match text(value) {
        Some(text) => Cow::Owned(write(UTF8_STRING, &[prepare(&text).as_bytes()])),
        None => Cow::Borrowed(value.whole),
    };
    let mut folded: Comparable<'a> = attributes.iter().map(|one| (one.oid, value(one.value))).collect();
    folded.sort_unstable();
    folded
}

/// Canonical form of a Name, the same for all Names that are equal by [`same_dn`]. Used as a table key; a
/// peer gets the original Name. `None` if the Name is malformed.
pub fn canonical_dn(name: &[u8]) -> Option<Vec<u8>> {
    let mut rdns = Rdns::of(name).ok()?;
    let mut canonical = Vec::new();
    while let Some(attributes) = rdns.next().ok()? {
        let attribute =
            |(oid, value): &(&[u8], Cow<'_, [u8]>)| write(SEQUENCE, &[&write(OID, &[oid]), value]);
        let set: Vec<u8> = comparable(&attributes).iter().flat_map(attribute).collect();
        canonical.extend(write(SET, &[&set]));
    }
    Some(write(SEQUENCE, &[&canonical]))
}

/// Attributes of a Name in order, each as the contents of its OBJECT IDENTIFIER and its value. `None` if the
/// Name is malformed, a value is not a string, or a relative distinguished name has several attributes.
pub fn dn_parts(name: &[u8]) -> Option<Vec<(&[u8], String)>> {
    let mut rdns = Rdns::of(name).ok()?;
    let mut parts = Vec::new();
    while let Some(attributes) = rdns.next().ok()? {
        let [one] = attributes.as_slice() else { return None };
        parts.push((one.oid, text(one.value)?));
    }
    Some(parts)
}

type Part<'p, 'a> = Option<&'p [Attribute<'a>]>;

/// Compares the relative distinguished names. `ends` decides when one Name is at its end. Stops at the first
/// difference, so that a long name of an unknown peer costs no more than ours.
fn same_parts(a: &[u8], b: &[u8], ends: fn(Part<'_, '_>, Part<'_, '_>) -> bool) -> Result<bool, Malformed> {
    let (mut a, mut b) = (Rdns::of(a)?, Rdns::of(b)?);
    loop {
        match (a.next()?, b.next()?) {
            (Some(a), Some(b)) if a == b || comparable(&a) == comparable(&b) => {}
            (Some(_), Some(_)) => return Ok(false),
            (a, b) => return Ok(ends(a.as_deref(), b.as_deref())),
        }
    }
}

/// Characters of a string value; `None` if the value is not a string or contains a character that RFC 4518
/// section 2.4 prohibits.
fn text(value: Value<'_>) -> Option<String> {
    characters(value).filter(|text| !text.chars().any(is_prohibited))
}

/// RFC 4518 section 2.4: the replacement character, private use characters, and code points that are not
/// characters.
fn is_prohibited(char: char) -> bool {
    let point = u32::from(char);
    matches!(point, 0xFFFD | 0xE000..=0xF8FF | 0xF_0000.. | 0xFDD0..=0xFDEF) || point & 0xFFFE == 0xFFFE
}

fn characters(value: Value<'_>) -> Option<String> {
    match value.tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
            core::str::from_utf8(value.content).ok().map(String::from)
        }
        // T.61 is read as Latin-1, like all implementations that still write it.
        TELETEX_STRING => Some(value.content.iter().map(|byte| char::from(*byte)).collect()),
        BMP_STRING => {
            let (units, rest) = value.content.as_chunks::<2>();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            rest.is_empty().then(|| char::decode_utf16(units).collect::<Result<_, _>>().ok())?
        }
        UNIVERSAL_STRING => {
            let (units, rest) = value.content.as_chunks::<4>();
            let chars = units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            rest.is_empty().then(|| chars.collect::<Option<_>>())?
        }
        _ => None,
    }
}

/// Prepares a string for comparison (RFC 4518 sections 2.2 and 2.6.1).
fn prepare(text: &str) -> String {
    let mut prepared = String::with_capacity(text.len());
    let mut space = false;
    for char in text.chars().filter(|char| !is_mapped_to_nothing(*char)) {
        if char.is_whitespace() {
            space = true;
            continue;
        }
        if space && !prepared.is_empty() {
            prepared.push(' ');
        }
        space = false;
        match char {
            // Letters whose case folding differs from their lower case.
            '\u{df}' | '\u{1e9e}' => prepared.push_str("ss"),
            '\u{3c2}' => prepared.push('\u{3c3}'),
            _ => prepared.extend(char.to_lowercase()),
        }
    }
    prepared
}

/// RFC 4518 section 2.2: control characters other than spaces, soft hyphens, variation selectors, and
/// characters without width.
fn is_mapped_to_nothing(char: char) -> bool {
    let is_control = char.is_control() && !char.is_whitespace();
    let is_invisible = matches!(u32::from(char), 0xAD | 0x34F | 0x6DD | 0x70F | 0x1806 | 0x180B..=0x180E | 0x200B..=0x200F
        | 0x202A..=0x202E | 0x2060..=0x2063 | 0x206A..=0x206F | 0xFE00..=0xFE0F | 0xFEFF | 0xFFF9..=0xFFFC
        | 0x1_D173..=0x1_D17A | 0xE_0001 | 0xE_0020..=0xE_007F);
    is_control || is_invisible
}

/// A distinguished name with wildcards for single values, as in `C=CH, O=*, CN=*` of strongSwan.
///
/// A name has to have the same number and order of parts, each with one attribute. The value `*` matches any
/// value. A star within a longer value is literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnPattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PatternPart {
    /// Contents of the attribute's OBJECT IDENTIFIER.
    oid: Vec<u8>,
    /// Prepared value; `None` matches any.
    value: Option<String>,
}

impl DnPattern {
    /// Creates a pattern from attributes in order: the contents of each OBJECT IDENTIFIER, and its value or
    /// `*`.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a [u8], &'a str)>) -> Self {
        let part = |(oid, value): (&[u8], &str)| PatternPart {
            oid: oid.to_vec(),
            value: (value != "*").then(|| prepare(value)),
        };
        Self(parts.into_iter().map(part).collect())
    }

    /// Whether a Name in DER matches the pattern.
    pub fn matches(&self, name: &[u8]) -> bool {
        let Ok(mut rdns) = Rdns::of(name) else { return false };
        let mut is_next = |part: &PatternPart| {
            let attributes = rdns.next().ok().flatten().unwrap_or_default();
            matches!(&attributes[..], [one] if one.oid == part.oid && part.takes(one.value))
        };
        self.0.iter().all(&mut is_next) && rdns.next() == Ok(None)
    }
}

impl PatternPart {
    fn takes(&self, value: Value<'_>) -> bool {
        match (&self.value, text(value)) {
            (None, _) => true,
            (Some(wanted), Some(text)) => *wanted == prepare(&text),
            (Some(_), None) => false,
        }
    }
}

/// Email addresses in the subject, as in old certificates (RFC 5280 section 4.1.2.6).
pub(crate) fn email_addresses(name: &[u8]) -> Result<Vec<&str>, Malformed> {
    let mut rdns = Rdns::of(name)?;
    let mut addresses = Vec::new();
    while let Some(attributes) = rdns.next()? {
        for attribute in attributes.iter().filter(|attribute| attribute.oid == EMAIL_ADDRESS) {
            addresses.push(core::str::from_utf8(attribute.value.content).map_err(|_| Malformed)?);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTRY: &[u8] = &[0x55, 4, 6];
    const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];

    fn rdn(parts: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let attributes: Vec<u8> = parts
            .iter()
            .flat_map(|(oid, tag, value)| write(SEQUENCE, &[&write(OID, &[oid]), &write(*tag, &[value])]))
            .collect();
        write(SET, &[&attributes])
    }

    fn name(parts: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let rdns: Vec<u8> = parts.iter().flat_map(|part| rdn(&[*part])).collect();
        write(SEQUENCE, &[&rdns])
    }

    #[test]
    fn case_spaces_and_string_types_do_not_matter() {
        let plain = name(&[(COMMON_NAME, PRINTABLE_STRING, b"Moon Gate")]);
        for (tag, text) in [
            (UTF8_STRING, &b"Moon Gate"[..]),
            (PRINTABLE_STRING, b"  moon   GATE "),
            (IA5_STRING, b"MOON GATE"),
            (TELETEX_STRING, b"moon gate"),
            (BMP_STRING, b"\0M\0o\0o\0n\0 \0G\0a\0t\0e"),
            (UNIVERSAL_STRING, b"\0\0\0M\0\0\0o\0\0\0o\0\0\0n\0\0\0 \0\0\0g\0\0\0a\0\0\0t\0\0\0e"),
        ] {
            assert!(same_dn(&plain, &name(&[(COMMON_NAME, tag, text)])), "{tag:02x}");
        }
        for text in ["MoonGate", "Moon Gates", "", "Moon\u{a0}Gat\u{e9}"] {
            assert!(!same_dn(&plain, &name(&[(COMMON_NAME, UTF8_STRING, text.as_bytes())])), "{text}");
        }
        let latin = name(&[(COMMON_NAME, TELETEX_STRING, &[b'Z', 0xFC])]);
        assert!(same_dn(&latin, &name(&[(COMMON_NAME, UTF8_STRING, "z\u{dc}".as_bytes())])));
    }

    #[test]
    fn strings_are_prepared_as_rfc_4518_asks() {
        let utf8 = |text: &str| name(&[(COMMON_NAME, UTF8_STRING, text.as_bytes())]);
        for (one, other) in [
            ("Straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("co\u{ad}operate\u{200b}", "Cooperate"),
            ("a\tb\u{2003}c", "a b c"),
            ("\u{202e}moon", "moon"),
            ("\u{1}moon", "moon"),
            ("   ", ""),
        ] {
            assert!(same_dn(&utf8(one), &utf8(other)), "{one:?} {other:?}");
        }
        for (one, other) in [("ı", "i"), ("m\u{f6}\u{f6}n", "moon"), ("moon\u{e000}", "MOON\u{e000}")] {
            assert!(!same_dn(&utf8(one), &utf8(other)), "{one:?} {other:?}");
        }
        assert!(same_dn(&utf8("moon\u{fffd}"), &utf8("moon\u{fffd}")), "the same bytes");
        // Values that are not strings have to be equal, including their tag.
        let broken = |tag| name(&[(COMMON_NAME, tag, &[0xC3, 0x28])]);
        assert!(same_dn(&broken(UTF8_STRING), &broken(UTF8_STRING)));
        assert!(!same_dn(&broken(UTF8_STRING), &broken(IA5_STRING)));
    }

    #[test]
    fn equal_names_have_one_canonical_form() {
        let one = write(
            SEQUENCE,
            &[&rdn(&[(COMMON_NAME, BMP_STRING, b"\0a"), (COUNTRY, PRINTABLE_STRING, b" ch ")])],
        );
        let other =
            write(SEQUENCE, &[&rdn(&[(COUNTRY, UTF8_STRING, b"CH"), (COMMON_NAME, TELETEX_STRING, b"A")])]);
        assert!(same_dn(&one, &other));
        assert_eq!(canonical_dn(&one), canonical_dn(&other));
        let canonical = canonical_dn(&one).unwrap();
        assert_eq!(canonical_dn(&canonical), Some(canonical));
        let twice = write(SEQUENCE, &[&rdn(&[(COUNTRY, UTF8_STRING, b"CH"), (COUNTRY, UTF8_STRING, b"CH")])]);
        let once = name(&[(COUNTRY, UTF8_STRING, b"CH")]);
        assert!(!same_dn(&once, &twice) && canonical_dn(&once) != canonical_dn(&twice));
        assert_eq!(canonical_dn(b"junk"), None);
    }

    #[test]
    fn names_are_equal_only_with_all_parts_in_order() {
        let (country, org) =
            ((COUNTRY, PRINTABLE_STRING, &b"CH"[..]), (ORGANIZATION, UTF8_STRING, &b"strongSwan"[..]));
        let both = name(&[country, org]);
        assert!(!same_dn(&both, &name(&[org, country])));
        assert!(!same_dn(&both, &name(&[country])));
        assert!(is_within(&both, &name(&[country])).unwrap());
        assert!(!is_within(&name(&[country]), &both).unwrap());
        assert!(is_within(&both, &name(&[])).unwrap());
        // The order within one relative distinguished name does not matter.
        let set = |parts: [_; 2]| write(SEQUENCE, &[&rdn(&parts)]);
        assert!(same_dn(&set([country, org]), &set([org, country])));
        assert!(!same_dn(&set([country, org]), &set([country, country])));
        assert!(!same_dn(&set([country, org]), &both));
    }

    #[test]
    fn malformed_names_equal_no_name() {
        let good = name(&[(COUNTRY, PRINTABLE_STRING, b"CH")]);
        for wrong in
            [&good[..good.len() - 1], &[], &[0x30, 2, 0x31, 0], &[0x31, 0], &[&good[..], &[0]].concat()]
        {
            assert!(!same_dn(wrong, wrong) && !same_dn(wrong, &good), "{wrong:02x?}");
        }
    }

    #[test]
    fn patterns_match_whole_values_only() {
        let moon = name(&[
            (COUNTRY, PRINTABLE_STRING, b"CH"),
            (ORGANIZATION, UTF8_STRING, b"Linux strongSwan"),
            (COMMON_NAME, UTF8_STRING, b"moon.strongswan.org"),
        ]);
        let pattern = |org, cn| DnPattern::new([(COUNTRY, "ch"), (ORGANIZATION, org), (COMMON_NAME, cn)]);
        assert!(pattern("*", "*").matches(&moon));
        assert!(pattern("linux strongswan", "*").matches(&moon));
        assert!(!pattern("linux", "*").matches(&moon));
        assert!(!pattern("*", "*.strongswan.org").matches(&moon));
        assert!(!DnPattern::new([(COUNTRY, "*"), (ORGANIZATION, "*")]).matches(&moon));
        assert!(!DnPattern::new([(COUNTRY, "*"), (COMMON_NAME, "*"), (ORGANIZATION, "*")]).matches(&moon));
        assert!(!pattern("*", "*").matches(b"junk"));
    }
}
