//! Certificate revocation lists (RFC 5280 section 5), complete and direct ones: no deltas, and none that speak for other issuers.

use crate::certificate::{Cert, value};
use crate::extension::{Extension, truth};
use crate::time::{self, Seconds};
use casemate_crypto::der::{INTEGER, Malformed, Reader, SEQUENCE};

/// What a CRL says.
#[derive(Debug, Clone)]
pub(crate) struct Crl<'a> {
    /// What is signed.
    pub(crate) tbs: &'a [u8],
    /// The whole Name of the issuer.
    pub(crate) issuer: &'a [u8],
    pub(crate) this_update: Seconds,
    pub(crate) next_update: Option<Seconds>,
    /// The whole AlgorithmIdentifier of the signature.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    entries: &'a [u8],
    scope: Scope<'a>,
}

/// issuingDistributionPoint (RFC 5280 section 5.2.5): which certificates the CRL is about.
#[derive(Debug, Clone, Copy, Default)]
struct Scope<'a> {
    /// The name of the point, if the CRL is only about certificates that name it too.
    point: Option<&'a [u8]>,
    users_only: bool,
    cas_only: bool,
    /// A critical extension that is not known, a delta, other issuers, some reasons only, or attribute certificates.
    is_unusable: bool,
}

impl<'a> Crl<'a> {
    /// Reads all but the entries, which [`check_entries`](Self::check_entries) looks at once.
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::only(SEQUENCE, der)?;
        let tbs = value(&mut outer, SEQUENCE)?;
        let algorithm = value(&mut outer, SEQUENCE)?.whole;
        let signature = outer.bytes_of_bits()?;
        outer.finish()?;

        let mut inner = Reader::new(tbs.content);
        // RFC 5280 section 5.1.2.1: version 2, which is 1, if there are extensions.
        let is_v2 =
            inner.read_if(INTEGER)?.map(|version| if version == [1] { Ok(()) } else { Err(Malformed) });
        is_v2.transpose()?;
        // RFC 5280 section 5.1.1.2: both name the same algorithm.
        if inner.any()?.whole != algorithm {
            return Err(Malformed);
        }
        let issuer = value(&mut inner, SEQUENCE)?.whole;
        crate::dn::check(issuer)?;
        let this_update = time::read(&mut inner)?;
        let next_update = match inner.peek() {
            Some(time::UTC_TIME | time::GENERALIZED_TIME) => Some(time::read(&mut inner)?),
            _ => None,
        };
        let entries = inner.read_if(SEQUENCE)?.unwrap_or_default();
        let scope = Scope::parse(inner.read_if(0xA0)?)?;
        inner.finish()?;
        if is_v2.is_none() && scope.is_unusable {
            return Err(Malformed);
        }
        Ok(Self { tbs: tbs.whole, issuer, this_update, next_update, algorithm, signature, entries, scope })
    }

    /// Whether the CRL can be used: no entry has a critical extension (RFC 5280 section 5.3), as those of other issuers have.
    pub(crate) fn check_entries(&self) -> Result<bool, Malformed> {
        let mut entries = Reader::new(self.entries);
        let mut is_usable = !self.scope.is_unusable;
        while !entries.is_empty() {
            let mut entry = entries.enter(SEQUENCE)?;
            entry.read(INTEGER)?;
            time::read(&mut entry)?;
            if let Some(extensions) = entry.read_if(SEQUENCE)? {
                let mut extensions = Reader::new(extensions);
                while !extensions.is_empty() {
                    is_usable &= !Extension::next(&mut extensions)?.is_critical;
                }
            }
            entry.finish()?;
        }
        Ok(is_usable)
    }

    /// Whether the certificate is one of those that the CRL is about.
    pub(crate) fn covers(&self, cert: &Cert<'_>) -> bool {
        let is_ca = cert.extensions.basic.is_some_and(|basic| basic.is_ca);
        let by_kind = if is_ca { !self.scope.users_only } else { !self.scope.cas_only };
        let by_point = self.scope.point.is_none_or(|point| names_point(cert, point));
        by_kind && by_point && crate::dn::same_dn(self.issuer, cert.issuer)
    }

    /// Whether the serial number, as it is encoded, is in the list.
    pub(crate) fn lists(&self, serial: &[u8]) -> bool {
        let mut entries = Reader::new(self.entries);
        while let Ok(mut entry) = entries.enter(SEQUENCE) {
            if entry.read(INTEGER) == Ok(serial) {
                return true;
            }
        }
        false
    }
}

/// Whether a distribution point of the certificate has a name of the CRL's.
fn names_point(cert: &Cert<'_>, of_crl: &[u8]) -> bool {
    let mut points = Reader::new(cert.extensions.distribution_points.unwrap_or_default());
    while let Ok(mut point) = points.enter(SEQUENCE) {
        let name = point.read_if(0xA0).ok().flatten();
        if name.is_some_and(|name| name == of_crl || share_full_name(name, of_crl)) {
            return true;
        }
    }
    false
}

/// fullName is a list of GeneralNames, of which one must be in both (RFC 5280 section 6.3.3).
fn share_full_name(a: &[u8], b: &[u8]) -> bool {
    let (Ok(mut a), Ok(b)) = (Reader::new(a).enter(0xA0), Reader::new(b).enter(0xA0)) else { return false };
    while let Ok(name) = a.any() {
        let mut others = b.clone();
        while let Ok(other) = others.any() {
            if name == other {
                return true;
            }
        }
    }
    false
}

impl<'a> Scope<'a> {
    fn parse(field: Option<&'a [u8]>) -> Result<Self, Malformed> {
        let mut scope = Self::default();
        let Some(field) = field else { return Ok(scope) };
        let mut list = Reader::only(SEQUENCE, field)?;
        while !list.is_empty() {
            let extension = Extension::next(&mut list)?;
            match extension.oid {
                // issuingDistributionPoint.
                [0x55, 0x1D, 28] => scope.point(extension.value)?,
                // authorityKeyIdentifier and cRLNumber, which say nothing about which certificates; neither may be critical.
                _ if extension.is_critical => scope.is_unusable = true,
                // deltaCRLIndicator, which is to be critical.
                [0x55, 0x1D, 27] => scope.is_unusable = true,
                _ => {}
            }
        }
        Ok(scope)
    }

    fn point(&mut self, value: &'a [u8]) -> Result<(), Malformed> {
        let mut reader = Reader::only(SEQUENCE, value)?;
        self.point = reader.read_if(0xA0)?;
        self.users_only = flag(&mut reader, 0x81)?;
        self.cas_only = flag(&mut reader, 0x82)?;
        let some_reasons = reader.read_if(0x83)?.is_some();
        let is_indirect = flag(&mut reader, 0x84)?;
        let of_attributes = flag(&mut reader, 0x85)?;
        self.is_unusable |= some_reasons || is_indirect || of_attributes;
        reader.finish()
    }
}

/// A BOOLEAN DEFAULT FALSE with a tag of its own.
fn flag(reader: &mut Reader<'_>, tag: u8) -> Result<bool, Malformed> {
    reader.read_if(tag)?.map_or(Ok(false), truth)
}
