//! Certificate and Certificate Request payloads (RFC 7296 sections 3.6 and 3.7).

use super::{CertEncoding, Fault, PayloadType, WriteError, Writer};

/// Length of the SHA-1 hashes in both payloads, in bytes.
pub const HASH_LEN: usize = 20;

/// A certificate, or data that replaces one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cert<'a> {
    /// Encoding of the data.
    pub encoding: CertEncoding,
    /// Certificate as received; it is not parsed.
    pub data: &'a [u8],
}

/// A request for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertReq<'a> {
    /// Requested encoding.
    pub encoding: CertEncoding,
    /// Trusted certification authorities. For X.509, hashes of their public keys.
    pub authorities: &'a [u8],
}

impl<'a> Cert<'a> {
    /// Parses the body of a CERT payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (encoding, data) = split(PayloadType::CERT, body)?;
        let cert = Self { encoding, data };
        if is_hash_and_url(encoding) && cert.hash_and_url().is_none() {
            return Err(Fault::CertLength { len: data.len() });
        }
        Ok(cert)
    }

    /// Returns the SHA-1 hash and the URL, if the encoding is one of the two hash-and-URL encodings. The URL
    /// is untrusted text.
    pub fn hash_and_url(&self) -> Option<(&'a [u8; HASH_LEN], &'a [u8])> {
        let is_there = |(_, url): &(_, &[u8])| !url.is_empty();
        self.data.split_first_chunk().filter(|_| is_hash_and_url(self.encoding)).filter(is_there)
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.encoding.0)?;
        out.bytes(self.data)
    }
}

impl<'a> CertReq<'a> {
    /// Parses the body of a CERTREQ payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (encoding, authorities) = split(PayloadType::CERTREQ, body)?;
        let request = Self { encoding, authorities };
        if request.has_hashes() && !authorities.as_chunks::<HASH_LEN>().1.is_empty() {
            return Err(Fault::CertReqLength { len: authorities.len() });
        }
        Ok(request)
    }

    /// Hashes of the authorities' public keys; empty if the encoding does not define them.
    pub fn hashes(&self) -> &'a [[u8; HASH_LEN]] {
        if self.has_hashes() { self.authorities.as_chunks().0 } else { &[] }
    }

    // RFC 7296 section 3.7: defined only for these three encodings.
    fn has_hashes(&self) -> bool {
        self.encoding == CertEncoding::X509_SIGNATURE || is_hash_and_url(self.encoding)
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.encoding.0)?;
        out.bytes(self.authorities)
    }
}

fn split(payload: PayloadType, body: &[u8]) -> Result<(CertEncoding, &[u8]), Fault> {
    let (&encoding, data) = body.split_first().ok_or(Fault::BodyTruncated { payload, len: 0, min: 1 })?;
    Ok((CertEncoding(encoding), data))
}

fn is_hash_and_url(encoding: CertEncoding) -> bool {
    matches!(encoding, CertEncoding::HASH_AND_URL | CertEncoding::HASH_AND_URL_BUNDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_and_url_are_split() {
        let mut body = [7; 1 + HASH_LEN + 3];
        (body[0], body[21], body[22], body[23]) = (12, b'u', b'r', b'l');
        let cert = Cert::parse(&body).unwrap();
        assert_eq!(cert.hash_and_url(), Some((&[7; HASH_LEN], &b"url"[..])));
        for len in 0..=HASH_LEN {
            assert_eq!(Cert::parse(&body[..1 + len]), Err(Fault::CertLength { len }));
        }
        body[0] = 4;
        assert_eq!(Cert::parse(&body).unwrap().hash_and_url(), None);
    }

    #[test]
    fn requests_contain_whole_hashes() {
        let body = [4; 1 + 3 * HASH_LEN];
        for len in 0..=3 * HASH_LEN {
            let parsed = CertReq::parse(&body[..1 + len]);
            if len % HASH_LEN == 0 {
                assert_eq!(parsed.unwrap().hashes().len(), len / HASH_LEN);
            } else {
                assert_eq!(parsed, Err(Fault::CertReqLength { len }));
            }
        }
        // Undefined encodings are not checked.
        assert_eq!(CertReq::parse(&[9, 1, 2]).unwrap().hashes().len(), 0);
    }

    #[test]
    fn an_empty_payload_is_rejected() {
        let fault = |payload| Fault::BodyTruncated { payload, len: 0, min: 1 };
        assert_eq!(Cert::parse(&[]), Err(fault(PayloadType::CERT)));
        assert_eq!(CertReq::parse(&[]), Err(fault(PayloadType::CERTREQ)));
    }
}
