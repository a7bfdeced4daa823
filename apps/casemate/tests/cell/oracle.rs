//! What must hold for all frames that the nodes of a cell and their peers ever sent: no sequence number and
//! no IV occurs twice with one key, in ESP and in IKE, and no packet of the inner networks is in clear.
//!
//! The oracle reads frames without keys. An SA stands for its key: source, destination and SPI in ESP, both
//! SPIs and the role of the sender in IKE. The algorithms must have an explicit IV of 8 bytes, as AES-GCM has
//! (RFC 4106, RFC 5282). A message that is seen again byte by byte is a retransmission or was forwarded.

use crate::net::OUTSIDE_VIRTUAL;
use crate::traffic::MARK;
use casemate_wire::esp::EspHeader;
use casemate_wire::ike::{ExchangeType, Message, PayloadType};
use casemate_wire::ip::{Ipv4, proto};
use casemate_wire::udp::{Natt, Udp};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Most findings that are kept.
const MAX_FINDINGS: usize = 2_000;
/// Number of recent frames that are kept: those of some seconds.
const MAX_RECENT: usize = 4_096;
const ETHERNET_LEN: usize = 14;
const IV_LEN: usize = 8;
/// Most bytes in an encrypted payload without payloads inside: IV, ICV of 16 bytes, pad length, padding to 4
/// bytes.
const EMPTY_LEN: usize = IV_LEN + 16 + 4;

/// Where and when a message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Port of the bridge.
    pub(crate) sender: &'static str,
    /// Time after the start of the capture.
    pub(crate) at: Duration,
}

/// One direction of an ESP SA.
type EspSa = (Ipv4Addr, Ipv4Addr, u32);

/// Numbers of an ESP SA that were used, each with the first packet and its digest.
#[derive(Default)]
struct Used {
    sequence: HashMap<u32, (Sending, u64)>,
    ivs: HashMap<[u8; IV_LEN], (Sending, u64)>,
}

/// SPIs of an IKE SA, and whether its original initiator has sent the message.
type IkeKey = (u64, u64, bool);
/// Key, message ID, whether the message is a response, and the number of the fragment.
type IkeMessage = (IkeKey, u32, bool, u16);

/// A sent message, to recognise a retransmission.
struct Sent {
    sending: Sending,
    digest: u64,
    may_differ: bool,
}

/// Frames of one bridge so far.
#[derive(Default)]
pub(crate) struct Oracle {
    esp: HashMap<EspSa, Used>,
    ike_ivs: HashMap<(IkeKey, [u8; IV_LEN]), Sent>,
    ike_messages: HashMap<IkeMessage, Sent>,
    findings: Vec<String>,
    /// ESP packets, without copies.
    first_esp: u64,
    /// ESP packets of each sender.
    esp_packets: HashMap<&'static str, u64>,
    /// The last ESP packet of each sender.
    last_esp: HashMap<&'static str, Duration>,
    /// The last frames with ESP for the cell.
    recent: VecDeque<Vec<u8>>,
    /// ESP packets that were seen before, byte by byte.
    esp_copies: u64,
    /// Most hosts that have forwarded one of them. A packet begins with a TTL of 64.
    most_hops: u8,
    /// IKE messages that are encrypted.
    ike_encrypted: u64,
    /// IKE_SA_INIT requests, without retransmissions.
    initial_requests: HashMap<u64, Sending>,
}

impl Oracle {
    /// Examines a frame.
    pub(crate) fn examine(&mut self, sending: Sending, frame: &[u8]) {
        if frame.windows(MARK.len()).any(|window| window == MARK) {
            self.find(sending, "a datagram of an inner host in clear".into());
        }
        let Some(packet) = frame.get(ETHERNET_LEN..).filter(|_| frame[12..14] == [8, 0]) else { return };
        let Ok(ip) = Ipv4::parse(packet) else {
            return self.find(sending, "an IPv4 packet that cannot be read".into());
        };
        let is_inner = |address: Ipv4Addr| address.octets()[0] == 10;
        if is_inner(ip.src()) || is_inner(ip.dst()) {
            self.find(sending, format!("a packet from {} to {} in clear", ip.src(), ip.dst()));
        }
        if ip.is_fragment() {
            return self.find(sending, "a fragment, which the oracle does not read".into());
        }
        let ends = (ip.src(), ip.dst());
        let (before, copies) = (self.first_esp, self.esp_copies);
        match ip.protocol() {
            proto::ESP => self.examine_esp(sending, ends, ip.payload()),
            proto::UDP => self.examine_udp(sending, ends, ip.payload()),
            _ => {}
        }
        if self.esp_copies > copies {
            self.most_hops = self.most_hops.max(64_u8.saturating_sub(ip.ttl()));
        }
        if self.first_esp > before && ip.dst() == OUTSIDE_VIRTUAL {
            self.recent.truncate(MAX_RECENT - 1);
            self.recent.push_front(frame.to_vec());
        }
    }

    fn examine_udp(&mut self, sending: Sending, ends: (Ipv4Addr, Ipv4Addr), datagram: &[u8]) {
        let Ok(udp) = Udp::parse(datagram) else {
            return self.find(sending, "a UDP datagram that cannot be read".into());
        };
        match [udp.src_port(), udp.dst_port()] {
            [4500, _] | [_, 4500] => match Natt::classify(udp.payload()) {
                Natt::Esp(packet) => self.examine_esp(sending, ends, packet),
                Natt::NonEsp(message) => self.examine_ike(sending, message),
                Natt::Keepalive => {}
                Natt::TooShort => self.find(sending, "a short datagram on port 4500".into()),
            },
            [500, _] | [_, 500] => self.examine_ike(sending, udp.payload()),
            _ => {}
        }
    }

    fn examine_esp(&mut self, sending: Sending, (src, dst): (Ipv4Addr, Ipv4Addr), packet: &[u8]) {
        let (Ok(header), Some(iv)) =
            (EspHeader::parse(packet), packet.get(8..).and_then(<[u8]>::first_chunk))
        else {
            return self.find(sending, "an ESP packet that cannot be read".into());
        };
        let digest = digest_of(packet);
        let used = self.esp.entry((src, dst, header.spi)).or_default();
        let (by_number, by_iv) = (
            *used.sequence.entry(header.seq).or_insert((sending, digest)),
            *used.ivs.entry(*iv).or_insert((sending, digest)),
        );
        if by_number.0 != sending && by_number.1 == digest {
            // A gateway that does not have the destination any more forwards a packet of its peer, or an
            // attacker replays it.
            self.esp_copies += 1;
            return;
        }
        self.first_esp += 1;
        *self.esp_packets.entry(sending.sender).or_default() += 1;
        self.last_esp.insert(sending.sender, sending.at);
        for (what, (earlier, of_earlier)) in [("sequence number", by_number), ("IV", by_iv)] {
            if of_earlier != digest {
                let number = header.seq;
                let packet = format!("ESP from {src} to {dst}, SPI {:#010x}, number {number}", header.spi);
                self.find(sending, format!("{packet}: the {what} was used {earlier:?}"));
            }
        }
    }

    fn examine_ike(&mut self, sending: Sending, datagram: &[u8]) {
        let Ok(message) = Message::parse(datagram) else {
            return self.find(sending, "an IKE message that cannot be read".into());
        };
        let header = *message.header();
        if header.exchange == ExchangeType::IKE_SA_INIT {
            if !header.flags.response {
                self.initial_requests.entry(header.spi_i.0).or_insert(sending);
            }
            return;
        }
        let Some(Ok(payload)) = message.payloads().last() else {
            return self.find(sending, format!("an IKE message without payloads: {header:?}"));
        };
        let fragment = match payload.kind {
            PayloadType::SK => 0,
            PayloadType::SKF => u16::from_be_bytes(payload.body.first_chunk().copied().unwrap_or_default()),
            // INVALID_SPI and the like, outside of an IKE SA (RFC 7296 section 2.21).
            _ => return,
        };
        let body = payload.body.get(if fragment == 0 { 0 } else { 4 }..).unwrap_or_default();
        let Some(iv) = body.first_chunk::<IV_LEN>() else {
            return self.find(sending, format!("an IKE message without an IV: {header:?}"));
        };
        self.ike_encrypted += 1;
        // The answer to a liveness check need not be recorded, so that two owners may encrypt it.
        let may_differ = header.exchange == ExchangeType::INFORMATIONAL && body.len() <= EMPTY_LEN;
        let digest = digest_of(datagram);
        let sent = || Sent { sending, digest, may_differ };
        let key = (header.spi_i.0, header.spi_r.0, header.flags.initiator);
        let name = format!("IKE message {} of {key:x?}", header.message_id);
        if let Some(earlier) = self.ike_ivs.insert((key, *iv), sent())
            && earlier.digest != digest
        {
            self.find(sending, format!("{name}: the IV was used for another message {:?}", earlier.sending));
        }
        let number = (key, header.message_id, header.flags.response, fragment);
        if let Some(earlier) = self.ike_messages.insert(number, sent())
            && earlier.digest != digest
            && !(may_differ && earlier.may_differ)
            // RFC 6311 section 4: a message about message IDs has the message ID 0.
            && header.message_id != 0
        {
            self.find(sending, format!("{name}: it was another message {:?}", earlier.sending));
        }
    }

    fn find(&mut self, sending: Sending, what: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(format!("{} at {:?}: {what}", sending.sender, sending.at));
        }
    }

    /// What should not have been sent.
    pub(crate) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// ESP packets that this port has sent, without those that it has forwarded.
    pub(crate) fn esp_packets(&self, sender: &str) -> u64 {
        self.esp_packets.get(sender).copied().unwrap_or(0)
    }

    /// Time of the last ESP packet of this port, after the start of the capture.
    pub(crate) fn last_esp(&self, sender: &str) -> Option<Duration> {
        self.last_esp.get(sender).copied()
    }

    /// The last frames with ESP for the cell, without copies of earlier ones.
    pub(crate) fn recent(&self) -> &VecDeque<Vec<u8>> {
        &self.recent
    }

    /// Number of ESP packets that were forwarded or replayed, and therefore seen twice.
    pub(crate) fn esp_copies(&self) -> u64 {
        self.esp_copies
    }

    /// Most hosts that have forwarded one ESP packet, one after the other.
    pub(crate) fn most_hops(&self) -> u8 {
        self.most_hops
    }

    /// Number of encrypted IKE messages.
    pub(crate) fn ike_encrypted(&self) -> u64 {
        self.ike_encrypted
    }

    /// Number of IKE SAs that any host has tried to set up.
    pub(crate) fn initial_requests(&self) -> usize {
        self.initial_requests.len()
    }

    /// Number of ESP SAs, one for each direction.
    pub(crate) fn esp_sas(&self) -> usize {
        self.esp.len()
    }

    /// Forgets the ESP SAs whose SPI is not in use any more: another SA may get it. Nothing of the old SAs
    /// may be on the way.
    pub(crate) fn forget_esp_except(&mut self, is_in_use: impl Fn(u32) -> bool) {
        self.esp.retain(|(_, _, spi), _| is_in_use(*spi));
    }
}

fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
