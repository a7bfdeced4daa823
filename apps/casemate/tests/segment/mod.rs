//! A TCP SYN that announces long segments, from one host to another.

use super::lab::{eventually, uninterrupted};
use casemate_linux::netns::Netns;
use casemate_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A SYN from one address to the other that announces 9,000 bytes, with its checksum.
fn syn(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut segment =
        vec![0x30, 0, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0x23, 0x28];
    let sum = sum(from, to, &segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn sum(from: IpAddr, to: IpAddr, segment: &[u8]) -> Sum {
    let len = segment.len() as u16;
    let pseudo = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_v4(from, to, 6, len),
        (IpAddr::V6(from), IpAddr::V6(to)) => pseudo_v6(from, to, 6, len.into()),
        _ => panic!("mixed"),
    };
    pseudo.combine(Sum::of(segment))
}

/// The MSS that arrives of a SYN from one host to the other, which must have a right checksum then.
pub(crate) fn announced((from, here): (&Netns, IpAddr), (to, there): (&Netns, IpAddr)) -> usize {
    let domain = if here.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let open = |host: &Netns, addr: IpAddr| {
        let open = || {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
            socket.bind(&SocketAddr::new(addr, 0).into())?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok::<_, std::io::Error>(socket)
        };
        host.run(open).unwrap().unwrap()
    };
    let (sender, receiver) = (open(from, here), open(to, there));
    // Routes follow a Child SA that has just come up.
    let syn = syn(here, there);
    eventually("there is a route", || sender.send_to(&syn, &SocketAddr::new(there, 0).into()).is_ok());
    let mut buffer = [0; 200];
    let segment = loop {
        let len = uninterrupted(|| (&receiver).read(&mut buffer)).unwrap();
        // An IPv4 socket shows the header. A RST that answers another SYN is not meant.
        let segment = &buffer[if here.is_ipv4() { 20 } else { 0 }..len];
        if segment[13] == 2 {
            break segment;
        }
    };
    assert!(sum(here, there, segment).is_valid(), "the checksum is mended");
    u16::from_be_bytes([segment[22], segment[23]]).into()
}
