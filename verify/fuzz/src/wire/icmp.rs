//! ICMP errors of both versions.

use super::assert_parts;
use crate::Target;
use crate::input::{Input, Script};
use casemate_wire::checksum::{Sum, pseudo_v6};
use casemate_wire::icmp::{HEADER_LEN, IcmpError, MAX_QUOTE_V4, MAX_QUOTE_V6, is_error};
use casemate_wire::ip::{IpVersion, proto};
use core::net::Ipv6Addr;

pub(crate) const TARGET: Target = Target {
    name: "icmp",
    about: "ICMP errors: only errors with a valid checksum parse, parse(emit(x)) == x",
    max_len: 1_500,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let repair = input.flag();
    let (src, dst) = (Ipv6Addr::from(input.array::<16>()), Ipv6Addr::from(input.array::<16>()));
    let message = input.rest();
    let v4 = checked(message, repair, Sum::ZERO);
    check(IpVersion::V4, &v4, IcmpError::parse_v4(&v4), Sum::ZERO);
    let pseudo = pseudo_v6(src, dst, proto::ICMPV6, message.len() as u32);
    let v6 = checked(message, repair, pseudo);
    check(IpVersion::V6, &v6, IcmpError::parse_v6(&v6, src, dst), pseudo);
    check_emit(src, dst, message);
}

/// Returns the message, optionally with a corrected checksum. Otherwise few inputs would have a valid one.
fn checked(message: &[u8], repair: bool, pseudo: Sum) -> Vec<u8> {
    let mut message = message.to_vec();
    if repair && message.len() >= HEADER_LEN {
        message[2..4].fill(0);
        let sum = pseudo.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

fn check(
    version: IpVersion,
    message: &[u8],
    parsed: Result<(IcmpError, &[u8]), casemate_wire::Malformed>,
    pseudo: Sum,
) {
    let is_right =
        message.len() >= HEADER_LEN && is_error(version, message[0]) && pseudo.add_bytes(message).is_valid();
    assert_eq!(parsed.is_ok(), is_right);
    let Ok((error, quote)) = parsed else { return };
    assert_parts(message, &[&message[..HEADER_LEN], quote]);
    assert_eq!((error.version(), error.kind(), error.code()), (version, message[0], message[1]));
    let _ = error.cause();
    let mut again = message.to_vec();
    again[..HEADER_LEN].fill(0xee);
    error.emit_in_place(&mut again, pseudo).unwrap();
    // The checksum may be the other zero.
    assert!(pseudo.add_bytes(&again).is_valid());
    (again[2], again[3]) = (message[2], message[3]);
    assert_eq!(again, message);
}

fn check_emit(src: Ipv6Addr, dst: Ipv6Addr, packet: &[u8]) {
    let number = packet.first().map_or(0, |byte| u32::from(*byte) << 9);
    let room = packet.len() / 2;
    for version in [IpVersion::V4, IpVersion::V6] {
        for error in [
            IcmpError::too_big(version, number),
            IcmpError::prohibited(version),
            IcmpError::hop_limit_exceeded(version),
            IcmpError::reassembly_time_exceeded(version),
            IcmpError::parameter_problem(version, 0, number),
        ] {
            for room in [room, 2_000] {
                let mut out = vec![0xee; room];
                let (len, other, max) = match version {
                    IpVersion::V4 => (
                        error.emit_v4(packet, &mut out),
                        error.emit_v6(packet, src, dst, &mut [0; 99]),
                        MAX_QUOTE_V4,
                    ),
                    IpVersion::V6 => (
                        error.emit_v6(packet, src, dst, &mut out),
                        error.emit_v4(packet, &mut [0; 99]),
                        MAX_QUOTE_V6,
                    ),
                };
                assert_eq!((len.is_some(), other), (room >= HEADER_LEN, None));
                let Some(len) = len else { continue };
                let quoted = &packet[..packet.len().min(max).min(room - HEADER_LEN)];
                let parsed = match version {
                    IpVersion::V4 => IcmpError::parse_v4(&out[..len]),
                    IpVersion::V6 => IcmpError::parse_v6(&out[..len], src, dst),
                };
                assert_eq!(parsed, Ok((error, quoted)));
                assert!(out[len..].iter().all(|byte| *byte == 0xee), "bytes beyond the message changed");
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |kind: u8, code: u8, quote: &[u8]| {
        let message = [&[kind, code, 0, 0, 0, 0, 5, 0xdc], quote].concat();
        Script::default().u8(1).bytes(&[0xfd; 32]).bytes(&message).finish()
    };
    let quote = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 50, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 16, 0, 0, 0, 0, 1];
    vec![with(3, 4, &quote), with(2, 0, &[0x60; 48]), with(12, 0, &[]), with(1, 1, &[0x60; 1_300])]
}
