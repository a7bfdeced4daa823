//! Identities. Their type is derived from the text, as in strongSwan, or given by a prefix with a colon.

use super::{Parsed, traffic, value};
use alloc::vec::Vec;
use casemate_ike::config::{IdPattern, Identity, IdentityKind};
use casemate_pki::DnText;
use casemate_wire::ike::{Id, IdType, PayloadType};
use core::net::IpAddr;

/// Parses an identity. Returns `None` for `%any`.
pub fn parse_identity(text: &str) -> Parsed<Option<Identity>> {
    match parse_id_pattern(text)? {
        IdPattern::Any => Ok(None),
        IdPattern::Exact(identity) => Ok(Some(identity)),
        IdPattern::Suffix(..) | IdPattern::DnPattern(_) => {
            Err("an identity without a `*` was expected".into())
        }
    }
}

/// Parses the name of a post-quantum pre-shared key. Returns the octets that a PPK_ID contains: those of the
/// identity, or the text if it is none, such as Base64.
pub fn parse_ppk_id(text: &str) -> Parsed<Vec<u8>> {
    if text.contains('*') {
        return Err(
            "a name without a `*` was expected; in a connection, a `*` was expected only in front".into()
        );
    }
    match parse_identity(text) {
        Ok(Some(identity)) => Ok(identity.to_payload().1),
        Ok(None) => Err("the name of a key was expected".into()),
        Err(_) => Ok(text.into()),
    }
}

/// Parses an identity that may contain the wildcard `*`.
pub fn parse_id_pattern(text: &str) -> Parsed<IdPattern> {
    // The forms that strongSwan reads as any identity.
    if matches!(text, "%any" | "%any4" | "%any6" | "*" | "0.0.0.0" | "::" | "0::0") {
        return Ok(IdPattern::Any);
    }
    if let Some((kind, data)) = split_type_prefix(text) {
        return parse_typed(kind, data).map(IdPattern::Exact);
    }
    if text.contains('=') {
        let name = DnText::from_text(text)?;
        return Ok(if name.has_wildcard {
            IdPattern::DnPattern(text.into())
        } else {
            exactly(Identity::Dn(name.der))
        });
    }
    if let Some(rest) = text.strip_prefix('@') {
        return Ok(match (rest.strip_prefix('#'), rest.strip_prefix('@')) {
            (Some(hex), _) => exactly(Identity::KeyId(parse_hex_bytes(hex)?)),
            (_, Some(email)) => suffix_or_exact(IdentityKind::Email, email)?,
            _ => suffix_or_exact(IdentityKind::Fqdn, rest)?,
        });
    }
    if text.contains('@') {
        return suffix_or_exact(IdentityKind::Email, text);
    }
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Ok(exactly(Identity::Address(addr)));
    }
    if traffic::parse_addr_range(text).is_some() {
        return Err("one address was expected: a peer cannot be a subnet or a range".into());
    }
    // strongSwan reads a text with a colon that is not an address as a key ID.
    if text.contains(':') {
        Ok(exactly(Identity::KeyId(text.into())))
    } else {
        suffix_or_exact(IdentityKind::Fqdn, text)
    }
}

fn exactly(identity: Identity) -> IdPattern {
    IdPattern::Exact(identity)
}

/// A name, or a suffix after a leading `*`.
fn suffix_or_exact(kind: IdentityKind, text: &str) -> Parsed<IdPattern> {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control() || !byte.is_ascii()) {
        return Err("an identity in ASCII was expected".into());
    }
    Ok(match text.strip_prefix('*') {
        Some(end) if !end.is_empty() && !end.contains('*') => IdPattern::Suffix(kind, end.into()),
        _ if text.contains('*') => return Err("a `*` was expected only in front, as in *.example.com".into()),
        _ if kind == IdentityKind::Email => exactly(Identity::Email(text.into())),
        _ => exactly(Identity::Fqdn(text.into())),
    })
}

/// Splits the type prefix from the data.
fn split_type_prefix(text: &str) -> Option<(IdType, &str)> {
    let (prefix, data) = text.split_once(':')?;
    let kind = match prefix {
        "ipv4" => IdType::IPV4_ADDR,
        "ipv6" => IdType::IPV6_ADDR,
        "rfc822" | "email" | "userfqdn" => IdType::RFC822_ADDR,
        "fqdn" | "dns" => IdType::FQDN,
        "asn1dn" => IdType::DER_ASN1_DN,
        "asn1gn" => IdType(10),
        "keyid" => IdType::KEY_ID,
        _ => IdType(prefix.strip_prefix('{')?.strip_suffix('}')?.parse().ok()?),
    };
    Some((kind, data))
}

/// Parses the data of an explicit type: hexadecimal digits after `#`, or plain text.
fn parse_typed(kind: IdType, data: &str) -> Parsed<Identity> {
    let data = match data.strip_prefix('#') {
        Some(hex) => parse_hex_bytes(hex)?,
        None => data.as_bytes().to_vec(),
    };
    let is_name = kind == IdType::DER_ASN1_DN;
    // RFC 7296 section 3.5: an identity that no peer can send is refused.
    let body = [&[kind.0, 0, 0, 0], data.as_slice()].concat();
    Id::parse(PayloadType::ID_I, &body)
        .ok()
        .and_then(|id| Identity::from_payload(&id))
        .filter(|_| !is_name || casemate_pki::is_der_sequence(&data))
        .ok_or_else(|| {
            "the data of an identity of this type was expected, in hexadecimal digits after `#`".into()
        })
}

fn parse_hex_bytes(hex: &str) -> Parsed<Vec<u8>> {
    let bytes = value::parse_hex(hex).map(|bytes| bytes.to_vec());
    bytes.ok_or_else(|| "pairs of hexadecimal digits were expected after `#`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types and bytes that libstrongswan 5.9.8 produces for the same text
    /// (`identification_create_from_string`).
    const STRONGSWAN: &[(&str, u8, &[u8])] = &[
        ("10.0.0.1", 1, &[10, 0, 0, 1]),
        ("fec0::1", 5, &[0xfe, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("moon.strongswan.org", 2, b"moon.strongswan.org"),
        ("@moon", 2, b"moon"),
        ("@#0a0b", 11, &[10, 11]),
        ("@@carol", 3, b"carol"),
        ("carol@strongswan.org", 3, b"carol@strongswan.org"),
        ("keyid:#0102", 11, &[1, 2]),
        ("keyid:abc", 11, b"abc"),
        ("fqdn:#6d", 2, b"m"),
        ("fqdn:x", 2, b"x"),
        ("dns:a.b", 2, b"a.b"),
        ("ipv4:#0a000001", 1, &[10, 0, 0, 1]),
        ("email:a", 3, b"a"),
        ("foo:bar", 11, b"foo:bar"),
        ("{11}:abc", 11, b"abc"),
        ("1.2.3", 2, b"1.2.3"),
        ("asn1dn:#3000", 9, &[0x30, 0]),
    ];

    #[test]
    fn as_strongswan_reads_them() {
        for (text, kind, data) in STRONGSWAN {
            let id = parse_identity(text).unwrap().unwrap();
            assert_eq!(id.to_payload(), (IdType(*kind), data.to_vec()), "{text}");
        }
        for text in ["%any", "*", "0.0.0.0", "%any6", "::"] {
            assert_eq!(parse_identity(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn wildcards() {
        let ending = |kind, end: &str| Ok(IdPattern::Suffix(kind, end.into()));
        assert_eq!(parse_id_pattern("*.strongswan.org"), ending(IdentityKind::Fqdn, ".strongswan.org"));
        assert_eq!(parse_id_pattern("@*.strongswan.org"), ending(IdentityKind::Fqdn, ".strongswan.org"));
        assert_eq!(parse_id_pattern("*@strongswan.org"), ending(IdentityKind::Email, "@strongswan.org"));
        let name = "C=CH, O=strongSwan, CN=*";
        assert_eq!(parse_id_pattern(name), Ok(IdPattern::DnPattern(name.into())));
        for text in ["a.*.org", "*a*", "**"] {
            assert!(parse_id_pattern(text).is_err(), "{text}");
        }
        assert!(parse_identity("*.strongswan.org").is_err());
    }

    #[test]
    fn invalid_identities_are_rejected() {
        for text in [
            "10.0.0.0/8",
            "10.0.0.1-10.0.0.9",
            "fec0::/16",
            "ipv4:10.0.0.1",
            "keyid:#0",
            "@#xy",
            "asn1gn:#00",
            "{99}:a",
            "XX=1",
            "CN=a, b",
            "asn1dn:#04",
            "müller",
        ] {
            assert!(parse_identity(text).is_err(), "{text}");
        }
    }
}
