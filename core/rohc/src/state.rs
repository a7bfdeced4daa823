//! What a context knows of a flow: the last headers, and the control fields of RFC 5225 section 6.3.

use crate::Profile;
use crate::headers::{Headers, Ip, MAX_IP_HEADERS, Transport};
use arrayvec::ArrayVec;

/// How the Identification of an IPv4 header changes (RFC 5225 section 6.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpIdBehavior {
    /// With the MSN.
    Sequential,
    /// With the MSN, after its two bytes are swapped.
    Swapped,
    /// Sent in each packet. Also stands for IPv6, which has no such field.
    Random,
    /// Always 0.
    Zero,
}

impl IpIdBehavior {
    /// The behaviour with this number of two bits.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Sequential,
            1 => Self::Swapped,
            2 => Self::Random,
            _ => Self::Zero,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether the Identification follows the MSN.
    pub(crate) const fn is_sequential(self) -> bool {
        matches!(self, Self::Sequential | Self::Swapped)
    }
}

/// How much reordering the bits of the MSN allow for (RFC 5225 section 6.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReorderRatio(u8);

impl ReorderRatio {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 3)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Interpretation interval offset of `bits` bits of the MSN.
    pub(crate) const fn offset(self, bits: u32) -> u32 {
        let quarter = 1u32 << bits.saturating_sub(2);
        match self.0 {
            0 => 1,
            ratio => quarter.saturating_mul(ratio as u32).saturating_sub(1),
        }
    }
}

/// Control fields of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control {
    /// Master sequence number. In profiles whose headers have a sequence number, its 16 low bits.
    pub(crate) msn: u16,
    pub(crate) reorder_ratio: ReorderRatio,
    /// One for each IP header.
    pub(crate) ip_ids: [IpIdBehavior; MAX_IP_HEADERS],
    /// Whether UDP checksums are sent.
    pub(crate) has_checksum: bool,
    /// Step of the RTP timestamp between two sequence numbers; 0 if timestamps are not scaled.
    pub(crate) ts_stride: u32,
    /// Time between two packets, in milliseconds; 0 without timer-based compression.
    pub(crate) time_stride: u32,
}

/// Step of the RTP timestamp that both sides assume at first.
pub(crate) const DEFAULT_TS_STRIDE: u32 = 160;

impl Control {
    pub(crate) const INITIAL: Self = Self {
        msn: 0,
        reorder_ratio: ReorderRatio::NONE,
        ip_ids: [IpIdBehavior::Random; MAX_IP_HEADERS],
        has_checksum: false,
        ts_stride: DEFAULT_TS_STRIDE,
        time_stride: 0,
    };
}

/// CSRC identifiers that compressed lists refer to (RFC 5225 section 6.6.13.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CsrcTable {
    items: [u32; 16],
    /// Which items are known, a bit for each.
    known: u16,
}

impl CsrcTable {
    /// The item with this index of four bits.
    pub(crate) fn get(&self, index: u8) -> Option<u32> {
        let is_known = self.known >> (index & 0x0f) & 1 == 1;
        self.items.get(usize::from(index)).copied().filter(|_| is_known)
    }

    pub(crate) fn set(&mut self, index: u8, item: u32) {
        if let Some(slot) = self.items.get_mut(usize::from(index)) {
            *slot = item;
            self.known |= 1 << (index & 0x0f);
        }
    }
}

/// Fields of a packet that follow its sequence number. Compressed headers have low bits of their differences
/// to those of an earlier packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SequenceFields {
    /// Sequence number of ESP; otherwise the MSN.
    pub(crate) sequence: u32,
    pub(crate) msn: u16,
    /// Identification of the innermost header; 0 for IPv6.
    pub(crate) ident: u16,
    /// RTP timestamp; 0 for other profiles.
    pub(crate) timestamp: u32,
}

impl SequenceFields {
    /// Difference between Identification and MSN, for a flow with this behaviour.
    pub(crate) const fn ip_id_offset(&self, behavior: IpIdBehavior) -> u16 {
        let ident = match behavior {
            IpIdBehavior::Swapped => self.ident.swap_bytes(),
            IpIdBehavior::Sequential | IpIdBehavior::Random | IpIdBehavior::Zero => self.ident,
        };
        ident.wrapping_sub(self.msn)
    }

    /// By how much the sequence number is larger than that of another packet; `None` if it is smaller.
    pub(crate) fn step_from(&self, before: &Self, profile: Profile) -> Option<u32> {
        match profile {
            Profile::Esp => u32::try_from(self.sequence.wrapping_sub(before.sequence).cast_signed()).ok(),
            _ => u32::try_from(self.msn.wrapping_sub(before.msn).cast_signed()).ok(),
        }
    }

    /// Timestamp of the packet with this MSN, if timestamps grow by `stride` with each one.
    pub(crate) fn timestamp_at(&self, msn: u16, stride: u32) -> u32 {
        let step = i32::from(msn.wrapping_sub(self.msn).cast_signed()).cast_unsigned();
        self.timestamp.wrapping_add(step.wrapping_mul(stride))
    }
}

/// The headers of a packet, and the control fields of the context after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) headers: Headers,
    pub(crate) control: Control,
    pub(crate) csrc_table: CsrcTable,
}

impl State {
    /// Sequence number whose low bits compressed headers contain: 32 bits for ESP, otherwise 16.
    pub(crate) const fn sequence(&self) -> u32 {
        match &self.headers.transport {
            Transport::Esp(esp) => esp.sequence,
            _ => self.control.msn as u32,
        }
    }

    /// Sets the sequence number, and the MSN that follows it.
    pub(crate) const fn set_sequence(&mut self, sequence: u32) {
        self.control.msn = (sequence & 0xffff) as u16;
        match &mut self.headers.transport {
            Transport::Esp(esp) => esp.sequence = sequence,
            Transport::Rtp(_, rtp) => rtp.sequence = self.control.msn,
            Transport::None | Transport::Udp(_) => {}
        }
    }

    /// The fields that follow the sequence number.
    pub(crate) fn sequence_fields(&self) -> SequenceFields {
        let ident = match self.headers.innermost() {
            Some(Ip::V4(ip)) => ip.ident,
            _ => 0,
        };
        let timestamp = match &self.headers.transport {
            Transport::Rtp(_, rtp) => rtp.timestamp,
            _ => 0,
        };
        SequenceFields { sequence: self.sequence(), msn: self.control.msn, ident, timestamp }
    }

    /// Replaces the fields that follow the sequence number.
    pub(crate) fn set_sequence_fields(&mut self, fields: &SequenceFields) {
        self.set_sequence(fields.sequence);
        self.set_ident(fields.ident);
        if let Transport::Rtp(_, rtp) = &mut self.headers.transport {
            rtp.timestamp = fields.timestamp;
        }
    }

    pub(crate) fn set_ident(&mut self, ident: u16) {
        if let Some(Ip::V4(ip)) = self.headers.ips.last_mut() {
            ip.ident = ident;
        }
    }

    /// Difference between the Identification of the innermost header and the MSN.
    pub(crate) fn ip_id_offset(&self) -> u16 {
        self.sequence_fields().ip_id_offset(self.innermost_ip_id())
    }

    /// Sets the Identification of the innermost header from that difference, if it follows the MSN.
    pub(crate) fn set_ip_id_offset(&mut self, offset: u16) {
        let ident = self.control.msn.wrapping_add(offset);
        match self.innermost_ip_id() {
            IpIdBehavior::Sequential => self.set_ident(ident),
            IpIdBehavior::Swapped => self.set_ident(ident.swap_bytes()),
            IpIdBehavior::Random | IpIdBehavior::Zero => {}
        }
    }

    /// Behaviour of the Identification of the innermost IP header.
    pub(crate) fn innermost_ip_id(&self) -> IpIdBehavior {
        let [first, second, third] = self.control.ip_ids;
        match self.headers.ips.len() {
            0 | 1 => first,
            2 => second,
            _ => third,
        }
    }

    pub(crate) fn set_innermost_ip_id(&mut self, behavior: IpIdBehavior) {
        let innermost = self.headers.ips.len().saturating_sub(1);
        if let Some(slot) = self.control.ip_ids.get_mut(innermost) {
            *slot = behavior;
        }
    }

    /// The IP headers with the behaviour of their Identification, and whether each is the innermost.
    pub(crate) fn ips(&self) -> impl Iterator<Item = (&Ip, IpIdBehavior, bool)> {
        let innermost = self.headers.ips.len().saturating_sub(1);
        let all = self.headers.ips.iter().zip(self.control.ip_ids).enumerate();
        all.map(move |(n, (ip, behavior))| (ip, behavior, n == innermost))
    }

    /// CRC of the control fields (RFC 5225 section 6.6.11): one byte for the Identification of each IPv4
    /// header, and if `with_ipv6`, of each IP header. The RFC can be read either way.
    pub(crate) fn control_crc(&self, with_ipv6: bool) -> u8 {
        let control = &self.control;
        let mut bytes = ArrayVec::<u8, 16>::new();
        bytes.push(control.reorder_ratio.bits());
        match self.headers.profile() {
            Profile::Rtp => {
                bytes.extend(control.ts_stride.to_be_bytes());
                bytes.extend(control.time_stride.to_be_bytes());
            }
            Profile::Udp | Profile::Ip => bytes.extend(control.msn.to_be_bytes()),
            Profile::Esp | Profile::Uncompressed => {}
        }
        let counted = self.ips().filter(|(ip, ..)| with_ipv6 || matches!(ip, Ip::V4(_)));
        bytes.extend(counted.map(|(_, behavior, _)| behavior.bits()));
        crate::crc::crc3(&bytes)
    }

    /// Whether this is the CRC of the control fields, in either reading.
    pub(crate) fn has_control_crc(&self, crc: u8) -> bool {
        [false, true].into_iter().any(|with_ipv6| self.control_crc(with_ipv6) == crc)
    }
}
