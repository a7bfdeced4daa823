//! The IKE task: runs in each round while enough memory is free.

use crate::config::IkeKeys;
use crate::memory_budget::{MemoryNeeds, can_allocate, is_from_unknown_peer};
use crate::runtime::SetupError;
use crate::{ipsec, log};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_ike::SharedKeys;
use casemate_smoltcp::{BufferDevice, IkeConfig, IkeSockets, IpsecDevice};
use casemate_wire::udp::NON_ESP_MARKER;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::{Socket, udp};
use smoltcp::time::{Duration, Instant};

/// Port that IKE shares with ESP in UDP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;
/// Time after which refused timers are retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The IKE sockets and the memory that must be free before they are served.
pub(crate) struct IkeRuntime {
    ike: IkeSockets,
    ports: Vec<SocketHandle>,
    needs: MemoryNeeds,
    refused: u64,
    /// Time at which refused timers are retried.
    later: Instant,
}

impl IkeRuntime {
    /// Opens the ports, and starts the connection if this machine is the initiator.
    pub(crate) fn open<D: BufferDevice>(
        (own, keys, needs): (IpAddr, &IkeKeys, MemoryNeeds),
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<D>,
        sockets: &mut SocketSet<'static>,
    ) -> Result<Self, SetupError> {
        let credentials: Box<SharedKeys> = Box::new(ipsec::credentials(keys));
        let keyring = IkeConfig { providers: ipsec::PROVIDERS.to_vec(), credentials, unix_time_at_origin: 0 };
        let ike = IkeSockets::new(device, sockets, keyring);
        // No other task has UDP sockets.
        let udp = sockets.iter().filter(|(_, socket)| matches!(socket, Socket::Udp(_)));
        let ports = udp.map(|(handle, _)| handle).collect();
        let connections = vec![Arc::new(ipsec::connection(own, keys))];
        let configured = ike.with_endpoint(now, interface, device, |endpoint, context| {
            endpoint.configure(connections, &[], context)
        });
        configured.map_err(|_| SetupError::Policies)?;
        Ok(Self { ike, ports, needs, refused: 0, later: Instant::ZERO })
    }

    /// Runs IKE once. `log_line` receives a message for each event.
    pub(crate) fn serve<D: BufferDevice>(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<D>,
        sockets: &mut SocketSet<'_>,
        mut log_line: impl FnMut(String),
    ) {
        let before = self.refused;
        if self.has_memory(now, device, sockets) {
            self.ike.serve(now, interface, device, sockets, |notice| {
                log::describe(&notice).into_iter().for_each(&mut log_line);
            });
        }
        if self.refused != before {
            log_line(format!("ike: no memory, {} messages or timers refused so far", self.refused));
        }
    }

    /// Returns the number of messages and timers that were refused because of low memory.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Discards messages for which memory is missing. Returns whether the other work can be done.
    fn has_memory<D: BufferDevice>(
        &mut self,
        now: Instant,
        device: &IpsecDevice<D>,
        sockets: &mut SocketSet<'_>,
    ) -> bool {
        let is_due =
            device.endpoint().datapath().has_events() || self.ike.due(device).is_some_and(|due| due <= now);
        let is_asked = self.ports.iter().any(|port| sockets.get::<udp::Socket<'_>>(*port).can_recv());
        if !(is_due || is_asked) || can_allocate(self.needs.unknown_peer) {
            return true;
        }
        let has_some = can_allocate(self.needs.known);
        for port in &self.ports {
            let socket = sockets.get_mut::<udp::Socket<'_>>(*port);
            while is_refused(socket, has_some) {
                // Remove the message without processing it.
                let _ = socket.recv();
                self.refused = self.refused.saturating_add(1);
            }
        }
        if is_due && !has_some && now >= self.later {
            self.later = now + RETRY_DELAY;
            self.refused = self.refused.saturating_add(1);
        }
        has_some
    }
}

/// Returns whether the next message must be discarded: any message, or if some memory is free, a request
/// of an unknown peer.
fn is_refused(socket: &mut udp::Socket<'_>, has_some: bool) -> bool {
    let marker = if socket.endpoint().port == NATT_PORT { NON_ESP_MARKER.len() } else { 0 };
    let Ok((data, _)) = socket.peek() else { return false };
    !has_some || is_from_unknown_peer(data.get(marker..).unwrap_or_default())
}
