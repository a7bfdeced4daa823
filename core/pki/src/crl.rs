//! Certificate revocation lists (RFC 5280 section 5): complete and delta CRLs. Indirect CRLs are not used.

use crate::certificate::{Cert, read_value};
use crate::extension::{Extension, parse_boolean};
use crate::time::{self, Seconds};
use casemate_crypto::der::{INTEGER, Malformed, Reader, SEQUENCE};

/// A parsed CRL.
#[derive(Debug, Clone)]
pub(crate) struct Crl<'a> {
    /// The signed part (TBSCertList).
    pub(crate) tbs: &'a [u8],
    /// Issuer, as a complete Name.
    pub(crate) issuer: &'a [u8],
    pub(crate) this_update: Seconds,
    pub(crate) next_update: Option<Seconds>,
    /// Complete AlgorithmIdentifier of the signature.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    entries: &'a [u8],
    extensions: CrlExtensions<'a>,
}

/// crlExtensions (RFC 5280 section 5.2).
#[derive(Debug, Clone, Copy, Default)]
struct CrlExtensions<'a> {
    scope: Scope<'a>,
    /// cRLNumber.
    #[cfg(feature = "status")]
    number: Option<&'a [u8]>,
    /// BaseCRLNumber, if the CRL has only changes since that complete one (deltaCRLIndicator).
    delta_since: Option<&'a [u8]>,
    /// freshestCRL: the contents of its list of distribution points.
    #[cfg(feature = "status")]
    freshest: Option<&'a [u8]>,
    /// Whether there is an unknown critical extension.
    unknown_critical: bool,
}

/// issuingDistributionPoint (RFC 5280 section 5.2.5): the certificates that the CRL covers.
#[derive(Debug, Clone, Copy, Default)]
struct Scope<'a> {
    /// Name of the distribution point, if the CRL covers only certificates that name it.
    point: Option<&'a [u8]>,
    users_only: bool,
    cas_only: bool,
    /// Whether the CRL is indirect, limited to some reasons, or for attribute certificates.
    is_unusable: bool,
}

impl<'a> Crl<'a> {
    /// Parses everything except the entries, which [`check_entries`](Self::check_entries) validates once.
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::only(SEQUENCE, der)?;
        let tbs = read_value(&mut outer, SEQUENCE)?;
        let algorithm = read_value(&mut outer, SEQUENCE)?.whole;
        let signature = outer.read_bit_string()?;
        outer.finish()?;

        let mut inner = Reader::new(tbs.content);
        // RFC 5280 section 5.1.2.1: version 2, encoded as 1, if there are extensions.
        let is_v2 =
            inner.read_optional(INTEGER)?.map(|version| if version == [1] { Ok(()) } else { Err(Malformed) });
        is_v2.transpose()?;
        // RFC 5280 section 5.1.1.2: both fields name the same algorithm.
        if inner.read_any()?.whole != algorithm {
            return Err(Malformed);
        }
        let issuer = read_value(&mut inner, SEQUENCE)?.whole;
        crate::dn::check(issuer)?;
        let this_update = time::read(&mut inner)?;
        let next_update = match inner.peek() {
            Some(time::UTC_TIME | time::GENERALIZED_TIME) => Some(time::read(&mut inner)?),
            _ => None,
        };
        let entries = inner.read_optional(SEQUENCE)?.unwrap_or_default();
        let extensions = CrlExtensions::parse(inner.read_optional(0xA0)?)?;
        inner.finish()?;
        if is_v2.is_none() && !extensions.are_usable() {
            return Err(Malformed);
        }
        let tbs = tbs.whole;
        Ok(Self { tbs, issuer, this_update, next_update, algorithm, signature, entries, extensions })
    }

    /// Whether the CRL can be used: no entry has a critical extension (RFC 5280 section 5.3), as in indirect
    /// CRLs.
    pub(crate) fn check_entries(&self) -> Result<bool, Malformed> {
        let mut entries = Reader::new(self.entries);
        let mut is_usable = self.extensions.are_usable();
        while !entries.is_empty() {
            let mut entry = entries.read_nested(SEQUENCE)?;
            entry.read(INTEGER)?;
            time::read(&mut entry)?;
            if let Some(extensions) = entry.read_optional(SEQUENCE)? {
                let mut extensions = Reader::new(extensions);
                while !extensions.is_empty() {
                    is_usable &= !Extension::next(&mut extensions)?.is_critical;
                }
            }
            entry.finish()?;
        }
        Ok(is_usable)
    }

    /// Whether the CRL covers the certificate.
    pub(crate) fn covers(&self, cert: &Cert<'_>) -> bool {
        let is_ca = cert.extensions.basic.is_some_and(|basic| basic.is_ca);
        let scope = self.extensions.scope;
        let by_kind = if is_ca { !scope.users_only } else { !scope.cas_only };
        let by_point = scope.point.is_none_or(|point| names_point(cert, point));
        by_kind && by_point && crate::dn::same_dn(self.issuer, cert.issuer)
    }

    /// Whether the CRL has only changes since a complete one (RFC 5280 section 5.2.4). It then says nothing
    /// about certificates that it does not list.
    pub(crate) fn is_delta(&self) -> bool {
        self.extensions.delta_since.is_some()
    }

    /// Whether this complete CRL has everything from before the changes in a delta CRL (RFC 5280 section
    /// 5.2.4): its number is not lower than BaseCRLNumber.
    #[cfg(feature = "status")]
    pub(crate) fn is_base_of(&self, delta: &Crl<'_>) -> bool {
        let (Some(own), Some(since)) = (self.extensions.number, delta.extensions.delta_since) else {
            return false;
        };
        let order = |number: &[u8]| {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            let digits = number.get(zeros..).unwrap_or_default().to_vec();
            (digits.len(), digits)
        };
        order(own) >= order(since)
    }

    /// The contents of the list of distribution points of the delta CRLs (RFC 5280 section 5.2.6).
    #[cfg(feature = "status")]
    pub(crate) fn freshest(&self) -> Option<&'a [u8]> {
        self.extensions.freshest
    }

    /// Whether the CRL lists this encoded serial number as revoked. An entry of a delta CRL that ends a
    /// revocation does not: the certificate remains revoked until a complete CRL no longer lists it.
    pub(crate) fn lists(&self, serial: &[u8]) -> bool {
        let mut entries = Reader::new(self.entries);
        while let Ok(mut entry) = entries.read_nested(SEQUENCE) {
            if entry.read(INTEGER) == Ok(serial) {
                return !ends_revocation(entry);
            }
        }
        false
    }
}

/// Whether the rest of an entry has the reason removeFromCRL (RFC 5280 section 5.3.1).
fn ends_revocation(mut entry: Reader<'_>) -> bool {
    /// An ENUMERATED with the value 8.
    const REMOVE_FROM_CRL: [u8; 3] = [0x0A, 1, 8];
    let extensions = time::read(&mut entry).and_then(|_| entry.read_optional(SEQUENCE));
    let mut extensions = Reader::new(extensions.ok().flatten().unwrap_or_default());
    while let Ok(extension) = Extension::next(&mut extensions) {
        if extension.oid == [0x55, 0x1D, 21] {
            return extension.value == REMOVE_FROM_CRL;
        }
    }
    false
}

/// Whether a distribution point of the certificate has the name of the CRL's.
fn names_point(cert: &Cert<'_>, of_crl: &[u8]) -> bool {
    let mut points = Reader::new(cert.extensions.distribution_points.unwrap_or_default());
    while let Ok(mut point) = points.read_nested(SEQUENCE) {
        let name = point.read_optional(0xA0).ok().flatten();
        if name.is_some_and(|name| name == of_crl || share_full_name(name, of_crl)) {
            return true;
        }
    }
    false
}

/// Whether two fullNames, which are lists of GeneralNames, share a name (RFC 5280 section 6.3.3).
fn share_full_name(a: &[u8], b: &[u8]) -> bool {
    let (Ok(mut a), Ok(b)) = (Reader::new(a).read_nested(0xA0), Reader::new(b).read_nested(0xA0)) else {
        return false;
    };
    while let Ok(name) = a.read_any() {
        let mut others = b.clone();
        while let Ok(other) = others.read_any() {
            if name == other {
                return true;
            }
        }
    }
    false
}

impl<'a> CrlExtensions<'a> {
    fn parse(field: Option<&'a [u8]>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        let Some(field) = field else { return Ok(found) };
        let mut list = Reader::only(SEQUENCE, field)?;
        while !list.is_empty() {
            let extension = Extension::next(&mut list)?;
            match extension.oid {
                // issuingDistributionPoint.
                [0x55, 0x1D, 28] => found.scope.point(extension.value)?,
                // deltaCRLIndicator.
                [0x55, 0x1D, 27] => found.delta_since = Some(Reader::only(INTEGER, extension.value)?.rest()),
                // authorityKeyIdentifier, cRLNumber and freshestCRL do not restrict the covered certificates.
                // None may be critical.
                _ if extension.is_critical => found.unknown_critical = true,
                #[cfg(feature = "status")]
                [0x55, 0x1D, 20] => found.number = Some(Reader::only(INTEGER, extension.value)?.rest()),
                #[cfg(feature = "status")]
                [0x55, 0x1D, 46] => found.freshest = Some(Reader::only(SEQUENCE, extension.value)?.rest()),
                _ => {}
            }
        }
        Ok(found)
    }

    fn are_usable(&self) -> bool {
        !self.unknown_critical && !self.scope.is_unusable
    }
}

impl<'a> Scope<'a> {
    fn point(&mut self, value: &'a [u8]) -> Result<(), Malformed> {
        let mut reader = Reader::only(SEQUENCE, value)?;
        self.point = reader.read_optional(0xA0)?;
        self.users_only = flag(&mut reader, 0x81)?;
        self.cas_only = flag(&mut reader, 0x82)?;
        let some_reasons = reader.read_optional(0x83)?.is_some();
        let is_indirect = flag(&mut reader, 0x84)?;
        let of_attributes = flag(&mut reader, 0x85)?;
        self.is_unusable |= some_reasons || is_indirect || of_attributes;
        reader.finish()
    }
}

/// Reads a BOOLEAN DEFAULT FALSE with an implicit tag.
fn flag(reader: &mut Reader<'_>, tag: u8) -> Result<bool, Malformed> {
    reader.read_optional(tag)?.map_or(Ok(false), parse_boolean)
}
