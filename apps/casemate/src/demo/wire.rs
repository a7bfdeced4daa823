//! The capture of the wire: records every frame and classifies it by what an eavesdropper can learn. `--keep`
//! saves the captures and the keys.

use super::host::{Host, WIRE};
use crate::capture::{CaptureWriter, ip_packet};
use crate::failure::Failure;
use crate::output::print;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

const LINK_ETHERNET: u16 = 1;
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Time without a frame after which the wire counts as quiet.
const QUIET: Duration = Duration::from_millis(30);

/// The class of a frame for an eavesdropper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameKind {
    Esp,
    /// ESP between two ports of IKE (RFC 3948).
    EspInUdp,
    /// IKEv2 (RFC 7296), between two of its ports.
    Ike,
    Arp,
    /// Neighbour and router discovery (RFC 4861 section 4), which IPv6 needs on Ethernet.
    Neighbour,
    /// Multicast listener reports (RFC 3810), which neighbour discovery sends.
    Listener,
    /// An ICMP error that quotes an ESP packet or an IKE message, from a host without a running Casemate.
    Refused,
    /// Any other frame.
    Clear,
}

impl FrameKind {
    /// Classifies a frame.
    pub(super) fn classify(frame: &[u8]) -> Self {
        if frame.get(12..14) == Some(&ETHERTYPE_ARP) {
            return Self::Arp;
        }
        let Ok(packet) = ip_packet(LINK_ETHERNET, frame) else { return Self::Clear };
        let known = match version(packet) {
            Ok(IpVersion::V4) => Self::classify_v4(packet),
            Ok(IpVersion::V6) => Self::classify_v6(packet),
            Err(_) => None,
        };
        known.unwrap_or(Self::Clear)
    }

    fn classify_v4(packet: &[u8]) -> Option<Self> {
        const UNREACHABLE: u8 = 3;
        let ip = Ipv4::parse(packet).ok()?;
        match ip.protocol() {
            proto::ESP => Some(Self::Esp),
            proto::UDP => Self::classify_udp(ip.payload()),
            proto::ICMP if ip.payload().first() == Some(&UNREACHABLE) => {
                let quoted = Ipv4::parse_quoted(ip.payload().get(8..)?).ok()?;
                is_ours(quoted.protocol(), quoted.payload()).then_some(Self::Refused)
            }
            _ => None,
        }
    }

    fn classify_v6(packet: &[u8]) -> Option<Self> {
        const HOP_BY_HOP_LEN: usize = 8;
        let ip = Ipv6::parse(packet).ok()?;
        let (next, payload) = match (ip.next_header(), ip.payload()) {
            // A router alert option precedes listener reports.
            (proto::HOP_BY_HOP, [next, 0, ..]) => (*next, ip.payload().get(HOP_BY_HOP_LEN..)?),
            (next, payload) => (next, payload),
        };
        match (next, payload.first()?) {
            (proto::ESP, _) => Some(Self::Esp),
            (proto::UDP, _) => Self::classify_udp(payload),
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

impl FrameKind {
    /// On port 4500, four zero bytes come before an IKE message, and an SPI before ESP is not zero.
    fn classify_udp(datagram: &[u8]) -> Option<Self> {
        const ENCAPSULATED: [u8; 4] = [0x11, 0x94, 0x11, 0x94];
        let has_spi = datagram.get(8..12).is_some_and(|spi| spi != [0; 4]);
        match datagram.starts_with(&ENCAPSULATED) && has_spi {
            true => Some(Self::EspInUdp),
            false => is_ike(datagram).then_some(Self::Ike),
        }
    }
}

/// Whether a UDP datagram, or the start of one, is between two IKE ports, the second of which is shared
/// with ESP.
fn is_ike(datagram: &[u8]) -> bool {
    const PORTS: [u16; 2] = [500, 4500];
    let is_port = |bytes: &[u8; 2]| PORTS.contains(&u16::from_be_bytes(*bytes));
    datagram.as_chunks::<2>().0.get(..2).is_some_and(|ports| ports.iter().all(is_port))
}

/// Whether Casemate sends packets of this kind.
fn is_ours(protocol: u8, payload: &[u8]) -> bool {
    protocol == proto::ESP || (protocol == proto::UDP && is_ike(payload))
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Esp => "ESP",
            Self::EspInUdp => "ESP in UDP",
            Self::Ike => "IKEv2",
            Self::Arp => "ARP",
            Self::Neighbour => "IPv6 neighbour discovery",
            Self::Listener => "IPv6 multicast listeners",
            Self::Refused => "ICMP errors about them",
            Self::Clear => "in clear",
        })
    }
}

/// A capture in progress.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<Recording>>,
}

impl Recorder {
    /// Starts capturing at the host's end of the cable.
    pub(super) fn start(host: &Host) -> Result<Self, Failure> {
        let open = || FrameCapture::open(Netlink::open()?.link(WIRE)?.index);
        let capture = host.run(open)?.map_err(Failure::failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .spawn(move || record(&capture, &stopped))
            .map_err(|error| Failure::failed(format!("recorder: {error}")))?;
        Ok(Self { stop, thread })
    }

    /// Stops the capture when the wire is quiet.
    pub(super) fn finish(self) -> Result<Recording, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let recording = self.thread.join().map_err(|_| Failure::failed("recorder: panicked"))?;
        recording.map_err(|error| Failure::failed(format!("recorder: {error}")))
    }
}

fn record(capture: &FrameCapture, stop: &AtomicBool) -> std::io::Result<Recording> {
    // Segments with offload to the network card arrive unsegmented.
    let mut buffer = vec![0; 1 << 17];
    let mut frames = Vec::new();
    loop {
        match capture.next(&mut buffer, QUIET)? {
            Some(len) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                let frame = buffer.get(..len).or_broken_default("a received frame is inside its buffer");
                frames.push(RecordedFrame { nanos, data: frame.to_vec() });
            }
            None if stop.load(Ordering::SeqCst) => break,
            None => {}
        }
    }
    Ok(Recording { frames, lost: capture.lost()? })
}

/// A frame with its link-layer header.
#[derive(Debug)]
struct RecordedFrame {
    /// Time in nanoseconds since 1970.
    nanos: u64,
    data: Vec<u8>,
}

/// The captured frames.
#[derive(Debug)]
pub(super) struct Recording {
    frames: Vec<RecordedFrame>,
    /// Frames that were lost for lack of buffer space.
    pub(super) lost: u32,
}

impl Recording {
    /// Number of frames of each kind.
    pub(super) fn kinds(&self) -> BTreeMap<FrameKind, usize> {
        let mut kinds = BTreeMap::new();
        for frame in &self.frames {
            let count: &mut usize = kinds.entry(FrameKind::classify(&frame.data)).or_default();
            *count = count.saturating_add(1);
        }
        kinds
    }

    pub(super) fn count(&self, kind: FrameKind) -> usize {
        self.kinds().get(&kind).copied().unwrap_or(0)
    }

    /// Number of frames that contain `text`.
    pub(super) fn frames_with(&self, text: &str) -> usize {
        self.frames.iter().filter(|frame| contains(&frame.data, text)).count()
    }

    /// Number of cleartext frames from `addr`.
    pub(super) fn clear_from(&self, addr: IpAddr) -> usize {
        let from = |frame: &&RecordedFrame| {
            source(&frame.data) == Some(addr) && FrameKind::classify(&frame.data) == FrameKind::Clear
        };
        self.frames.iter().filter(from).count()
    }

    /// For example `12 packets: 8 ESP, 2 ARP, 2 IPv6 neighbour discovery`.
    pub(super) fn summary(&self) -> String {
        let kinds: Vec<String> = self.kinds().iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        match self.frames.len() {
            0 => "no packet".into(),
            len => format!("{len} packet{}: {}", if len == 1 { "" } else { "s" }, kinds.join(", ")),
        }
    }

    /// Writes the IP packets as a capture file; ARP frames are left out.
    pub(super) fn write(&self, out: impl Write) -> std::io::Result<()> {
        let mut writer = CaptureWriter::new(out)?;
        for RecordedFrame { nanos, data } in &self.frames {
            if let Ok(packet) = ip_packet(LINK_ETHERNET, data) {
                writer.packet(*nanos, packet, &FrameKind::classify(data).to_string())?;
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

/// Whether `bytes` contains `text`.
pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A file of the demo, and its name in the directory of `--keep`.
struct SavedFile {
    from: &'static str,
    to: &'static str,
}

/// The saved files. The keys of the right host are those of both.
const FILES: [SavedFile; 5] = [
    SavedFile { from: "left/swanctl.conf", to: "left.conf" },
    SavedFile { from: "right/swanctl.conf", to: "right.conf" },
    SavedFile { from: "right/keys/states.xfrm", to: "states.xfrm" },
    SavedFile { from: "right/keys/ikev2_decryption_table", to: "ikev2_decryption_table" },
    SavedFile { from: "right/keys/esp_sa", to: "esp_sa" },
];

/// The destination files, open for writing.
pub(super) struct Keep {
    directory: PathBuf,
    clear: File,
    wire: File,
    /// In the order of [`FILES`].
    kept: Vec<File>,
}

impl Keep {
    /// Makes the directory and the files. The files contain keys, so only this user may read them.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::failed(format!("{}: {error}", directory.display()));
        fs::create_dir_all(directory).map_err(failed)?;
        let create = |name: &str| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let path = directory.join(name);
            options.open(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        };
        Ok(Self {
            clear: create("clear.pcapng")?,
            wire: create("wire.pcapng")?,
            kept: FILES.iter().map(|file| create(file.to)).collect::<Result<Vec<_>, _>>()?,
            directory: directory.into(),
        })
    }

    /// Writes the files and prints commands to examine them.
    pub(super) fn fill(mut self, scratch: &Path, clear: &Recording, wire: &Recording) -> Result<(), Failure> {
        let mut write = || -> io::Result<()> {
            clear.write(BufWriter::new(&self.clear))?;
            wire.write(BufWriter::new(&self.wire))?;
            for (saved, file) in FILES.iter().zip(&mut self.kept) {
                file.write_all(&Zeroizing::new(fs::read(scratch.join(saved.from))?))?;
            }
            Ok(())
        };
        let dir = self.directory.display();
        write().map_err(|error| Failure::failed(format!("{dir}: {error}")))?;
        print(&format!(
            "Saved in {dir}: the captures in clear and protected, the configurations of both hosts, and \
             the keys. Commands to examine them:\n  \
             casemate inspect {dir}/wire.pcapng --xfrm {dir}/states.xfrm --ike-keys {dir}/ikev2_decryption_table\n  \
             tcpdump -r {dir}/clear.pcapng -A\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, (20 + payload.len()) as u8, 0, 1, 0, 0, 64, protocol, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
        packet.extend([0xfd; 32]);
        packet.extend(payload);
        packet
    }

    fn kind(ethertype: u16, packet: &[u8]) -> FrameKind {
        let mut frame = vec![0; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        FrameKind::classify(&frame)
    }

    #[test]
    fn every_frame_except_known_overhead_is_clear() {
        let (four, six) = (0x0800, 0x86dd);
        let quoting = |kind: u8, quoted: Vec<u8>| [vec![kind, 2, 0, 0, 0, 0, 0, 0], quoted].concat();
        assert_eq!(kind(0x0806, &[0; 28]), FrameKind::Arp);
        assert_eq!(kind(four, &v4(50, &[1; 40])), FrameKind::Esp);
        assert_eq!(kind(six, &v6(50, &[1; 40])), FrameKind::Esp);
        let ike = [1, 244, 1, 244, 0, 16, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!([kind(four, &v4(17, &ike)), kind(six, &v6(17, &ike))], [FrameKind::Ike; 2]);
        let with_spi = |spi: u8| [17, 148, 17, 148, 0, 16, 0, 0, 0, 0, 0, spi, 1, 1, 1, 1];
        assert_eq!(
            [1, 0].map(|spi| kind(four, &v4(17, &with_spi(spi)))),
            [FrameKind::EspInUdp, FrameKind::Ike]
        );
        assert_eq!(
            [1, 0].map(|spi| kind(six, &v6(17, &with_spi(spi)))),
            [FrameKind::EspInUdp, FrameKind::Ike]
        );
        assert_eq!(kind(six, &v6(58, &[135, 0, 0, 0])), FrameKind::Neighbour);
        assert_eq!(kind(six, &v6(0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0])), FrameKind::Listener);
        assert_eq!(kind(four, &v4(1, &quoting(3, v4(50, &[0; 8])))), FrameKind::Refused);
        assert_eq!(kind(six, &v6(58, &quoting(4, v6(50, &[0; 8])))), FrameKind::Refused);
        for protocol in [1, 4, 6, 17, 41, 47, 51, 58] {
            assert_eq!(kind(four, &v4(protocol, &[8; 40])), FrameKind::Clear, "{protocol}");
            assert_eq!(kind(six, &v6(protocol, &[128; 40])), FrameKind::Clear, "{protocol}");
        }
        assert_eq!(kind(four, &v4(1, &quoting(3, v4(6, &[0; 8])))), FrameKind::Clear);
        assert_eq!(kind(six, &v6(58, &quoting(1, v6(6, &[0; 8])))), FrameKind::Clear);
        assert_eq!(kind(six, &v6(0, &[6, 0, 5, 2, 0, 0, 1, 0, 143, 0])), FrameKind::Clear);
        assert_eq!(kind(0x88cc, &[0; 40]), FrameKind::Clear);
        assert_eq!(FrameKind::classify(&[]), FrameKind::Clear);
    }

    #[test]
    fn text_is_found_at_any_position() {
        let frames = ["...midnight", "midnight", "midnigh"]
            .map(|text| RecordedFrame { nanos: 0, data: text.as_bytes().to_vec() })
            .into();
        let recording = Recording { frames, lost: 0 };
        assert_eq!(recording.frames_with("midnight"), 2);
        assert_eq!(recording.summary(), "3 packets: 3 in clear");
    }
}
