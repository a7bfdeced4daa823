//! What was on the wire: records every frame, and sorts them by what anybody there could learn.

use super::host::{Host, WIRE};
use crate::capture::{Writer, ip_packet};
use crate::failure::Failure;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::Capture;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LINK_ETHERNET: u16 = 1;
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// After so long without a frame, nothing more is to come.
const QUIET: Duration = Duration::from_millis(30);

/// What a frame is to somebody on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Esp,
    /// IKEv2 (RFC 7296): from or to one of its ports.
    Ike,
    Arp,
    /// Neighbour and router discovery (RFC 4861 section 4), without which an Ethernet carries no IPv6.
    Neighbour,
    /// Multicast listener reports (RFC 3810), a part of neighbour discovery's setting up.
    Listener,
    /// An ICMP error that quotes an ESP packet or an IKE message, from a host that has no use for it.
    Refused,
    /// Anything else.
    Clear,
}

impl Kind {
    /// Sorts a frame.
    pub(super) fn of(frame: &[u8]) -> Self {
        if frame.get(12..14) == Some(&ETHERTYPE_ARP) {
            return Self::Arp;
        }
        let packet = ip_packet(LINK_ETHERNET, frame).unwrap_or_default();
        match version(packet) {
            Ok(IpVersion::V4) => Self::of_v4(packet).unwrap_or(Self::Clear),
            Ok(IpVersion::V6) => Self::of_v6(packet).unwrap_or(Self::Clear),
            Err(_) => Self::Clear,
        }
    }

    fn of_v4(packet: &[u8]) -> Option<Self> {
        const UNREACHABLE: u8 = 3;
        let ip = Ipv4::parse(packet).ok()?;
        match ip.protocol() {
            proto::ESP => Some(Self::Esp),
            proto::UDP if is_ike(ip.payload()) => Some(Self::Ike),
            proto::ICMP if ip.payload().first() == Some(&UNREACHABLE) => {
                let quoted = Ipv4::parse_quoted(ip.payload().get(8..)?).ok()?;
                is_ours(quoted.protocol(), quoted.payload()).then_some(Self::Refused)
            }
            _ => None,
        }
    }

    fn of_v6(packet: &[u8]) -> Option<Self> {
        const HOP_BY_HOP_LEN: usize = 8;
        let ip = Ipv6::parse(packet).ok()?;
        let (next, payload) = match (ip.next_header(), ip.payload()) {
            // Before listener reports stands a router alert option.
            (proto::HOP_BY_HOP, [next, 0, ..]) => (*next, ip.payload().get(HOP_BY_HOP_LEN..)?),
            (next, payload) => (next, payload),
        };
        match (next, payload.first()?) {
            (proto::ESP, _) => Some(Self::Esp),
            (proto::UDP, _) if is_ike(payload) => Some(Self::Ike),
            (proto::ICMPV6, 133..=137) => Some(Self::Neighbour),
            (proto::ICMPV6, 130..=132 | 143) => Some(Self::Listener),
            (proto::ICMPV6, 1 | 4) => {
                let quoted = Ipv6::parse_quoted(payload.get(8..)?).ok()?;
                is_ours(quoted.next_header(), quoted.payload()).then_some(Self::Refused)
            }
            _ => None,
        }
    }
}

/// Whether a UDP datagram, or the start of one, is between two ports of IKE, of which the second is shared with ESP.
fn is_ike(datagram: &[u8]) -> bool {
    const PORTS: [u16; 2] = [500, 4500];
    let is_port = |bytes: &[u8; 2]| PORTS.contains(&u16::from_be_bytes(*bytes));
    datagram.as_chunks::<2>().0.get(..2).is_some_and(|ports| ports.iter().all(is_port))
}

/// Whether a packet is one that Casemate sends.
fn is_ours(protocol: u8, payload: &[u8]) -> bool {
    protocol == proto::ESP || (protocol == proto::UDP && is_ike(payload))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Esp => "ESP",
            Self::Ike => "IKEv2",
            Self::Arp => "ARP",
            Self::Neighbour => "IPv6 neighbour discovery",
            Self::Listener => "IPv6 multicast listeners",
            Self::Refused => "ICMP errors about them",
            Self::Clear => "in clear",
        })
    }
}

/// A recording under way.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<Recording>>,
}

impl Recorder {
    /// Listens at the host's end of the cable.
    pub(super) fn start(host: &Host) -> Result<Self, Failure> {
        let open = || Capture::open(Netlink::open()?.link(WIRE)?.index);
        let capture = host.run(open)?.map_err(Failure::failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .spawn(move || record(&capture, &stopped))
            .map_err(|error| Failure::failed(format!("recorder: {error}")))?;
        Ok(Self { stop, thread })
    }

    /// Ends when the wire is quiet.
    pub(super) fn finish(self) -> Result<Recording, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let recording = self.thread.join().map_err(|_| Failure::failed("recorder: panicked"))?;
        recording.map_err(|error| Failure::failed(format!("recorder: {error}")))
    }
}

fn record(capture: &Capture, stop: &AtomicBool) -> std::io::Result<Recording> {
    // Segments that are to be cut by the network card come in one piece.
    let mut buffer = vec![0; 1 << 17];
    let mut frames = Vec::new();
    loop {
        match capture.next(&mut buffer, QUIET)? {
            Some(len) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                frames.push((nanos, buffer.get(..len).unwrap_or_default().to_vec()));
            }
            None if stop.load(Ordering::SeqCst) => break,
            None => {}
        }
    }
    Ok(Recording { frames, lost: capture.lost()? })
}

/// Every frame of a while, with the time it was heard: nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Recording {
    frames: Vec<(u64, Vec<u8>)>,
    /// Frames that were not recorded because there was no room.
    pub(super) lost: u32,
}

impl Recording {
    /// How many frames of each kind.
    pub(super) fn kinds(&self) -> BTreeMap<Kind, usize> {
        let mut kinds = BTreeMap::new();
        for (_, frame) in &self.frames {
            let count: &mut usize = kinds.entry(Kind::of(frame)).or_default();
            *count = count.saturating_add(1);
        }
        kinds
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.kinds().get(&kind).copied().unwrap_or(0)
    }

    /// How many frames hold `text`.
    pub(super) fn holding(&self, text: &str) -> usize {
        self.frames.iter().filter(|(_, frame)| contains(frame, text)).count()
    }

    /// How many frames of this kind come from `addr`.
    pub(super) fn clear_from(&self, addr: IpAddr) -> usize {
        let from = |frame: &&Vec<u8>| source(frame) == Some(addr) && Kind::of(frame) == Kind::Clear;
        self.frames.iter().map(|(_, frame)| frame).filter(from).count()
    }

    /// `12 packets: 8 ESP, 2 ARP, 2 IPv6 neighbour discovery`
    pub(super) fn summary(&self) -> String {
        let kinds: Vec<String> = self.kinds().iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        match self.frames.len() {
            0 => "no packet".into(),
            len => format!("{len} packet{}: {}", if len == 1 { "" } else { "s" }, kinds.join(", ")),
        }
    }

    /// Writes the IP packets as a capture file, which has no place for ARP.
    pub(super) fn write(&self, out: impl Write) -> std::io::Result<()> {
        let mut writer = Writer::new(out)?;
        for (nanos, frame) in &self.frames {
            if let Ok(packet) = ip_packet(LINK_ETHERNET, frame) {
                writer.packet(*nanos, packet, &Kind::of(frame).to_string())?;
            }
        }
        writer.finish()
    }
}

fn source(frame: &[u8]) -> Option<IpAddr> {
    let packet = ip_packet(LINK_ETHERNET, frame).ok()?;
    match version(packet).ok()? {
        IpVersion::V4 => Ipv4::parse(packet).ok().map(|ip| ip.src().into()),
        IpVersion::V6 => Ipv6::parse(packet).ok().map(|ip| ip.src().into()),
    }
}

/// Whether `text` is in `bytes` as it stands.
pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests;
