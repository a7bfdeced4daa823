//! IKE over UDP sockets of the same smoltcp interface (RFC 7296 section 2).

use crate::{BufferDevice, IpsecDevice, from_smoltcp, to_smoltcp};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Context, Endpoint, Notice, Routes};
use casemate_crypto::{Provider, Providers};
use casemate_ike::{Credentials, Path, Transmit};
use casemate_wire::invariant::OrBroken;
use casemate_wire::udp::{KEEPALIVE, NON_ESP_MARKER};
use core::net::{IpAddr, SocketAddr};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket, UdpMetadata};
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint};

/// Port of IKE without NAT traversal.
const IKE_PORT: u16 = 500;
/// Port that IKE shares with ESP in UDP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;

/// Number of messages that a socket buffers per direction, and their total size per message.
const MESSAGES_PER_SOCKET: usize = 8;
const MAX_MESSAGE_LEN: usize = 3_000;

/// Configuration of IKE, beside the connections.
pub struct IkeConfig {
    /// Providers of algorithms, preferred ones first.
    pub providers: Vec<&'static dyn Provider>,
    /// Keys and certificates.
    pub credentials: Box<dyn Credentials>,
    /// Unix time in seconds when smoltcp's clock shows 0. Used to check certificates; 0 if only shared
    /// keys are used.
    pub unix_time_at_origin: u64,
}

/// The two UDP sockets of IKE.
pub struct IkeSockets {
    sockets: [(u16, SocketHandle); 2],
    config: IkeConfig,
    unsent: u64,
}

impl IkeSockets {
    /// Opens ports 500 and 4500 on all addresses of an interface.
    pub fn new<D: BufferDevice>(
        device: &mut IpsecDevice<D>,
        sockets: &mut SocketSet<'_>,
        config: IkeConfig,
    ) -> Self {
        device.endpoint_mut().datapath_mut().add_encap_port(NATT_PORT);
        let mut open = |port: u16| {
            let buffer = || {
                let bytes = const { MESSAGES_PER_SOCKET.saturating_mul(MAX_MESSAGE_LEN) };
                PacketBuffer::new(vec![PacketMetadata::EMPTY; MESSAGES_PER_SOCKET], vec![0; bytes])
            };
            let mut socket = Socket::new(buffer(), buffer());
            socket.bind(port).or_report("a new socket can be bound to a port other than 0");
            (port, sockets.add(socket))
        };
        Self { sockets: [open(IKE_PORT), open(NATT_PORT)], config, unsent: 0 }
    }

    /// Replaces providers, keys and certificates.
    pub fn set_config(&mut self, config: IkeConfig) {
        self.config = config;
    }

    /// Number of messages that were not sent: the buffer of the socket was full, or
    /// the connection's `local_port` is neither 500 nor 4500.
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Receives messages, runs timers and sends messages. The caller must call this after each
    /// [`Interface::poll`] and when [`due`](Self::due) is reached, and poll the interface again
    /// afterwards. `on_notice` receives each event.
    pub fn serve<D: BufferDevice>(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<D>,
        sockets: &mut SocketSet<'_>,
        mut on_notice: impl FnMut(Notice),
    ) {
        for (port, handle) in self.sockets {
            let socket = sockets.get_mut::<Socket<'_>>(handle);
            for _ in 0..MESSAGES_PER_SOCKET {
                let Ok((data, metadata)) = socket.recv() else { break };
                let Some(message) = ike_message(port, data) else { continue };
                let Some(path) = path(port, &metadata) else { continue };
                let mut message = message.to_vec();
                self.with_endpoint(now, interface, device, |endpoint, context| {
                    endpoint.receive_ike(&mut message, path, context);
                });
            }
        }
        self.with_endpoint(now, interface, device, Endpoint::handle_timeouts);
        while let Some(transmit) = device.endpoint_mut().next_transmit() {
            if self.send(sockets, &transmit).is_err() {
                self.unsent = self.unsent.saturating_add(1);
            }
        }
        while let Some(notice) = device.endpoint_mut().next_notice() {
            on_notice(notice);
        }
    }

    /// Returns the latest time for the next call of [`serve`](Self::serve).
    pub fn due<D: BufferDevice>(&self, device: &IpsecDevice<D>) -> Option<Instant> {
        device.endpoint().next_timeout().map(to_smoltcp)
    }

    /// Calls `operation` with the endpoint, to configure it or to initiate and terminate SAs.
    /// [`serve`](Self::serve) sends the resulting messages.
    pub fn with_endpoint<D: BufferDevice, R>(
        &self,
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<D>,
        operation: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R,
    ) -> R {
        let path = device.path_mut();
        let now = from_smoltcp(now);
        let mut context = Context {
            now,
            unix_time: self.config.unix_time_at_origin.saturating_add(now.as_micros() / 1_000_000),
            rng: &mut *path.rng,
            providers: &Providers(&self.config.providers),
            credentials: &*self.config.credentials,
            routes: &InterfaceRoutes(interface),
        };
        operation(&mut path.endpoint, &mut context)
    }

    /// Sends a message. A message that is not sent is retransmitted by IKE as a lost one.
    fn send(&self, sockets: &mut SocketSet<'_>, transmit: &Transmit) -> Result<(), Unsent> {
        let Path { local, remote } = transmit.path;
        let (_, handle) = self.sockets.iter().find(|(port, _)| *port == local.port()).ok_or(Unsent)?;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        // RFC 3948 section 2.3: a NAT keepalive is one byte.
        let message = if transmit.message.is_empty() { &[KEEPALIVE][..] } else { &transmit.message };
        let marker = if transmit.non_esp_marker { &NON_ESP_MARKER[..] } else { &[] };
        let mut metadata = UdpMetadata::from(IpEndpoint::from(remote));
        metadata.local_address = Some(IpAddress::from(local.ip()));
        let room = socket.send(marker.len().saturating_add(message.len()), metadata).map_err(|_| Unsent)?;
        for (byte, value) in room.iter_mut().zip(marker.iter().chain(message)) {
            *byte = *value;
        }
        Ok(())
    }
}

/// A message was not sent.
struct Unsent;

/// Returns the IKE message in a datagram received on `port`. `None`: the datagram is an ESP packet.
fn ike_message(port: u16, data: &[u8]) -> Option<&[u8]> {
    if port == NATT_PORT { data.strip_prefix(&NON_ESP_MARKER) } else { Some(data) }
}

/// Returns the path of a datagram received on `port`.
fn path(port: u16, metadata: &UdpMetadata) -> Option<Path> {
    let local = SocketAddr::new(metadata.local_address?.into(), port);
    let remote = SocketAddr::new(metadata.endpoint.addr.into(), metadata.endpoint.port);
    Some(Path { local, remote })
}

/// Source address selection of a smoltcp interface.
struct InterfaceRoutes<'i>(&'i Interface);

impl Routes for InterfaceRoutes<'_> {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        // smoltcp panics for the unspecified address, which a configuration may contain.
        if remote.is_unspecified() {
            return None;
        }
        self.0.get_source_address(&remote.into()).map(IpAddr::from)
    }
}
