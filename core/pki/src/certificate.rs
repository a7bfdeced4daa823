//! A parsed certificate (RFC 5280 section 4.1). It borrows the bytes. Parts that are parsed later, such as
//! names, were validated here.

use crate::extension::Extensions;
use crate::time::{self, Seconds};
use casemate_crypto::der::{INTEGER, Malformed, Reader, SEQUENCE, Value};

/// A parsed certificate.
#[derive(Debug, Clone)]
pub(crate) struct Cert<'a> {
    /// The whole certificate.
    pub(crate) der: &'a [u8],
    /// The signed part (TBSCertificate).
    pub(crate) tbs: &'a [u8],
    /// Encoded serial number.
    pub(crate) serial: &'a [u8],
    /// Issuer and subject, as complete Names.
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) not_before: Seconds,
    pub(crate) not_after: Seconds,
    /// Complete SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    /// Complete AlgorithmIdentifier of the signature.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> Cert<'a> {
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::only(SEQUENCE, der)?;
        let tbs = read_value(&mut outer, SEQUENCE)?;
        let algorithm = read_value(&mut outer, SEQUENCE)?.whole;
        let signature = outer.read_bit_string()?;
        outer.finish()?;

        let mut inner = Reader::new(tbs.content);
        // Only version 3, encoded as 2, has extensions, and a CA needs them (RFC 5280 section 4.1.2.1).
        let mut version = Reader::new(inner.read(0xA0)?);
        if version.read_unsigned()? != [2] {
            return Err(Malformed);
        }
        version.finish()?;
        let serial = inner.read(INTEGER)?;
        // RFC 5280 section 4.1.1.2: both fields name the same algorithm.
        if inner.read_any()?.whole != algorithm || serial.is_empty() {
            return Err(Malformed);
        }
        let issuer = read_value(&mut inner, SEQUENCE)?.whole;
        let mut validity = inner.read_nested(SEQUENCE)?;
        let (not_before, not_after) = (time::read(&mut validity)?, time::read(&mut validity)?);
        validity.finish()?;
        let subject = read_value(&mut inner, SEQUENCE)?.whole;
        let spki = read_value(&mut inner, SEQUENCE)?.whole;
        // issuerUniqueID and subjectUniqueID.
        inner.read_optional(0x81)?;
        inner.read_optional(0x82)?;
        let extensions = Extensions::parse(inner.read_optional(0xA3)?)?;
        inner.finish()?;
        let tbs = tbs.whole;
        for name in [issuer, subject] {
            crate::dn::check(name)?;
        }
        Ok(Self {
            der,
            tbs,
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            spki,
            algorithm,
            signature,
            extensions,
        })
    }

    /// Whether issuer and subject are the same entity, as when a CA changes its key (RFC 5280 section 3.2).
    pub(crate) fn is_self_issued(&self) -> bool {
        crate::dn::same_dn(self.issuer, self.subject)
    }
}

/// Reads the next value, which must have this tag.
pub(crate) fn read_value<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<Value<'a>, Malformed> {
    reader.read_any().and_then(|value| if value.tag == tag { Ok(value) } else { Err(Malformed) })
}
