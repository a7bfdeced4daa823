//! A context of a decompressor: the states after the last packets of a flow.

use super::received::ReceivedPackets;
use crate::Fault;
use crate::co::CoHeader;
use crate::cursor::HeaderBytes;
use crate::headers::{Ip, Transport};
use crate::missing::{MAX_MISSING, is_within_window, most_missing};
use crate::recent::Recent;
use crate::state::{CsrcTable, SequenceFields, State};

/// Packets whose state is kept. A packet that is later than all of them is not decompressed.
const HISTORY: usize = 11;

/// A context.
#[derive(Debug)]
pub(super) struct Context(Flow);

const _: () = assert!(size_of::<Context>() <= 1_024, "a context takes at most 1 KiB");

/// What a context knows.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a context is allocated once, with room for both")]
pub(super) enum Flow {
    /// Profile 0x0000.
    Uncompressed,
    Compressed(CompressedFlow),
}

/// The states of a compressed flow.
#[derive(Debug)]
pub(super) struct CompressedFlow {
    current: Version,
    /// The state before the last change of a field that does not follow the sequence number.
    previous: Option<Version>,
    /// The last packets.
    history: Recent<Packet, HISTORY>,
    /// Packets of the context that have arrived, but late, or were not decompressed.
    unapplied: u32,
}

/// A state and the packet that began it.
#[derive(Debug)]
struct Version {
    state: State,
    since: u64,
}

/// A packet that was decompressed.
#[derive(Debug, Clone, Copy, Default)]
struct Packet {
    /// Sequence number in the SA.
    sequence: u64,
    /// Packets of the SA that were lost when this one arrived.
    lost: u64,
    /// Packets of the context that were not applied when this one arrived.
    unapplied: u32,
    fields: SequenceFields,
}

/// The packet that a compressed header is relative to.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) fields: SequenceFields,
    /// Packets of the SA behind it that are missing, and late packets of the flow.
    missing: u64,
}

impl Reference {
    /// Writes the headers that a compressed header stands for, after it was read into `state`. A fault if it
    /// may be relative to a later packet, or if its CRC is wrong.
    pub(super) fn verify(
        &self,
        co: CoHeader,
        payload: &[u8],
        state: &State,
        headers: &mut HeaderBytes,
    ) -> Result<(), Fault> {
        if self.missing > MAX_MISSING {
            let profile = state.headers.profile();
            let bits = co.format.sequence_bits(profile);
            let most = most_missing(profile, bits, state.control.reorder_ratio.offset(bits));
            let step = state.sequence_fields().step_from(&self.fields, profile);
            if self.missing > most || !is_within_window(step) {
                return Err(Fault::NoContext);
            }
        }
        state.headers.write(payload.len(), headers)?;
        if co.crc == co.format.crc(headers) { Ok(()) } else { Err(Fault::Crc) }
    }

    /// The fault of a header that was read with this reference.
    pub(super) const fn fault(&self, fault: Fault) -> Fault {
        // Then the state may not be the right one.
        if self.missing > MAX_MISSING { Fault::NoContext } else { fault }
    }
}

impl Context {
    /// Makes a context from an IR header; `state` is `None` for profile 0x0000.
    pub(super) fn new(state: Option<State>, sequence: u64, lost: u64) -> Self {
        Self(
            state.map_or(Flow::Uncompressed, |state| {
                Flow::Compressed(CompressedFlow::new(state, sequence, lost))
            }),
        )
    }

    pub(super) const fn flow_mut(&mut self) -> &mut Flow {
        &mut self.0
    }

    /// Updates the context from an IR header. A late one is ignored: it may belong to a former flow.
    pub(super) fn refresh(&mut self, state: Option<State>, sequence: u64, lost: u64) {
        match (&mut self.0, state) {
            (Flow::Compressed(flow), _) if flow.newest() >= sequence => {}
            (Flow::Compressed(flow), Some(state))
                if flow.current.state.headers.is_same_flow(&state.headers) =>
            {
                flow.update(state, sequence, lost);
            }
            (_, state) => *self = Self::new(state, sequence, lost),
        }
    }

    /// Notes a packet that has arrived, but late, or was not decompressed.
    pub(super) const fn note_unapplied(&mut self) {
        if let Flow::Compressed(flow) = &mut self.0 {
            flow.unapplied = flow.unapplied.saturating_add(1);
        }
    }

    /// CSRC identifiers that are known.
    pub(super) fn csrc_table(&self) -> CsrcTable {
        match &self.0 {
            Flow::Compressed(flow) => flow.current.state.csrc_table,
            Flow::Uncompressed => CsrcTable::default(),
        }
    }

    /// MSN of the newest packet; `None` for profile 0x0000.
    pub(super) fn msn(&self) -> Option<u16> {
        match &self.0 {
            Flow::Compressed(flow) => flow.history.newest().map(|packet| packet.fields.msn),
            Flow::Uncompressed => None,
        }
    }
}

impl CompressedFlow {
    fn new(state: State, sequence: u64, lost: u64) -> Self {
        let mut history = Recent::new();
        history.push(Packet { sequence, lost, unapplied: 0, fields: state.sequence_fields() });
        Self { current: Version { state, since: sequence }, previous: None, history, unapplied: 0 }
    }

    /// Sequence number in the SA of the newest packet.
    fn newest(&self) -> u64 {
        self.history.newest().map_or(0, |packet| packet.sequence)
    }

    /// The newest packet before `sequence`, and the state after it. A fault if no such packet is known.
    ///
    /// Each call sets the fields of the state that follow the sequence number. Fields that every header
    /// contains may have any value, so a header that changes only these two kinds is decompressed in place.
    pub(super) fn reference(
        &mut self,
        sequence: u64,
        received: &ReceivedPackets,
    ) -> Result<(Reference, &mut State), Fault> {
        let packet = *self.history.iter().find(|packet| packet.sequence < sequence).ok_or(Fault::Late)?;
        let unapplied = match self.unapplied {
            u32::MAX => u64::MAX,
            unapplied => unapplied.saturating_sub(packet.unapplied).into(),
        };
        let missing =
            received.missing_between(packet.sequence, sequence, packet.lost).saturating_add(unapplied);
        let mut versions = [Some(&mut self.current), self.previous.as_mut()].into_iter().flatten();
        let version = versions.find(|version| version.since <= packet.sequence).ok_or(Fault::Late)?;
        version.state.set_sequence_fields(&packet.fields);
        Ok((Reference { fields: packet.fields, missing }, &mut version.state))
    }

    /// Notes a packet that was decompressed in place, unless a newer one was noted.
    pub(super) fn note(&mut self, fields: SequenceFields, sequence: u64, lost: u64) {
        if sequence > self.newest() {
            self.history.push(Packet { sequence, lost, unapplied: self.unapplied, fields });
        }
    }

    /// Sets the state after a packet, unless a newer one was noted. Returns whether fields have changed that
    /// do not follow the sequence number.
    pub(super) fn update(&mut self, state: State, sequence: u64, lost: u64) -> bool {
        if sequence <= self.newest() {
            return false;
        }
        self.note(state.sequence_fields(), sequence, lost);
        if state.differs_only_in_sequence(&self.current.state) {
            return false;
        }
        self.previous = Some(core::mem::replace(&mut self.current, Version { state, since: sequence }));
        true
    }
}

impl State {
    /// Whether the states differ only in what follows the sequence number or is sent in every packet: then a
    /// packet decompresses with either one.
    fn differs_only_in_sequence(&self, other: &Self) -> bool {
        let (mut control, mut other_control) = (self.control, other.control);
        (control.msn, other_control.msn) = (0, 0);
        let ips = self.headers.ips.iter().zip(&other.headers.ips).all(|(a, b)| {
            let df = |ip: &Ip| matches!(ip, Ip::V4(ip) if ip.dont_fragment);
            a.tos() == b.tos() && a.ttl() == b.ttl() && df(a) == df(b)
        });
        let rtp = match (&self.headers.transport, &other.headers.transport) {
            (Transport::Rtp(_, a), Transport::Rtp(_, b)) => {
                (a.padding, a.extension, a.payload_type, &a.csrc)
                    == (b.padding, b.extension, b.payload_type, &b.csrc)
            }
            _ => true,
        };
        control == other_control && ips && rtp && self.csrc_table == other.csrc_table
    }
}
