//! A certificate, read (RFC 5280 section 4.1). The view borrows the bytes; what is read later, as names are, was checked here.

use crate::extension::Extensions;
use crate::time::{self, Seconds};
use casemate_crypto::der::{INTEGER, Malformed, Reader, SEQUENCE, Value};

/// What a certificate says.
#[derive(Debug, Clone)]
pub(crate) struct Cert<'a> {
    /// All of it.
    pub(crate) der: &'a [u8],
    /// What is signed.
    pub(crate) tbs: &'a [u8],
    /// The serial number as it is encoded.
    pub(crate) serial: &'a [u8],
    /// Issuer and subject, as whole Names.
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) not_before: Seconds,
    pub(crate) not_after: Seconds,
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    /// The whole AlgorithmIdentifier of the signature.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> Cert<'a> {
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::only(SEQUENCE, der)?;
        let tbs = value(&mut outer, SEQUENCE)?;
        let algorithm = value(&mut outer, SEQUENCE)?.whole;
        let signature = outer.bytes_of_bits()?;
        outer.finish()?;

        let mut inner = Reader::new(tbs.content);
        // Only version 3, which is 2, has extensions, without which there is no CA (RFC 5280 section 4.1.2.1).
        let mut version = Reader::new(inner.read(0xA0)?);
        if version.unsigned()? != [2] {
            return Err(Malformed);
        }
        version.finish()?;
        let serial = inner.read(INTEGER)?;
        // RFC 5280 section 4.1.1.2: both name the same algorithm.
        if inner.any()?.whole != algorithm || serial.is_empty() {
            return Err(Malformed);
        }
        let issuer = value(&mut inner, SEQUENCE)?.whole;
        let mut validity = inner.enter(SEQUENCE)?;
        let (not_before, not_after) = (time::read(&mut validity)?, time::read(&mut validity)?);
        validity.finish()?;
        let subject = value(&mut inner, SEQUENCE)?.whole;
        let spki = value(&mut inner, SEQUENCE)?.whole;
        // issuerUniqueID and subjectUniqueID.
        inner.read_if(0x81)?;
        inner.read_if(0x82)?;
        let extensions = Extensions::parse(inner.read_if(0xA3)?)?;
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

    /// RFC 5280 section 3.2: issuer and subject are the same entity, as when a CA changes its key.
    pub(crate) fn is_self_issued(&self) -> bool {
        crate::dn::same_dn(self.issuer, self.subject)
    }
}

/// The next value, which must have this tag.
pub(crate) fn value<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<Value<'a>, Malformed> {
    reader.any().and_then(|value| if value.tag == tag { Ok(value) } else { Err(Malformed) })
}
