//! The description of one SA, as its creator passes it to the data path.

use crate::{AddrPair, DscpSet, Lifetime, Selector};
use casemate_crypto::{AhSuite, EspSuite, MacAlg, SecretBytes};
use casemate_rohc::ChannelParams;
use casemate_wire::ah::Align;
use casemate_wire::ip::IpVersion;
use core::fmt;
use core::net::IpAddr;
use core::num::NonZeroU32;

/// An SPI, never zero: zero is for local use and never sent (RFC 4303 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(NonZeroU32);

impl Spi {
    /// The SPI with this value; `None` for zero.
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The value in the packet.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether IANA reserves the value (1 to 255). Such an SPI is valid, but should not be chosen.
    pub const fn is_reserved(self) -> bool {
        self.get() < 256
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.get())
    }
}

/// ESP or AH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
    /// Authentication Header (RFC 4302).
    Ah,
}

impl Protocol {
    /// IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Esp => "esp",
            Self::Ah => "ah",
        })
    }
}

/// Transport or tunnel (RFC 4301 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Protects the payload between the SA's two addresses.
    Transport,
    /// Protects whole packets inside an outer header between the SA's two addresses.
    Tunnel,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transport => "transport",
            Self::Tunnel => "tunnel",
        })
    }
}

/// UDP encapsulation of ESP (RFC 3948).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpEncap {
    /// Source port of the SA's packets.
    pub src_port: u16,
    /// Destination port of the SA's packets.
    pub dst_port: u16,
}

/// How to set the DSCP of a tunnel's outer header (RFC 4301 section 5.1.2.1 notes 3 and 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DscpPolicy {
    /// Copied from the inner header.
    Copy,
    /// A fixed value (6 bits).
    Set(u8),
}

/// How to set the DF bit of a tunnel's outer IPv4 header (RFC 4301 section 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DfPolicy {
    /// Copied from the inner header; set for an inner IPv6 packet, which routers never fragment.
    Copy,
    /// Always set.
    Set,
    /// Always clear.
    Clear,
}

/// Fields of a tunnel's outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OuterHeader {
    /// DSCP.
    pub dscp: DscpPolicy,
    /// The DF bit.
    pub df: DfPolicy,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Whether the tunnel carries ECN (RFC 6040 normal mode); `false` is compatibility mode.
    pub ecn: bool,
}

impl Default for OuterHeader {
    fn default() -> Self {
        Self { dscp: DscpPolicy::Copy, df: DfPolicy::Copy, ttl: 64, ecn: true }
    }
}

/// Algorithms with their keys. Key material has the layout of IKEv2 and Linux: the key, then the salt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transform {
    /// ESP.
    Esp {
        /// Algorithms.
        suite: EspSuite,
        /// Cipher key and salt (RFC 4106 section 8.1, RFC 3686 section 5.1).
        encr: SecretBytes,
        /// MAC key (and salt for GMAC); empty for a combined-mode suite.
        integ: SecretBytes,
    },
    /// AH.
    Ah {
        /// Algorithm.
        suite: AhSuite,
        /// MAC key (and salt for GMAC).
        integ: SecretBytes,
    },
}

impl Transform {
    /// The protocol of the SA.
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Esp { .. } => Protocol::Esp,
            Self::Ah { .. } => Protocol::Ah,
        }
    }

    /// Whether an IV must never repeat under the key, not even after a restart.
    pub const fn iv_is_counter(&self) -> bool {
        match self {
            Self::Esp { suite, .. } => suite.iv_is_counter(),
            Self::Ah { suite, .. } => suite.0.takes_nonce(),
        }
    }

    /// The key and salt under which no IV may repeat, laid out as key, then salt; `None` if the IVs are not
    /// counters.
    ///
    /// The key stream of AES-GCM, AES-CTR and AES-GMAC depends only on these bytes and the IV, not on the
    /// integrity key, the ICV length or the algorithm (RFC 3686 section 2.1, RFC 4106 section 3, RFC 4543
    /// section 3.1).
    pub fn counter_key(&self) -> Option<&SecretBytes> {
        if !self.iv_is_counter() {
            return None;
        }
        Some(match self {
            Self::Esp { encr, .. } if !encr.is_empty() => encr,
            Self::Esp { integ, .. } | Self::Ah { integ, .. } => integ,
        })
    }
}

/// Header compression of an ESP SA in tunnel mode (RFC 5858 section 3.2). Both directions of an SA pair have
/// their own parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RohcParams {
    /// Capabilities of the decompressor: of the peer for an outbound SA, of this host for an inbound one.
    pub channel: ChannelParams,
    /// Outbound only: largest context identifier that the compressor uses. What the peer can do must not
    /// decide how much memory this host uses.
    pub max_cid: u16,
    /// How restored packets are verified besides by the CRCs of ROHC; `None`: not at all.
    pub integrity: Option<RohcIntegrity>,
}

/// The ROHC ICV (RFC 5858 section 4.2): it covers the whole packet before compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RohcIntegrity {
    /// Algorithm; one that takes no nonce.
    pub algorithm: MacAlg,
    /// Key.
    pub key: SecretBytes,
    /// Length of the ICV in bytes, at most that of the algorithm's own, and not 0.
    pub icv_len: u8,
}

impl RohcParams {
    /// Length in bytes of the ROHC ICV; 0 if there is none.
    pub fn icv_len(&self) -> usize {
        self.integrity.as_ref().map_or(0, |integrity| integrity.icv_len.into())
    }
}

/// Default anti-replay window in packets. RFC 4303 section 3.4.3: 64 SHOULD be the default.
const REPLAY_WINDOW: u32 = 64;

/// Parameters of one SA in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaParams {
    /// SPI, chosen by the receiver.
    pub spi: Spi,
    /// Source address: of the tunnel's outer header, or of the host in transport mode.
    pub src: IpAddr,
    /// Destination address, likewise.
    pub dst: IpAddr,
    /// Algorithms and keys.
    pub transform: Transform,
    /// Transport or tunnel.
    pub mode: Mode,
    /// UDP encapsulation; ESP only.
    pub encap: Option<UdpEncap>,
    /// The addresses as the sending peer sees them, if there is a NAT (RFC 7296 section 2.23.1).
    /// Inbound transport mode only: checksums are updated from these addresses to those of the packet (RFC
    /// 3948 section 3.1.2).
    pub original_addrs: Option<AddrPair>,
    /// Whether the SA has extended (64-bit) sequence numbers (RFC 4303 section 2.2.1).
    pub esn: bool,
    /// Anti-replay window in packets; 0 disables the check.
    pub replay_window: u32,
    /// The last sequence number already sent on the SA; 0 for a new SA.
    pub last_sent: u64,
    /// The highest sequence number already received on the SA; 0 for a new SA.
    pub last_received: u64,
    /// Traffic that the SA may carry; `None` if only policies restrict it.
    pub selector: Option<Selector>,
    /// DSCPs of the outgoing packets that prefer this SA to others for the same traffic; empty for any. Not
    /// checked for incoming packets (RFC 4301 section 4.4.2.1).
    pub dscp: DscpSet,
    /// When the SA ends.
    pub lifetime: Lifetime,
    /// Connects the SA with the templates of policies; 0 is no particular one.
    pub reqid: u32,
    /// Pads the payload of each packet to a multiple of this many bytes, to hide lengths (RFC 4303 section
    /// 2.7); 0 disables padding. Tunnel mode only.
    pub tfc_pad_to: u16,
    /// Outer header of a tunnel.
    pub outer: OuterHeader,
    /// Alignment of AH with IPv4: 4 bytes in the RFC, 8 in Linux without the flag `align4`. IPv6 has 8.
    pub ah_align: Align,
    /// Header compression; `None`: packets are sent as they are. ESP in tunnel mode only.
    pub rohc: Option<RohcParams>,
}

impl SaParams {
    /// A new SA between two addresses (source, destination) with defaults for all other fields.
    ///
    /// Defaults: no UDP encapsulation, 32-bit sequence numbers from the start, an anti-replay window of 64
    /// packets, no selector, any DSCP, unbounded lifetime, no reqid, no traffic-flow padding, the default
    /// outer header, the AH alignment of RFC 4302 section 3.3.3.2.1, and no header compression.
    pub fn new(spi: Spi, src: IpAddr, dst: IpAddr, mode: Mode, transform: Transform) -> Self {
        Self {
            spi,
            src,
            dst,
            transform,
            mode,
            encap: None,
            original_addrs: None,
            esn: false,
            replay_window: REPLAY_WINDOW,
            last_sent: 0,
            last_received: 0,
            selector: None,
            dscp: DscpSet::NONE,
            lifetime: Lifetime::UNBOUNDED,
            reqid: 0,
            tfc_pad_to: 0,
            outer: OuterHeader::default(),
            ah_align: Align::of(if src.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }),
            rohc: None,
        }
    }
}
