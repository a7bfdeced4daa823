//! Authentication payload (RFC 7296 section 3.8), and digital signatures in it (RFC 7427 section 3).

use super::{AuthMethod, Fault, PayloadType, WriteError, Writer};

/// Proof of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Authentication method.
    pub method: AuthMethod,
    /// Authentication data.
    pub data: &'a [u8],
}

/// Authentication data of the method Digital Signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigitalSignature<'a> {
    /// AlgorithmIdentifier in DER, 1 to 255 bytes. It is not parsed, but compared with known identifiers as a
    /// whole.
    pub algorithm: &'a [u8],
    /// The signature.
    pub value: &'a [u8],
}

impl<'a> Auth<'a> {
    /// Parses the body of an AUTH payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (&[method, _, _, _], data) = body.split_first_chunk().ok_or(Fault::BodyTruncated {
            payload: PayloadType::AUTH,
            len: body.len(),
            min: 4,
        })?;
        let auth = Self { method: AuthMethod(method), data };
        if auth.method == AuthMethod::DIGITAL_SIGNATURE {
            DigitalSignature::parse(data)?;
        }
        Ok(auth)
    }

    /// Returns algorithm and signature if the method is Digital Signature.
    pub fn signature(&self) -> Option<DigitalSignature<'a>> {
        let is_one = self.method == AuthMethod::DIGITAL_SIGNATURE;
        DigitalSignature::parse(self.data).ok().filter(|_| is_one)
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.method.0)?;
        out.bytes(&[0; 3])?;
        out.bytes(self.data)
    }
}

impl<'a> DigitalSignature<'a> {
    /// Splits authentication data of the method Digital Signature.
    pub fn parse(data: &'a [u8]) -> Result<Self, Fault> {
        let claimed = data.first().copied().unwrap_or(0).into();
        let wrong = Fault::SignatureLength { claimed, len: data.len() };
        let (algorithm, value) =
            data.get(1..).and_then(|rest| rest.split_at_checked(claimed)).ok_or(wrong)?;
        if algorithm.is_empty() || value.is_empty() {
            return Err(wrong);
        }
        Ok(Self { algorithm, value })
    }

    /// Writes the body of an AUTH payload.
    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(AuthMethod::DIGITAL_SIGNATURE.0)?;
        out.bytes(&[0; 3])?;
        out.count_u8(self.algorithm.len())?;
        out.bytes(self.algorithm)?;
        out.bytes(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_must_leave_space_for_a_signature() {
        let data = [3, 0x30, 0x01, 0x06, 0xaa, 0xbb];
        let signature = DigitalSignature { algorithm: &data[1..4], value: &data[4..] };
        assert_eq!(DigitalSignature::parse(&data), Ok(signature));
        for len in 0..=4 {
            let claimed = if len == 0 { 0 } else { 3 };
            let wrong = Fault::SignatureLength { claimed, len };
            assert_eq!(DigitalSignature::parse(&data[..len]), Err(wrong), "{len}");
            let body = [&[14, 0, 0, 0], &data[..len]].concat();
            assert_eq!(Auth::parse(&body), Err(wrong), "{len}");
        }
        let wrong = Fault::SignatureLength { claimed: 0, len: 3 };
        assert_eq!(DigitalSignature::parse(&[0, 1, 2]), Err(wrong));
        let wrong = Fault::SignatureLength { claimed: 255, len: 255 };
        assert_eq!(DigitalSignature::parse(&[255; 255]), Err(wrong));
    }

    #[test]
    fn other_methods_have_no_algorithm() {
        let auth = Auth::parse(&[2, 9, 9, 9, 1, 2]).unwrap();
        assert_eq!((auth.method, auth.data, auth.signature()), (AuthMethod::SHARED_KEY, &[1, 2][..], None));
        for len in 0..4 {
            let fault = Fault::BodyTruncated { payload: PayloadType::AUTH, len, min: 4 };
            assert_eq!(Auth::parse(&[0; 4][..len]), Err(fault));
        }
    }
}
