//! The packet with the result in the tunnel: EAP type 33 with TLVs ([MS-PEAP] section 2.2.8).

use super::binding::{BINDING_LEN, Binding};
use crate::EapFault;
use crate::packet::{TypeData, type_data};
use casemate_wire::ike::{Eap, EapCode};

/// EAP type of the packet (EAP TLV Extensions).
const EXTENSIONS: u8 = 33;
/// A receiver that does not know the TLV must refuse the packet.
const MANDATORY: u16 = 0x8000;
/// The bits of the type.
const KIND_MASK: u16 = 0x3FFF;
/// Result TLV ([MS-PEAP] section 2.2.8.1.2).
const RESULT: u16 = 3;
/// Cryptobinding TLV ([MS-PEAP] section 2.2.8.1.1).
const CRYPTOBINDING: u16 = 12;
/// Length of type and length of a TLV.
const HEADER_LEN: usize = 4;

/// A result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Success,
    Failure,
}

impl Status {
    const fn number(self) -> u16 {
        match self {
            Self::Success => 1,
            Self::Failure => 2,
        }
    }

    fn parse(value: &[u8]) -> Result<Self, EapFault> {
        match value {
            [0, 1] => Ok(Self::Success),
            [0, 2] => Ok(Self::Failure),
            _ => Err(EapFault::Malformed),
        }
    }
}

/// A received packet with the result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extensions<'a> {
    identifier: u8,
    pub(super) status: Status,
    pub(super) binding: Option<&'a Binding>,
}

impl<'a> Extensions<'a> {
    /// Parses a packet in the tunnel; `None` if it is one of the method inside, which has no header.
    pub(super) fn parse(code: EapCode, data: &'a [u8]) -> Result<Option<Self>, EapFault> {
        // Only the packet with the result begins with its code and has the type behind the header. A method
        // inside has its type in front: 1 is Identity, and 2 is Notification, whose texts are not 33.
        let Ok(Eap { code: received, identifier, data: typed }) = Eap::parse(data) else { return Ok(None) };
        let Some((&EXTENSIONS, mut rest)) = typed.split_first() else { return Ok(None) };
        if received != code {
            return Err(EapFault::Malformed);
        }
        let (mut status, mut binding) = (None, None);
        while !rest.is_empty() {
            let (&[k0, k1, l0, l1], values) =
                rest.split_first_chunk::<HEADER_LEN>().ok_or(EapFault::Malformed)?;
            let (kind, len) = (u16::from_be_bytes([k0, k1]), usize::from(u16::from_be_bytes([l0, l1])));
            let (value, later) = values.split_at_checked(len).ok_or(EapFault::Malformed)?;
            let is_repeated = match kind & KIND_MASK {
                RESULT => status.replace(Status::parse(value)?).is_some(),
                CRYPTOBINDING => {
                    // The MAC covers the header as well.
                    let whole = rest.first_chunk::<BINDING_LEN>().filter(|_| len == BINDING_LEN - HEADER_LEN);
                    binding.replace(whole.ok_or(EapFault::Malformed)?).is_some()
                }
                _ => kind & MANDATORY != 0,
            };
            if is_repeated {
                return Err(EapFault::Malformed);
            }
            rest = later;
        }
        let status = status.ok_or(EapFault::Malformed)?;
        Ok(Some(Self { identifier, status, binding }))
    }
}

fn packet(
    code: EapCode,
    identifier: u8,
    status: Status,
    binding: Option<&Binding>,
) -> Result<TypeData, EapFault> {
    /// The header with the type, and the Result TLV.
    const LEN: usize = 11;
    let binding = binding.map_or(&[][..], |binding| &binding[..]);
    let len = u16::try_from(LEN.saturating_add(binding.len())).map_err(|_| EapFault::Malformed)?;
    let kind = (MANDATORY | RESULT).to_be_bytes();
    let parts: [&[u8]; 7] = [
        &[code.0, identifier],
        &len.to_be_bytes(),
        &[EXTENSIONS],
        &kind,
        &[0, 2],
        &status.number().to_be_bytes(),
        binding,
    ];
    Ok(type_data(&parts))
}

/// The request with a result.
pub(super) fn request(
    identifier: u8,
    status: Status,
    binding: Option<&Binding>,
) -> Result<TypeData, EapFault> {
    packet(EapCode::REQUEST, identifier, status, binding)
}

/// The response to a request with the result.
pub(super) fn response(
    request: &Extensions<'_>,
    status: Status,
    binding: Option<&Binding>,
) -> Result<TypeData, EapFault> {
    packet(EapCode::RESPONSE, request.identifier, status, binding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A packet of Windows without a cryptobinding: [MS-PEAP] section 4 has such ones.
    const SUCCESS: [u8; 11] = [1, 7, 0, 11, 33, 0x80, 3, 0, 2, 0, 1];

    fn parse(data: &[u8]) -> Result<Option<Status>, EapFault> {
        Extensions::parse(EapCode::REQUEST, data).map(|found| found.map(|found| found.status))
    }

    #[test]
    fn results() {
        assert_eq!(*request(7, Status::Success, None).unwrap(), SUCCESS);
        assert_eq!(parse(&SUCCESS), Ok(Some(Status::Success)));
        let found = Extensions::parse(EapCode::REQUEST, &SUCCESS).unwrap().unwrap();
        let binding = [[0, 12, 0, 56].as_slice(), &[5; 56]].concat().try_into().unwrap();
        let answer = response(&found, Status::Failure, Some(&binding)).unwrap();
        assert_eq!(answer[..2], [2, 7]);
        let found = Extensions::parse(EapCode::RESPONSE, &answer).unwrap().unwrap();
        assert_eq!((found.status, found.binding), (Status::Failure, Some(&binding)));
    }

    #[test]
    fn packets_of_methods_have_no_header() {
        for data in [&[1][..], b"\x01carol", &[26, 3], &[4, 16, 7, 33, 33], &[], &[33, 0x80, 3, 0, 2, 0, 1]] {
            assert_eq!(parse(data), Ok(None), "{data:?}");
        }
    }

    #[test]
    fn wrong_lists_are_malformed() {
        let with = |tlvs: &[u8]| [&[1, 7, 0, 5 + tlvs.len() as u8, 33], tlvs].concat();
        let result = [0x80, 3, 0, 2, 0, 1];
        let lists: Vec<Vec<u8>> = vec![
            vec![],
            vec![0x80, 3, 0, 2, 0, 0],
            vec![0x80, 3, 0, 2, 0, 3],
            vec![0x80, 3, 0, 1, 1],
            vec![0x80, 3, 0, 3, 0, 1],
            vec![0x80, 3, 0],
            [result, result].concat(),
            // An unknown TLV that is mandatory.
            [&result[..], &[0x80, 99, 0, 0]].concat(),
            // Cryptobindings of other lengths.
            [&result[..], &[0, 12, 0, 0]].concat(),
            [&result[..], &[0, 12, 0, 55], &[0; 55]].concat(),
            [&result[..], &[0, 12, 0, 57], &[0; 57]].concat(),
        ];
        for tlvs in lists {
            assert_eq!(parse(&with(&tlvs)), Err(EapFault::Malformed), "{tlvs:?}");
        }
        assert_eq!(parse(&with(&[&[0, 99, 0, 0][..], &result].concat())), Ok(Some(Status::Success)));
        let code = Extensions::parse(EapCode::RESPONSE, &SUCCESS);
        assert_eq!(code, Err(EapFault::Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(tlvs in proptest::collection::vec(any::<u8>(), 0..80)) {
            let data = [&[1, 7, 0, 5 + tlvs.len() as u8, 33], &*tlvs].concat();
            let _ = parse(&data);
        }
    }
}
