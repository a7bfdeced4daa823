//! smoltcp with Casemate, and alone for comparison: two hosts exchange a datagram.

use super::{end, ipsec};
use crate::Board;
use crate::link::{LinkEnd, OnLink};
use crate::peers::{self, AuthMethod, NamedAddr, SeededRng};
use crate::traffic::{LEFT, RIGHT};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use casemate::{Datapath, Endpoint, bypass_control_plane};
use casemate_crypto::{Providers, SecretBytes};
use casemate_datapath::Config;
use casemate_ike::config::IdPattern;
use casemate_ike::{IkeSettings, SharedKeys};
use casemate_rustcrypto::{AES_128_GCM, HMAC_SHA256, SHA1, X25519};
use casemate_sa::Limits;
use casemate_smoltcp::{IkeConfig, IkeSockets, IpsecConfig, IpsecDevice};
use core::hint::black_box;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Room for the policies of [`bypass_control_plane`]; otherwise as in the other programs.
const LIMITS: Limits = Limits { sas: 12, policies: 32, ..Limits::DEVICE };
const NOW: Instant = Instant::from_micros_const(1_000_000_000);
const PORT: u16 = 7;
/// IP protocol numbers on the wire.
const UDP: u8 = 17;
const ESP: u8 = 50;

/// smoltcp alone, with UDP over IPv4.
pub fn smoltcp_alone(board: &Board) -> bool {
    let before = (board.heap)();
    let (mut left, mut right) =
        (UdpHost::new(LinkEnd::default(), LEFT), UdpHost::new(LinkEnd::default(), RIGHT));
    report(board, before);
    datagram(&mut left, &mut right, UDP).is_some() && end(board)
}

/// smoltcp with Casemate: ESP with AES-128-GCM and manual keys.
pub fn smoltcp_esp(board: &Board) -> bool {
    let before = (board.heap)();
    let hosts = static_key_host(LEFT).zip(static_key_host(RIGHT));
    report(board, before);
    hosts.and_then(|(mut left, mut right)| datagram(&mut left, &mut right, ESP)).is_some() && end(board)
}

/// smoltcp with Casemate: ESP with keys that IKEv2 negotiates over smoltcp's sockets.
pub fn smoltcp_ike(board: &Board) -> bool {
    let before = (board.heap)();
    let (moon, sun) = (NamedAddr { name: "moon", addr: LEFT }, NamedAddr { name: "sun", addr: RIGHT });
    let hosts = IkeHost::new(moon, sun).zip(IkeHost::new(sun, moon));
    let Some((mut left, mut right)) = hosts else { return false };
    let sent = left.initiate().and_then(|()| {
        exchange_messages(&mut left, &mut right);
        report(board, before);
        datagram(&mut left.host, &mut right.host, ESP)
    });
    sent.is_some() && end(board)
}

/// Reports the memory of one host. Both hosts have the same cost.
fn report(board: &Board, before: usize) {
    board.report("heap-host", (board.heap)().saturating_sub(before) / 2);
}

/// A host with an interface and a UDP socket.
struct UdpHost<D> {
    device: D,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl<D: OnLink> UdpHost<D> {
    fn new(mut device: D, addr: IpAddr) -> Self {
        let config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, NOW);
        // The list has room for one address.
        interface.update_ip_addrs(|addrs| {
            let _ = addrs.push(IpCidr::new(addr.into(), 24));
        });
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 2], vec![0; 256]);
        let mut socket = Socket::new(buffer(), buffer());
        // The socket is new and the port is not 0, so `bind` cannot fail.
        let _ = socket.bind(PORT);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Self { device, interface, sockets, socket }
    }

    fn poll(&mut self) {
        self.interface.poll(NOW, &mut self.device, &mut self.sockets);
    }
}

/// Sends a datagram from left to right. Returns `None` if it does not arrive, or if it is sent with
/// another IP protocol.
fn datagram<D: OnLink>(left: &mut UdpHost<D>, right: &mut UdpHost<D>, protocol: u8) -> Option<()> {
    let sent = black_box([7; 64]);
    left.sockets.get_mut::<Socket<'_>>(left.socket).send_slice(&sent, (RIGHT, PORT)).ok()?;
    left.poll();
    (left.device.link_end().next_protocol() == Some(protocol)).then_some(())?;
    left.device.link_end().deliver_to(right.device.link_end());
    right.poll();
    let (received, from) = right.sockets.get_mut::<Socket<'_>>(right.socket).recv().ok()?;
    (received == sent && IpAddr::from(from.endpoint.addr) == LEFT).then_some(())
}

fn ipsec_device(datapath: Datapath, seed: u64) -> IpsecDevice<LinkEnd> {
    let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
    IpsecDevice::new(
        LinkEnd::default(),
        IpsecConfig { endpoint, rng: Box::new(SeededRng(seed)), limits: LIMITS },
    )
}

fn empty_datapath() -> Datapath {
    Datapath::new(Config { limits: LIMITS, ..Config::server(black_box(1)) })
}

fn static_key_host(addr: IpAddr) -> Option<UdpHost<IpsecDevice<LinkEnd>>> {
    let mut datapath = empty_datapath();
    ipsec::add_gcm(&mut datapath, &Providers(&[AES_128_GCM]))?;
    Some(UdpHost::new(ipsec_device(datapath, 1), addr))
}

/// A host with IKE.
struct IkeHost {
    host: UdpHost<IpsecDevice<LinkEnd>>,
    ike: IkeSockets,
}

impl IkeHost {
    fn new(own: NamedAddr, peer: NamedAddr) -> Option<Self> {
        let mut datapath = empty_datapath();
        bypass_control_plane(&mut datapath).ok()?;
        let seed = if own.addr == LEFT { 1 } else { 2 };
        let mut host = UdpHost::new(ipsec_device(datapath, seed), own.addr);
        let secret = SecretBytes::new(&black_box([7; 32]));
        let config = IkeConfig {
            providers: vec![AES_128_GCM, HMAC_SHA256, SHA1, X25519],
            credentials: Box::new(SharedKeys::new().with(IdPattern::Any, secret)),
            unix_time_at_origin: 0,
        };
        let ike = IkeSockets::new(&mut host.device, &mut host.sockets, config);
        let connections = vec![Arc::new(peers::connection(0, own, peer, AuthMethod::SharedKey))];
        let configured = ike.with_endpoint(NOW, &host.interface, &mut host.device, |endpoint, context| {
            endpoint.configure(connections, &[], context)
        });
        configured.ok()?;
        Some(Self { host, ike })
    }

    /// Initiates the IKE SA and its Child SA.
    fn initiate(&mut self) -> Option<()> {
        let connection = self.host.device.endpoint().ike().connections().first()?.clone();
        let Self { host, ike } = self;
        let started = ike.with_endpoint(NOW, &host.interface, &mut host.device, |endpoint, context| {
            endpoint.initiate(&connection, connection.children.first(), context)
        });
        started.ok()
    }

    fn serve(&mut self) {
        let UdpHost { device, interface, sockets, .. } = &mut self.host;
        self.ike.serve(NOW, interface, device, sockets, drop);
        self.host.poll();
    }
}

/// Runs both hosts. The negotiation has four messages and finishes long before the first retransmission.
fn exchange_messages(left: &mut IkeHost, right: &mut IkeHost) {
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        left.serve();
        left.host.device.link_end().deliver_to(right.host.device.link_end());
        right.host.poll();
        right.serve();
        right.host.device.link_end().deliver_to(left.host.device.link_end());
        left.host.poll();
    }
}
