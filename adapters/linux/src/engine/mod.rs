//! The loop that moves packets: out of the TUN interface into protection, and out of protection into the TUN interface.
//!
//! One thread waits for whatever can be read and takes up to [`BATCH`] packets from it, in buffers made once; nothing is
//! allocated for a packet. The verdicts are the data path's, here they are only obeyed: `exit` sends, `entry` delivers.

mod dummies;
mod entry;
mod exit;
mod keepalive;

use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::counters::Ledger;
use crate::raw::Sinks;
use crate::receive::Receiver;
use crate::rng::SystemRng;
use crate::signal::Signals;
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error, sys};
use arrayvec::ArrayVec;
use casemate_datapath::reassembly::Reassembler;
use casemate_datapath::{Datapath, Direction, DropReason, Event, Outbound, SaId};
use casemate_sa::{Instant, Limits, Protocol, SaParams};
use casemate_wire::ip::{IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use dummies::Dummies;
pub use dummies::DummyTraffic;
use entry::Entry;
use exit::Exit;
use keepalive::Keepalives;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How often what depends on time alone is looked after.
const TICK: Duration = Duration::from_secs(1);

/// Whoever looks after a running engine.
pub trait Attendant {
    /// Readable when the attendant wants to be called.
    fn wake(&self) -> BorrowedFd<'_>;
    /// Called then. Packets wait meanwhile.
    fn attend(&mut self, datapath: &Datapath, now: Instant);
    /// Something that the data path reports.
    fn event(&mut self, datapath: &Datapath, event: &Event);
    /// Something that went wrong with the system, in words. May come often.
    fn trouble(&mut self, what: String);
}

/// What an engine is made from.
pub struct Parts {
    /// The data path, with its SAs and policies.
    pub datapath: Datapath,
    /// Its clock.
    pub clock: Clock,
    /// Its randomness.
    pub rng: SystemRng,
    /// Sizes of what is allocated here.
    pub limits: Limits,
    /// The TUN interface.
    pub tun: Tun,
    /// What our own packets carry.
    pub mark: u32,
    /// The SAs as they were added.
    pub sas: Vec<(SaId, SaParams)>,
    /// Dummy packets, if any are wanted.
    pub dummies: Option<DummyTraffic>,
    /// Counters that survive a restart, if there are any.
    pub ledger: Option<Ledger>,
    /// What ends the loop.
    pub signals: Signals,
}

/// The engine.
pub struct Engine {
    datapath: Datapath,
    clock: Clock,
    rng: SystemRng,
    buffers: Buffers,
    exit: Exit,
    entry: Entry,
    tun: Tun,
    receivers: Vec<Receiver>,
    ports: Vec<UdpPort>,
    keepalives: Keepalives,
    dummies: Option<Dummies>,
    ledger: Option<Ledger>,
    signals: Signals,
    last_tick: Instant,
    _sinks: Sinks,
}

impl Engine {
    /// Opens the sockets that the SAs need.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { datapath, clock, mut rng, limits, tun, mark, sas, dummies, ledger, signals } = parts;
        let _sinks = Sinks::open()?;
        let inbound =
            |(id, sa): &(SaId, SaParams)| (id.direction() == Direction::Inbound).then(|| sa.clone());
        let inbound: Vec<SaParams> = sas.iter().filter_map(inbound).collect();
        let receivers = [IpVersion::V4, IpVersion::V6]
            .into_iter()
            .filter(|version| sas.iter().any(|(_, sa)| sa.dst.is_ipv4() == (*version == IpVersion::V4)))
            .map(|version| Receiver::open(version, tun.index()))
            .collect::<Result<_, _>>()?;
        let mut ports = Vec::new();
        for port in encap_ports(&sas) {
            ports.extend(UdpPort::open_both(port)?);
        }
        let signs_v4 = |(id, sa): &(SaId, SaParams)| {
            id.direction() == Direction::Outbound
                && sa.transform.protocol() == Protocol::Ah
                && sa.src.is_ipv4()
        };
        let reassembler = || Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        let first_ident = rng.secret_u64() as u32;
        Ok(Self {
            exit: Exit::new(mark, reassembler(), first_ident, sas.iter().any(signs_v4))?,
            entry: Entry::new(inbound.iter().map(|sa| sa.dst).collect(), reassembler()),
            keepalives: Keepalives::new(&sas),
            dummies: dummies.and_then(Dummies::new),
            buffers: Buffers::new(),
            last_tick: Instant::ZERO,
            datapath,
            clock,
            rng,
            tun,
            receivers,
            ports,
            ledger,
            signals,
            _sinks,
        })
    }

    /// Moves packets until a signal comes.
    pub fn run(&mut self, attendant: &mut dyn Attendant) -> Result<(), Error> {
        loop {
            let ready = self.wait(attendant)?;
            let now = self.clock.now();
            let mut ready = ready.into_iter();
            let mut next = || ready.next().unwrap_or(false);
            if next() {
                return Ok(());
            }
            if next() {
                attendant.attend(&self.datapath, now);
            }
            if next() {
                self.outbound_round(now)?;
            }
            for receiver in &self.receivers {
                if next() {
                    let (buffers, datapath) = (&mut self.buffers, &mut self.datapath);
                    self.entry.take_from(receiver, buffers, datapath, &mut self.tun, now)?;
                }
            }
            for port in &mut self.ports {
                if next() {
                    let (buffers, datapath) = (&mut self.buffers, &mut self.datapath);
                    self.entry.take_from_port(port, buffers, datapath, &mut self.tun, now)?;
                }
            }
            self.send_dummies(now);
            self.look_after(attendant, now);
        }
    }

    /// Ends an orderly run: counters that were reserved and not used are given back.
    pub fn close(mut self) -> Result<(), Error> {
        match self.ledger.take() {
            None => Ok(()),
            Some(ledger) => {
                ledger.close(&mut self.datapath).map_err(|error| Error::other("counters", error.to_string()))
            }
        }
    }

    /// The data path, to look at.
    pub fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// Waits for something to do. Signals, attendant, TUN, receivers, ports, in this order.
    fn wait(&self, attendant: &dyn Attendant) -> Result<ArrayVec<bool, 32>, Error> {
        let mut fds: ArrayVec<BorrowedFd<'_>, 32> = ArrayVec::new();
        fds.push(self.signals.as_fd());
        fds.push(attendant.wake());
        fds.push(self.tun.as_fd());
        let others = self.receivers.iter().map(AsFd::as_fd).chain(self.ports.iter().map(AsFd::as_fd));
        // Two receivers and eight ports of two IP versions at most: `EncapPorts` of the data path.
        fds.extend(others.take(fds.remaining_capacity()));
        let mut ready: ArrayVec<bool, 32> = fds.iter().map(|_| false).collect();
        let now = self.clock.now();
        let timeout = self.dummies.as_ref().map_or(TICK, |dummies| dummies.wait(now).min(TICK));
        sys::poll_readable(&fds, &mut ready, timeout).map_err(|error| Error::new("poll", error))?;
        Ok(ready)
    }

    /// Takes a batch from the TUN interface and sends what becomes of it.
    fn outbound_round(&mut self, now: Instant) -> Result<(), Error> {
        let Self { datapath, rng, buffers, exit, tun, .. } = self;
        let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
        for buffer in buffers.slices() {
            match tun.receive(buffer) {
                Ok(Some(len)) => lens.push(len),
                Ok(None) => break,
                Err(error) => return Err(Error::new(format!("TUN interface {}", tun.name()), error)),
            }
        }
        let mut packets = buffers.packets(&lens);
        exit.prepare(&mut packets);
        let mut verdicts = [Outbound::Bypass; BATCH];
        datapath.outbound(now, rng, &mut packets, &mut verdicts);
        exit.obey(&mut packets, &verdicts, datapath, rng, tun, now);
        Ok(())
    }

    /// Sends the dummy packets that are due, as many as a round of others may have.
    fn send_dummies(&mut self, now: Instant) {
        let Self { dummies: Some(dummies), datapath, rng, buffers, exit, tun, .. } = self else { return };
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
        let datapath = &mut self.datapath;
        let (sealed, unreserved) = self.exit.take_tally();
        let kept = self.ledger.as_mut().and_then(|ledger| ledger.keep(datapath, sealed, unreserved));
        if let Some(Err(error)) = kept {
            attendant.trouble(format!("counters could not be written down: {error}"));
        }
        while let Some(event) = datapath.next_event() {
            attendant.event(datapath, &event);
        }
        if let Some(trouble) = self.exit.take_trouble() {
            attendant.trouble(trouble);
        }
        if now.since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(now);
        }
    }

    fn tick(&mut self, now: Instant) {
        let late = self.exit.expire(now).saturating_add(self.entry.expire(now));
        for _ in 0..late {
            self.datapath.note_drop(now, DropReason::FragmentTimeout, &[]);
        }
        self.keepalives.send_due(&mut self.datapath, &self.exit, now);
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
