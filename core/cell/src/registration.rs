//! What a node enters with its name while it runs: where and in which run it receives forwarded packets.
//!
//! A node without that, or of an older version, enters its bare name. No name begins as this record does,
//! because the first byte of a map in CBOR is above those of ASCII.

use crate::forward::RunId;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Where a node receives the packets that other nodes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardAddress {
    /// Address and UDP port.
    pub address: SocketAddr,
    /// Run of the node.
    pub run: RunId,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Entered {
    /// 4 or 16 bytes.
    #[n(0)]
    ip: ByteVec,
    #[n(1)]
    port: u16,
    #[n(2)]
    run: ByteVec,
}

/// The value of a node's entry.
pub(crate) fn value(name: &[u8], forward: Option<&ForwardAddress>) -> Vec<u8> {
    let encoded = forward.map(|ForwardAddress { address, run }| {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        minicbor::to_vec(Entered { ip: ip.into(), port: address.port(), run: run.as_bytes().to_vec().into() })
    });
    match encoded {
        Some(Ok(value)) => value,
        // Writing to memory does not fail.
        Some(Err(_)) | None => name.to_vec(),
    }
}

/// Where the node of an entry receives packets; `None` if it does not.
pub(crate) fn forward_address(value: &[u8]) -> Option<ForwardAddress> {
    let Entered { ip, port, run } = minicbor::decode(value).ok()?;
    let ip: IpAddr = match (ip.as_array::<4>(), ip.as_array::<16>()) {
        (Some(octets), _) => Ipv4Addr::from(*octets).into(),
        (_, Some(octets)) => Ipv6Addr::from(*octets).into(),
        _ => return None,
    };
    let run = RunId::from_slice(&run)?;
    Some(ForwardAddress { address: SocketAddr::new(ip, port), run }).filter(|_| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TestRng;

    #[test]
    fn entries_of_all_versions_are_read() {
        let run = RunId::random(&mut TestRng::new(1));
        for address in ["10.99.0.21:4510", "[2001:db8::1]:1"] {
            let forward = ForwardAddress { address: address.parse().unwrap(), run };
            let value = value(b"gw1", Some(&forward));
            assert_eq!(forward_address(&value), Some(forward));
            for len in 0..value.len() {
                assert_eq!(forward_address(&value[..len]), None);
            }
        }
        assert_eq!(value(b"gw1", None), b"gw1");
        for first in 0..0x80_u8 {
            assert_eq!(forward_address(&[first, b'g', b'w', b'1']), None, "a bare name");
        }
    }

    #[test]
    fn wrong_entries_have_no_address() {
        for (ip, port, run) in
            [(&[1; 5][..], 1, &[0; 16][..]), (&[1; 4], 0, &[0; 16]), (&[1; 4], 1, &[0; 15])]
        {
            let entered = Entered { ip: ip.to_vec().into(), port, run: run.to_vec().into() };
            assert_eq!(forward_address(&minicbor::to_vec(entered).unwrap()), None);
        }
    }
}
