//! Reassembly: which received fragments form a datagram, and which do not.

use crate::host::HostAddrs;
use crate::static_sas::{StaticPair, esp};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::spd::{Action, Policy};
use casemate_datapath::{Direction, DropReason, Unmatched};
use casemate_sa::{Instant, Mode, SaParams, Spi};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, PROVIDERS, packets};
use casemate_wire::ip::{Ipv4, Ipv6};
use casemate_wire::udp::Udp;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::Medium;
use smoltcp::socket::udp;
use std::net::IpAddr;

fn tunnel(version: u8) -> LinkSpec {
    let mut spec = esp(Ends::tunnel(version, version), Mode::Tunnel);
    spec.limits = crate::host::LIMITS;
    spec
}

/// Builds a UDP datagram to port 2,000, with its checksum.
fn datagram(addrs: HostAddrs, data: &[u8]) -> Vec<u8> {
    let HostAddrs { own: from, peer: to } = addrs;
    let mut packet = packets::udp(from, to, (1_000, 2_000), data, false);
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) {
        Udp::parse(&mut packet[40..]).unwrap().fill_checksum_v6(from, to);
    }
    packet
}

/// Fragments a packet. All datagrams get the same identification.
fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let mut cut = Fragments::new(packet, 1_280, 99).unwrap();
    let mut piece = [0; 1_280];
    std::iter::from_fn(|| cut.next(&mut piece).map(|len| piece[..len].to_vec())).collect()
}

/// Builds a link whose tunnel policy comes after the policies of `bypass_control_plane`, which select ports.
fn with_control_plane_policies(spec: &LinkSpec) -> (StaticPair, SocketHandle) {
    let mut pair = StaticPair::new(spec, Medium::Ip, 1_000);
    let datapath = pair.b.device.endpoint_mut().datapath_mut();
    let is_protecting = |policy: &Policy| matches!(policy.action, Action::Protect(_));
    let tunnel = datapath.policies(Direction::Inbound).find(|(_, policy)| is_protecting(policy)).unwrap().0;
    let policy = datapath.remove_policy(Direction::Inbound, tunnel).unwrap();
    datapath.add_policy(Direction::Inbound, Policy { priority: 9, ..policy }).unwrap();
    let socket = pair.b.udp(2_000);
    (pair, socket)
}

fn inject(pair: &mut StaticPair, packet: &[u8]) {
    pair.b.device.device_mut().inject(packet);
}

/// Waits for a datagram and returns its data.
fn received(pair: &mut StaticPair, socket: SocketHandle) -> Vec<u8> {
    let mut got = Vec::new();
    pair.run(100, |_, b| {
        let socket = b.sockets.get_mut::<udp::Socket>(socket);
        socket.recv().is_ok_and(|(data, _)| {
            got = data.to_vec();
            true
        })
    });
    got
}

/// The peer's stack may fragment a datagram before the tunnel protects the fragments.
#[test]
fn fragments_received_through_a_tunnel_are_reassembled() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let (mut pair, socket) = with_control_plane_policies(&spec);
        let mut peer = spec.build().a;
        let data: Vec<u8> = (0..5_000).map(|i| (i % 249) as u8).collect();
        let parts = fragments(&datagram(pair.inner, &data));
        assert!(parts.len() >= 4);
        parts.iter().for_each(|part| inject(&mut pair, &peer.send(part).wire()));
        let got = received(&mut pair, socket);
        assert!(got == data, "{} bytes", got.len());
    }
}

/// RFC 4301 section 7.4: fragments in clear text and fragments of another SA neither complete a datagram
/// nor corrupt it.
#[test]
fn fragments_of_different_sas_are_not_mixed() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let (mut pair, socket) = with_control_plane_policies(&spec);
        let mut peer = spec.build().a;
        // Another SA of the same peer, for the same policy.
        let params = SaParams { spi: Spi::new(0x2000).unwrap(), ..spec.params(0, true) };
        let mut other = Host::with_limits(Unmatched::Discard, 65_535, spec.limits);
        other.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, other.now).unwrap();
        other.dp.add_policy(Direction::Outbound, spec.policy(true)).unwrap();
        let datapath = pair.b.device.endpoint_mut().datapath_mut();
        datapath.add_sa(&params, Direction::Inbound, &PROVIDERS, Instant::from_secs(5)).unwrap();
        let genuine = fragments(&datagram(pair.inner, &[1; 3_000]));
        let forged = fragments(&datagram(pair.inner, &[2; 3_000]));
        assert_eq!(genuine.len(), 3);
        inject(&mut pair, &peer.send(&genuine[0]).wire());
        for part in &forged {
            inject(&mut pair, part);
        }
        for part in &forged[1..] {
            inject(&mut pair, &other.send(part).wire());
        }
        for _ in 0..20 {
            pair.b.poll(smoltcp::time::Instant::from_millis(5_000));
        }
        assert!(pair.b.sockets.get_mut::<udp::Socket>(socket).recv().is_err(), "IPv{version}");
        for part in &genuine[1..] {
            inject(&mut pair, &peer.send(part).wire());
        }
        assert!(received(&mut pair, socket) == [1; 3_000], "IPv{version}");
    }
}

/// Returns the fragment with another source address.
fn forged(fragment: &[u8], n: u8) -> Vec<u8> {
    let mut packet = fragment.to_vec();
    if packet[0] >> 4 == 4 {
        let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
        ip.set_src([198, 51, 100, n].into());
        ip.fill_checksum();
    } else {
        Ipv6::parse(&mut packet[..]).unwrap().set_src([0x2001, 0xdb8, 9, 9, 9, 9, 9, n.into()].into());
    }
    packet
}

/// ESP packets arrive in fragments. Between the fragments, more forged ones arrive than there are
/// reassembly slots.
#[test]
fn forged_fragments_do_not_displace_those_of_a_peer() {
    for version in [4, 6] {
        let spec = tunnel(version);
        let (mut pair, socket) = with_control_plane_policies(&spec);
        let mut peer = spec.build().a;
        let wire = peer.send(&datagram(pair.inner, &[7; 3_000])).wire();
        let parts = fragments(&wire);
        for part in &parts {
            for n in 0..200 {
                inject(&mut pair, &forged(&parts[0], n));
            }
            inject(&mut pair, part);
        }
        assert!(received(&mut pair, socket) == [7; 3_000], "IPv{version}: {:?}", pair.b.drops());
        assert!(pair.b.dropped(DropReason::FragmentTableFull) > 100, "IPv{version}");
    }
}
