//! OCSP requests and responses (RFC 6960 sections 4.1 and 4.2), with a nonce (RFC 8954).

use super::responder::ResponderId;
use super::{
    CLOCK_SKEW, CertStatus, DEFAULT_VALIDITY, IssuedCert, MAX_OCSP_LEN, Parsed, Signed, StatusAnswer,
    StatusFault, StatusVerifier, key_hash, to_unix,
};
use crate::certificate::read_value;
use crate::extension::Extension;
use crate::time::{self, Seconds};
use alloc::vec::Vec;
use casemate_crypto::der::{INTEGER, Malformed, NULL, OCTET_STRING, OID, Reader, SEQUENCE, write};
use casemate_crypto::{HashAlg, Providers};

/// id-pkix-ocsp-basic, as an OBJECT IDENTIFIER's content.
const BASIC: [u8; 9] = [0x2B, 6, 1, 5, 5, 7, 48, 1, 1];
const ENUMERATED: u8 = 0x0A;
/// OCSPResponseStatus successful.
const SUCCESSFUL: [u8; 1] = [0];

/// id-pkix-ocsp-nonce, as an OBJECT IDENTIFIER's content.
const NONCE: [u8; 9] = [0x2B, 6, 1, 5, 5, 7, 48, 1, 2];
/// id-sha1 and id-sha256.
const SHA1: [u8; 5] = [0x2B, 14, 3, 2, 26];
const SHA256: [u8; 9] = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// Length of a nonce in bytes. RFC 8954 section 2.1: 32 bytes are recommended.
pub const NONCE_LEN: usize = 32;

/// Random bytes by which the response to a request is recognized.
pub type OcspNonce = [u8; NONCE_LEN];

/// BasicOCSPResponse.
struct Basic<'a> {
    signed: Signed<'a>,
    responder: ResponderId<'a>,
    produced_at: Seconds,
    /// The SingleResponses.
    responses: &'a [u8],
    nonce: Option<&'a [u8]>,
    /// The certificates that the responder has added.
    certs: &'a [u8],
}

/// SingleResponse.
struct Single<'a> {
    cert_id: CertId<'a>,
    /// `None`: the responder does not know the certificate.
    status: Option<CertStatus>,
    this_update: Seconds,
    next_update: Option<Seconds>,
}

struct CertId<'a> {
    /// OBJECT IDENTIFIER of the hash.
    hash: &'a [u8],
    issuer_name: &'a [u8],
    issuer_key: &'a [u8],
    serial: &'a [u8],
}

impl StatusVerifier<'_> {
    /// Creates a request for the status of one certificate, unsigned, in DER. Without a nonce, the responder
    /// may answer with a response that it has signed in advance.
    ///
    /// CertID has SHA-1 hashes, which every responder supports (RFC 5019 section 2.1.1) and which protect
    /// nothing: the response is signed and names the certificate again.
    pub fn ocsp_request(
        &self,
        issued: IssuedCert<'_>,
        nonce: Option<&OcspNonce>,
    ) -> Result<Vec<u8>, StatusFault> {
        let Parsed { cert, issuer } = Parsed::new(issued)?;
        let hashed = |alg| {
            let name = self.providers.hash(alg, &[issuer.subject])?;
            Some((name, key_hash(&issuer, alg, self.providers)?))
        };
        let sha1 = hashed(HashAlg::Sha1).map(|hashes| (&SHA1[..], hashes));
        let found = sha1.or_else(|| hashed(HashAlg::Sha256).map(|hashes| (&SHA256[..], hashes)));
        let (oid, (name, key)) = found.ok_or(StatusFault::Hash)?;
        let alg = write(SEQUENCE, &[&write(OID, &[oid]), &write(NULL, &[])]);
        let (name, key) = (write(OCTET_STRING, &[name.as_slice()]), write(OCTET_STRING, &[key.as_slice()]));
        let cert_id = write(SEQUENCE, &[&alg, &name, &key, &write(INTEGER, &[cert.serial])]);
        let list = write(SEQUENCE, &[&write(SEQUENCE, &[&cert_id])]);
        let extensions = nonce.map(|nonce| {
            // The value of the extension is an OCTET STRING inside the OCTET STRING of every extension.
            let value = write(OCTET_STRING, &[&write(OCTET_STRING, &[nonce])]);
            let extension = write(SEQUENCE, &[&write(OID, &[&NONCE]), &value]);
            write(0xA2, &[&write(SEQUENCE, &[&extension])])
        });
        let tbs = write(SEQUENCE, &[&list, extensions.as_deref().unwrap_or_default()]);
        Ok(write(SEQUENCE, &[&tbs]))
    }

    /// Verifies an OCSP response in DER about a certificate.
    ///
    /// `nonce` is that of the request; `None` for a response that no request of this host has caused (RFC
    /// 4806). Responders that sign in advance send no nonce; such a response may have been recorded, but not
    /// before its thisUpdate. `trusted` are certificates of responders in DER that the administrator has
    /// added, besides the issuer and the responders that it has authorized.
    pub fn verify_ocsp(
        &self,
        issued: IssuedCert<'_>,
        response: &[u8],
        nonce: Option<&OcspNonce>,
        trusted: &[&[u8]],
    ) -> Result<StatusAnswer, StatusFault> {
        if response.len() > MAX_OCSP_LEN {
            return Err(StatusFault::TooLarge);
        }
        let parsed = Parsed::new(issued)?;
        let basic = Basic::parse(basic_response(response)?)?;
        self.check_responder(&parsed.issuer, &basic.responder, basic.signed, basic.certs, trusted)?;
        if let Some((sent, received)) = nonce.zip(basic.nonce)
            && sent != received
        {
            return Err(StatusFault::Nonce);
        }
        if basic.produced_at > self.now().saturating_add(CLOCK_SKEW) {
            return Err(StatusFault::NotYetValid);
        }
        let mut responses = Reader::new(basic.responses);
        let mut fault = StatusFault::OtherCertificate;
        while !responses.is_empty() {
            let single = Single::parse(&mut responses)?;
            if !single.cert_id.is_of(&parsed, self.providers) {
                continue;
            }
            match self.judge(&single) {
                Ok(answer) => return Ok(answer),
                Err(why) => fault = why,
            }
        }
        Err(fault)
    }

    fn judge(&self, single: &Single<'_>) -> Result<StatusAnswer, StatusFault> {
        let now = self.now();
        if single.this_update > now.saturating_add(CLOCK_SKEW) {
            return Err(StatusFault::NotYetValid);
        }
        let by_default = single.this_update.saturating_add(DEFAULT_VALIDITY);
        let until = single.next_update.unwrap_or(by_default);
        if until < now {
            return Err(StatusFault::Stale);
        }
        let status = single.status.ok_or(StatusFault::UnknownToResponder)?;
        Ok(StatusAnswer { status, valid_until: to_unix(until) })
    }
}

/// The BasicOCSPResponse inside of an OCSPResponse.
fn basic_response(der: &[u8]) -> Result<&[u8], StatusFault> {
    let mut outer = Reader::only(SEQUENCE, der)?;
    let status = outer.read(ENUMERATED)?;
    if status != SUCCESSFUL {
        return Err(status.first().map_or(StatusFault::Malformed, |status| StatusFault::Refused(*status)));
    }
    let mut bytes = Reader::only(SEQUENCE, outer.read(0xA0)?)?;
    outer.finish()?;
    if bytes.read(OID)? != BASIC {
        return Err(StatusFault::Malformed);
    }
    let response = bytes.read(OCTET_STRING)?;
    bytes.finish()?;
    Ok(response)
}

impl<'a> Basic<'a> {
    fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Reader::only(SEQUENCE, der)?;
        let tbs = read_value(&mut outer, SEQUENCE)?;
        let algorithm = read_value(&mut outer, SEQUENCE)?.whole;
        let signature = outer.read_bit_string()?;
        let certs = match outer.read_optional(0xA0)? {
            Some(certs) => Reader::only(SEQUENCE, certs)?.rest(),
            None => &[],
        };
        outer.finish()?;

        let mut inner = Reader::new(tbs.content);
        // Version 1, encoded as 0, is the default, which some responders write all the same.
        if let Some(version) = inner.read_optional(0xA0)?
            && !Reader::new(version).read_unsigned()?.is_empty()
        {
            return Err(Malformed);
        }
        let responder = ResponderId::parse(inner.read_any()?)?;
        let produced_at = time::read(&mut inner)?;
        let responses = inner.read(SEQUENCE)?;
        let nonce = nonce(inner.read_optional(0xA1)?)?;
        inner.finish()?;
        let signed = Signed { content: tbs.whole, algorithm, signature };
        Ok(Self { signed, responder, produced_at, responses, nonce, certs })
    }
}

/// The nonce among the extensions of a response. An unknown critical extension makes the response unusable.
fn nonce(extensions: Option<&[u8]>) -> Result<Option<&[u8]>, Malformed> {
    let Some(extensions) = extensions else { return Ok(None) };
    let mut list = Reader::only(SEQUENCE, extensions)?;
    let mut nonce = None;
    while !list.is_empty() {
        let extension = Extension::next(&mut list)?;
        if extension.oid == NONCE {
            nonce = Some(Reader::only(OCTET_STRING, extension.value)?.rest());
        } else if extension.is_critical {
            return Err(Malformed);
        }
    }
    Ok(nonce)
}

impl<'a> Single<'a> {
    fn parse(list: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut reader = list.read_nested(SEQUENCE)?;
        let cert_id = CertId::parse(reader.read_nested(SEQUENCE)?)?;
        let status = reader.read_any()?;
        let status = match status.tag {
            0x80 => Some(CertStatus::Good),
            0xA1 => Some(CertStatus::Revoked),
            0x82 => None,
            _ => return Err(Malformed),
        };
        let this_update = time::read(&mut reader)?;
        let next_update = match reader.read_optional(0xA0)? {
            Some(next) => Some(time::read(&mut Reader::new(next))?),
            None => None,
        };
        if let Some(extensions) = reader.read_optional(0xA1)? {
            let mut list = Reader::only(SEQUENCE, extensions)?;
            while !list.is_empty() {
                if Extension::next(&mut list)?.is_critical {
                    return Err(Malformed);
                }
            }
        }
        reader.finish()?;
        Ok(Self { cert_id, status, this_update, next_update })
    }
}

impl<'a> CertId<'a> {
    fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let hash = reader.read_nested(SEQUENCE)?.read(OID)?;
        let (issuer_name, issuer_key) = (reader.read(OCTET_STRING)?, reader.read(OCTET_STRING)?);
        let serial = reader.read(INTEGER)?;
        reader.finish()?;
        Ok(Self { hash, issuer_name, issuer_key, serial })
    }

    /// Whether it names this certificate, by its serial number and the name and key of its issuer.
    fn is_of(&self, Parsed { cert, issuer }: &Parsed<'_>, providers: &Providers<'_>) -> bool {
        let alg = match self.hash {
            hash if hash == SHA1 => HashAlg::Sha1,
            hash if hash == SHA256 => HashAlg::Sha256,
            _ => return false,
        };
        let name = providers.hash(alg, &[issuer.subject]);
        let key = key_hash(issuer, alg, providers);
        self.serial == cert.serial
            && name.is_some_and(|name| name.as_slice() == self.issuer_name)
            && key.is_some_and(|key| key.as_slice() == self.issuer_key)
    }
}
