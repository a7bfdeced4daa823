//! Tables that are full, peers that do not answer, and a device that does not send: refused or tried again, and counted.

use crate::host::LIMITS;
use crate::ike::{PLAIN, Pair, Wanted};
use casemate::{InstallError, Notice};
use casemate_datapath::{AddSaError, DropReason};
use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{Down, Event, Settings};
use casemate_sa::{AddrRange, Limits};
use smoltcp::phy::Medium;
use smoltcp::socket::udp;
use smoltcp::time::Duration;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::sync::Arc;

/// Where an IKE message begins in a packet of IPv4 on port 500, and its initiator's SPI in it.
const MESSAGE: usize = 28;

impl Pair {
    /// Lets a datagram of A's call for an SA.
    fn say(&mut self) {
        let socket = self.a.host.udp(3_000);
        let to = IpEndpoint::new(IpAddress::from(self.addrs.1), 2_000);
        self.a.host.sockets.get_mut::<udp::Socket>(socket).send_slice(b"hello", to).unwrap();
        self.a.host.poll(self.now);
        self.a.serve(self.now);
        self.a.host.sockets.remove(socket);
    }

    /// Lets so many seconds pass, in steps of 100 ms.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.round();
            self.now += Duration::from_millis(100);
        }
    }

    /// The same for A alone: B is gone.
    fn pass_without_peer(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.a.host.poll(self.now);
            self.a.serve(self.now);
            self.now += Duration::from_millis(100);
        }
    }
}

fn dead(event: &Event) -> bool {
    matches!(event, Event::IkeDown { why: Down::Dead, .. })
}

#[test]
fn a_peer_that_never_answers_is_given_up_and_tried_again() {
    let mut pair = Pair::new(4, Medium::Ip, PLAIN);
    let tries = Settings::DEVICE.retransmission.tries as usize + 1;
    for attempt in 1..=2 {
        pair.seen.take();
        pair.say();
        pair.pass_without_peer(200);
        assert_eq!(pair.a.count(dead), attempt);
        let endpoint = pair.a.host.device.endpoint();
        assert_eq!(endpoint.ike().status().count(), 0);
        assert_eq!(endpoint.reserved_spis(), 0);
        assert_eq!(pair.seen.take().len(), tries, "each try is one message");
        assert_eq!(pair.a.host.dropped(DropReason::NoOutboundSa), attempt as u64);
    }
    // It comes back.
    pair.stream(5);
}

#[test]
fn half_open_sas_of_strangers_are_bounded_and_the_peer_gets_in() {
    let mut pair = Pair::new(4, Medium::Ip, PLAIN);
    pair.say();
    pair.a.host.poll(pair.now);
    let request = pair.seen.take().remove(0);
    // Nobody reads the answers.
    pair.b.host.device.device_mut().set_room(2_000);
    let mut most = 0;
    for stranger in 0..1_000_u32 {
        let mut forged = request.clone();
        forged[MESSAGE..MESSAGE + 4].copy_from_slice(&(0xABCD_0000 + stranger).to_be_bytes());
        // No UDP checksum (RFC 768).
        forged[26..28].fill(0);
        pair.b.host.device.device_mut().inject(&forged);
        pair.b.host.poll(pair.now);
        pair.b.serve(pair.now);
        pair.b.host.poll(pair.now);
        most = most.max(pair.b.host.device.endpoint().ike().status().count());
    }
    assert!((1..=Settings::DEVICE.half_open).contains(&most), "{most} half-open IKE SAs");
    // Every one got an answer, and so did A: the first ones a response, the others a cookie to show.
    let answers = pair.seen.take();
    assert_eq!(answers.len(), 1_001);
    let cookies = answers.iter().filter(|frame| frame.len() < 100).count();
    assert!(cookies >= 1_000 - Settings::DEVICE.half_open, "{cookies} cookies");
    pair.stream(5);
    // The strangers are forgotten in time.
    pair.pass(60);
    assert_eq!(pair.b.host.device.endpoint().ike().status().count(), 1);
}

#[test]
fn a_child_sa_without_room_in_the_sad_is_closed_on_both_sides() {
    let limits = Limits { sas: 1, ..LIMITS };
    let mut pair = Pair::new(4, Medium::Ip, Wanted { limits, ..PLAIN });
    pair.say();
    pair.pass(5);
    let full = |notice: &&Notice| {
        matches!(notice, Notice::NotInstalled { why: InstallError::Sa(AddSaError::Full), .. })
    };
    assert_eq!(pair.b.told.iter().filter(full).count(), 1, "{:?}", pair.b.told);
    for speaker in [&pair.a, &pair.b] {
        assert_eq!(speaker.host.device.endpoint().datapath().sas().count(), 0);
        assert_eq!(speaker.count(|event| matches!(event, Event::ChildDown { .. })), 1);
        // The IKE SA stands.
        assert_eq!(speaker.host.device.endpoint().ike().status().count(), 1);
        assert_eq!(speaker.host.device.endpoint().reserved_spis(), 0);
    }
    // The next packet asks anew.
    pair.say();
    pair.pass(5);
    assert_eq!(pair.b.told.iter().filter(full).count(), 2);
}

#[test]
fn a_child_sa_that_cannot_be_replaced_ends_and_the_next_packet_asks_for_another() {
    // Room for one pair of SAs, and not for its successor.
    let limits = Limits { sas: 2, ..LIMITS };
    let mut pair = Pair::new(4, Medium::Ip, Wanted { limits, rekey: Some(5), ..PLAIN });
    pair.stream(100);
    let refused = |pair: &Pair| {
        pair.b.told.iter().filter(|notice| matches!(notice, Notice::NotInstalled { .. })).count()
    };
    assert_eq!(refused(&pair), 0);
    pair.pass(10);
    assert!(refused(&pair) >= 1, "no attempt in ten seconds");
    for _ in 0..3 {
        pair.stream(100);
        assert_eq!(pair.b.host.device.endpoint().datapath().sas().count(), 2);
        pair.pass(10);
    }
    assert!(pair.b.host.device.endpoint().reserved_spis() <= 1);
}

#[test]
fn without_room_for_policies_nothing_is_half_applied() {
    // Those of the house, and no more.
    let limits = Limits { policies: 10, ..LIMITS };
    let mut pair = Pair::new(4, Medium::Ip, Wanted { limits, ..PLAIN });
    pair.say();
    pair.pass(5);
    let full = |notice: &&Notice| matches!(notice, Notice::NotInstalled { why: InstallError::Policies, .. });
    assert_eq!(pair.b.told.iter().filter(full).count(), 1, "{:?}", pair.b.told);
    for speaker in [&pair.a, &pair.b] {
        assert_eq!(speaker.host.device.endpoint().datapath().sas().count(), 0);
        assert_eq!(speaker.count(|event| matches!(event, Event::ChildDown { .. })), 1);
    }
}

#[test]
fn more_ike_sas_than_there_is_room_for_are_refused() {
    let mut pair = Pair::new(4, Medium::Ip, PLAIN);
    pair.stream(3);
    let host = &mut pair.a.host;
    let (first, _) = host.device.endpoint().configured("peer").unwrap();
    let nobody = |number: u8| Connection {
        name: format!("nobody-{number}"),
        remote_addrs: vec![AddrPattern::Range(AddrRange::single([192, 0, 2, number].into()))],
        children: vec![],
        ..Connection::clone(&first)
    };
    let others: Vec<Arc<Connection>> = (100..120).map(|number| Arc::new(nobody(number))).collect();
    let all = [vec![first.clone()], others.clone()].concat();
    let begun = pair.a.ike.with(pair.now, &host.interface, &mut host.device, |endpoint, means| {
        endpoint.configure(all, &[], means).unwrap();
        others.iter().filter(|other| endpoint.initiate(other, None, means).is_ok()).count()
    });
    assert_eq!(begun, Settings::DEVICE.ike_sas - 1, "one stands already");
    assert_eq!(host.device.endpoint().ike().status().count(), Settings::DEVICE.ike_sas);
    // Whatever came of those, packets pass.
    pair.pass(200);
    pair.stream(5);
}

#[test]
fn a_device_that_stops_sending_loses_what_it_must_and_goes_on_afterwards() {
    for medium in [Medium::Ip, Medium::Ethernet] {
        let mut pair = Pair::new(4, medium, PLAIN);
        pair.stream(5);
        let to = IpEndpoint::new(IpAddress::from(pair.addrs.1), 2_000);
        let socket = pair.a.host.udp(4_000);
        pair.a.host.device.device_mut().set_room(0);
        for _ in 0..300 {
            // Its socket fills up, and says so.
            let _ = pair.a.host.sockets.get_mut::<udp::Socket>(socket).send_slice(&[7; 5_000], to);
            pair.round();
            pair.now += Duration::from_millis(10);
        }
        assert!(!pair.a.host.sockets.get_mut::<udp::Socket>(socket).can_send(), "the stack sees no room");
        // Answers that nobody waits for are lost, and counted: requests keep coming in.
        let echo = pair.b.host.icmp(0x55);
        for _ in 0..300 {
            ping(&mut pair, echo);
            pair.round();
            pair.now += Duration::from_millis(10);
        }
        assert!(pair.a.host.dropped(DropReason::SendFailed) > 0, "{:?}", pair.a.host.drops());
        pair.a.host.device.device_mut().set_room(100);
        pair.pass(5);
        pair.stream(5);
    }
}

#[test]
fn ike_gives_up_when_nothing_can_be_sent() {
    let mut pair = Pair::new(4, Medium::Ip, PLAIN);
    pair.a.host.device.device_mut().set_room(0);
    pair.say();
    pair.pass(200);
    assert_eq!(pair.a.count(dead), 1);
    assert_eq!(pair.a.host.device.endpoint().ike().status().count(), 0);
    pair.a.host.device.device_mut().set_room(100);
    pair.pass(5);
    pair.stream(5);
}

/// An echo request of B's.
fn ping(pair: &mut Pair, socket: smoltcp::iface::SocketHandle) {
    use smoltcp::socket::icmp;
    use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr};
    let echo = Icmpv4Repr::EchoRequest { ident: 0x55, seq_no: 1, data: &[1; 100] };
    let socket = pair.b.host.sockets.get_mut::<icmp::Socket>(socket);
    // As many as fit.
    if let Ok(room) = socket.send(echo.buffer_len(), pair.addrs.0.into()) {
        echo.emit(&mut Icmpv4Packet::new_unchecked(room), &smoltcp::phy::ChecksumCapabilities::default());
    }
}
