//! IKE for C: connections, messages and time go in; messages and events come out.
//!
//! Every call looks first whether there is memory for the worst that it may have to do, and refuses or puts off what does not
//! fit: in Rust an allocation that fails half-way is a panic.

pub(crate) mod api;
mod convert;
mod events;
pub(crate) mod types;

use crate::convert::{address, optional};
use crate::costs::{self, Need};
use crate::host::{Host, PROVIDERS};
use crate::types::Tables;
use crate::{Code, memory};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{ConnectionKeys, Endpoint, Means, Named, Routes};
use casemate_ike::config::{Child, Connection};
use casemate_ike::{Path, Transmit};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header};
use casemate_wire::natt::{KEEPALIVE, NON_ESP_MARKER};
use convert::Wanted;
use core::fmt::Display;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use events::Events;
use types::{Counts, Home, Told};

/// The port that IKE shares with ESP (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4500;
/// When work is tried again that there was no memory for.
const LATER: Duration = Duration::from_secs(1);

/// What IKE needs beside the endpoint.
pub(crate) struct Speaker {
    /// Whether the tables have room for an IKE SA.
    has_room: bool,
    keys: ConnectionKeys,
    home: Home,
    /// Seconds since 1970, and when that was.
    clock: Option<(u64, Instant)>,
    events: Events,
    /// The message that C is to send.
    sending: Box<[u8]>,
    refused: u64,
    /// When work is due that was put off, or that packets made.
    due: Option<Instant>,
}

impl Speaker {
    pub(crate) fn new(tables: &Tables) -> Result<Self, Code> {
        let settings = costs::settings(tables)?;
        let longest = settings.message_bytes.saturating_add(NON_ESP_MARKER.len());
        Ok(Self {
            has_room: settings.ike_sas > 0,
            keys: ConnectionKeys::new(),
            home: Home { source: None, wake: None, context: core::ptr::null_mut() },
            clock: None,
            events: Events::new(),
            sending: vec![0; longest].into(),
            refused: 0,
            due: None,
        })
    }

    /// Seconds since 1970; 0 if nobody said, which no certificate is valid at.
    fn unix_time(&self, now: Instant) -> u64 {
        self.clock.map_or(0, |(seconds, at)| seconds.saturating_add(now.since(at).as_secs()))
    }
}

impl Host {
    /// Lets the endpoint do something, if there is memory for it.
    fn with<R>(
        &mut self,
        need: Need,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R,
    ) -> Result<R, Code> {
        if let Err(full) = memory::check(costs::exchange(&self.endpoint, need)) {
            self.speaker.refused = self.speaker.refused.saturating_add(1);
            return Err(full);
        }
        let mut means = Means {
            now,
            unix_time: self.speaker.unix_time(now),
            rng: &mut self.rng,
            providers: &PROVIDERS,
            credentials: &self.speaker.keys,
            routes: &self.speaker.home,
        };
        let done = act(&mut self.endpoint, &mut means);
        let refusal = self.speaker.keys.take_refusal();
        while let Some(notice) = self.endpoint.next_notice() {
            let refusal = refusal.as_ref().map(|why| why as &dyn Display);
            self.speaker.events.take(notice, refusal);
        }
        Ok(done)
    }

    pub(crate) fn set_home(&mut self, home: Home) {
        self.speaker.home = home;
    }

    pub(crate) fn set_clock(&mut self, seconds: u64, now: Instant) {
        self.speaker.clock = Some((seconds, now));
    }

    /// Adds a connection, and begins what it says is to begin at once.
    pub(crate) fn add_connection(&mut self, wanted: &Wanted<'_>, now: Instant) -> Result<(), Code> {
        if !self.speaker.has_room {
            return Err(Code::Full);
        }
        let (connection, keys) = wanted.make()?;
        let mut all = self.endpoint.ike().connections().to_vec();
        if all.iter().any(|known| known.name == connection.name) {
            return Err(Code::Name);
        }
        let name = connection.name.clone();
        all.push(Arc::new(connection));
        self.speaker.keys.insert(&name, keys);
        let configured = self.configure(all, now);
        if configured.is_err() {
            self.speaker.keys.remove(&name);
        }
        configured
    }

    /// Removes a connection, and closes what it has made.
    pub(crate) fn remove_connection(&mut self, name: &str, now: Instant) -> Result<(), Code> {
        let all = self.endpoint.ike().connections();
        let rest: Vec<_> = all.iter().filter(|known| known.name != name).cloned().collect();
        if rest.len() == all.len() {
            return Err(Code::Absent);
        }
        self.configure(rest, now)?;
        self.speaker.keys.remove(name);
        Ok(())
    }

    fn configure(&mut self, connections: Vec<Arc<Connection>>, now: Instant) -> Result<(), Code> {
        self.with(Need::New, now, |endpoint, means| endpoint.configure(connections, &[], means))??;
        Ok(())
    }

    /// A connection by its name, or one of its children by both: `connection/child`.
    fn find(&self, name: &str) -> Result<(Arc<Connection>, Option<Arc<Child>>), Code> {
        let (connection, child) = match name.split_once('/') {
            Some((connection, child)) => (connection, Some(child)),
            None => (name, None),
        };
        let all = self.endpoint.ike().connections();
        let connection = all.iter().find(|known| known.name == connection).ok_or(Code::Absent)?;
        let child = match child {
            Some(name) => {
                Some(connection.children.iter().find(|known| known.name == name).ok_or(Code::Absent)?)
            }
            None => None,
        };
        Ok((connection.clone(), child.cloned()))
    }

    pub(crate) fn initiate(&mut self, name: &str, now: Instant) -> Result<(), Code> {
        let (connection, child) = self.find(name)?;
        self.with(Need::New, now, |endpoint, means| endpoint.initiate(&connection, child.as_ref(), means))??;
        Ok(())
    }

    pub(crate) fn terminate(&mut self, name: &str, now: Instant) -> Result<(), Code> {
        let found = self.find(name)?;
        self.with(Need::Known, now, |endpoint, means| {
            let named = sas_of(endpoint, &found);
            for child in named.children {
                endpoint.terminate_child(child, means);
            }
            for ike in named.ikes {
                endpoint.terminate(ike, means);
            }
        })
    }

    pub(crate) fn rekey(&mut self, name: &str, now: Instant) -> Result<(), Code> {
        let found = self.find(name)?;
        self.with(Need::Known, now, |endpoint, means| {
            let named = sas_of(endpoint, &found);
            for child in named.children {
                endpoint.rekey_child(child, means);
            }
            for ike in named.ikes {
                endpoint.rekey(ike, means);
            }
        })
    }

    /// Takes what came on a port of IKE's.
    pub(crate) fn receive_ike(&mut self, path: Path, data: &mut [u8], now: Instant) -> Result<(), Code> {
        // RFC 7296 section 3.1: on the port that is shared with ESP, four zeros tell IKE from it.
        let message = match path.local.port() {
            NATT_PORT if !data.starts_with(&NON_ESP_MARKER) => return Ok(()),
            NATT_PORT => data.get_mut(NON_ESP_MARKER.len()..).unwrap_or_default(),
            _ => data,
        };
        let need = if is_from_stranger(message) { Need::New } else { Need::Known };
        self.with(need, now, |endpoint, means| endpoint.receive_ike(message, path, means))
    }

    /// Does what is due. Without memory for it, it is due again soon.
    pub(crate) fn serve_ike(&mut self, now: Instant) -> Result<(), Code> {
        self.speaker.due = None;
        self.with(Need::Known, now, Endpoint::serve).inspect_err(|_| {
            self.speaker.due = Some(now.after(LATER));
        })
    }

    /// When [`serve_ike`](Self::serve_ike) is to be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        // What was put off does not become due by looking again.
        self.speaker.due.or_else(|| self.endpoint.due())
    }

    /// After a packet: it may have shown that an SA is missing, or worn out.
    pub(crate) fn wake_if_needed(&mut self) {
        if !self.endpoint.datapath().has_events() || self.speaker.due.is_some() {
            return;
        }
        self.speaker.due = Some(Instant::ZERO);
        self.speaker.home.wake();
    }

    /// The next message to be sent, as it goes behind the UDP header.
    pub(crate) fn next_message(&mut self) -> Option<(Path, &mut [u8])> {
        let Transmit { path, marker, message } = self.endpoint.next_transmit()?;
        // RFC 3948 section 2.3: a keepalive is one byte.
        let message = if message.is_empty() { &[KEEPALIVE][..] } else { &message };
        let marker = if marker { &NON_ESP_MARKER[..] } else { &[] };
        let room = self.speaker.sending.get_mut(..marker.len().saturating_add(message.len()))?;
        for (byte, value) in room.iter_mut().zip(marker.iter().chain(message)) {
            *byte = *value;
        }
        Some((path, room))
    }

    pub(crate) fn next_told(&mut self) -> Option<Told> {
        self.speaker.events.next()
    }

    /// How many Child SAs a connection, or one of its children, has.
    pub(crate) fn count_children(&self, name: &str) -> Result<usize, Code> {
        let (connection, child) = self.find(name)?;
        Ok(self.speaker.events.children_of(&connection.name, child.as_ref().map(|child| &*child.name)))
    }

    pub(crate) fn ike_counts(&self) -> Counts {
        let (all, half_open) = self.endpoint.ike().counts();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Counts {
            ike_sas: number(all),
            half_open: number(half_open),
            child_sas: number(self.speaker.events.children()),
            lost_events: self.speaker.events.lost,
            refused: self.speaker.refused,
        }
    }

    /// How often peers did wrong in the way of this number, and its name.
    pub(crate) fn ike_faults(&self, index: usize) -> Result<(&'static str, u64), Code> {
        self.endpoint.ike().faults().iter().nth(index).ok_or(Code::Absent)
    }
}

/// The IKE SAs of a connection, or the Child SAs of one of its children.
fn sas_of(endpoint: &Endpoint, (connection, child): &(Arc<Connection>, Option<Arc<Child>>)) -> Named {
    let mut named = Named::default();
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

/// Whether a message begins an IKE SA: whoever sends it is not known yet.
fn is_from_stranger(message: &[u8]) -> bool {
    Header::parse(message)
        .is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response)
}

impl Home {
    fn wake(&self) {
        if let Some(wake) = self.wake {
            // SAFETY: the header: the function may be called with its context as long as the host has it.
            unsafe { wake(self.context) };
        }
    }
}

impl Routes for Home {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let (remote, mut local) = (address(Some(remote)), address(None));
        let source = self.source?;
        // SAFETY: the header: the function may be called with its context as long as the host has it; the pointers are to
        // values of ours.
        let found = unsafe { source(self.context, &raw const remote, &raw mut local) };
        optional(&local).ok().flatten().filter(|_| found == 1)
    }
}

/// Both ends of a datagram.
pub(crate) fn path((local, local_port): (IpAddr, u16), (remote, remote_port): (IpAddr, u16)) -> Path {
    Path { local: SocketAddr::new(local, local_port), remote: SocketAddr::new(remote, remote_port) }
}
