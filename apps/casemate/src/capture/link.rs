//! Link-layer headers: finds the IP packet in a captured frame (tcpdump.org/linktypes.html).

const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// Numbers of raw IP on BSD and OpenBSD.
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const LINUX_SLL: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const LINUX_SLL2: u16 = 276;

/// The supported link types, for messages.
const SUPPORTED: &str =
    "Ethernet (1), raw IP (101, 228, 229, 12, 14), Linux cooked (113, 276) or loopback (0, 108)";

/// Why a frame gives no IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotIp {
    /// The link type of the capture is not supported.
    LinkType(u16),
    /// The frame carries another protocol, such as ARP.
    Other,
    /// The frame is shorter than the IP packet, because it was captured in part.
    Cut {
        /// Captured bytes of the packet.
        captured: usize,
        /// Length of the packet in bytes.
        expected: usize,
    },
}

impl std::fmt::Display for NotIp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LinkType(link) => {
                write!(f, "frames of link type {link} are not supported: {SUPPORTED} was expected")
            }
            Self::Other => f.write_str("no IP packet"),
            Self::Cut { captured, expected } => {
                write!(f, "only {captured} of {expected} bytes were captured")
            }
        }
    }
}

/// Returns the IP packet in a frame, without link-layer header, padding and check sequence.
pub fn ip_packet(link: u16, frame: &[u8]) -> Result<&[u8], NotIp> {
    let packet = match link {
        ETHERNET => frame.get(12..).and_then(behind_ethertype),
        RAW | IPV4 | IPV6 | RAW_BSD | RAW_OPENBSD => Some(frame),
        LINUX_SLL => frame.get(14..).and_then(behind_ethertype),
        LINUX_SLL2 => {
            let kind = frame.get(..2).unwrap_or_default();
            frame.get(20..).filter(|_| matches!(kind, [0x08, 0x00] | [0x86, 0xDD]))
        }
        // Four bytes of address family in an unknown byte order; the version field of the packet gives
        // the same information.
        NULL | LOOP => frame.get(4..),
        _ => return Err(NotIp::LinkType(link)),
    };
    whole(packet.ok_or(NotIp::Other)?)
}

/// Returns the data after the EtherType at the start of `bytes`, past any VLAN tags (IEEE 802.1Q,
/// 802.1ad).
fn behind_ethertype(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (kind, rest) = bytes.split_first_chunk()?;
        match kind {
            [0x08, 0x00] | [0x86, 0xDD] => return Some(rest),
            [0x81, 0x00] | [0x88, 0xA8] | [0x91, 0x00] => bytes = rest.get(2..)?,
            _ => return None,
        }
    }
}

/// Removes trailing bytes after the packet, by the length in its header.
fn whole(bytes: &[u8]) -> Result<&[u8], NotIp> {
    let field = |at: usize| match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(field) => Ok(usize::from(u16::from_be_bytes(*field))),
        None => Err(NotIp::Cut { captured: bytes.len(), expected: 20 }),
    };
    let len = match bytes.first().map(|byte| byte >> 4) {
        // The length is 0 if the packet was captured before segmentation by the network card.
        Some(4) => Some(field(2)?).filter(|len| *len != 0).unwrap_or(bytes.len()),
        Some(6) => field(4)?.saturating_add(40),
        _ => return Err(NotIp::Other),
    };
    bytes.get(..len).ok_or(NotIp::Cut { captured: bytes.len(), expected: len })
}
