//! IKE on the machine: served in each round, as long as there is memory for it.

use crate::config::IkeKeys;
use crate::memory::{Needs, is_free, is_from_stranger};
use crate::station::Trouble;
use crate::{keys, lines};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_ike::SharedKeys;
use casemate_smoltcp::{Exchange, Guarded, IkeSockets, Keys};
use casemate_wire::natt::NON_ESP_MARKER;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::{Socket, udp};
use smoltcp::time::{Duration, Instant};

/// The port that IKE shares with ESP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;
/// When what is due is tried again that there was no memory for.
const LATER: Duration = Duration::from_secs(1);

/// IKE's sockets, and what has to be free before they are served.
pub(crate) struct Speaker {
    ike: IkeSockets,
    ports: Vec<SocketHandle>,
    needs: Needs,
    refused: u64,
    /// When what is due is tried again.
    later: Instant,
}

impl Speaker {
    /// Opens the ports, and begins the connection if that is our part.
    pub(crate) fn open<D: Exchange>(
        (own, keys, needs): (IpAddr, &IkeKeys, Needs),
        now: Instant,
        interface: &Interface,
        device: &mut Guarded<D>,
        sockets: &mut SocketSet<'static>,
    ) -> Result<Self, Trouble> {
        let credentials: Box<SharedKeys> = Box::new(keys::credentials(keys));
        let keyring = Keys { providers: keys::PROVIDERS.to_vec(), credentials, unix_time_at_origin: 0 };
        let ike = IkeSockets::new(device, sockets, keyring);
        // Nobody else has sockets for datagrams.
        let udp = sockets.iter().filter(|(_, socket)| matches!(socket, Socket::Udp(_)));
        let ports = udp.map(|(handle, _)| handle).collect();
        let connections = vec![Arc::new(keys::connection(own, keys))];
        let configured =
            ike.with(now, interface, device, |endpoint, means| endpoint.configure(connections, &[], means));
        configured.map_err(|_| Trouble::Policies)?;
        Ok(Self { ike, ports, needs, refused: 0, later: Instant::ZERO })
    }

    /// Its turn in a round. What happened is told in lines.
    pub(crate) fn serve<D: Exchange>(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut Guarded<D>,
        sockets: &mut SocketSet<'_>,
        mut tell: impl FnMut(String),
    ) {
        let before = self.refused;
        if self.has_memory(now, device, sockets) {
            self.ike.serve(now, interface, device, sockets, |notice| {
                lines::of(&notice).into_iter().for_each(&mut tell);
            });
        }
        if self.refused != before {
            tell(format!("ike: no memory, {} refused so far", self.refused));
        }
    }

    /// Messages that were refused, and work that was put off, for want of memory.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Refuses messages that there is no memory for; whether there is some for everything else.
    fn has_memory<D: Exchange>(
        &mut self,
        now: Instant,
        device: &Guarded<D>,
        sockets: &mut SocketSet<'_>,
    ) -> bool {
        let is_due =
            device.endpoint().datapath().has_events() || self.ike.due(device).is_some_and(|due| due <= now);
        let is_asked = self.ports.iter().any(|port| sockets.get::<udp::Socket<'_>>(*port).can_recv());
        if !(is_due || is_asked) || is_free(self.needs.stranger) {
            return true;
        }
        let has_some = is_free(self.needs.known);
        for port in &self.ports {
            let socket = sockets.get_mut::<udp::Socket<'_>>(*port);
            while is_refused(socket, has_some) {
                // It is there, and not looked at.
                let _ = socket.recv();
                self.refused = self.refused.saturating_add(1);
            }
        }
        if is_due && !has_some && now >= self.later {
            self.later = now + LATER;
            self.refused = self.refused.saturating_add(1);
        }
        has_some
    }
}

/// Whether the next message cannot be taken: any, or if there is some memory, that of a stranger.
fn is_refused(socket: &mut udp::Socket<'_>, has_some: bool) -> bool {
    let marker = if socket.endpoint().port == NATT_PORT { NON_ESP_MARKER.len() } else { 0 };
    let Ok((data, _)) = socket.peek() else { return false };
    !has_some || is_from_stranger(data.get(marker..).unwrap_or_default())
}
