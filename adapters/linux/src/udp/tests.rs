use super::*;
use casemate_wire::ip::{Ipv4, Ipv6};
use casemate_wire::udp::Udp;
use std::net::UdpSocket;

fn receive_one(any: IpAddr, from: &str, tos: u32) -> Vec<u8> {
    let mut port = at_a_free_port(any, |free| UdpPort::open(any, free));
    let sender = UdpSocket::bind((from, 0)).unwrap();
    let options = socket2::SockRef::from(&sender);
    if any.is_ipv4() {
        options.set_tos_v4(tos).unwrap()
    } else {
        options.set_tclass_v6(tos).unwrap()
    }
    sender.send_to(b"hello", (from, port.port())).unwrap();
    let mut ready = [false];
    sys::poll_readable(&[port.as_fd()], &mut ready, std::time::Duration::from_secs(20)).unwrap();
    assert_eq!(ready, [true]);
    let mut buffers = Buffers::new();
    assert!(!port.receive(&mut buffers, usize::MAX).unwrap());
    let packets = buffers.contents();
    let [packet] = &packets[..] else { panic!("one packet, not {}", packets.len()) };
    let udp = Udp::parse(&packet[packet.len() - 13..]).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port()), (sender.local_addr().unwrap().port(), port.port()));
    packet.clone()
}

#[test]
fn headers_are_written_again() {
    let packet = receive_one(Ipv4Addr::UNSPECIFIED.into(), "127.0.0.1", 0xb8);
    let ip = Ipv4::parse(&packet[..]).unwrap();
    assert!(ip.verify_checksum());
    assert_eq!((ip.src(), ip.dst(), ip.tos()), (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 0xb8));
    assert_eq!(Udp::parse(ip.payload()).unwrap().payload(), b"hello");

    let packet = receive_one(Ipv6Addr::UNSPECIFIED.into(), "::1", 0x2e);
    let ip = Ipv6::parse(&packet[..]).unwrap();
    assert_eq!((ip.src(), ip.dst()), (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
    assert_eq!(ip.traffic_class(), 0x2e);
    assert_eq!(Udp::parse(&packet[40..]).unwrap().payload(), b"hello");
}

/// The first byte behind the headers of what waits at a port.
fn waiting(port: &mut UdpPort) -> Vec<u8> {
    let mut buffers = Buffers::new();
    let mut found = Vec::new();
    while port.receive(&mut buffers, usize::MAX).is_ok() {
        found.extend(buffers.contents().iter().map(|packet| packet[packet.len() - 1]));
    }
    found
}

#[test]
fn ike_and_what_is_urgent_come_to_the_first_of_two_sockets() {
    let urgent = Urgent::of(&casemate_sched::DscpTable::default()).unwrap();
    let any = Ipv4Addr::UNSPECIFIED.into();
    let mut ports = at_a_free_port(any, |free| UdpPort::open_shared(free, &urgent));
    let free = ports[0].port();
    for (from, ports) in ["127.0.0.1", "::1"].into_iter().zip(ports.chunks_mut(2)) {
        let [express, rest] = ports else { unreachable!() };
        // Another sender each time, for the kernel would spread them by their ports.
        for round in 0..8u8 {
            let send = |tos: u8, payload: &[u8]| {
                let sender = UdpSocket::bind((from, 0)).unwrap();
                let options = socket2::SockRef::from(&sender);
                if from == "::1" {
                    options.set_tclass_v6(tos.into())
                } else {
                    options.set_tos_v4(tos.into())
                }
                .unwrap();
                sender.send_to(payload, (from, free)).unwrap();
            };
            send(0xb8, &[0, 0, 16, 1, round]);
            send(0, &[0, 0, 16, 1, round + 100]);
            send(0, &[0, 0, 0, 0, round + 200]);
            send(0, &[255]);
        }
        let came = waiting(express);
        assert_eq!(came, (0..8).flat_map(|round| [round, round + 200]).collect::<Vec<_>>(), "{from}");
        assert_eq!(waiting(rest), (0..8).flat_map(|round| [round + 100, 255]).collect::<Vec<_>>(), "{from}");
    }
}
