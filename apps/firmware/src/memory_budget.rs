//! The IKE task and its memory reserve: before IKE processes a message, the required memory must be free,
//! because a failed allocation would stop the machine.
//!
//! IKE is the only task that allocates memory at run time, except for contexts of header compression, whose
//! number is bounded. So this check keeps the heap from running out. A peer retransmits a refused message,
//! and refused timers are retried a second later. The lwIP adapter does the same:
//! docs/decisions/0023-lwip-ike.md.

use crate::config::IkeKeys;
use crate::runtime::SetupError;
use crate::{ipsec, log};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_ike::{IkeSettings, SharedKeys};
use casemate_sa::Limits;
use casemate_smoltcp::{BufferDevice, IkeConfig, IkeSockets, IpsecDevice};
use casemate_wire::ike::{ExchangeType, Header};
use casemate_wire::udp::NON_ESP_MARKER;
use core::hint::black_box;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::{Socket, udp};
use smoltcp::time::{Duration, Instant};

/// Upper limits in bytes: memory allocated during one IKE exchange, memory kept by an IKE SA, and a
/// message in transit. The tests of `adapters/lwip` measure them.
const EXCHANGE: usize = 40_000;
const IKE_SA: usize = 16_384;
const MESSAGE: usize = 4_096;
/// Size of an SA or policy in its table. While a table grows, the old one and one of twice its size exist.
const ENTRY: usize = 512;
/// Size of a context of header compression.
const CONTEXT: usize = 1_024;
/// Maximum number of messages processed in one round: the capacity of the two sockets.
const AT_ONCE: usize = 16;

/// Memory for the contexts of a pair of SAs.
const ROHC_PAIR: usize = 2 * (ipsec::MAX_CID as usize + 1) * CONTEXT;

/// Memory that must be free before IKE runs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryNeeds {
    /// For messages of known peers, and for timers.
    pub(crate) known: usize,
    /// For a request of an unknown peer. Afterwards enough memory for known peers must be left.
    pub(crate) unknown_peer: usize,
}

impl MemoryNeeds {
    /// Computes the worst case of one round with tables of these sizes. With header compression, `rohc`,
    /// packets allocate contexts: the memory for those of all SAs must be free too.
    pub(crate) const fn of(limits: &Limits, settings: &IkeSettings, rohc: bool) -> Self {
        let entries = limits.sas.saturating_add(limits.policies.saturating_mul(2));
        let tables = entries.saturating_mul(ENTRY).saturating_mul(2);
        let messages = settings.max_ike_sas.saturating_add(AT_ONCE).saturating_mul(MESSAGE);
        // Requests of unknown peers may be queued behind a message of a known peer.
        let unknown_peers = settings.max_half_open.saturating_mul(IKE_SA);
        let rohc = if rohc { limits.sas.div_ceil(2).saturating_mul(ROHC_PAIR) } else { 0 };
        let known = EXCHANGE.saturating_add(tables).saturating_add(messages);
        let known = known.saturating_add(unknown_peers).saturating_add(rohc);
        Self { known, unknown_peer: known.saturating_add(unknown_peers) }
    }
}

/// Returns whether a block of this size can be allocated.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    let mut piece = Vec::<u8>::new();
    let is_free = piece.try_reserve_exact(bytes).is_ok();
    // Without this the compiler could remove the allocation.
    black_box(&piece);
    is_free
}

/// Returns whether the message starts an IKE SA, so that the sender is not known yet.
pub(crate) fn is_from_unknown_peer(message: &[u8]) -> bool {
    Header::parse(message)
        .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
}

/// Port that IKE shares with ESP in UDP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;
/// Time after which refused timers are retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What IKE needs from the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IkeSetup<'a> {
    /// Address of this machine.
    pub(crate) own: IpAddr,
    pub(crate) keys: &'a IkeKeys,
    pub(crate) needs: MemoryNeeds,
}

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
        setup: &IkeSetup<'_>,
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<D>,
        sockets: &mut SocketSet<'static>,
    ) -> Result<Self, SetupError> {
        let IkeSetup { own, keys, needs } = *setup;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_known_peers_is_reserved() {
        let needs = |rohc| MemoryNeeds::of(&Limits::DEVICE, &IkeSettings::DEVICE, rohc);
        let MemoryNeeds { known, unknown_peer } = needs(false);
        assert!(known > EXCHANGE && unknown_peer >= known + IkeSettings::DEVICE.max_half_open * IKE_SA);
        let contexts = Limits::DEVICE.sas / 2 * 8 * CONTEXT;
        assert!(needs(true).known >= known + contexts && needs(true).unknown_peer >= unknown_peer + contexts);
    }

    #[test]
    fn an_oversized_block_is_not_free() {
        assert!(can_allocate(1_000));
        assert!(!can_allocate(usize::MAX / 4));
    }

    #[test]
    fn ike_sa_init_requests_are_from_unknown_peers() {
        let message = |exchange: u8, flags: u8| {
            let mut message = [0; 28];
            (message[0], message[17], message[18], message[19], message[27]) = (1, 0x20, exchange, flags, 28);
            message
        };
        assert!(is_from_unknown_peer(&message(34, 0x08)));
        assert!(!is_from_unknown_peer(&message(34, 0x20)) && !is_from_unknown_peer(&message(35, 0x08)));
        assert!(!is_from_unknown_peer(b"short"));
    }
}
