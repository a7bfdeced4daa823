//! Extensions of a certificate that matter to IKE (RFC 5280 section 4.2).
//!
//! Without the Cargo feature `policies`, certificate policies are skipped. A path is valid with any policies
//! (RFC 5280 section 6.1) unless one is required. Only policyConstraints require one, and certificates with
//! that extension are rejected.

use crate::constraints::NameConstraints;
use crate::general_name;
use casemate_crypto::der::{BIT_STRING, Malformed, OCTET_STRING, OID, Reader, SEQUENCE};

const BOOLEAN: u8 = 0x01;
/// id-kp (RFC 5280 section 4.2.1.12), as an OBJECT IDENTIFIER's content.
const ID_KP: [u8; 7] = [0x2B, 6, 1, 5, 5, 7, 3];
/// anyExtendedKeyUsage.
const ANY_PURPOSE: [u8; 4] = [0x55, 0x1D, 37, 0];

/// id-pe-authorityInfoAccess.
#[cfg(feature = "status")]
const INFO_ACCESS: [u8; 8] = [0x2B, 6, 1, 5, 5, 7, 1, 1];

/// Accepted purposes: serverAuth and clientAuth, which many certificates of VPN gateways have, and ipsecIKE
/// (RFC 4945 section 5.1.3.12). One of them has to be present if there is any purpose.
const PURPOSES: [u8; 3] = [1, 2, 17];

/// basicConstraints (RFC 5280 section 4.2.1.9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BasicConstraints {
    pub(crate) is_ca: bool,
    pub(crate) path_len: Option<usize>,
}

/// keyUsage (RFC 5280 section 4.2.1.3): its first eight bits, the first in the most significant place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyUsage(u8);

impl KeyUsage {
    /// digitalSignature or nonRepudiation (RFC 4945 section 5.1.3.2).
    pub(crate) fn may_sign(self) -> bool {
        self.0 & 0xC0 != 0
    }

    /// keyCertSign.
    pub(crate) fn may_sign_certificates(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// cRLSign.
    pub(crate) fn may_sign_crls(self) -> bool {
        self.0 & 0x02 != 0
    }
}

/// Parsed extensions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extensions<'a> {
    pub(crate) basic: Option<BasicConstraints>,
    pub(crate) key_usage: Option<KeyUsage>,
    /// Whether extendedKeyUsage includes IKE; `None` without that extension.
    pub(crate) purpose: Option<bool>,
    /// subjectAltName: the contents of its GeneralNames.
    pub(crate) alt_names: Option<&'a [u8]>,
    pub(crate) name_constraints: Option<NameConstraints<'a>>,
    pub(crate) subject_key_id: Option<&'a [u8]>,
    pub(crate) authority_key_id: Option<&'a [u8]>,
    /// cRLDistributionPoints: the contents of the list.
    pub(crate) distribution_points: Option<&'a [u8]>,
    /// freshestCRL: the contents of the list of distribution points of delta CRLs.
    #[cfg(feature = "status")]
    pub(crate) freshest: Option<&'a [u8]>,
    /// authorityInfoAccess, as in the extension.
    #[cfg(feature = "status")]
    pub(crate) info_access: Option<&'a [u8]>,
    /// Whether extendedKeyUsage includes the signing of OCSP responses.
    #[cfg(feature = "status")]
    pub(crate) signs_ocsp: bool,
    /// Certificate policies, and their mappings and constraints.
    #[cfg(feature = "policies")]
    pub(crate) policies: crate::policy::PolicyExtensions<'a>,
    /// Whether there is a critical extension that is not processed.
    pub(crate) unknown_critical: bool,
}

/// An extension of a certificate or CRL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extension<'a> {
    pub(crate) oid: &'a [u8],
    pub(crate) is_critical: bool,
    pub(crate) value: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Reads the next extension of a SEQUENCE OF.
    pub(crate) fn next(list: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut reader = list.read_nested(SEQUENCE)?;
        let oid = reader.read(OID)?;
        let is_critical = boolean(&mut reader)?;
        let value = reader.read(OCTET_STRING)?;
        reader.finish()?;
        Ok(Self { oid, is_critical, value })
    }
}

/// A BOOLEAN DEFAULT FALSE.
fn boolean(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    reader.read_optional(BOOLEAN)?.map_or(Ok(false), parse_boolean)
}

/// Contents of a BOOLEAN DEFAULT FALSE. DER omits FALSE, but some certificates in use include it.
pub(crate) fn parse_boolean(content: &[u8]) -> Result<bool, Malformed> {
    match content {
        [0] => Ok(false),
        [0xFF] => Ok(true),
        _ => Err(Malformed),
    }
}

impl<'a> Extensions<'a> {
    /// Parses the contents of the field's explicit tag.
    pub(crate) fn parse(field: Option<&'a [u8]>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        let Some(field) = field else { return Ok(found) };
        let mut list = Reader::only(SEQUENCE, field)?;
        let mut seen = alloc::vec::Vec::new();
        while !list.is_empty() {
            let extension = Extension::next(&mut list)?;
            // RFC 5280 section 4.2: no extension occurs twice.
            if seen.contains(&extension.oid) {
                return Err(Malformed);
            }
            seen.push(extension.oid);
            if !found.take(extension)? && extension.is_critical {
                found.unknown_critical = true;
            }
        }
        Ok(found)
    }

    /// Stores an extension. Returns whether it is processed if it is critical.
    fn take(&mut self, extension: Extension<'a>) -> Result<bool, Malformed> {
        #[cfg(feature = "status")]
        if extension.oid == INFO_ACCESS {
            // RFC 5280 section 4.2.2.1: it must not be critical.
            self.info_access = Some(extension.value);
            return Ok(false);
        }
        // id-ce (RFC 5280 section 4.2.1): joint-iso-ccitt(2) ds(5) 29.
        let [0x55, 0x1D, number] = extension.oid else { return Ok(false) };
        match number {
            14 => self.subject_key_id = Some(Reader::only(OCTET_STRING, extension.value)?.rest()),
            35 => self.authority_key_id = authority_key_id(extension.value)?,
            15 => self.key_usage = Some(key_usage(extension.value)?),
            17 => self.alt_names = Some(general_name::check(extension.value)?),
            19 => self.basic = Some(basic(extension.value)?),
            30 => self.name_constraints = Some(NameConstraints::parse(extension.value)?),
            31 => self.distribution_points = Some(Reader::only(SEQUENCE, extension.value)?.rest()),
            #[cfg(feature = "status")]
            46 => {
                // RFC 5280 section 4.2.1.15: it must not be critical.
                self.freshest = Some(Reader::only(SEQUENCE, extension.value)?.rest());
                return Ok(false);
            }
            37 => {
                self.purpose = Some(purpose(extension.value)?);
                #[cfg(feature = "status")]
                {
                    self.signs_ocsp = crate::status::has_ocsp_signing(extension.value);
                }
            }
            #[cfg(feature = "policies")]
            _ => return self.policies.take(*number, extension.value),
            // policyConstraints requires policies, whether critical or not.
            #[cfg(not(feature = "policies"))]
            36 => self.unknown_critical = true,
            // certificatePolicies, policyMappings and inhibitAnyPolicy are skipped.
            #[cfg(not(feature = "policies"))]
            32 | 33 | 54 => {}
            #[cfg(not(feature = "policies"))]
            _ => return Ok(false),
        }
        // RFC 5280 sections 4.2.1.1 and 4.2.1.2: key identifiers must not be critical.
        Ok(!matches!(number, 14 | 35))
    }
}

fn basic(value: &[u8]) -> Result<BasicConstraints, Malformed> {
    let mut reader = Reader::only(SEQUENCE, value)?;
    let is_ca = boolean(&mut reader)?;
    let path_len = match reader.is_empty() {
        true => None,
        // A larger number than 2^16 is no limit in practice.
        false => Some(match reader.read_unsigned()? {
            [] => 0,
            [a] => usize::from(*a),
            [a, b] => usize::from(u16::from_be_bytes([*a, *b])),
            _ => usize::from(u16::MAX),
        }),
    };
    reader.finish()?;
    Ok(BasicConstraints { is_ca, path_len })
}

fn key_usage(value: &[u8]) -> Result<KeyUsage, Malformed> {
    match Reader::only(BIT_STRING, value)?.rest() {
        // RFC 5280 section 4.2.1.3: at least one bit is set.
        [0..=7, first, rest @ ..]
            if rest.len() <= 1 && (*first != 0 || rest.iter().any(|byte| *byte != 0)) =>
        {
            Ok(KeyUsage(*first))
        }
        _ => Err(Malformed),
    }
}

fn purpose(value: &[u8]) -> Result<bool, Malformed> {
    let mut reader = Reader::only(SEQUENCE, value)?;
    let mut allows = false;
    loop {
        let oid = reader.read(OID)?;
        let of_kp =
            oid.strip_prefix(&ID_KP).is_some_and(|last| matches!(last, [one] if PURPOSES.contains(one)));
        allows |= of_kp || oid == ANY_PURPOSE;
        if reader.is_empty() {
            return Ok(allows);
        }
    }
}

/// The keyIdentifier. Issuer and serial number, which may replace it, are not used.
fn authority_key_id(value: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut reader = Reader::only(SEQUENCE, value)?;
    let id = reader.read_optional(0x80)?;
    reader.read_optional(0xA1)?;
    reader.read_optional(0x82)?;
    reader.finish()?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::der::write;

    #[test]
    fn accepted_purposes() {
        let eku = |oids: &[&[u8]]| {
            let oids: alloc::vec::Vec<u8> = oids.iter().flat_map(|oid| write(OID, &[oid])).collect();
            purpose(&write(SEQUENCE, &[&oids]))
        };
        let kp = |last: u8| [&ID_KP[..], &[last]].concat();
        for (last, allowed) in
            [(1, true), (2, true), (17, true), (3, false), (4, false), (5, false), (18, false)]
        {
            assert_eq!(eku(&[&kp(last)]), Ok(allowed), "id-kp {last}");
        }
        assert_eq!(eku(&[&kp(4), &kp(17)]), Ok(true));
        assert_eq!(eku(&[&ANY_PURPOSE]), Ok(true));
        assert_eq!(eku(&[&ID_KP]), Ok(false));
        assert_eq!(eku(&[]), Err(Malformed));
    }

    #[test]
    fn key_usages() {
        let read = |content: &[u8]| key_usage(&write(BIT_STRING, &[content]));
        let signs =
            |usage: KeyUsage| (usage.may_sign(), usage.may_sign_certificates(), usage.may_sign_crls());
        assert_eq!(read(&[7, 0x80]).map(signs), Ok((true, false, false)));
        assert_eq!(read(&[6, 0x40]).map(signs), Ok((true, false, false)));
        assert_eq!(read(&[1, 0x06]).map(signs), Ok((false, true, true)));
        assert_eq!(read(&[3, 0x08]).map(signs), Ok((false, false, false)));
        assert_eq!(read(&[7, 0, 0x80]).map(signs), Ok((false, false, false)));
        for wrong in [&[][..], &[0], &[7, 0], &[8, 0x80], &[0, 1, 1, 1]] {
            assert_eq!(read(wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
