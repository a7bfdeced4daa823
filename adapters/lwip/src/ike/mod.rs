//! IKE for C: connections, messages and time are input; messages and events are output.
//!
//! Every call first checks that the memory for its worst case is free, and refuses or postpones work that
//! does not fit, because in Rust a failed allocation is a panic.

pub(crate) mod api;
mod convert;
mod ppk;
pub(crate) mod types;

use crate::convert::{address, optional};
use crate::host::{Host, PROVIDERS};
use crate::memory_costs::{self, Requester};
use crate::types::Tables;
use crate::{Status, allocator};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{ConnectionKeys, Context, Endpoint, NamedSas, Routes};
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{Path, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use casemate_wire::invariant::OrBroken;
use casemate_wire::udp::{KEEPALIVE, NON_ESP_MARKER};
use convert::ConnectionInput;
use core::fmt::Display;
use core::net::IpAddr;
use core::time::Duration;
use types::Events;
use types::{IkeCallbacks, IkeCounts, IkeEvent};

/// Port that IKE shares with ESP in UDP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;
/// Time after which work is retried for which memory was missing.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A UDP datagram to send.
pub(crate) struct OutgoingDatagram<'h> {
    pub(crate) path: Path,
    pub(crate) payload: &'h mut [u8],
}

/// State of IKE beside the endpoint.
pub(crate) struct IkeState {
    /// The tables have room for at least one IKE SA.
    has_room: bool,
    keys: ConnectionKeys,
    callbacks: IkeCallbacks,
    /// Unix time in seconds, and the time at which it was set.
    clock: Option<(u64, Instant)>,
    events: Events,
    /// Buffer of the message that C sends next.
    sending: Box<[u8]>,
    refused: u64,
    /// Time of work that was postponed or that a packet has triggered.
    due: Option<Instant>,
}

/// A connection, or one of its children, found by name.
struct NamedConfig {
    connection: Arc<Connection>,
    child: Option<Arc<ChildConfig>>,
}

impl IkeState {
    pub(crate) fn new(tables: &Tables) -> Result<Self, Status> {
        let settings = memory_costs::settings(tables)?;
        let longest = settings.max_message_bytes.saturating_add(NON_ESP_MARKER.len());
        Ok(Self {
            has_room: settings.max_ike_sas > 0,
            keys: ConnectionKeys::new(),
            callbacks: IkeCallbacks { source: None, wake: None, context: core::ptr::null_mut() },
            clock: None,
            events: Events::new(),
            sending: vec![0; longest].into(),
            refused: 0,
            due: None,
        })
    }

    /// Returns the Unix time in seconds. Without a clock it is 0, when no certificate is valid.
    fn unix_time(&self, now: Instant) -> u64 {
        self.clock.map_or(0, |(seconds, at)| seconds.saturating_add(now.since(at).as_secs()))
    }
}

impl Host {
    /// Calls `act` with the endpoint if enough memory is free, and collects the events.
    fn with<R>(
        &mut self,
        requester: Requester,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R,
    ) -> Result<R, Status> {
        if let Err(full) = allocator::check(memory_costs::exchange(&self.endpoint, requester)) {
            self.ike_state.refused = self.ike_state.refused.saturating_add(1);
            return Err(full);
        }
        let mut context = Context {
            now,
            unix_time: self.ike_state.unix_time(now),
            rng: &mut self.rng,
            providers: &PROVIDERS,
            credentials: &self.ike_state.keys,
            routes: &self.ike_state.callbacks,
        };
        let done = act(&mut self.endpoint, &mut context);
        let refusal = self.ike_state.keys.take_rejection();
        while let Some(notice) = self.endpoint.next_notice() {
            let refusal = refusal.as_ref().map(|reason| reason as &dyn Display);
            self.ike_state.events.take(notice, refusal);
        }
        Ok(done)
    }

    pub(crate) fn set_callbacks(&mut self, callbacks: IkeCallbacks) {
        self.ike_state.callbacks = callbacks;
    }

    pub(crate) fn set_clock(&mut self, seconds: u64, now: Instant) {
        self.ike_state.clock = Some((seconds, now));
    }

    /// Adds a connection, and starts it if its children say so.
    pub(crate) fn add_connection(&mut self, input: &ConnectionInput<'_>, now: Instant) -> Result<(), Status> {
        if !self.ike_state.has_room {
            return Err(Status::Full);
        }
        let (mut connection, keys) = input.make()?;
        let mut all = self.endpoint.ike().connections().to_vec();
        if all.iter().any(|known| known.name == connection.name) {
            return Err(Status::Name);
        }
        let name = connection.name.clone();
        self.ike_state.keys.insert(&name, keys);
        let configured = input.add_ppk(&mut connection, &mut self.ike_state.keys).and_then(|()| {
            all.push(Arc::new(connection));
            self.configure(all, now)
        });
        if configured.is_err() {
            self.ike_state.keys.remove(&name);
        }
        configured
    }

    /// Removes a connection and closes its SAs.
    pub(crate) fn remove_connection(&mut self, name: &str, now: Instant) -> Result<(), Status> {
        let all = self.endpoint.ike().connections();
        let rest: Vec<_> = all.iter().filter(|known| known.name != name).cloned().collect();
        if rest.len() == all.len() {
            return Err(Status::Absent);
        }
        self.configure(rest, now)?;
        self.ike_state.keys.remove(name);
        Ok(())
    }

    fn configure(&mut self, connections: Vec<Arc<Connection>>, now: Instant) -> Result<(), Status> {
        self.with(Requester::Unknown, now, |endpoint, context| {
            endpoint.configure(connections, &[], context)
        })??;
        Ok(())
    }

    /// Finds a connection by name, or one of its children by `connection/child`.
    fn find(&self, name: &str) -> Result<NamedConfig, Status> {
        let (connection, child) = match name.split_once('/') {
            Some((connection, child)) => (connection, Some(child)),
            None => (name, None),
        };
        let all = self.endpoint.ike().connections();
        let connection = all.iter().find(|known| known.name == connection).ok_or(Status::Absent)?;
        let child = match child {
            Some(name) => {
                Some(connection.children.iter().find(|known| known.name == name).ok_or(Status::Absent)?)
            }
            None => None,
        };
        Ok(NamedConfig { connection: connection.clone(), child: child.cloned() })
    }

    pub(crate) fn initiate(&mut self, name: &str, now: Instant) -> Result<(), Status> {
        let NamedConfig { connection, child } = self.find(name)?;
        self.with(Requester::Unknown, now, |endpoint, context| {
            endpoint.initiate(&connection, child.as_ref(), context)
        })??;
        Ok(())
    }

    pub(crate) fn terminate(&mut self, name: &str, now: Instant) -> Result<(), Status> {
        let found = self.find(name)?;
        self.with(Requester::Known, now, |endpoint, context| {
            let named = sas_of(endpoint, &found);
            for child in named.children {
                endpoint.terminate_child(child, context);
            }
            for ike in named.ikes {
                endpoint.terminate(ike, context);
            }
        })
    }

    pub(crate) fn rekey(&mut self, name: &str, now: Instant) -> Result<(), Status> {
        let found = self.find(name)?;
        self.with(Requester::Known, now, |endpoint, context| {
            let named = sas_of(endpoint, &found);
            for child in named.children {
                endpoint.rekey_child(child, context);
            }
            for ike in named.ikes {
                endpoint.rekey(ike, context);
            }
        })
    }

    /// Processes a datagram received on port 500 or 4500.
    pub(crate) fn receive_ike(&mut self, path: Path, data: &mut [u8], now: Instant) -> Result<(), Status> {
        // RFC 7296 section 3.1: on port 4500, four zero bytes distinguish IKE messages from ESP packets.
        let message = match (path.local.port(), data.split_first_chunk_mut()) {
            (NATT_PORT, Some((marker, message))) if *marker == NON_ESP_MARKER => message,
            (NATT_PORT, _) => return Ok(()),
            (_, _) => data,
        };
        let requester = if is_from_unknown_peer(message) { Requester::Unknown } else { Requester::Known };
        self.with(requester, now, |endpoint, context| endpoint.receive_ike(message, path, context))
    }

    /// Runs timers. If memory is missing, they are retried soon.
    pub(crate) fn serve_ike(&mut self, now: Instant) -> Result<(), Status> {
        self.ike_state.due = None;
        self.with(Requester::Known, now, Endpoint::handle_timeouts).inspect_err(|_| {
            self.ike_state.due = Some(now.after(RETRY_DELAY));
        })
    }

    /// Returns the time at which [`serve_ike`](Self::serve_ike) must be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        // Postponed work is not due earlier because of the endpoint's own timers.
        self.ike_state.due.or_else(|| self.endpoint.next_timeout())
    }

    /// Called after each packet: a packet may have shown that an SA is missing or needs rekeying.
    pub(crate) fn wake_if_needed(&mut self) {
        if !self.endpoint.datapath().has_events() || self.ike_state.due.is_some() {
            return;
        }
        self.ike_state.due = Some(Instant::ZERO);
        self.ike_state.callbacks.wake();
    }

    /// Returns the next message to send.
    pub(crate) fn next_message(&mut self) -> Option<OutgoingDatagram<'_>> {
        let Transmit { path, non_esp_marker, message, .. } = self.endpoint.next_transmit()?;
        // RFC 3948 section 2.3: a NAT keepalive is one byte.
        let message = if message.is_empty() { &[KEEPALIVE][..] } else { &message };
        let marker = if non_esp_marker { &NON_ESP_MARKER[..] } else { &[] };
        let payload = self.ike_state.sending.get_mut(..marker.len().saturating_add(message.len()));
        let payload = payload.or_report("no message is longer than `max_message_bytes`")?;
        for (byte, value) in payload.iter_mut().zip(marker.iter().chain(message)) {
            *byte = *value;
        }
        Some(OutgoingDatagram { path, payload })
    }

    pub(crate) fn next_event(&mut self) -> Option<IkeEvent> {
        self.ike_state.events.next()
    }

    /// Returns the number of Child SAs of a connection or of one of its children.
    pub(crate) fn count_children(&self, name: &str) -> Result<usize, Status> {
        let NamedConfig { connection, child } = self.find(name)?;
        Ok(self.ike_state.events.children_of(&connection.name, child.as_ref().map(|child| &*child.name)))
    }

    pub(crate) fn ike_counts(&self) -> IkeCounts {
        let ike = self.endpoint.ike();
        let (all, half_open) = (ike.ike_sa_count(), ike.half_open_count());
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        IkeCounts {
            ike_sas: number(all),
            half_open: number(half_open),
            child_sas: number(self.ike_state.events.children()),
            lost_events: self.ike_state.events.lost,
            refused: self.ike_state.refused,
        }
    }

    /// Returns name and counter of fault number `index`.
    pub(crate) fn ike_faults(&self, index: usize) -> Result<(&'static str, u64), Status> {
        self.endpoint.ike().faults().iter().nth(index).ok_or(Status::Absent)
    }
}

/// Returns the IKE SAs of a connection, or the Child SAs of one of its children.
fn sas_of(endpoint: &Endpoint, config: &NamedConfig) -> NamedSas {
    let NamedConfig { connection, child } = config;
    let mut named = NamedSas::default();
    for sa in endpoint.ike().status().filter(|sa| sa.connection.name == connection.name) {
        match child {
            Some(child) => {
                let its = sa.children.iter().filter(|status| status.child.name == child.name);
                named.children.extend(its.map(|status| status.id));
            }
            None => named.ikes.push(sa.id),
        }
    }
    named
}

/// Returns whether the message starts an IKE SA, so that the sender is not known yet.
fn is_from_unknown_peer(message: &[u8]) -> bool {
    Header::parse(message)
        .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
}

impl IkeCallbacks {
    fn wake(&self) {
        if let Some(wake) = self.wake {
            // SAFETY: the header requires that the function can be called with its context while the host
            // has it.
            unsafe { wake(self.context) };
        }
    }
}

impl Routes for IkeCallbacks {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let (remote, mut local) = (address(Some(remote)), address(None));
        let source = self.source?;
        // SAFETY: the header requires that the function can be called with its context while the host has
        // it. The pointers refer to local values.
        let found = unsafe { source(self.context, &raw const remote, &raw mut local) };
        optional(&local).ok().flatten().filter(|_| found == 1)
    }
}
