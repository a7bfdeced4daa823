//! IKE over UDP sockets of the same interface (RFC 7296 section 2).

use crate::time::{from_smoltcp, to_smoltcp};
use crate::{Exchange, Guarded};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Endpoint, Means, Notice, Routes};
use casemate_crypto::{Provider, Providers};
use casemate_ike::{Credentials, Path, Transmit};
use casemate_wire::natt::{KEEPALIVE, NON_ESP_MARKER};
use core::net::{IpAddr, SocketAddr};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket, UdpMetadata};
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint};

/// The port for messages alone.
const IKE_PORT: u16 = 500;
/// The port that IKE shares with ESP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;

/// Messages that a socket holds in each direction, and how long one may be.
const MESSAGES: usize = 8;
const MESSAGE_BYTES: usize = 3_000;

/// What IKE needs besides time, randomness and a network.
pub struct Keys {
    /// Algorithms, the preferred ones first.
    pub providers: Vec<&'static dyn Provider>,
    /// Keys and certificates.
    pub credentials: Box<dyn Credentials>,
    /// What the clock shows when smoltcp's shows 0, in seconds since 1970: certificates are judged by it. 0 if only shared keys
    /// are used.
    pub unix_time_at_origin: u64,
}

/// IKE's two ports.
pub struct IkeSockets {
    sockets: [(u16, SocketHandle); 2],
    keys: Keys,
}

impl IkeSockets {
    /// Opens ports 500 and 4500 on all addresses of an interface.
    pub fn new<D: Exchange>(device: &mut Guarded<D>, sockets: &mut SocketSet<'_>, keys: Keys) -> Self {
        device.endpoint_mut().datapath_mut().listen_encapsulated(NATT_PORT);
        let mut open = |port: u16| {
            let buffer = || {
                let bytes = const { MESSAGES.saturating_mul(MESSAGE_BYTES) };
                PacketBuffer::new(vec![PacketMetadata::EMPTY; MESSAGES], vec![0; bytes])
            };
            let mut socket = Socket::new(buffer(), buffer());
            // The socket is new and the port is not 0: nothing can be wrong.
            let _ = socket.bind(port);
            (port, sockets.add(socket))
        };
        Self { sockets: [open(IKE_PORT), open(NATT_PORT)], keys }
    }

    /// Other keys and certificates from now on.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// Takes messages that have come, does what is due and sends what there is to say. Call it after each
    /// [`Interface::poll`], and when it is [`due`](Self::due); then poll again. What happened is told to `notice`.
    pub fn serve<D: Exchange>(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut Guarded<D>,
        sockets: &mut SocketSet<'_>,
        mut notice: impl FnMut(Notice),
    ) {
        for (port, handle) in self.sockets {
            let socket = sockets.get_mut::<Socket<'_>>(handle);
            for _ in 0..MESSAGES {
                let Ok((data, metadata)) = socket.recv() else { break };
                let Some((path, at)) = arrival(port, data, &metadata) else { continue };
                let mut message = data.get(at..).unwrap_or_default().to_vec();
                self.with(now, interface, device, |endpoint, means| {
                    endpoint.receive_ike(&mut message, path, means);
                });
            }
        }
        self.with(now, interface, device, Endpoint::serve);
        while let Some(transmit) = device.endpoint_mut().next_transmit() {
            self.send(sockets, &transmit);
        }
        while let Some(told) = device.endpoint_mut().next_notice() {
            notice(told);
        }
    }

    /// When [`serve`](Self::serve) is to be called at the latest.
    pub fn due<D: Exchange>(&self, device: &Guarded<D>) -> Option<Instant> {
        device.endpoint().due().map(to_smoltcp)
    }

    /// Lets the endpoint do something: configure it, begin or end a connection. [`serve`](Self::serve) sends what comes of it.
    pub fn with<D: Exchange, R>(
        &self,
        now: Instant,
        interface: &Interface,
        device: &mut Guarded<D>,
        act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R,
    ) -> R {
        let road = device.road_mut();
        let now = from_smoltcp(now);
        let mut means = Means {
            now,
            unix_time: self.keys.unix_time_at_origin.saturating_add(now.as_micros() / 1_000_000),
            rng: &mut *road.rng,
            providers: &Providers(&self.keys.providers),
            credentials: &*self.keys.credentials,
            routes: &Ways(interface),
        };
        act(&mut road.endpoint, &mut means)
    }

    /// Sends a message, or loses it: IKE repeats what is not answered.
    fn send(&self, sockets: &mut SocketSet<'_>, transmit: &Transmit) {
        let Path { local, remote } = transmit.path;
        let Some((_, handle)) = self.sockets.iter().find(|(port, _)| *port == local.port()) else { return };
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        // RFC 3948 section 2.3: a keepalive is one byte.
        let message = if transmit.message.is_empty() { &[KEEPALIVE][..] } else { &transmit.message };
        let marker = if transmit.marker { &NON_ESP_MARKER[..] } else { &[] };
        let mut metadata = UdpMetadata::from(IpEndpoint::from(remote));
        metadata.local_address = Some(IpAddress::from(local.ip()));
        if let Ok(room) = socket.send(marker.len().saturating_add(message.len()), metadata) {
            for (byte, value) in room.iter_mut().zip(marker.iter().chain(message)) {
                *byte = *value;
            }
        }
    }
}

/// Between whom a datagram of this port went, and where in it the message begins; `None` if it is no message.
fn arrival(port: u16, data: &[u8], metadata: &UdpMetadata) -> Option<(Path, usize)> {
    let at = match port {
        NATT_PORT => data.starts_with(&NON_ESP_MARKER).then_some(NON_ESP_MARKER.len())?,
        _ => 0,
    };
    let local = SocketAddr::new(metadata.local_address?.into(), port);
    let remote = SocketAddr::new(metadata.endpoint.addr.into(), metadata.endpoint.port);
    Some((Path { local, remote }, at))
}

/// The interface's choice of our address on the way to others.
struct Ways<'i>(&'i Interface);

impl Routes for Ways<'_> {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.0.get_source_address(&remote.into()).map(IpAddr::from)
    }
}
