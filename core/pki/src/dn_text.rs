//! Text form of distinguished names as in strongSwan: `C=CH, O=strongSwan, CN=moon` or
//! `/C=CH/O=strongSwan/CN=moon`.
//!
//! The parts are in the order of the encoding, not reversed as in RFC 4514, and nothing is escaped, so
//! libraries for RFC 4514 cannot parse it. The encoding equals that of strongSwan byte for byte.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A distinguished name that was parsed from text.
pub struct DnText {
    /// RFC 5280 section 4.1.2.4: `RDNSequence` in DER.
    pub der: Vec<u8>,
    /// Whether one of the values is `*`.
    pub has_wildcard: bool,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;

impl DnText {
    /// Parses a name. The error is a sentence that names what was expected.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let parts = parts(text)?;
        let has_wildcard = parts.iter().any(|(_, value)| *value == "*");
        let rdns = parts.into_iter().flat_map(|(oid, value)| {
            let string = if is_ia5(oid) { IA5 } else { string_type(value) };
            let pair = [element(OBJECT, oid), element(string, value.as_bytes())].concat();
            element(SET, &element(SEQUENCE, &pair))
        });
        Ok(Self { der: element(SEQUENCE, &rdns.collect::<Vec<u8>>()), has_wildcard })
    }
}

/// Parts of a name in text form: the contents of each OBJECT IDENTIFIER and the value, which may be `*` in a
/// pattern such as that of `IdPattern::DnPattern` of `casemate-ike`. `None` if the text is not a name.
pub fn dn_text_parts(text: &str) -> Option<Vec<(&'static [u8], &str)>> {
    parts(text).ok()
}

/// Text form of a Name in DER: `C=CH, O=strongSwan, CN=moon`, or with `/` as the separator if a value
/// contains a comma. `None` if the text would be parsed as a different name, or would contain characters that
/// a terminal does not show literally.
pub fn dn_to_text(der: &[u8]) -> Option<String> {
    let parts = crate::dn_parts(der).filter(|parts| !parts.is_empty())?;
    let part = |(oid, value): &(&[u8], String)| {
        let name = NAMES.iter().find(|(_, known)| known == oid)?.0;
        let is_shown = |char: char| char == '\'' || char.escape_debug().len() == 1;
        value.chars().all(is_shown).then(|| format!("{name}={value}"))
    };
    let parts = parts.iter().map(part).collect::<Option<Vec<_>>>()?;
    let with_slashes: String = parts.iter().map(|part| format!("/{part}")).collect();
    let is_same = |text: &String| {
        DnText::from_text(text).is_ok_and(|name| !name.has_wildcard && crate::same_dn(&name.der, der))
    };
    [parts.join(", "), with_slashes].into_iter().find(is_same)
}

fn parts(text: &str) -> Result<Vec<(&'static [u8], &str)>, String> {
    let text = text.trim_matches(' ');
    let (text, between) = match text.strip_prefix('/') {
        Some(rest) => (rest, '/'),
        None => (text.strip_suffix(',').unwrap_or(text), ','),
    };
    text.split(between).map(|part| attribute_and_value(part, between)).collect()
}

fn attribute_and_value(part: &str, between: char) -> Result<(&'static [u8], &str), String> {
    let (name, value) = part.split_once('=').ok_or_else(|| {
        format!(
            "`{}` is not a part of a distinguished name: \
             parts such as CN=moon were expected, without {between} in their values",
            part.trim().escape_debug()
        )
    })?;
    let name = name.trim_matches(' ');
    let oid = attribute(name).ok_or_else(|| {
        format!(
            "`{}` is not an attribute of a distinguished name: one such as C, O, OU or CN was expected",
            name.escape_debug()
        )
    })?;
    Ok((oid, value.trim_matches(' ')))
}

/// Whether the bytes are one DER SEQUENCE, like a Name.
pub fn is_der_sequence(der: &[u8]) -> bool {
    let Some((&SEQUENCE, rest)) = der.split_first() else { return false };
    let Some((&first, rest)) = rest.split_first() else { return false };
    let len = match first {
        0..=0x7f => return rest.len() == usize::from(first),
        0x81 | 0x82 => usize::from(first & 0x7f),
        _ => return false,
    };
    let Some((len, rest)) = rest.split_at_checked(len) else { return false };
    len.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)) == rest.len()
}

/// Encodes tag, length and contents (X.690 section 8.1).
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let bytes = content.len().to_be_bytes();
    let len: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut element = vec![tag];
    match (len.as_slice(), content.len()) {
        (_, 0) => element.push(0),
        ([one], 1..0x80) => element.push(*one),
        _ => {
            element.push(0x80 | u8::try_from(len.len()).unwrap_or_default());
            element.extend(&len);
        }
    }
    element.extend(content);
    element
}

fn string_type(value: &str) -> u8 {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    if value.bytes().all(is_printable) { PRINTABLE } else { UTF8 }
}

/// strongSwan's names of attributes. The usual name of an attribute comes first.
const NAMES: [(&str, &[u8]); 28] = [
    ("C", &[0x55, 4, 6]),
    ("CN", &[0x55, 4, 3]),
    ("D", &[0x55, 4, 13]),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25]),
    ("dmdName", &[0x55, 4, 54]),
    ("dnQualifier", &[0x55, 4, 46]),
    ("E", EMAIL),
    ("Email", EMAIL),
    ("emailAddress", EMAIL),
    ("employeeNumber", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 3, 1, 3]),
    ("EN", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 3, 1, 3]),
    ("G", &[0x55, 4, 42]),
    ("I", &[0x55, 4, 43]),
    ("ID", &[0x55, 4, 45]),
    ("L", &[0x55, 4, 7]),
    ("N", &[0x55, 4, 41]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("postalCode", &[0x55, 4, 17]),
    ("pseudonym", &[0x55, 4, 65]),
    ("serialNumber", &[0x55, 4, 5]),
    ("SN", &[0x55, 4, 4]),
    ("ST", &[0x55, 4, 8]),
    ("STREET", &[0x55, 4, 9]),
    ("T", &[0x55, 4, 12]),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1]),
    ("UN", UNSTRUCTURED_NAME),
    ("unstructuredName", UNSTRUCTURED_NAME),
];

/// Contents of the OBJECT IDENTIFIER of an attribute. Case does not matter.
fn attribute(name: &str) -> Option<&'static [u8]> {
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, oid)| *oid)
}

const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
const UNSTRUCTURED_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2];

/// PKCS #9 (RFC 2985 section 5.2.1): an email address is an IA5String.
fn is_ia5(oid: &[u8]) -> bool {
    oid == EMAIL || oid == UNSTRUCTURED_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of libstrongswan 5.9.8 for the same text (`identification_create_from_string`).
    const STRONGSWAN: &[(&str, &str)] = &[
        (
            "C=CH, O=strongSwan, CN=moon",
            "3031310b300906035504061302434831133011060355040a130a7374726f6e675377616e310d300b060355040313046d6f6f6e",
        ),
        (
            "/C=CH/O=strongSwan/CN=moon",
            "3031310b300906035504061302434831133011060355040a130a7374726f6e675377616e310d300b060355040313046d6f6f6e",
        ),
        (
            "C=CH,O=strongSwan,CN=*",
            "302e310b300906035504061302434831133011060355040a130a7374726f6e675377616e310a300806035504030c012a",
        ),
        ("CN=J\u{fc}rg", "3010310e300c06035504030c054ac3bc7267"),
        ("E=a@b.c, CN=x", "30223114301206092a864886f70d01090116056140622e63310a30080603550403130178"),
        ("CN=a/b, OU=#414243", "3020310c300a06035504031303612f623110300e060355040b0c0723343134323433"),
        ("C=CH O=x", "3011310f300d060355040613064348204f3d78"),
        (
            "UID=carol, DC=strongswan, DC=org",
            "304831153013060a0992268993f22c64010113056361726f6c311a3018060a0992268993f22c64011913\
             0a7374726f6e677377616e31133011060a0992268993f22c64011913036f7267",
        ),
        ("CN=a=b", "300e310c300a06035504031303613d62"),
        ("CN=", "300b3109300706035504031300"),
        ("cn=moon,o=x", "301b310d300b060355040313046d6f6f6e310a3008060355040a130178"),
        ("CN=x,", "300c310a30080603550403130178"),
        (" C=CH", "300d310b3009060355040613024348"),
        ("CN= a b  , O = c ", "301a310c300a06035504031303612062310a3008060355040a130163"),
        (
            "/C=CH/O=a,b/CN=x",
            "3027310b3009060355040613024348310c300a060355040a1303612c62310a30080603550403130178",
        ),
        ("CN=a+OU=b", "3011310f300d06035504031306612b4f553d62"),
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn names_are_encoded_as_by_strongswan() {
        for (text, der) in STRONGSWAN {
            let name = DnText::from_text(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(hex(&name.der), *der, "{text}");
            assert!(is_der_sequence(&name.der));
        }
        let long = DnText::from_text(&format!("CN={}", "a".repeat(200))).unwrap().der;
        assert!(hex(&long).starts_with("3081d63181d33081d006035504031381c8616161"));
        assert!(
            is_der_sequence(&long)
                && is_der_sequence(&DnText::from_text(&format!("CN={}", "a".repeat(300))).unwrap().der)
        );
    }

    #[test]
    fn names_that_strongswan_rejects_are_rejected() {
        for text in [
            "XX=1",
            "CN=a\\, b, O=c",
            "2.5.4.3=moon",
            "=x",
            ",CN=x",
            "CN=x,,O=y",
            "/CN=a/b=c",
            "CN=a,b",
            "C=CH,\tO=y",
        ] {
            assert!(DnText::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_in_order() {
        let expected = vec![(&[0x55, 4, 6][..], "CH"), (&[0x55, 4, 3], "*")];
        assert_eq!(dn_text_parts("C=CH, CN=*"), Some(expected));
        assert_eq!(dn_text_parts("moon"), None);
    }

    #[test]
    fn a_displayed_name_parses_to_the_same_name() {
        for (text, shown) in [
            ("C=CH, O=strongSwan, CN=moon", Some("C=CH, O=strongSwan, CN=moon")),
            ("/c=CH/o=a,b/cn=x", Some("/C=CH/O=a,b/CN=x")),
            ("E=a@b.c,CN= J\u{fc}rg  O'Neill ", Some("E=a@b.c, CN=J\u{fc}rg  O'Neill")),
            ("CN=", Some("CN=")),
            // A line break, a right-to-left override, and a star that would be a wildcard.
            ("CN=a\nb", None),
            ("CN=a\u{202e}b", None),
            ("CN=*", None),
        ] {
            let der = DnText::from_text(text).unwrap().der;
            assert_eq!(dn_to_text(&der).as_deref(), shown, "{text}");
        }
        // A comma and a slash; an attribute without a name; two attributes in one part; not a Name; an empty
        // Name.
        let both = DnText::from_text("CN=a,").unwrap().der;
        assert_eq!(dn_to_text(&both).as_deref(), Some("CN=a"));
        let comma_and_slash = element(
            SEQUENCE,
            &element(
                SET,
                &element(SEQUENCE, &[element(OBJECT, &[0x55, 4, 3]), element(UTF8, b"a,/")].concat()),
            ),
        );
        let unnamed = element(
            SEQUENCE,
            &element(
                SET,
                &element(SEQUENCE, &[element(OBJECT, &[0x55, 4, 99]), element(UTF8, b"a")].concat()),
            ),
        );
        for der in [&comma_and_slash[..], &unnamed, b"junk", &[0x30, 0]] {
            assert_eq!(dn_to_text(der), None, "{der:02x?}");
        }
    }

    #[test]
    fn sequences() {
        for der in
            [&[][..], &[0x30], &[0x30, 1], &[0x31, 0], &[0x30, 0, 0], &[0x30, 0x81, 2, 1], &[0x30, 0x80]]
        {
            assert!(!is_der_sequence(der), "{der:?}");
        }
    }
}
