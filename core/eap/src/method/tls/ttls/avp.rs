//! Attribute-value pairs in the tunnel (RFC 5281 section 10). Only EAP-Message is used.

use crate::{EapFault, EapPacket};
use alloc::vec::Vec;
use casemate_wire::ike::Eap;
use zeroize::Zeroizing;

/// AVP code of EAP-Message (RFC 5281 section 10.4).
const EAP_MESSAGE: u32 = 79;
/// The AVP has a vendor id, which gives its code another meaning.
const VENDOR: u8 = 0x80;
/// A receiver that does not know the AVP must fail.
const MANDATORY: u8 = 0x40;
/// Length of an AVP header without vendor id, in bytes.
const HEADER_LEN: usize = 8;
const VENDOR_LEN: usize = 4;
/// AVPs begin at multiples of this length.
const ALIGNMENT: usize = 4;

/// Writes an EAP packet as an AVP.
pub(super) fn write(packet: &EapPacket) -> Result<Zeroizing<Vec<u8>>, EapFault> {
    let message = packet.to_bytes()?;
    let len = message.len().saturating_add(HEADER_LEN);
    let [high, length @ ..] = u32::try_from(len).map_err(|_| EapFault::Malformed)?.to_be_bytes();
    if high != 0 {
        return Err(EapFault::Malformed);
    }
    let padding = len.next_multiple_of(ALIGNMENT).saturating_sub(len);
    let padding = [0; ALIGNMENT].get(..padding).unwrap_or_default().to_vec();
    Ok(Zeroizing::new([&EAP_MESSAGE.to_be_bytes()[..], &[MANDATORY], &length, &message, &padding].concat()))
}

/// Returns the EAP packet of a list of AVPs. Fails without one, with several, or with an AVP that must be
/// known.
pub(super) fn parse(mut avps: &[u8]) -> Result<Eap<'_>, EapFault> {
    let mut message = None;
    while !avps.is_empty() {
        let (avp, rest) = Avp::parse(avps)?;
        avps = rest;
        if avp.code == EAP_MESSAGE && avp.flags & VENDOR == 0 {
            if message.replace(avp.data).is_some() {
                return Err(EapFault::Malformed);
            }
        } else if avp.flags & MANDATORY != 0 {
            return Err(EapFault::Malformed);
        }
    }
    Eap::parse(message.ok_or(EapFault::Malformed)?).map_err(|_| EapFault::Malformed)
}

struct Avp<'a> {
    code: u32,
    flags: u8,
    data: &'a [u8],
}

impl<'a> Avp<'a> {
    /// Splits the first AVP with its padding off. The last one may lack the padding.
    fn parse(avps: &'a [u8]) -> Result<(Self, &'a [u8]), EapFault> {
        let (&header, _) = avps.split_first_chunk::<HEADER_LEN>().ok_or(EapFault::Malformed)?;
        let [c0, c1, c2, c3, flags, l0, l1, l2] = header;
        let code = u32::from_be_bytes([c0, c1, c2, c3]);
        let len = usize::try_from(u32::from_be_bytes([0, l0, l1, l2])).map_err(|_| EapFault::Malformed)?;
        let header_len = if flags & VENDOR == 0 { HEADER_LEN } else { HEADER_LEN.saturating_add(VENDOR_LEN) };
        let data = avps.get(header_len..len).ok_or(EapFault::Malformed)?;
        let rest = avps.get(len.next_multiple_of(ALIGNMENT)..);
        let rest = rest.or_else(|| (avps.len() == len).then_some(&[][..])).ok_or(EapFault::Malformed)?;
        Ok((Self { code, flags, data }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use casemate_wire::ike::EapCode;
    use proptest::prelude::*;

    #[test]
    fn a_packet_in_an_avp() {
        for len in 0..9 {
            let packet = EapPacket::response(7, 1, &vec![5; len]);
            let avp = write(&packet).unwrap();
            assert_eq!(avp.len() % 4, 0);
            assert_eq!(parse(&avp), Ok(packet.as_payload()));
        }
        // RFC 5281 section 10.1: the length includes the header but not the padding.
        let avp = write(&EapPacket::response(2, 1, b"ab")).unwrap();
        assert_eq!(*avp, [0, 0, 0, 79, 0x40, 0, 0, 15, 2, 2, 0, 7, 1, b'a', b'b', 0]);
        assert!(parse(&avp[..15]).is_ok());
    }

    #[test]
    fn other_avps() {
        let message = write(&EapPacket::response(2, 1, b"ab")).unwrap();
        let optional = [0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0];
        let of_vendor = [0, 0, 0, 79, 0x80, 0, 0, 13, 0, 0, 1, 0x37, 9, 0, 0, 0];
        let expected = Eap { code: EapCode::RESPONSE, identifier: 2, data: b"\x01ab" };
        assert_eq!(parse(&[&optional[..], &of_vendor, &message].concat()), Ok(expected));
        let mandatory = [0, 0, 0, 1, 0x40, 0, 0, 9, 0, 0, 0, 0];
        for wrong in [&mandatory[..], &message, &[0; 7], &[0; 8]] {
            assert_eq!(parse(&[&message[..], wrong].concat()), Err(EapFault::Malformed));
        }
        for none in [&[][..], &optional] {
            assert_eq!(parse(none), Err(EapFault::Malformed));
        }
    }

    /// strongSwan subtracted the length of the header from a shorter AVP.
    #[test]
    fn cve_2026_25075_lengths_that_do_not_fit_are_malformed() {
        let avp = write(&EapPacket::response(2, 1, b"ab")).unwrap();
        for len in [0, 1, 7, 8, 11, 14, 16, 17, 255] {
            let mut wrong = avp.to_vec();
            wrong[7] = len;
            assert_eq!(parse(&wrong), Err(EapFault::Malformed), "{len}");
        }
        // A vendor id that the length does not cover.
        assert_eq!(parse(&[0, 0, 0, 79, 0x80, 0, 0, 8]), Err(EapFault::Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(avps in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&avps);
        }
    }
}
