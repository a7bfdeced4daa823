//! The data path of `inspect`: every state is an inbound SA; no policies and no lifetimes apply.

use super::outer_headers::{OuterHeaders, udp_ports};
use crate::failure::Failure;
use crate::providers;
use crate::xfrm::XfrmFile;
use casemate_crypto::Providers;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{
    Config, Consumed, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, RestoredHeader, SaId, Unmatched,
};
use casemate_rohc::{ChannelParams, Fault, ProfileSet};
use casemate_sa::{Instant, Lifetime, Limits, Mode, Protocol, RohcParams, SaParams};
use casemate_wire::flow::FlowPorts;
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;
use casemate_wire::udp::NATT_PORT;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

/// Room after a packet, which AH with extended sequence numbers needs. The room in front is for restored
/// headers.
const TAIL_ROOM: usize = 16;
/// `fill_buffer` comes before `inbound`.
const FILLED: &str = "the buffer has a packet and the room around it";

/// How SAs differ from those of a gateway with the same states.
#[derive(Debug, Clone, Copy)]
pub(super) struct SaOptions {
    /// Whether replays are dropped.
    pub(super) check_replay: bool,
    /// MAX_CID of header compression, which the hosts have negotiated.
    pub(super) rohc_max_cid: u16,
}

/// The verdict of the data path on a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'p> {
    /// Decrypted: the IP packet to deliver, and its compressed header if it had one.
    Ok(&'p [u8], Option<RestoredHeader>),
    /// Dropped for this reason.
    Drop(DropReason),
    /// Dropped because the compressed header was not restored.
    RohcFailed(Fault),
    /// Not protected.
    Clear,
    /// A fragment, held until its datagram is complete.
    Held,
    /// A dummy packet.
    Dummy,
    /// A packet with nothing but feedback of header compression.
    RohcFeedback,
    /// A NAT keepalive.
    Keepalive,
    /// An IKE message.
    Ike,
}

pub(super) struct CaptureDatapath {
    datapath: Datapath,
    reassembler: Reassembler,
    now: Instant,
    buffer: Vec<u8>,
    encap_ports: Vec<u16>,
    /// SAs with header compression by SPI and destination.
    compressed: HashMap<(u32, IpAddr), SaId>,
}

impl CaptureDatapath {
    /// Adds every state of `file`, which was read from `path`.
    pub(super) fn new(file: &XfrmFile, path: &Path, options: SaOptions) -> Result<Self, Failure> {
        let limits = Limits { sas: file.states.len(), flows: 1_024, audit_events: 0, ..Limits::SERVER };
        // A capture is not an attack, so the hash tables need no secret seed.
        let config = Config { limits, unmatched: Unmatched::PassAll, ..Config::server(0) };
        let mut datapath = Datapath::new(config);
        datapath.enable_rohc();
        let providers = providers::for_sas(file.states.iter().map(|state| &state.value));
        // ESP in UDP is recognised on this port even if no state uses it (RFC 3948 section 2.1).
        let mut encap_ports = vec![NATT_PORT];
        datapath.add_encap_port(NATT_PORT);
        let mut compressed = HashMap::new();
        for state in &file.states {
            let sa = inbound_sa(&state.value, options);
            encap_ports.extend(sa.encap.map(|encap| encap.dst_port));
            let id = datapath
                .add_sa(&sa, Direction::Inbound, &Providers(&providers), Instant::ZERO)
                .map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), state.line)))?;
            if sa.rohc.is_some() {
                compressed.insert((sa.spi.get(), sa.dst), id);
            }
        }
        encap_ports.sort_unstable();
        encap_ports.dedup();
        let reassembler = Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        Ok(Self { datapath, reassembler, now: Instant::ZERO, buffer: Vec::new(), encap_ports, compressed })
    }

    /// Processes one IP packet, captured at `nanos`. A fragment that completes a datagram gives the
    /// verdict on the whole datagram.
    pub(super) fn process(&mut self, nanos: u64, packet: &[u8]) -> (OuterHeaders, Verdict<'_>) {
        // Packets in a capture may be out of order; the clock of the data path must not run backwards.
        self.now = self.now.max(Instant::from_micros(nanos / 1_000));
        self.reassembler.expire(self.now);
        self.learn_port(packet);
        let headers = OuterHeaders::parse(packet, &self.encap_ports);
        self.fill_buffer(packet);
        let (verdict, inner) = self.inbound();
        if !matches!(verdict, Inbound::Reassemble) {
            return (headers, self.verdict(&headers, verdict, inner));
        }
        let whole = match self.reassembler.push(self.now, packet, Sender::Known) {
            Reassembly::Held => return (headers, Verdict::Held),
            Reassembly::Dropped(error) => return (headers, Verdict::Drop(error.drop_reason())),
            Reassembly::Whole(whole) => whole.data().to_vec(),
        };
        let headers = OuterHeaders::parse(&whole, &self.encap_ports);
        self.fill_buffer(&whole);
        let (verdict, inner) = self.inbound();
        (headers, self.verdict(&headers, verdict, inner))
    }

    /// Learns the port that a NAT gave to the host behind it: a datagram from port 4500 is ESP in UDP,
    /// whatever its destination port. The data path listens on at most 8 ports.
    fn learn_port(&mut self, packet: &[u8]) {
        let Some(FlowPorts { src: NATT_PORT, dst: port }) = udp_ports(packet) else { return };
        if !self.encap_ports.contains(&port) && self.datapath.add_encap_port(port) {
            self.encap_ports.push(port);
        }
    }

    /// Copies `packet` into the buffer and leaves room around it.
    fn fill_buffer(&mut self, packet: &[u8]) {
        self.buffer.clear();
        self.buffer.resize(HEAD_ROOM, 0);
        self.buffer.extend_from_slice(packet);
        self.buffer.resize(self.buffer.len().saturating_add(TAIL_ROOM), 0);
    }

    /// Processes the packet in the buffer. Returns the verdict and the range of the resulting packet.
    fn inbound(&mut self) -> (Inbound, Range<usize>) {
        let len = self.buffer.len().checked_sub(HEAD_ROOM + TAIL_ROOM).or_broken(FILLED, 0);
        let Some(packet) = Packet::new(&mut self.buffer, HEAD_ROOM, len).or_report(FILLED) else {
            return (Inbound::Drop(DropReason::NoRoom), 0..0);
        };
        let mut packets = [packet];
        let mut verdicts = [Inbound::Drop(DropReason::MalformedHeader)];
        self.datapath.inbound(self.now, &mut packets, &mut verdicts);
        let ([packet], [verdict]) = (packets, verdicts);
        let start = packet.head_room();
        (verdict, start..start.saturating_add(packet.len()))
    }

    /// What the SA of a packet with these headers did with its compressed header, if it had one.
    fn restored_header(&mut self, headers: &OuterHeaders) -> Option<Result<RestoredHeader, Fault>> {
        let (addresses, protection) = headers.addresses.zip(headers.protection)?;
        let id = self.compressed.get(&(protection.spi, addresses.dst))?;
        self.datapath.take_restored_header(*id)
    }

    /// Translates a verdict of the data path on a packet with these headers; `inner` is the range of the
    /// resulting packet.
    fn verdict(&mut self, headers: &OuterHeaders, verdict: Inbound, inner: Range<usize>) -> Verdict<'_> {
        let restored = self.restored_header(headers);
        match verdict {
            Inbound::Deliver(admitted) if admitted.sa.is_some() => Verdict::Ok(
                self.buffer.get(inner).or_broken_default("the inner packet is in the buffer"),
                restored.and_then(Result::ok),
            ),
            // Path MTU messages concern sending SAs; here all SAs receive.
            Inbound::Deliver(_) | Inbound::Consumed(Consumed::PathMtu) => Verdict::Clear,
            Inbound::Consumed(Consumed::Dummy) => Verdict::Dummy,
            Inbound::Consumed(Consumed::RohcFeedback) => Verdict::RohcFeedback,
            Inbound::Consumed(Consumed::Keepalive) => Verdict::Keepalive,
            Inbound::Ike(_) => Verdict::Ike,
            Inbound::Drop(reason) => match restored {
                Some(Err(fault)) => Verdict::RohcFailed(fault),
                _ => Verdict::Drop(reason),
            },
            // Only a fragment needs reassembly, and a reassembled datagram is not one.
            Inbound::Reassemble | Inbound::ReassembleOpened(_) => Verdict::Drop(DropReason::Fragment),
        }
    }
}

/// The SA of a state. What the traffic before the capture was is not known, so no lifetime applies.
fn inbound_sa(state: &SaParams, options: SaOptions) -> SaParams {
    let mut sa = state.clone();
    sa.lifetime = Lifetime::UNBOUNDED;
    if !options.check_replay {
        sa.replay_window = 0;
    }
    // States cannot say whether header compression was negotiated. Compressed packets have a next header of
    // their own, so others are not affected.
    if sa.mode == Mode::Tunnel && sa.transform.protocol() == Protocol::Esp {
        let channel = ChannelParams { max_cid: options.rohc_max_cid, profiles: ProfileSet::ALL };
        sa.rohc = Some(RohcParams { channel, max_cid: channel.max_cid, integrity: None });
        // Padding concerns packets that are sent, and excludes header compression.
        sa.tfc_pad_to = 0;
    }
    sa
}
