//! The loop that moves packets: out of the TUN interface into protection, and out of protection into the TUN interface.
//!
//! A thread takes up to [`BATCH`](crate::BATCH) packets from whatever can be read and carries on with them to their end, in buffers made once;
//! nothing is allocated for a packet. The verdicts are the data path's, here they are only obeyed.
//!
//! ```text
//!  source       what comes next out of the TUN interface                  source.rs, ordered.rs, pace.rs
//!    |
//!  intake       a batch is read; its numbers are reserved, or its SAs    intake.rs, turn.rs
//!    |          found; one thread at a time
//!    v
//!  seal, open   by the thread that has read; more threads read on only   turn.rs, crew.rs
//!    |          while more waits to be read
//!    |  by a door, in the order in which they were read; who comes       door.rs
//!    |  early leaves the batch there
//!    v
//!  exit, entry  verdicts; packets are sent, or delivered to the host     exit.rs, entry.rs
//! ```
//!
//! So one SA is served by all threads, and its packets keep their order. One of the threads is the engine's own,
//! the front: it waits for packets while there are none, and does all that is not packets (front.rs, wait.rs, chores.rs).

#[cfg(test)]
mod attended;
mod awake;
mod batch;
mod chores;
mod common;
mod crew;
mod discards;
mod door;
mod dummies;
mod entry;
mod exit;
mod front;
mod home;
mod intake;
mod keepalive;
mod ordered;
mod pace;
mod parts;
mod source;
mod told;
mod turn;
mod wait;

use crate::Error;
use crate::filter::{Share, Urgent};
use crate::ike::{IkePorts, MarkedRoutes};
use crate::raw::{Sender, Sinks};
use crate::receive::Receiver;
use crate::sys::Bell;
use crate::udp::UdpPort;
use batch::Batch;
use casemate::path::{Arrivals, Opened, OutboundPath};
use casemate_datapath::{Direction, SaId};
use casemate_ike::Settings;
use casemate_sa::{Protocol, SaParams};
use casemate_wire::ip::{IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use common::{Common, Idents};
use discards::Discards;
use dummies::Dummies;
pub use dummies::DummyTraffic;
use entry::Entry;
use exit::Exit;
use front::Front;
pub use home::{Home, HomeLock};
use intake::Intake;
use keepalive::Keepalives;
use pace::Pace;
pub use parts::{Attendant, Parts, Trouble};
pub use source::Scheduling;
use source::Source;
use std::sync::Arc;
use std::thread;
use told::Told;

/// The engine.
pub struct Engine {
    // Goes first: the guard is made sure of before the TUN interface goes, and routes with it.
    front: Front,
    common: Common,
    helpers: usize,
    _sinks: Sinks,
}

impl Engine {
    /// Opens the sockets that the SAs and IKE need.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { mut endpoint, clock, mut rng, providers, credentials, speaks_ike, .. } = parts;
        let Parts { limits, tun, scheduling, live, mark, sas, dummies, ledger, signals, threads, .. } = parts;
        let _sinks = Sinks::open()?;
        let urgent = scheduling.as_ref().and_then(|scheduling| Urgent::of(scheduling.classifier.table()));
        // What is read first stands first.
        let shares = Share::all(urgent.as_ref());
        let of_version = |version| sas.iter().any(|(_, sa)| sa.dst.is_ipv4() == (version == IpVersion::V4));
        let receivers = [IpVersion::V4, IpVersion::V6]
            .into_iter()
            .filter(|version| speaks_ike || of_version(*version))
            .flat_map(|version| shares.iter().map(move |share| (version, share)))
            .map(|(version, share)| Receiver::open(version, tun.index(), share))
            .collect::<Result<_, _>>()?;
        for sa in dummies.iter().flat_map(|dummies| &dummies.sas) {
            endpoint.datapath_mut().carry_dummies(*sa);
        }
        let mut numbers = encap_ports(&sas);
        if speaks_ike {
            let natt = Settings::SERVER.natt_port;
            endpoint.datapath_mut().listen_encapsulated(natt);
            numbers.extend(Some(natt).filter(|natt| !numbers.contains(natt)));
        }
        let mut ports = Vec::new();
        for number in numbers {
            ports.extend(match &urgent {
                Some(urgent) => UdpPort::open_shared(number, urgent)?,
                None => UdpPort::open_both(number)?,
            });
        }
        ports.iter().try_for_each(|port| port.set_mark(mark))?;
        let ike = if speaks_ike { Some(IkePorts::open(mark)?) } else { None };
        let signs_v4 = |(id, sa): &(SaId, SaParams)| {
            id.direction() == Direction::Outbound
                && sa.transform.protocol() == Protocol::Ah
                && sa.src.is_ipv4()
        };
        let outbound = OutboundPath::gateway(&limits, rng.secret_u64() as u32);
        let arrivals = Arrivals::new(&limits, limits.reassemblies);
        let opened = Opened::new(&limits, rng.secret_u64() as u32);
        let idents = Idents::new(rng.secret_u64() as u32, sas.iter().any(signs_v4));
        let source = Source::new(scheduling, &tun, rng.secret_u64())?;
        let bell = Bell::new().map_err(|error| Error::new("eventfd", error))?;
        let sender = Arc::new(Sender::open(mark)?);
        // The kernel writes other headers than the data path, and a lone dummy packet never goes by train.
        let with_trains: &[UdpPort] = if dummies.is_some() { &[] } else { &ports };
        let exit = Exit::new(sender.clone(), (mark, with_trains), outbound)?;
        let receiving = sas.iter().filter(|(id, _)| id.direction() == Direction::Inbound);
        let ours = receiving.map(|(_, sa)| sa.dst).collect();
        endpoint.datapath_mut().set_hosts(live.addresses());
        let home = Home::new(endpoint, (rng, clock, MarkedRoutes::open(mark)?), providers, credentials);
        let doors = (exit, Entry::new(arrivals, opened));
        let senders = ike.iter().flat_map(|ike| &ike.0).chain(&ports).map(UdpPort::sender);
        let front = Front {
            batch: Batch::new(),
            clock,
            live,
            senders: senders.collect::<Result<_, _>>()?,
            ike,
            keepalives: Keepalives::new(sender.clone(), &sas),
            raw: sender,
            dummies: dummies.and_then(Dummies::new),
            ledger,
            signals,
            last_tick: casemate_sa::Instant::ZERO,
            outbox: Vec::new(),
            told: Told::default(),
            discards: Discards::default(),
        };
        let writer = tun.writer()?;
        let pace = urgent.map(|_| Pace::new());
        let intake = Intake { clock, tun, source, receivers, ports, pace };
        let helpers = threads.get().saturating_sub(1);
        let common = Common::new((intake, home), doors, writer, ours, (idents, bell), helpers);
        Ok(Self { common, front, helpers, _sinks })
    }

    /// Moves packets until a signal comes.
    pub fn run(&mut self, attendant: &mut dyn Attendant) -> Result<(), Error> {
        let Self { common, front, helpers, .. } = self;
        let watch = front.watch(common, attendant)?;
        thread::scope(|scope| {
            // However this ends, nobody waits for more.
            let _end = EndOfWork(common);
            for _ in 0..*helpers {
                let helper = thread::Builder::new().name("helper".into());
                let started = helper.spawn_scoped(scope, || common.watch_over(|| common.help(&watch)));
                started.map_err(|error| Error::new("thread", error))?;
            }
            front.run(common, &watch, attendant)
        })
    }

    /// Ends an orderly run: peers are told, counters that were reserved and not used are given back, and so
    /// is everything that was changed in the system.
    pub fn close(self) -> Result<(), Error> {
        self.front.close(true, &self.common)
    }

    /// Ends a run that failed: the same, but the guard stays, and no traffic that was protected leaves in
    /// clear.
    pub fn abandon(self) -> Result<(), Error> {
        self.front.close(false, &self.common)
    }

    /// The endpoint, to be told something before packets move.
    pub fn home(&mut self) -> &mut Home {
        self.common.home_mut()
    }

    /// Leads traffic where the policies say that were told to [`home`](Self::home). [`run`](Self::run) does so by itself; before it,
    /// packets go their old ways, in clear, until this is called. An error if the guard does not stand.
    pub fn settle(&mut self, attendant: &mut dyn Attendant) -> Result<(), Error> {
        self.front.settle(&self.common, attendant)
    }
}

/// Sends the helpers home.
struct EndOfWork<'e>(&'e Common);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.crew.dismiss();
    }
}

/// The UDP ports on which the inbound ones of these SAs have their packets arrive.
fn encap_ports(sas: &[(SaId, SaParams)]) -> Vec<u16> {
    let inbound = sas.iter().filter(|(id, _)| id.direction() == Direction::Inbound);
    let mut ports: Vec<u16> = inbound.filter_map(|(_, sa)| sa.encap.map(|encap| encap.dst_port)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Gives an IPv4 packet without identification this one. Fragments keep theirs, which holds them together.
fn set_ident_if_zero(packet: &mut Packet<'_>, ident: u16) {
    if packet.data().first().is_none_or(|first| first >> 4 != 4) {
        return;
    }
    if let Ok(mut ip) = Ipv4::parse_quoted(packet.data_mut())
        && ip.ident() == 0
        && !ip.is_fragment()
    {
        ip.set_ident(ident);
        ip.fill_checksum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with this identification and fragment field.
    fn header(ident: u16, fragment: u16) -> [u8; 20] {
        let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 51, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[4..6].copy_from_slice(&ident.to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        Ipv4::parse_quoted(&mut header[..]).unwrap().fill_checksum();
        header
    }

    fn ident_after(mut header: [u8; 20]) -> u16 {
        let mut packet = Packet::new(&mut header, 0, 20).unwrap();
        set_ident_if_zero(&mut packet, 77);
        let ip = Ipv4::parse(packet.data()).unwrap();
        assert!(ip.verify_checksum());
        ip.ident()
    }

    #[test]
    fn only_whole_packets_without_identification_get_one() {
        assert_eq!(ident_after(header(0, 0)), 77);
        assert_eq!(ident_after(header(0, 0x4000)), 77);
        assert_eq!(ident_after(header(5, 0)), 5);
        assert_eq!(ident_after(header(0, 0x2000)), 0, "first fragment");
        assert_eq!(ident_after(header(0, 9)), 0, "later fragment");
        let mut v6 = [0x60; 40];
        set_ident_if_zero(&mut Packet::new(&mut v6, 0, 40).unwrap(), 77);
        assert_eq!(v6, [0x60; 40]);
    }
}
