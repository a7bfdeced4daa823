//! The data path as `inspect` uses it: every state as an inbound SA, no policies, no lifetimes.

use super::sight::{Sight, udp_ports};
use crate::failure::Failure;
use crate::providers::providers;
use crate::xfrm::XfrmFile;
use casemate_crypto::Providers;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{Config, Consumed, Datapath, Direction, DropReason, Inbound, Unmatched};
use casemate_sa::{Instant, Lifetime, Limits};
use casemate_wire::natt;
use casemate_wire::packet::Packet;
use std::path::Path;

/// Room behind a packet, which AH with extended sequence numbers needs.
const TAIL_ROOM: usize = 16;

/// What the data path made of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'p> {
    /// Opened: the IP packet to deliver.
    Ok(&'p [u8]),
    /// Dropped.
    Drop(DropReason),
    /// Not protected.
    Clear,
    /// A fragment, kept.
    Held,
    /// A dummy packet.
    Dummy,
    /// A NAT keepalive.
    Keepalive,
    /// IKE.
    Ike,
}

pub(super) struct Engine {
    datapath: Datapath,
    reassembler: Reassembler,
    now: Instant,
    buffer: Vec<u8>,
    encap_ports: Vec<u16>,
}

impl Engine {
    /// Sets up every state of `file`, which was read from `path`.
    pub(super) fn new(file: &XfrmFile, path: &Path, check_replay: bool) -> Result<Self, Failure> {
        let limits = Limits { sas: file.states.len(), flows: 1_024, audit_events: 0, ..Limits::SERVER };
        // Nobody floods a capture that is read from a file, so the tables need no secret.
        let config = Config { limits, unmatched: Unmatched::PassAll, ..Config::server(0) };
        let mut datapath = Datapath::new(config);
        let providers = providers(file.states.iter().map(|state| &state.value));
        // ESP in UDP is looked for on this port whether or not a state names it (RFC 3948 section 2.1).
        let mut encap_ports = vec![natt::PORT];
        datapath.listen_encapsulated(natt::PORT);
        for state in &file.states {
            let mut sa = state.value.clone();
            sa.lifetime = Lifetime::UNBOUNDED;
            if !check_replay {
                sa.replay_window = 0;
            }
            encap_ports.extend(sa.encap.map(|encap| encap.dst_port));
            datapath
                .add_sa(&sa, Direction::Inbound, &Providers(&providers), Instant::ZERO)
                .map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), state.line)))?;
        }
        encap_ports.sort_unstable();
        encap_ports.dedup();
        let reassembler = Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        Ok(Self { datapath, reassembler, now: Instant::ZERO, buffer: Vec::new(), encap_ports })
    }

    /// Takes one IP packet, captured at `nanos`. A datagram that it completes is told of as a whole.
    pub(super) fn take(&mut self, nanos: u64, packet: &[u8]) -> (Sight, Verdict<'_>) {
        // Captures are not always in order; the data path's clock is.
        self.now = self.now.max(Instant::from_micros(nanos / 1_000));
        self.reassembler.expire(self.now);
        self.learn_port(packet);
        let sight = Sight::of(packet, &self.encap_ports);
        self.load(packet);
        let decided = self.inbound();
        if !matches!(decided.0, Inbound::Reassemble) {
            return (sight, self.verdict(decided));
        }
        let whole = match self.reassembler.push(self.now, packet, Sender::Known) {
            Reassembly::Held => return (sight, Verdict::Held),
            Reassembly::Dropped(error) => return (sight, Verdict::Drop(error.drop_reason())),
            Reassembly::Whole(whole) => whole.data().to_vec(),
        };
        let sight = Sight::of(&whole, &self.encap_ports);
        self.load(&whole);
        let decided = self.inbound();
        (sight, self.verdict(decided))
    }

    /// A NAT changes the port of the host behind it: what comes from port 4500 is ESP in UDP to whatever port it goes.
    /// The data path listens on 8 ports at most.
    fn learn_port(&mut self, packet: &[u8]) {
        let Some((natt::PORT, port)) = udp_ports(packet) else { return };
        if !self.encap_ports.contains(&port) && self.datapath.listen_encapsulated(port) {
            self.encap_ports.push(port);
        }
    }

    /// Puts `packet` into the buffer, with room behind it.
    fn load(&mut self, packet: &[u8]) {
        self.buffer.clear();
        self.buffer.extend_from_slice(packet);
        self.buffer.resize(packet.len().saturating_add(TAIL_ROOM), 0);
    }

    /// Runs the packet in the buffer; answers where what is left of it stands.
    fn inbound(&mut self) -> (Inbound, std::ops::Range<usize>) {
        let len = self.buffer.len().saturating_sub(TAIL_ROOM);
        let Some(packet) = Packet::new(&mut self.buffer, 0, len) else {
            return (Inbound::Drop(DropReason::NoRoom), 0..0);
        };
        let mut packets = [packet];
        let mut verdicts = [Inbound::Drop(DropReason::MalformedHeader)];
        self.datapath.inbound(self.now, &mut packets, &mut verdicts);
        let ([packet], [verdict]) = (packets, verdicts);
        let start = packet.head_room();
        (verdict, start..start.saturating_add(packet.len()))
    }

    fn verdict(&self, (verdict, place): (Inbound, std::ops::Range<usize>)) -> Verdict<'_> {
        match verdict {
            Inbound::Deliver(admitted) if admitted.sa.is_some() => {
                Verdict::Ok(self.buffer.get(place).unwrap_or_default())
            }
            // News of a path concern SAs that send, and here all receive.
            Inbound::Deliver(_) | Inbound::Consumed(Consumed::PathMtu) => Verdict::Clear,
            Inbound::Consumed(Consumed::Dummy) => Verdict::Dummy,
            Inbound::Consumed(Consumed::Keepalive) => Verdict::Keepalive,
            Inbound::Ike(_) => Verdict::Ike,
            Inbound::Drop(reason) => Verdict::Drop(reason),
            // Only a fragment is asked for again, and what was reassembled is none.
            Inbound::Reassemble | Inbound::ReassembleOpened(_) => Verdict::Drop(DropReason::Fragment),
        }
    }
}
