//! A TCP SYN with a large MSS, sent from one host to another.

use super::testnet::{eventually, retry_interrupted};
use casemate_linux::netns::Netns;
use casemate_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A SYN that announces an MSS of 9,000 bytes, with its checksum.
fn syn(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut mss =
        vec![0x30, 0, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0x23, 0x28];
    let sum = sum(from, to, &mss).finish();
    mss[16..18].copy_from_slice(&sum.to_be_bytes());
    mss
}

fn sum(from: IpAddr, to: IpAddr, mss: &[u8]) -> Sum {
    let len = mss.len() as u16;
    let pseudo = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_v4(from, to, 6, len),
        (IpAddr::V6(from), IpAddr::V6(to)) => pseudo_v6(from, to, 6, len.into()),
        _ => panic!("mixed"),
    };
    pseudo.combine(Sum::of(mss))
}

/// End of a TCP connection: an address in a network namespace.
#[derive(Clone, Copy)]
pub(crate) struct TcpEnd<'n> {
    pub(crate) netns: &'n Netns,
    pub(crate) addr: IpAddr,
}

/// Sends a SYN from one host to another and returns the MSS on arrival. The checksum must be correct.
pub(crate) fn received_mss(from: TcpEnd<'_>, to: TcpEnd<'_>) -> usize {
    let (here, there) = (from.addr, to.addr);
    let domain = if here.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let open = |end: TcpEnd<'_>| {
        let open = || {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
            socket.bind(&SocketAddr::new(end.addr, 0).into())?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok::<_, std::io::Error>(socket)
        };
        end.netns.run(open).unwrap().unwrap()
    };
    let (sender, receiver) = (open(from), open(to));
    // The routes of a new Child SA appear after a delay.
    let syn = syn(here, there);
    eventually("there is a route", || sender.send_to(&syn, &SocketAddr::new(there, 0).into()).is_ok());
    let mut buffer = [0; 200];
    let mss = loop {
        let len = retry_interrupted(|| (&receiver).read(&mut buffer)).unwrap();
        // An IPv4 raw socket includes the IP header. Skips RST segments that respond to another SYN.
        let mss = &buffer[if here.is_ipv4() { 20 } else { 0 }..len];
        if mss[13] == 2 {
            break mss;
        }
    };
    assert!(sum(here, there, mss).is_valid(), "the checksum was not updated");
    u16::from_be_bytes([mss[22], mss[23]]).into()
}
