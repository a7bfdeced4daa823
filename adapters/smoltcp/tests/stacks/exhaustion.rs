//! Full tables, silent peers, and a device that does not send: requests are refused or repeated, and counted.

use crate::host::LIMITS;
use crate::ike::{IkePair, PLAIN, TestParams};
use casemate::{InstallError, Notice};
use casemate_datapath::{AddSaError, DropReason};
use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{DownReason, Event, IkeSettings};
use casemate_sa::{AddrRange, Limits};
use smoltcp::phy::Medium;
use smoltcp::socket::udp;
use smoltcp::time::Duration;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::sync::Arc;

/// Offset of the IKE message in an IPv4 packet to port 500. It starts with the initiator's SPI.
const MESSAGE: usize = 28;

impl IkePair {
    /// Sends a datagram from A that needs an SA.
    fn send_datagram(&mut self) {
        let socket = self.a.host.udp(3_000);
        let to = IpEndpoint::new(IpAddress::from(self.addrs.peer), 2_000);
        self.a.host.sockets.get_mut::<udp::Socket>(socket).send_slice(b"hello", to).unwrap();
        self.a.host.poll(self.now);
        self.a.serve(self.now);
        self.a.host.sockets.remove(socket);
    }

    /// Lets `seconds` pass, in steps of 100 ms.
    fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.round();
            self.now += Duration::from_millis(100);
        }
    }

    /// The same for A alone, while B is silent.
    fn run_without_peer(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.a.host.poll(self.now);
            self.a.serve(self.now);
            self.now += Duration::from_millis(100);
        }
    }
}

fn is_dead_peer(event: &Event) -> bool {
    matches!(event, Event::IkeDown { reason: DownReason::DeadPeer, .. })
}

#[test]
fn a_silent_peer_is_given_up_and_tried_again() {
    let mut pair = IkePair::new(4, Medium::Ip, PLAIN);
    let tries = IkeSettings::DEVICE.retransmission.tries as usize + 1;
    for attempt in 1..=2 {
        pair.seen.take();
        pair.send_datagram();
        pair.run_without_peer(200);
        assert_eq!(pair.a.count(is_dead_peer), attempt);
        let endpoint = pair.a.host.device.endpoint();
        assert_eq!(endpoint.ike().status().count(), 0);
        assert_eq!(endpoint.reserved_spis(), 0);
        assert_eq!(pair.seen.take().len(), tries, "one message per try");
        assert_eq!(pair.a.host.dropped(DropReason::NoOutboundSa), attempt as u64);
    }
    // The peer answers again.
    pair.stream(5);
}

#[test]
fn half_open_ike_sas_are_bounded_and_a_known_peer_connects() {
    let mut pair = IkePair::new(4, Medium::Ip, PLAIN);
    pair.send_datagram();
    pair.a.host.poll(pair.now);
    let request = pair.seen.take().remove(0);
    // No device reads B's responses.
    pair.b.host.device.device_mut().set_room(2_000);
    let mut most = 0;
    for number in 0..1_000_u32 {
        let mut forged = request.clone();
        forged[MESSAGE..MESSAGE + 4].copy_from_slice(&(0xABCD_0000 + number).to_be_bytes());
        // Without a UDP checksum (RFC 768).
        forged[26..28].fill(0);
        pair.b.host.device.device_mut().inject(&forged);
        pair.b.host.poll(pair.now);
        pair.b.serve(pair.now);
        pair.b.host.poll(pair.now);
        most = most.max(pair.b.host.device.endpoint().ike().status().count());
    }
    assert!((1..=IkeSettings::DEVICE.max_half_open).contains(&most), "{most} half-open IKE SAs");
    // Each request got a response: the first ones a real one, the others a cookie.
    let responses = pair.seen.take();
    assert_eq!(responses.len(), 1_001);
    let cookies = responses.iter().filter(|frame| frame.len() < 100).count();
    assert!(cookies >= 1_000 - IkeSettings::DEVICE.max_half_open, "{cookies} cookies");
    pair.stream(5);
    // The half-open IKE SAs expire.
    pair.run_for(60);
    assert_eq!(pair.b.host.device.endpoint().ike().status().count(), 1);
}

#[test]
fn a_child_sa_without_room_in_the_sad_is_closed_on_both_sides() {
    let limits = Limits { sas: 1, ..LIMITS };
    let mut pair = IkePair::new(4, Medium::Ip, TestParams { limits, ..PLAIN });
    pair.send_datagram();
    pair.run_for(5);
    let full = |notice: &&Notice| {
        matches!(notice, Notice::ChildNotInstalled { error: InstallError::Sa(AddSaError::Full), .. })
    };
    assert_eq!(pair.b.notices.iter().filter(full).count(), 1, "{:?}", pair.b.notices);
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.host.device.endpoint().datapath().sas().count(), 0);
        assert_eq!(end.count(|event| matches!(event, Event::ChildDown { .. })), 1);
        // The IKE SA stays up.
        assert_eq!(end.host.device.endpoint().ike().status().count(), 1);
        assert_eq!(end.host.device.endpoint().reserved_spis(), 0);
    }
    // The next packet triggers a new negotiation.
    pair.send_datagram();
    pair.run_for(5);
    assert_eq!(pair.b.notices.iter().filter(full).count(), 2);
}

#[test]
fn a_child_sa_that_cannot_be_rekeyed_ends_and_is_negotiated_again() {
    // Room for one pair of SAs, and none for the new pair.
    let limits = Limits { sas: 2, ..LIMITS };
    let mut pair = IkePair::new(4, Medium::Ip, TestParams { limits, rekey: Some(5), ..PLAIN });
    pair.stream(100);
    let refused = |pair: &IkePair| {
        pair.b.notices.iter().filter(|notice| matches!(notice, Notice::ChildNotInstalled { .. })).count()
    };
    assert_eq!(refused(&pair), 0);
    pair.run_for(10);
    assert!(refused(&pair) >= 1, "no attempt in ten seconds");
    for _ in 0..3 {
        pair.stream(100);
        assert_eq!(pair.b.host.device.endpoint().datapath().sas().count(), 2);
        pair.run_for(10);
    }
    assert!(pair.b.host.device.endpoint().reserved_spis() <= 1);
}

#[test]
fn a_child_sa_without_room_for_its_policies_is_not_installed() {
    // Room for the policies of `bypass_control_plane` only.
    let limits = Limits { policies: 10, ..LIMITS };
    let mut pair = IkePair::new(4, Medium::Ip, TestParams { limits, ..PLAIN });
    pair.send_datagram();
    pair.run_for(5);
    let full =
        |notice: &&Notice| matches!(notice, Notice::ChildNotInstalled { error: InstallError::Policies, .. });
    assert_eq!(pair.b.notices.iter().filter(full).count(), 1, "{:?}", pair.b.notices);
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.host.device.endpoint().datapath().sas().count(), 0);
        assert_eq!(end.count(|event| matches!(event, Event::ChildDown { .. })), 1);
    }
}

#[test]
fn the_number_of_ike_sas_is_limited() {
    let mut pair = IkePair::new(4, Medium::Ip, PLAIN);
    pair.stream(3);
    let host = &mut pair.a.host;
    let (first, _) = host.device.endpoint().config_by_name("peer").unwrap();
    let unreachable_peer = |number: u8| Connection {
        name: format!("unreachable_peer-{number}"),
        remote_addrs: vec![AddrPattern::Range(AddrRange::single([192, 0, 2, number].into()))],
        children: vec![],
        ..Connection::clone(&first)
    };
    let others: Vec<Arc<Connection>> = (100..120).map(|number| Arc::new(unreachable_peer(number))).collect();
    let all = [vec![first.clone()], others.clone()].concat();
    let started =
        pair.a.ike.with_endpoint(pair.now, &host.interface, &mut host.device, |endpoint, context| {
            endpoint.configure(all, &[], context).unwrap();
            others.iter().filter(|other| endpoint.initiate(other, None, context).is_ok()).count()
        });
    assert_eq!(started, IkeSettings::DEVICE.max_ike_sas - 1, "one IKE SA is established already");
    assert_eq!(host.device.endpoint().ike().status().count(), IkeSettings::DEVICE.max_ike_sas);
    // The failed connections do not stop the traffic.
    pair.run_for(200);
    pair.stream(5);
}

#[test]
fn a_device_that_stops_sending_drops_packets_and_recovers() {
    for medium in [Medium::Ip, Medium::Ethernet] {
        let mut pair = IkePair::new(4, medium, PLAIN);
        pair.stream(5);
        let to = IpEndpoint::new(IpAddress::from(pair.addrs.peer), 2_000);
        let socket = pair.a.host.udp(4_000);
        pair.a.host.device.device_mut().set_room(0);
        for _ in 0..300 {
            // The socket buffer fills up and returns an error.
            let _ = pair.a.host.sockets.get_mut::<udp::Socket>(socket).send_slice(&[7; 5_000], to);
            pair.round();
            pair.now += Duration::from_millis(10);
        }
        assert!(!pair.a.host.sockets.get_mut::<udp::Socket>(socket).can_send(), "the stack has no room");
        // A cannot send its echo replies; they are dropped and counted while requests keep arriving.
        let echo = pair.b.host.icmp(0x55);
        for _ in 0..300 {
            ping(&mut pair, echo);
            pair.round();
            pair.now += Duration::from_millis(10);
        }
        assert!(pair.a.host.dropped(DropReason::SendFailed) > 0, "{:?}", pair.a.host.drops());
        pair.a.host.device.device_mut().set_room(100);
        pair.run_for(5);
        pair.stream(5);
    }
}

#[test]
fn ike_gives_up_when_nothing_can_be_sent() {
    let mut pair = IkePair::new(4, Medium::Ip, PLAIN);
    pair.a.host.device.device_mut().set_room(0);
    pair.send_datagram();
    pair.run_for(200);
    assert_eq!(pair.a.count(is_dead_peer), 1);
    assert_eq!(pair.a.host.device.endpoint().ike().status().count(), 0);
    pair.a.host.device.device_mut().set_room(100);
    pair.run_for(5);
    pair.stream(5);
}

/// Sends an echo request from B.
fn ping(pair: &mut IkePair, socket: smoltcp::iface::SocketHandle) {
    use smoltcp::socket::icmp;
    use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr};
    let echo = Icmpv4Repr::EchoRequest { ident: 0x55, seq_no: 1, data: &[1; 100] };
    let socket = pair.b.host.sockets.get_mut::<icmp::Socket>(socket);
    // Ignores a full socket buffer.
    if let Ok(room) = socket.send(echo.buffer_len(), pair.addrs.own.into()) {
        echo.emit(&mut Icmpv4Packet::new_unchecked(room), &smoltcp::phy::ChecksumCapabilities::default());
    }
}
