//! smoltcp with Casemate below it, and alone to compare: two hosts that send each other a datagram.

use super::{end, esp};
use crate::Board;
use crate::packets::{LEFT, RIGHT};
use crate::peers::{self, Dice, Proof};
use crate::wire::{Above, End};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use casemate::{Datapath, Endpoint, housekeeping};
use casemate_crypto::{Providers, SecretBytes};
use casemate_datapath::Config;
use casemate_ike::config::IdPattern;
use casemate_ike::{Settings, SharedKeys};
use casemate_rustcrypto::{AES_128_GCM, HMAC_SHA256, SHA1, X25519};
use casemate_sa::Limits;
use casemate_smoltcp::{Guarded, IkeSockets, Keys, Setup};
use core::hint::black_box;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Room for the policies of [`housekeeping`], and as much of everything else as the other programs have.
const LIMITS: Limits = Limits { sas: 12, policies: 32, ..Limits::DEVICE };
const NOW: Instant = Instant::from_micros_const(1_000_000_000);
const PORT: u16 = 7;
/// IP's numbers of what goes over the wire.
const UDP: u8 = 17;
const ESP: u8 = 50;

/// smoltcp alone, with UDP over IPv4.
pub fn smoltcp_alone(board: &Board) -> bool {
    let before = (board.heap)();
    let (mut left, mut right) = (Host::new(End::default(), LEFT), Host::new(End::default(), RIGHT));
    report(board, before);
    datagram(&mut left, &mut right, UDP).is_some() && end(board)
}

/// The same behind Casemate, with manual keys for ESP with AES-128-GCM.
pub fn smoltcp_esp(board: &Board) -> bool {
    let before = (board.heap)();
    let hosts = with_keys(LEFT).zip(with_keys(RIGHT));
    report(board, before);
    hosts.and_then(|(mut left, mut right)| datagram(&mut left, &mut right, ESP)).is_some() && end(board)
}

/// The same with keys that IKEv2 negotiates, over smoltcp's sockets.
pub fn smoltcp_ike(board: &Board) -> bool {
    let before = (board.heap)();
    let speakers =
        Speaker::new(("moon", LEFT), ("sun", RIGHT)).zip(Speaker::new(("sun", RIGHT), ("moon", LEFT)));
    let Some((mut left, mut right)) = speakers else { return false };
    let sent = left.initiate().and_then(|()| {
        talk(&mut left, &mut right);
        report(board, before);
        datagram(&mut left.host, &mut right.host, ESP)
    });
    sent.is_some() && end(board)
}

/// Both hosts cost the same.
fn report(board: &Board, before: usize) {
    board.report("heap-host", (board.heap)().saturating_sub(before) / 2);
}

/// An interface with a socket.
struct Host<D> {
    device: D,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl<D: Above> Host<D> {
    fn new(mut device: D, addr: IpAddr) -> Self {
        let config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, NOW);
        // There is room for one.
        interface.update_ip_addrs(|addrs| {
            let _ = addrs.push(IpCidr::new(addr.into(), 24));
        });
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 2], vec![0; 256]);
        let mut socket = Socket::new(buffer(), buffer());
        // The socket is new and the port is not 0: nothing can be wrong.
        let _ = socket.bind(PORT);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Self { device, interface, sockets, socket }
    }

    fn poll(&mut self) {
        self.interface.poll(NOW, &mut self.device, &mut self.sockets);
    }
}

/// A datagram from the left host to the right one. `None` if it does not arrive, or goes as another protocol.
fn datagram<D: Above>(left: &mut Host<D>, right: &mut Host<D>, protocol: u8) -> Option<()> {
    let sent = black_box([7; 64]);
    left.sockets.get_mut::<Socket<'_>>(left.socket).send_slice(&sent, (RIGHT, PORT)).ok()?;
    left.poll();
    (left.device.wire().protocol_of_next() == Some(protocol)).then_some(())?;
    left.device.wire().carry(right.device.wire());
    right.poll();
    let (received, from) = right.sockets.get_mut::<Socket<'_>>(right.socket).recv().ok()?;
    (received == sent && IpAddr::from(from.endpoint.addr) == LEFT).then_some(())
}

fn guarded(datapath: Datapath, seed: u64) -> Guarded<End> {
    let endpoint = Endpoint::new(datapath, Settings::DEVICE);
    Guarded::new(End::default(), Setup { endpoint, rng: Box::new(Dice(seed)), limits: LIMITS })
}

fn empty_datapath() -> Datapath {
    Datapath::new(Config { limits: LIMITS, ..Config::server(black_box(1)) })
}

fn with_keys(addr: IpAddr) -> Option<Host<Guarded<End>>> {
    let mut datapath = empty_datapath();
    esp::add_gcm(&mut datapath, &Providers(&[AES_128_GCM]))?;
    Some(Host::new(guarded(datapath, 1), addr))
}

/// A host with IKE.
struct Speaker {
    host: Host<Guarded<End>>,
    ike: IkeSockets,
}

impl Speaker {
    fn new(own: (&str, IpAddr), peer: (&str, IpAddr)) -> Option<Self> {
        let mut datapath = empty_datapath();
        housekeeping(&mut datapath).ok()?;
        let seed = if own.1 == LEFT { 1 } else { 2 };
        let mut host = Host::new(guarded(datapath, seed), own.1);
        let secret = SecretBytes::new(&black_box([7; 32]));
        let keys = Keys {
            providers: vec![AES_128_GCM, HMAC_SHA256, SHA1, X25519],
            credentials: Box::new(SharedKeys::new().with(IdPattern::Any, secret)),
            unix_time_at_origin: 0,
        };
        let ike = IkeSockets::new(&mut host.device, &mut host.sockets, keys);
        let connections = vec![Arc::new(peers::connection(0, own, peer, Proof::SharedKey))];
        let configured = ike.with(NOW, &host.interface, &mut host.device, |endpoint, means| {
            endpoint.configure(connections, &[], means)
        });
        configured.ok()?;
        Some(Self { host, ike })
    }

    /// Asks for the IKE SA and its Child SA.
    fn initiate(&mut self) -> Option<()> {
        let connection = self.host.device.endpoint().ike().connections().first()?.clone();
        let Self { host, ike } = self;
        let begun = ike.with(NOW, &host.interface, &mut host.device, |endpoint, means| {
            endpoint.initiate(&connection, connection.children.first(), means)
        });
        begun.ok()
    }

    fn serve(&mut self) {
        let Host { device, interface, sockets, .. } = &mut self.host;
        self.ike.serve(NOW, interface, device, sockets, drop);
        self.host.poll();
    }
}

/// Lets both speak: four messages, and their repetition is far away.
fn talk(left: &mut Speaker, right: &mut Speaker) {
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        left.serve();
        left.host.device.wire().carry(right.host.device.wire());
        right.host.poll();
        right.serve();
        right.host.device.wire().carry(left.host.device.wire());
        left.host.poll();
    }
}
