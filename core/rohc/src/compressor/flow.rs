//! A context of a compressor: the last headers of a flow, and what the decompressor may know of them.

use super::observe::{IdentObserver, RtpObserver, StrideObserver};
use super::select::{self, Choice};
use super::{WINDOW, Window};
use crate::co::CommonFields;
use crate::feedback::{Feedback, Kind};
use crate::headers::{Headers, Ip, Rtp, Transport};
use crate::state::{Control, CsrcTable, IpIdBehavior, ReorderRatio, SequenceFields, State};

/// Packets after which an IR header is repeated while the decompressor has sent no feedback, at first and at
/// most.
const FIRST_REFRESH: u32 = 64;
const MAX_REFRESH: u32 = 256;

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
    has_feedback: bool,
    is_rejected: bool,
    /// Packets until the next refresh, and the interval of refreshes.
    until_refresh: u32,
    refresh_interval: u32,
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
            has_feedback: false,
            is_rejected: false,
            until_refresh: FIRST_REFRESH,
            refresh_interval: FIRST_REFRESH,
        }
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

    /// Takes the headers of the next packet. Returns the header to send.
    pub(super) fn next(&mut self, headers: &Headers) -> Choice {
        let control = self.next_control(headers);
        let change = self.change(headers, &control);
        self.state.headers.advance_to(headers);
        self.state.control = control;
        if change != Update::None {
            self.update = self.update.and(change);
            (self.repeat, self.repeated) = (WINDOW, 0);
        }
        if !self.has_feedback {
            self.until_refresh = self.until_refresh.saturating_sub(1);
            if self.until_refresh == 0 {
                self.refresh_interval = self.refresh_interval.saturating_mul(2).min(MAX_REFRESH);
                self.until_refresh = self.refresh_interval;
                return Choice::Ir;
            }
        }
        match self.update {
            Update::Ir => Choice::Ir,
            Update::Repair => Choice::Repair,
            Update::Common(fields) => select::common(fields, &self.state, &self.window),
            Update::None => select::smallest(&self.state, &self.window),
        }
    }

    /// Notes that the header was sent.
    pub(super) fn sent(&mut self) {
        self.window.push(self.state.sequence_fields());
        self.repeated = self.repeated.saturating_add(1);
        self.repeat = self.repeat.saturating_sub(1);
        if self.repeat == 0 {
            self.update = Update::None;
        }
    }

    /// Handles feedback of the decompressor.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback) {
        self.has_feedback = true;
        self.is_rejected |= feedback.is_rejected;
        let acked = feedback.msn.and_then(|(msn, bits)| {
            let mask = (1u32 << bits).wrapping_sub(1);
            // Several headers have this number if the sender of the flow has started again. The decompressor
            // knows the oldest of them or a newer one.
            let matches = |sent: &SequenceFields| u32::from(sent.msn ^ msn) & mask == 0;
            let matching = self.window.iter().enumerate().filter(|(_, sent)| matches(sent));
            matching.last().map(|(position, _)| position)
        });
        if let Some(position) = acked {
            // The decompressor knows this header; later headers are relative to it or to a newer one.
            self.window.truncate(position.saturating_add(1));
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
                control.msn = control.msn.wrapping_add(1);
            }
            Transport::None => control.msn = control.msn.wrapping_add(1),
        }
        control
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
