use super::*;
use proptest::prelude::*;

const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

#[test]
fn the_bytes_of_the_rfcs() {
    let head = |error: IcmpError| {
        let mut out = [0; 8];
        match error.version() {
            IpVersion::V4 => error.emit_v4(&[], &mut out),
            IpVersion::V6 => error.emit_v6(&[], SRC, DST, &mut out),
        }
        .unwrap();
        (out[0], out[1], u32::from_be_bytes([out[4], out[5], out[6], out[7]]))
    };
    use IpVersion::{V4, V6};
    assert_eq!(head(IcmpError::too_big(V4, 1400)), (3, 4, 1400));
    assert_eq!(head(IcmpError::too_big(V4, 70_000)), (3, 4, 65_535));
    assert_eq!(head(IcmpError::too_big(V6, 70_000)), (2, 0, 70_000));
    assert_eq!(head(IcmpError::prohibited(V4)), (3, 13, 0));
    assert_eq!(head(IcmpError::prohibited(V6)), (1, 1, 0));
    assert_eq!(head(IcmpError::hop_limit_exceeded(V4)), (11, 0, 0));
    assert_eq!(head(IcmpError::reassembly_time_exceeded(V6)), (3, 1, 0));
    assert_eq!(head(IcmpError::parameter_problem(V4, 0, 20)), (12, 0, 20 << 24));
    assert_eq!(head(IcmpError::parameter_problem(V6, 1, 40)), (4, 1, 40));
}

#[test]
fn causes() {
    use IpVersion::{V4, V6};
    let cause = |version, kind, code, word| IcmpError { version, kind, code, word }.cause();
    // RFC 4884 puts a length into the upper half of the word.
    assert_eq!(cause(V4, 3, 4, 0x0020_05dc), Cause::TooBig { mtu: 1500 });
    assert_eq!(cause(V6, 2, 0, 1280), Cause::TooBig { mtu: 1280 });
    assert_eq!(cause(V4, 3, 10, 0), Cause::Prohibited);
    assert_eq!(cause(V4, 3, 1, 0), Cause::Unreachable);
    assert_eq!(cause(V6, 1, 4, 0), Cause::Unreachable);
    assert_eq!(cause(V4, 12, 0, 0x1400_0000), Cause::ParameterProblem { pointer: 20 });
    assert_eq!(cause(V4, 5, 0, 0), Cause::Other);
    assert_eq!(cause(V6, 3, 0, 0), Cause::TimeExceeded);
}

#[test]
fn quotes_are_as_long_as_allowed() {
    let packet = [0x5a; 2000];
    let mut out = [0; 2000];
    let v4 = IcmpError::prohibited(IpVersion::V4);
    let v6 = IcmpError::prohibited(IpVersion::V6);
    assert_eq!(v4.emit_v4(&packet, &mut out), Some(556));
    assert_eq!(v6.emit_v6(&packet, SRC, DST, &mut out), Some(1240));
    assert_eq!(v4.emit_v4(&packet, &mut out[..100]), Some(100));
    assert_eq!(v4.emit_v4(&packet[..28], &mut out), Some(36));
    assert_eq!(v4.emit_v4(&packet, &mut out[..7]), None);
    assert_eq!(v4.emit_v6(&packet, SRC, DST, &mut out), None);
    assert_eq!(v6.emit_v4(&packet, &mut out), None);
}

#[test]
fn what_is_no_error_or_damaged_is_refused() {
    let field = |message: &[u8]| IcmpError::parse_v4(message).unwrap_err().field;
    assert_eq!(field(&[3; 7]), "ICMP header");
    assert_eq!(field(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0]), "ICMP type");
    assert_eq!(field(&[3, 1, 0xfc, 0xff, 0, 0, 0, 0]), "ICMP checksum");
    assert!(IcmpError::parse_v4(&[3, 1, 0xfc, 0xfe, 0, 0, 0, 0]).is_ok());
    assert_eq!(IcmpError::parse_v6(&[128; 8], SRC, DST).unwrap_err().field, "ICMP type");
}

proptest! {
    #[test]
    fn round_trip(
        v6: bool,
        kinds in (prop_oneof![Just(3u8), Just(4), Just(5), Just(11), Just(12)], 0u8..128),
        code: u8,
        word: u32,
        packet in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let kind = if v6 { kinds.1 } else { kinds.0 };
        let error = IcmpError { version, kind, code, word };
        let mut out = [0; 400];
        let len = if v6 { error.emit_v6(&packet, SRC, DST, &mut out) } else { error.emit_v4(&packet, &mut out) };
        let message = &mut out[..len.unwrap()];
        let parse = |m: &[u8]| if v6 { IcmpError::parse_v6(m, SRC, DST) } else { IcmpError::parse_v4(m) }.map(|(e, q)| (e, q.to_vec()));
        prop_assert_eq!(parse(message), Ok((error, packet)));
        message[3] ^= 1;
        prop_assert_eq!(parse(message).unwrap_err().field, "ICMP checksum");
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0u8..13) {
        if let [first, _, hi, lo, ..] = &mut bytes[..] {
            (*first, *hi, *lo) = (kind, 0, 0);
            let [hi, lo] = Sum::of(&bytes).finish().to_be_bytes();
            (bytes[2], bytes[3]) = (hi, lo);
        }
        if let Ok((error, quoted)) = IcmpError::parse_v4(&bytes) {
            let _ = error.cause();
            prop_assert_eq!(quoted.len() + HEADER_LEN, bytes.len());
        }
        let _ = IcmpError::parse_v6(&bytes, SRC, DST);
    }
}
