//! The loop that moves packets: out of the TUN interface into protection, and out of protection into the TUN interface.
//!
//! One thread waits for whatever can be read and takes up to [`BATCH`] packets from it, in buffers made once; nothing is
//! allocated for a packet. The verdicts are the data path's, here they are only obeyed: `exit` sends, `entry` delivers.

mod dummies;
mod entry;
mod exit;
mod home;
mod keepalive;
mod ordered;
mod parts;
mod source;
mod wait;

use crate::buffers::Buffers;
use crate::counters::Ledger;
use crate::filter::{Share, Urgent};
use crate::ike::{self, IkePorts};
use crate::raw::Sinks;
use crate::receive::Receiver;
use crate::setup::Live;
use crate::signal::{Signal, Signals};
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use casemate::{Endpoint, Notice};
use casemate_datapath::reassembly::Reassembler;
use casemate_datapath::{Direction, DropReason, Outbound, SaId};
use casemate_ike::{Event, IkeSaId, Path, Settings};
use casemate_sa::{Instant, Protocol, SaParams};
use casemate_wire::ip::{IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use dummies::Dummies;
pub use dummies::DummyTraffic;
use entry::Entry;
use exit::Exit;
pub use home::Home;
use keepalive::Keepalives;
pub use parts::{Attendant, Parts};
pub use source::Scheduling;
use source::Source;
use std::net::IpAddr;
use std::time::Duration;

/// How often what depends on time alone is looked after.
const TICK: Duration = Duration::from_secs(1);

/// The engine.
pub struct Engine {
    home: Home,
    buffers: Buffers,
    exit: Exit,
    entry: Entry,
    tun: Tun,
    source: Source,
    live: Live,
    receivers: Vec<Receiver>,
    /// UDP ports of encapsulated ESP; with IKE, the one that it shares is among them.
    ports: Vec<UdpPort>,
    ike: Option<IkePorts>,
    keepalives: Keepalives,
    dummies: Option<Dummies>,
    ledger: Option<Ledger>,
    signals: Signals,
    last_tick: Instant,
    _sinks: Sinks,
}

impl Engine {
    /// Opens the sockets that the SAs and IKE need.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { mut endpoint, clock, mut rng, providers, credentials, speaks_ike, .. } = parts;
        let Parts { limits, tun, scheduling, live, mark, sas, dummies, ledger, signals, .. } = parts;
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
        let reassembler = || Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        let first_ident = rng.secret_u64() as u32;
        let inbound = sas.iter().filter(|(id, _)| id.direction() == Direction::Inbound);
        Ok(Self {
            exit: Exit::new((mark, &ports), reassembler(), first_ident, sas.iter().any(signs_v4))?,
            entry: Entry::new(inbound.map(|(_, sa)| sa.dst).collect(), reassembler()),
            keepalives: Keepalives::new(&sas),
            dummies: dummies.and_then(Dummies::new),
            buffers: Buffers::new(),
            source: Source::new(scheduling, &tun, rng.secret_u64())?,
            last_tick: Instant::ZERO,
            home: Home::new(endpoint, (rng, clock, mark), providers, credentials),
            tun,
            live,
            receivers,
            ports,
            ike,
            ledger,
            signals,
            _sinks,
        })
    }

    /// Moves packets until a signal comes.
    pub fn run(&mut self, attendant: &mut dyn Attendant) -> Result<(), Error> {
        loop {
            let ready = self.wait(attendant)?;
            let now = self.home.now();
            let mut ready = ready.into_iter();
            let mut next = || ready.next().unwrap_or(false);
            if next() && self.obey_signal(attendant) {
                return Ok(());
            }
            if next() {
                self.home.queues = self.source.counters();
                attendant.attend(&mut self.home);
            }
            if next() {
                self.outbound_round(now)?;
            }
            if next() {
                self.live.note_addresses();
            }
            let Self { receivers, ports, ike, home, buffers, entry, tun, .. } = self;
            for receiver in receivers {
                if next() {
                    entry.take_from(receiver, buffers, home.endpoint.datapath_mut(), tun, now)?;
                }
            }
            for port in ports {
                if next() {
                    entry.take_from_port(port, buffers, home.endpoint.datapath_mut(), tun, now)?;
                }
            }
            for port in ike.iter_mut().flat_map(|ike| &mut ike.0) {
                if next() {
                    let received = IkePorts::receive(port, buffers, &mut entry.inbox);
                    received.map_err(|error| Error::new("IKE port", error))?;
                }
            }
            self.send_dummies(now);
            self.look_after(attendant, now);
        }
    }

    /// Whether it is the end.
    fn obey_signal(&mut self, attendant: &mut dyn Attendant) -> bool {
        match self.signals.take() {
            None => false,
            Some(Signal::Hangup) => !attendant.reload(&mut self.home),
            Some(Signal::End) => true,
        }
    }

    /// Ends an orderly run: peers are told, and counters that were reserved and not used are given back.
    pub fn close(mut self) -> Result<(), Error> {
        self.say_goodbye();
        match self.ledger.take() {
            None => Ok(()),
            Some(ledger) => ledger
                .close(self.home.endpoint.datapath_mut())
                .map_err(|error| Error::other("counters", error.to_string())),
        }
    }

    /// Closes every IKE SA. An answer is not waited for: a peer that does not hear it finds out by itself.
    fn say_goodbye(&mut self) {
        let all: Vec<IkeSaId> = self.home.endpoint.ike().status().map(|sa| sa.id).collect();
        for ike in all {
            self.home.with(|endpoint, means| endpoint.terminate(ike, means));
        }
        self.send_letters(&mut |_| {});
    }

    /// The endpoint, to be told something before packets move.
    pub fn home(&mut self) -> &mut Home {
        &mut self.home
    }

    /// Takes a batch from the TUN interface and sends what becomes of it.
    fn outbound_round(&mut self, now: Instant) -> Result<(), Error> {
        let Self { home, buffers, exit, tun, source, .. } = self;
        let Home { endpoint, rng, .. } = home;
        let datapath = endpoint.datapath_mut();
        let mut dropped = |reason, packet: &[u8]| datapath.note_drop(now, reason, packet);
        let lens = source
            .fill(tun, buffers, now, &mut dropped)
            .map_err(|error| Error::new(format!("TUN interface {}", tun.name()), error))?;
        let mut packets = buffers.packets(&lens);
        exit.prepare(&mut packets);
        let mut verdicts = [Outbound::Bypass; BATCH];
        datapath.outbound(now, rng, &mut packets, &mut verdicts);
        exit.obey(&mut packets, &verdicts, datapath, rng, tun, now);
        Ok(())
    }

    /// Sends the dummy packets that are due, as many as a round of others may have.
    fn send_dummies(&mut self, now: Instant) {
        let Self { dummies: Some(dummies), home, buffers, exit, tun, .. } = self else { return };
        let Home { endpoint, rng, .. } = home;
        let datapath = endpoint.datapath_mut();
        for _ in 0..BATCH {
            let Some((sa, len)) = dummies.next(now, rng) else { return };
            let mut packets = buffers.packets(&[len]);
            let Some(packet) = packets.first_mut() else { return };
            let verdict = datapath.dummy(sa, now, rng, packet);
            exit.obey(&mut packets, &[verdict], datapath, rng, tun, now);
        }
    }

    /// Everything beside packets.
    fn look_after(&mut self, attendant: &mut dyn Attendant, now: Instant) {
        for (path, mut message) in std::mem::take(&mut self.entry.inbox) {
            self.home.with(|endpoint, means| endpoint.receive_ike(&mut message, path, means));
        }
        self.home.with(Endpoint::serve);
        let notices = self.follow_notices(attendant);
        // A peer may use a Child SA as soon as it hears of it: what leads there stands before.
        self.send_letters(&mut |what| attendant.trouble(what));
        let datapath = self.home.endpoint.datapath_mut();
        let (sealed, unreserved) = self.exit.take_tally();
        let kept = self.ledger.as_mut().and_then(|ledger| ledger.keep(datapath, sealed, unreserved));
        if let Some(Err(error)) = kept {
            attendant.trouble(format!("counters could not be written down: {error}"));
        }
        // Whoever is told that something stands may use it at once.
        notices.iter().for_each(|notice| attendant.notice(&self.home.endpoint, notice));
        if let Some(trouble) = self.exit.take_trouble() {
            attendant.trouble(trouble);
        }
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(now);
        }
    }

    /// Leads traffic where the policies say that were told to [`home`](Self::home). [`run`](Self::run) does so by itself; before it,
    /// packets go their old ways, in clear, until this is called.
    pub fn settle(&mut self, attendant: &mut dyn Attendant) {
        let notices = self.follow_notices(attendant);
        notices.iter().for_each(|notice| attendant.notice(&self.home.endpoint, notice));
    }

    /// Does in the system what the endpoint reports; answers that.
    fn follow_notices(&mut self, attendant: &mut dyn Attendant) -> Vec<Notice> {
        let notices: Vec<Notice> = std::iter::from_fn(|| self.home.endpoint.next_notice()).collect();
        notices.iter().for_each(|notice| self.heed(notice, attendant));
        if let Err(error) = self.live.settle() {
            attendant.trouble(format!("the system does not follow the policies: {error}"));
        }
        attendant.settled();
        notices
    }

    /// Sends what IKE has to say.
    fn send_letters(&mut self, trouble: &mut dyn FnMut(String)) {
        while let Some(transmit) = self.home.endpoint.next_transmit() {
            let of_ike = self.ike.iter().flat_map(|ike| &ike.0);
            if let Err(error) = ike::send(of_ike.chain(&self.ports), &transmit) {
                let Path { local, remote } = transmit.path;
                trouble(format!("IKE message from {local} to {remote}: {error}"));
            }
        }
    }

    /// Notes what the system has to follow, and listens where Child SAs receive.
    fn heed(&mut self, notice: &Notice, attendant: &mut dyn Attendant) {
        match notice {
            Notice::Policy(change) => self.live.note_policy(change),
            Notice::Ike(event) => {
                if let Event::ChildUp(up) = event {
                    self.entry.listen(up.inbound.dst);
                    if up.outbound.transform.protocol() == Protocol::Ah && up.outbound.src.is_ipv4() {
                        self.exit.settle_idents();
                    }
                }
                if let Err(error) = self.live.note_event(event) {
                    attendant.trouble(error.to_string());
                }
            }
            Notice::Datapath(_) | Notice::NotInstalled { .. } => {}
        }
    }

    fn tick(&mut self, now: Instant) {
        let late = self.exit.expire(now).saturating_add(self.entry.expire(now));
        let datapath = self.home.endpoint.datapath_mut();
        for _ in 0..late {
            datapath.note_drop(now, DropReason::FragmentTimeout, &[]);
        }
        self.keepalives.send_due(datapath, &self.exit, now);
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

/// IP version and destination, from the header.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first().map(|first| first >> 4)? {
        4 => packet.get(16..20)?.first_chunk::<4>().map(|addr| IpAddr::from(*addr)),
        6 => packet.get(24..40)?.first_chunk::<16>().map(|addr| IpAddr::from(*addr)),
        _ => None,
    }
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

    #[test]
    fn destinations() {
        assert_eq!(destination(&header(0, 0)), Some([10, 0, 0, 2].into()));
        let mut v6 = [0; 40];
        (v6[0], v6[39]) = (0x60, 1);
        assert_eq!(destination(&v6), Some(std::net::Ipv6Addr::LOCALHOST.into()));
        for short in [&[][..], &[0x45; 19], &[0x60; 39], &[0x50; 60]] {
            assert_eq!(destination(short), None);
        }
    }
}
