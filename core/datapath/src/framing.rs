//! Outbound packets of one SA between classification and encryption: sequence numbers, lifetime, headers.
//!
//! `outbound` calls `frame_run` for each run of packets with the same SA, `dummy` and `rohc` for packets of
//! their own.

use crate::datapath::Datapath;
use crate::dummy::UniformHeader;
use crate::esp::MAX_BATCH;
use crate::event::{Event, Events};
use crate::lifetime::Meter;
use crate::protect::Framed;
use crate::sa::{ProtocolKey, SaOut};
use crate::sealing::{OutboundPacket, Sealer};
use crate::seq::{NoNumber, Reserved, SeqCounter};
use crate::{Direction, DropReason, Outbound, SaId, Sealed};
use alloc::sync::Arc;
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode};
use casemate_wire::packet::Packet;

/// Kind of packets in a run.
#[derive(Clone, Copy)]
pub(crate) enum Content<'l> {
    Packets,
    Dummies(&'l UniformHeader),
    /// Feedback of header compression.
    Feedback,
}

/// Processing of each packet in a run.
enum Treatment<'l> {
    Packets,
    /// The SA carries dummy packets, and all its packets have the same visible header fields.
    Uniform(&'l UniformHeader),
    Dummies(&'l UniformHeader),
    Feedback,
}

impl<'l> Treatment<'l> {
    fn new(content: Content<'l>, uniform_header: Option<&'l UniformHeader>) -> Self {
        match (content, uniform_header) {
            (Content::Packets, None) => Self::Packets,
            (Content::Packets, Some(uniform_header)) => Self::Uniform(uniform_header),
            (Content::Dummies(uniform_header), _) => Self::Dummies(uniform_header),
            (Content::Feedback, _) => Self::Feedback,
        }
    }
}

impl Datapath {
    /// Applies one SA to a run of packets. Returns the key to seal them with; `None` if the SA does not
    /// exist.
    pub(crate) fn frame_run(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        slot: u32,
        packets: &mut [Packet<'_>],
        records: &mut [OutboundPacket],
        content: Content<'_>,
    ) -> Option<Sealer> {
        let id = self.sad.id_of(Direction::Outbound, slot);
        let (link_mtu, batch_padding) = (self.link_mtu, self.batch_padding);
        let Some(SaOut { keys, encapsulation, seq, meter, uniform_header, rohc, path_mtu, padding, .. }) =
            self.sad.outbound(slot)
        else {
            records.iter_mut().for_each(|record| record.set_drop(DropReason::NoOutboundSa));
            return None;
        };
        if let (Content::Packets, Some(batch_padding), None, None) =
            (content, batch_padding, &*uniform_header, &*rohc)
        {
            let mtu = path_mtu.current(now, link_mtu);
            let padded = batch_padding.plan(padding, encapsulation, mtu, packets, records);
            self.padding_counters.add(padded);
        }
        let mut run = RunFramer { id, meter, seq, now, events: &mut self.events };
        match (Treatment::new(content, uniform_header.as_ref()), rohc, keys.mode, &keys.key) {
            // Apart from the others, because most packets are of this kind.
            (Treatment::Packets, None, Mode::Tunnel, ProtocolKey::Esp(key)) => run.frame(
                packets,
                records,
                |packet, record, number| {
                    let size = record.size_plan();
                    encapsulation.protect_esp_tunnel(key, packet, &record.header, number, size, rng)
                },
                |packet, record| {
                    let seq = record.to_seal.as_ref().map_or(0, |(_, number)| number.low());
                    let fields = encapsulation.outer.fields(&record.header, record.fragment_to.is_some());
                    encapsulation.write_outer(packet, fields, seq)
                },
            ),
            (treatment, rohc, ..) => run.frame(
                packets,
                records,
                |packet, record, number| {
                    match treatment {
                        Treatment::Feedback => {}
                        Treatment::Packets => {
                            if let Some(rohc) = rohc {
                                let mtu = path_mtu.current(now, link_mtu);
                                record.compress(rohc.as_mut(), packet, encapsulation, mtu, now)?;
                            }
                        }
                        Treatment::Uniform(uniform_header) => {
                            uniform_header.apply(keys.mode, packet, &mut record.header, &number);
                        }
                        Treatment::Dummies(uniform_header) => {
                            return encapsulation.protect_dummy(keys, packet, uniform_header, number, rng);
                        }
                    }
                    encapsulation.protect(keys, packet, &record.header, number, record.size_plan(), rng)
                },
                |_, _| Ok(()),
            ),
        }
        Some(Sealer { keys: Arc::clone(keys), has_checksum: encapsulation.has_checksum() })
    }
}

/// Packets of a run and their bytes. Neither can wrap: a run has at most [`MAX_BATCH`] packets.
#[derive(Default)]
struct Total {
    packets: u64,
    bytes: u64,
}

impl Total {
    #[inline]
    fn add(&mut self, len: usize) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len as u64);
    }
}

/// Applies one SA to a run of packets.
struct RunFramer<'d> {
    id: SaId,
    meter: &'d mut Meter,
    seq: &'d mut SeqCounter,
    now: Instant,
    events: &'d mut Events,
}

impl RunFramer<'_> {
    /// Reserves a sequence number for each packet that was not dropped, and protects the packet with
    /// `protect` and then `finish`. Checks and counts the lifetime of the SA once for all packets, or for
    /// each when its end is near.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn frame(
        &mut self,
        packets: &mut [Packet<'_>],
        records: &mut [OutboundPacket],
        mut protect: impl FnMut(&mut Packet<'_>, &mut OutboundPacket, Reserved) -> Result<Framed, DropReason>,
        finish: impl Fn(&mut Packet<'_>, &OutboundPacket) -> Result<(), DropReason>,
    ) {
        let at_once = if self.meter.is_far_from_end() { MAX_BATCH } else { 1 };
        for (packets, records) in packets.chunks_mut(at_once).zip(records.chunks_mut(at_once)) {
            let total = self.protect(packets, records, &mut protect);
            self.finish(packets, records, &finish);
            if total.packets > 0 && self.meter.count(total.packets, total.bytes, self.now) {
                self.events.push(Event::SoftLifetime(self.id));
            }
        }
    }

    /// The first loop of [`Self::frame`]. Two functions, because both together need more registers than
    /// processors have.
    #[inline(never)]
    fn protect(
        &mut self,
        packets: &mut [Packet<'_>],
        records: &mut [OutboundPacket],
        mut protect: impl FnMut(&mut Packet<'_>, &mut OutboundPacket, Reserved) -> Result<Framed, DropReason>,
    ) -> Total {
        let mut total = Total::default();
        let is_usable = self.meter.check(self.now).is_ok();
        for (packet, record) in packets.iter_mut().zip(records) {
            if record.chain.is_none() {
                continue;
            }
            let len = packet.len();
            match self.reserve(is_usable).and_then(|number| protect(packet, record, number)) {
                Ok(Framed { to_seal, udp_payload }) => {
                    let fragment_to = record.fragment_to;
                    record.to_seal = to_seal;
                    record.verdict = Outbound::Send(Sealed { sa: self.id, udp_payload, fragment_to });
                    total.add(len);
                }
                Err(reason) => self.drop(record, reason),
            }
        }
        total
    }

    #[inline(never)]
    fn finish(
        &mut self,
        packets: &mut [Packet<'_>],
        records: &mut [OutboundPacket],
        finish: impl Fn(&mut Packet<'_>, &OutboundPacket) -> Result<(), DropReason>,
    ) {
        for (packet, record) in packets.iter_mut().zip(records) {
            if record.chain.is_some()
                && let Err(reason) = finish(packet, record)
            {
                self.drop(record, reason);
            }
        }
    }

    /// The next sequence number, if the SA may still be used.
    #[inline]
    fn reserve(&mut self, is_usable: bool) -> Result<Reserved, DropReason> {
        if !is_usable {
            return Err(DropReason::SaExpired);
        }
        self.seq.reserve().map_err(|error| match error {
            NoNumber::Exhausted => DropReason::SequenceExhausted,
            NoNumber::NotDurable => DropReason::CounterNotReserved,
        })
    }

    #[cold]
    fn drop(&mut self, record: &mut OutboundPacket, reason: DropReason) {
        record.set_drop(reason);
        record.to_seal = None;
        if reason == DropReason::SaExpired {
            self.events.push(Event::HardLifetime(self.id));
        }
    }
}
