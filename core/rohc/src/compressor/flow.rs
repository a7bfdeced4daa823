//! A context of a compressor: the last headers of a flow, and what the decompressor may know of them.

use super::former::{FormerMsns, MsnRange};
use super::need::{HeaderNeed, Refresh};
use super::observe::{IdentObserver, RtpObserver, StrideObserver};
use super::select::{self, Choice, SequenceBits};
use super::{WINDOW, Window};
use crate::co::CommonFields;
use crate::feedback::{Feedback, Kind};
use crate::headers::{Headers, Ip, Rtp, Transport};
use crate::missing::Steps;
use crate::state::{Control, CsrcTable, IpIdBehavior, ReorderRatio, State};
use core::time::Duration;

/// What the next header must contain besides what follows the sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    /// Nothing.
    None,
    /// Fields of co_common.
    Common(CommonFields),
    /// All dynamic fields.
    Repair,
    /// Everything.
    Ir,
}

/// A context.
#[derive(Debug)]
pub(super) struct Flow {
    state: State,
    /// The last headers. The decompressor knows at least one of them.
    window: Window,
    update: Update,
    /// Headers in which the update still has to be sent.
    repeat: usize,
    /// Headers since the update began.
    repeated: usize,
    idents: IdentObserver,
    stride: StrideObserver,
    rtp: RtpObserver,
    refresh: Refresh,
    is_rejected: bool,
    steps: Steps,
    /// MSNs of the headers so far.
    msns: Option<MsnRange>,
    former: FormerMsns,
    /// Number of the packet with the last header, and its distance from the one before.
    last: u64,
    last_distance: u64,
}

const _: () = assert!(size_of::<Flow>() <= 1_024, "a context takes at most 1 KiB");

impl Flow {
    /// Starts a context with the headers of its first packet, which [`next`](Self::next) gets next.
    pub(super) fn new(headers: &Headers, msn: u16) -> Self {
        let mut idents = IdentObserver::default();
        let mut control = Control { msn, reorder_ratio: ReorderRatio::NONE, ..Control::INITIAL };
        let innermost = headers.ips.len().saturating_sub(1);
        for (n, (ip, behavior)) in headers.ips.iter().zip(&mut control.ip_ids).enumerate() {
            *behavior = if n == innermost { idents.first(Some(ip)) } else { outer_ip_id(ip) };
        }
        Self {
            state: State { headers: headers.clone(), control, csrc_table: CsrcTable::default() },
            window: Window::new(),
            update: Update::Ir,
            repeat: WINDOW,
            repeated: 0,
            idents,
            stride: StrideObserver::default(),
            rtp: RtpObserver::default(),
            refresh: Refresh::new(),
            is_rejected: false,
            steps: Steps::NONE,
            msns: None,
            former: FormerMsns::None,
            last: 0,
            last_distance: 0,
        }
    }

    /// Replaces the flow with another one, which gets its CID.
    pub(super) fn replace(&mut self, headers: &Headers, msn: u16) {
        let former = self.former.with(self.msns);
        let steps = if former == FormerMsns::None { Steps::NONE } else { Steps::UNKNOWN };
        *self = Self { steps, former, ..Self::new(headers, msn) };
    }

    /// Whether a packet belongs to this flow.
    pub(super) fn matches(&self, headers: &Headers) -> bool {
        self.state.headers.is_same_flow(headers)
    }

    /// Whether the decompressor has refused the flow.
    pub(super) const fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// The state that the next header is written for.
    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    /// Notes a packet of this UDP flow that looks like RTP. Returns whether the flow counts as RTP.
    pub(super) fn is_rtp(&mut self, transport: &Transport) -> bool {
        match transport {
            Transport::Rtp(_, rtp) => self.rtp.note(rtp),
            _ => false,
        }
    }

    /// How many packets of the SA later than the last header this packet is.
    pub(super) const fn distance(&self, packet: u64) -> u64 {
        packet.saturating_sub(self.last)
    }

    /// The distance between the last two headers.
    pub(super) const fn last_distance(&self) -> u64 {
        self.last_distance
    }

    /// Takes the headers of the next packet. Returns the header to send; `need` is what it needs because of
    /// its distance.
    pub(super) fn next(&mut self, headers: &Headers, need: HeaderNeed, now: Duration) -> Choice {
        let control = self.next_control(headers);
        let change = self.change(headers, &control);
        self.state.headers.advance_to(headers);
        self.state.control = control;
        if change != Update::None {
            self.update = self.update.and(change);
            (self.repeat, self.repeated) = (WINDOW, 0);
        }
        if self.refresh.is_due(now) {
            return Choice::Ir;
        }
        let Some(bits) = self.sequence_bits(need) else { return Choice::Ir };
        match self.update {
            Update::Ir => Choice::Ir,
            Update::Repair => select::repair(&self.state, bits),
            Update::Common(fields) => select::common(fields, &self.state, &self.window, bits),
            Update::None => select::smallest(&self.state, &self.window, bits),
        }
    }

    /// Bits of the MSN that the next header may have; `None` if only an IR header will do.
    fn sequence_bits(&self, need: HeaderNeed) -> Option<SequenceBits> {
        let profile = self.state.headers.profile();
        let mut steps = self.steps;
        steps.note(self.state.sequence_fields().step_from(self.window.newest()?, profile));
        match (need, steps.count_headers(profile)) {
            (HeaderNeed::Small, true) => Some(SequenceBits::Any),
            (HeaderNeed::Small, false) => Some(SequenceBits::Few),
            (HeaderNeed::ManyBits, true) => Some(SequenceBits::Many),
            (HeaderNeed::ManyBits, false) | (HeaderNeed::Ir, _) => None,
        }
    }

    /// Notes that the header was sent, with the packet of this number.
    pub(super) fn sent(&mut self, choice: Choice, packet: u64, now: Duration) {
        let fields = self.state.sequence_fields();
        match (self.window.newest(), &mut self.msns) {
            (Some(before), Some(msns)) => {
                let step = fields.step_from(before, self.state.headers.profile());
                self.steps.note(step);
                msns.extend(step);
            }
            (_, msns) => *msns = Some(MsnRange::new(fields.msn)),
        }
        self.window.push(fields);
        self.refresh.sent(choice == Choice::Ir, now);
        (self.last, self.last_distance) = (packet, self.distance(packet));
        self.repeated = self.repeated.saturating_add(1);
        self.repeat = self.repeat.saturating_sub(1);
        if self.repeat == 0 {
            self.update = Update::None;
        }
    }

    /// Handles feedback of the decompressor.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback) {
        self.refresh.on_feedback();
        self.is_rejected |= feedback.is_rejected;
        let is_clear = |bits| self.msns.is_some_and(|msns| msns.are_unique(bits));
        let msn = feedback.msn.filter(|(msn, bits)| is_clear(*bits) && !self.former.may_have(*msn, *bits));
        let acked = msn.and_then(|(msn, bits)| {
            let mask = (1u32 << bits).wrapping_sub(1);
            self.window.iter().position(|sent| u32::from(sent.msn ^ msn) & mask == 0)
        });
        if let Some(position) = acked {
            // The decompressor knows this header; later headers are relative to it or to a newer one.
            self.window.truncate(position.saturating_add(1));
            self.steps = self.steps_of_window();
            if feedback.kind == Kind::Ack && position < self.repeated {
                (self.update, self.repeat) = (Update::None, 0);
            }
        }
        match (feedback.kind, feedback.msn) {
            (Kind::Ack, _) => {}
            (Kind::Nack, Some(_)) => self.demand(Update::Repair),
            (Kind::Nack, None) | (Kind::StaticNack, _) => self.demand(Update::Ir),
        }
    }

    /// The steps between the headers of the window.
    fn steps_of_window(&self) -> Steps {
        let (mut steps, profile) = (Steps::NONE, self.state.headers.profile());
        let pairs = self.window.iter().zip(self.window.iter().skip(1));
        pairs.for_each(|(sent, before)| steps.note(sent.step_from(before, profile)));
        steps
    }

    fn demand(&mut self, update: Update) {
        self.update = self.update.and(update).for_chain(&self.state.headers);
        (self.repeat, self.repeated) = (WINDOW, 0);
    }

    /// The control fields for the next packet.
    fn next_control(&mut self, headers: &Headers) -> Control {
        let mut control = self.state.control;
        let innermost = headers.ips.len().saturating_sub(1);
        for (n, (ip, behavior)) in headers.ips.iter().zip(&mut control.ip_ids).enumerate() {
            if n == innermost {
                if !self.window.is_empty() {
                    *behavior = self.idents.next(Some(ip), *behavior);
                }
            } else if outer_ip_id(ip) == IpIdBehavior::Random {
                *behavior = IpIdBehavior::Random;
            }
        }
        match &headers.transport {
            Transport::Rtp(udp, rtp) => {
                control.msn = rtp.sequence;
                // The dynamic chain has no other flag for this.
                control.has_checksum = udp.checksum != 0;
                if let Some(stride) = self.stride.note(rtp) {
                    control.ts_stride = stride;
                }
            }
            Transport::Esp(esp) => control.msn = (esp.sequence & 0xffff) as u16,
            Transport::Udp(udp) => {
                control.has_checksum = udp.checksum != 0;
                control.msn = self.next_number();
            }
            Transport::None => control.msn = self.next_number(),
        }
        control
    }

    /// The MSN of the next header, for profiles whose headers have none. Packets that were sent without
    /// compression do not count.
    fn next_number(&self) -> u16 {
        self.window.newest().map_or(self.state.control.msn, |sent| sent.msn.wrapping_add(1))
    }

    /// What has to be sent because the next packet differs from the one before.
    fn change(&self, headers: &Headers, control: &Control) -> Update {
        let (former, former_control) = (&self.state.headers, &self.state.control);
        let (Some((now, outer)), Some((before, former_outer))) =
            (headers.ips.split_last(), former.ips.split_last())
        else {
            return Update::Ir;
        };
        let innermost = outer.len();
        let mut outer_ids = control.ip_ids.iter().zip(&former_control.ip_ids).take(innermost);
        let has_other_df = |(a, b): (&Ip, &Ip)| dont_fragment(a) != dont_fragment(b);
        if outer.iter().zip(former_outer).any(has_other_df)
            || outer_ids.any(|(a, b)| a != b)
            || control.has_checksum != former_control.has_checksum
        {
            return Update::Repair.for_chain(headers);
        }
        let mut fields = CommonFields {
            tos: now.tos() != before.tos(),
            ttl: now.ttl() != before.ttl(),
            outer: outer.iter().zip(former_outer).any(|(a, b)| (a.tos(), a.ttl()) != (b.tos(), b.ttl())),
            flags: dont_fragment(now) != dont_fragment(before)
                || control.ip_ids.get(innermost) != former_control.ip_ids.get(innermost),
            ts_stride: control.ts_stride != former_control.ts_stride,
            ..CommonFields::default()
        };
        if let (Some(now), Some(before)) = (rtp(headers), rtp(former)) {
            fields.payload_type = now.payload_type != before.payload_type;
            fields.rtp_flags = (now.padding, now.extension) != (before.padding, before.extension);
            fields.csrc_list = now.csrc != before.csrc;
        }
        if fields == CommonFields::default() {
            Update::None
        } else {
            Update::Common(fields).for_chain(headers)
        }
    }
}

impl Update {
    /// Both updates.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ir, _) | (_, Self::Ir) => Self::Ir,
            (Self::Repair, _) | (_, Self::Repair) => Self::Repair,
            (Self::Common(a), Self::Common(b)) => Self::Common(a.and(b)),
            (Self::None, update) | (update, Self::None) => update,
        }
    }

    /// The update in a form that suits the headers: the CRC of control fields can be read in two ways where
    /// there is IPv6, so only IR headers, which have none, are sent there.
    fn for_chain(self, headers: &Headers) -> Self {
        let has_ipv6 = headers.ips.iter().any(|ip| matches!(ip, Ip::V6(_)));
        if has_ipv6 && self != Self::None { Self::Ir } else { self }
    }
}

fn dont_fragment(ip: &Ip) -> bool {
    matches!(ip, Ip::V4(ip) if ip.dont_fragment)
}

/// Behaviour of the Identification of an outer header, which never counts as sequential (RFC 5225 section
/// 6.3.3).
const fn outer_ip_id(ip: &Ip) -> IpIdBehavior {
    match ip {
        Ip::V4(ip) if ip.ident == 0 => IpIdBehavior::Zero,
        _ => IpIdBehavior::Random,
    }
}

const fn rtp(headers: &Headers) -> Option<&Rtp> {
    match &headers.transport {
        Transport::Rtp(_, rtp) => Some(rtp),
        _ => None,
    }
}
