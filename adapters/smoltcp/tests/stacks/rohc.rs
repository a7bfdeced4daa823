//! Header compression after an outage that loses the context of a flow: feedback leaves without other packets
//! of its host, also if the device has no room at first.

use crate::ike::{IkeHost, IkePair, PLAIN, TestParams};
use casemate_datapath::DropReason;
use smoltcp::iface::SocketHandle;
use smoltcp::phy::Medium;
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint};

const MEDIA: [(u8, Medium); 3] = [(4, Medium::Ip), (4, Medium::Ethernet), (6, Medium::Ethernet)];

const COMPRESSED: TestParams = TestParams { rohc: true, ..PLAIN };

/// Lost packets: more than the 13 that a context survives.
const OUTAGE: u32 = 20;

/// Datagrams before the outage. The compressor repeats all headers by itself after 64 packets.
const BEFORE: u32 = 10;

impl IkeHost {
    fn step(&mut self, now: Instant) {
        self.host.poll(now);
        self.serve(now);
    }

    fn lose_frames(&mut self) {
        self.host.device.device_mut().lose_frames();
    }

    fn send(&mut self, socket: SocketHandle, data: &[u8], to: IpEndpoint) {
        self.host.sockets.get_mut::<udp::Socket>(socket).send_slice(data, to).unwrap();
    }

    /// Reads a socket. Returns the number of datagrams.
    fn receive(&mut self, socket: SocketHandle) -> u32 {
        let socket = self.host.sockets.get_mut::<udp::Socket>(socket);
        std::iter::from_fn(|| socket.recv().ok().map(drop)).count().try_into().unwrap()
    }

    /// Returns each datagram to its source.
    fn echo(&mut self, socket: SocketHandle) {
        let socket = self.host.sockets.get_mut::<udp::Socket>(socket);
        let requests: Vec<_> =
            std::iter::from_fn(|| socket.recv().ok().map(|(data, meta)| (data.to_vec(), meta.endpoint)))
                .collect();
        requests.iter().for_each(|(data, from)| socket.send_slice(data, *from).unwrap());
    }
}

/// A flow of datagrams from A to B, one in 100 ms.
struct Flow {
    pair: IkePair,
    from: SocketHandle,
    to: SocketHandle,
    peer: IpEndpoint,
}

impl Flow {
    fn new(version: u8, medium: Medium, params: TestParams) -> Self {
        let mut pair = IkePair::new(version, medium, params);
        let (from, to) = (pair.a.host.udp(1_000), pair.b.host.udp(2_000));
        let peer = IpEndpoint::new(IpAddress::from(pair.addrs.peer), 2_000);
        let mut flow = Self { pair, from, to, peer };
        // The Child SA is established, and the context is acknowledged.
        (0..BEFORE).for_each(|_| flow.pass());
        assert_eq!(flow.pass_one(), 1);
        flow
    }

    fn send(&mut self) {
        self.pair.now += Duration::from_millis(100);
        self.pair.a.send(self.from, b"request", self.peer);
        self.pair.a.step(self.pair.now);
    }

    fn lose(&mut self) {
        self.send();
        self.pair.b.lose_frames();
    }

    /// Sends a datagram and runs both hosts until no message is in flight.
    fn pass(&mut self) {
        self.send();
        self.pair.round();
    }

    /// Returns how many datagrams arrived after one was sent.
    fn pass_one(&mut self) -> u32 {
        self.pair.b.receive(self.to);
        self.pass();
        self.pair.b.receive(self.to)
    }
}

#[test]
fn one_datagram_is_lost_after_an_outage() {
    for (version, medium) in MEDIA {
        let mut flow = Flow::new(version, medium, COMPRESSED);
        (0..OUTAGE).for_each(|_| flow.lose());
        let after: Vec<u32> = (0..10).map(|_| flow.pass_one()).collect();
        assert_eq!(after, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1], "{version} {medium:?}");
        assert_eq!(flow.pair.b.host.dropped(DropReason::RohcFailed), 1);
    }
}

#[test]
fn one_poll_receives_the_packet_and_sends_feedback() {
    let mut flow = Flow::new(4, Medium::Ip, COMPRESSED);
    (0..OUTAGE).for_each(|_| flow.lose());
    flow.send();
    flow.pair.seen.take();
    flow.pair.b.host.poll(flow.pair.now);
    assert_eq!(flow.pair.seen.take().len(), 1);
    assert!(!flow.pair.b.host.device.endpoint().datapath().has_rohc_feedback());
}

/// Requests that have no response, of 10 after an outage in one direction.
fn unanswered_after_outage(params: TestParams, towards_server: bool) -> u32 {
    let mut flow = Flow::new(4, Medium::Ethernet, params);
    flow.pair.b.receive(flow.to);
    let mut answered = 0;
    for number in 0..BEFORE + OUTAGE + 10 {
        flow.send();
        let is_out = (BEFORE..BEFORE + OUTAGE).contains(&number);
        if is_out && towards_server {
            flow.pair.b.lose_frames();
        }
        flow.pair.b.step(flow.pair.now);
        flow.pair.b.echo(flow.to);
        flow.pair.b.step(flow.pair.now);
        if is_out && !towards_server {
            flow.pair.a.lose_frames();
        }
        flow.pair.a.step(flow.pair.now);
        let received = flow.pair.a.receive(flow.from);
        assert!(number >= BEFORE || received == 1, "request {number} before the outage has no response");
        if number >= BEFORE + OUTAGE {
            answered += received;
        }
    }
    10 - answered
}

#[test]
fn requests_have_responses_after_an_outage() {
    for towards_server in [true, false] {
        assert_eq!(unanswered_after_outage(PLAIN, towards_server), 0);
        assert_eq!(unanswered_after_outage(COMPRESSED, towards_server), 1, "{towards_server}");
    }
}

/// An upload over TCP from A to B.
struct Upload {
    pair: IkePair,
    from: SocketHandle,
    to: SocketHandle,
}

impl Upload {
    fn new(medium: Medium, params: TestParams) -> Self {
        let mut pair = IkePair::new(4, medium, params);
        let (from, to) = (pair.a.host.tcp(), pair.b.host.tcp());
        pair.b.host.sockets.get_mut::<tcp::Socket>(to).listen(80).unwrap();
        let peer = (IpAddress::from(pair.addrs.peer), 80);
        let host = &mut pair.a.host;
        host.sockets.get_mut::<tcp::Socket>(from).connect(host.interface.context(), peer, 4_000).unwrap();
        Self { pair, from, to }
    }

    /// Lets 20 ms pass. Returns the number of bytes that B received.
    fn step(&mut self, is_out: bool) -> usize {
        let pair = &mut self.pair;
        pair.now += Duration::from_millis(20);
        let socket = pair.a.host.sockets.get_mut::<tcp::Socket>(self.from);
        if socket.can_send() {
            socket.send_slice(&[7; 20_000]).unwrap();
        }
        pair.a.step(pair.now);
        if is_out {
            pair.b.lose_frames();
        }
        pair.b.step(pair.now);
        let socket = pair.b.host.sockets.get_mut::<tcp::Socket>(self.to);
        let mut received = 0;
        while socket.can_recv() {
            received += socket.recv(|data| (data.len(), data.len())).unwrap();
        }
        pair.a.step(pair.now);
        received
    }

    /// Milliseconds until B receives data again after an outage of `steps` steps.
    fn pause_after_outage(mut self, steps: u32) -> u32 {
        let before: usize = (0..500).map(|_| self.step(false)).sum();
        assert!(before > 1_000_000, "{before} bytes in 10 s");
        for _ in 0..steps {
            assert_eq!(self.step(true), 0);
        }
        let pause = (0..500).position(|_| self.step(false) > 0);
        let pause = pause.unwrap_or_else(|| panic!("no data in 10 s: {:?}", self.pair.b.host.drops()));
        let after: usize = (0..500).map(|_| self.step(false)).sum();
        assert!(after > before / 2, "{after} bytes in 10 s, {before} before");
        u32::try_from(pause).unwrap() * 20
    }
}

#[test]
fn an_upload_continues_after_a_lost_burst() {
    for medium in [Medium::Ip, Medium::Ethernet] {
        let [plain, compressed] =
            [PLAIN, COMPRESSED].map(|params| Upload::new(medium, params).pause_after_outage(5));
        assert!(
            compressed <= plain + 2_000,
            "{medium:?}: {plain} ms, {compressed} ms with header compression"
        );
    }
}

/// Checks that the feedback of B waits while its device accepts no frame, and leaves when it does.
fn check_feedback_waits(mut flow: Flow, medium: Medium, fill_queue: impl FnOnce(&mut Flow)) {
    (0..OUTAGE).for_each(|_| flow.lose());
    flow.pair.b.host.device.device_mut().set_room(0);
    fill_queue(&mut flow);
    let unsent = flow.pair.b.host.dropped(DropReason::SendFailed);
    flow.pair.seen.take();
    flow.send();
    (0..10).for_each(|_| flow.pair.b.step(flow.pair.now));
    assert_eq!(flow.pair.seen.take().len(), 1, "only the datagram of A is sent");
    assert_eq!(flow.pair.b.host.dropped(DropReason::RohcFailed), 1);
    flow.pair.b.host.device.device_mut().set_room(100);
    flow.pair.b.step(flow.pair.now);
    let frames = flow.pair.seen.take();
    flow.pair.a.step(flow.pair.now);
    if medium == Medium::Ethernet {
        assert!(frames.iter().all(|frame| frame[..12] == [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]));
    }
    assert_eq!(flow.pass_one(), 1);
    assert_eq!(flow.pair.b.host.dropped(DropReason::SendFailed), unsent, "feedback is lost");
}

#[test]
fn feedback_waits_for_room_in_the_device() {
    for (version, medium) in MEDIA {
        check_feedback_waits(Flow::new(version, medium, COMPRESSED), medium, |_| ());
    }
}

#[test]
fn feedback_waits_behind_a_full_queue() {
    check_feedback_waits(Flow::new(4, Medium::Ethernet, COMPRESSED), Medium::Ethernet, |flow| {
        // B sends an ICMP error about each datagram.
        let closed = IpEndpoint::new(flow.peer.addr, 9);
        for _ in 0..100 {
            flow.pair.a.send(flow.from, b"closed", closed);
            flow.pair.a.step(flow.pair.now);
            flow.pair.b.step(flow.pair.now);
        }
        assert!(flow.pair.b.host.dropped(DropReason::SendFailed) > 0);
    });
}
