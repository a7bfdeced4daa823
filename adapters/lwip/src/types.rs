//! What passes between C and Rust: plain data, as in `include/casemate.h`.

use core::ffi::{c_char, c_void};

/// `casemate_address`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Address {
    /// 4 or 6; 0 is none.
    pub version: u8,
    /// In network order; IPv4 has the first four.
    pub bytes: [u8; 16],
}

/// `casemate_tables`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Tables {
    /// SAs, both directions together.
    pub sas: u32,
    /// Policies, in each direction.
    pub policies: u32,
    /// Remembered flows, in each direction.
    pub flows: u32,
    /// The largest anti-replay window, in packets.
    pub replay_window: u32,
    /// Packets that arrive as fragments and are put together, at once.
    pub arrivals: u32,
    /// Datagrams that were protected as fragments and are put together, at once.
    pub reassemblies: u32,
    /// The longest of both, in bytes.
    pub reassembly_bytes: u32,
    /// IKE SAs; 0 is a host without IKE.
    pub ike_sas: u32,
    /// Child SAs of one IKE SA.
    pub ike_children: u32,
}

/// `casemate_costs`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Costs {
    /// The host itself, with its flows and buffers.
    pub host: usize,
    /// Each SA.
    pub sa: usize,
    /// Each policy.
    pub policy: usize,
    /// Each IKE SA, with what a peer may have it keep.
    pub ike_sa: usize,
    /// Each Child SA, beside its SAs and policies.
    pub ike_child: usize,
    /// What one exchange of IKE may take while it lasts.
    pub ike_exchange: usize,
    /// Everything, with every table full.
    pub total: usize,
}

/// `casemate_random`: fills `bytes` bytes at `out` with unpredictable ones.
pub type Random = unsafe extern "C" fn(context: *mut c_void, out: *mut u8, bytes: usize);

/// `casemate_emit`: takes a fragment.
pub type Emit = unsafe extern "C" fn(context: *mut c_void, fragment: *const u8, bytes: usize);

/// `casemate_setup`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Setup {
    /// Sizes of the tables.
    pub tables: Tables,
    /// MTU of the link, in bytes.
    pub mtu: u32,
    /// `CASEMATE_DISCARD` or `CASEMATE_BYPASS`: for what no policy names.
    pub unmatched: u32,
    /// Randomness.
    pub random: Option<Random>,
    /// Handed to `random`.
    pub random_context: *mut c_void,
}

/// `casemate_sa`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sa {
    /// SPI, in host order; not 0.
    pub spi: u32,
    /// `CASEMATE_ESP` or `CASEMATE_AH`.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// Source: of a tunnel's outer header, or of the packets themselves.
    pub src: Address,
    /// Destination, likewise.
    pub dst: Address,
    /// Algorithms.
    pub suite: *const c_char,
    /// Key of the cipher, with its salt.
    pub encryption_key: *const u8,
    /// Its length.
    pub encryption_key_bytes: usize,
    /// Key of the MAC, with its salt.
    pub integrity_key: *const u8,
    /// Its length.
    pub integrity_key_bytes: usize,
    /// UDP encapsulation: source port, or 0.
    pub encap_src_port: u16,
    /// UDP encapsulation: destination port, or 0.
    pub encap_dst_port: u16,
    /// 1 for extended sequence numbers.
    pub esn: u32,
    /// Anti-replay window, in packets; 0 is none.
    pub replay_window: u32,
    /// The last number sent (or received, for an inbound SA); 0 for a new SA.
    pub last_sequence: u64,
    /// Ties policies to this SA; 0 ties to none in particular.
    pub reqid: u32,
    /// 1 for AH that is padded to 8 bytes in IPv4 as well, as Linux does.
    pub ah_align8: u32,
}

/// `casemate_template`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Template {
    /// `CASEMATE_ESP` or `CASEMATE_AH`; 0 is none.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// Source of the SA; version 0 is any.
    pub src: Address,
    /// Destination of the SA; version 0 is any.
    pub dst: Address,
    /// The SA's; 0 is any.
    pub reqid: u32,
}

/// `casemate_policy`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Policy {
    /// Source addresses: the first.
    pub src_first: Address,
    /// The last.
    pub src_last: Address,
    /// Destination addresses: the first.
    pub dst_first: Address,
    /// The last.
    pub dst_last: Address,
    /// Upper protocol; -1 is any.
    pub upper: i32,
    /// Source ports, or ICMP types.
    pub src_port_first: u16,
    /// The last.
    pub src_port_last: u16,
    /// Destination ports, or ICMP codes.
    pub dst_port_first: u16,
    /// The last.
    pub dst_port_last: u16,
    /// The lowest is asked first.
    pub priority: u32,
    /// `CASEMATE_DISCARD`, `CASEMATE_BYPASS` or `CASEMATE_PROTECT`.
    pub action: u32,
    /// For `CASEMATE_PROTECT`: the SA that it takes.
    pub sa: Template,
    /// A second SA around the first.
    pub around: Template,
}

/// `casemate_packet`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PacketRef {
    /// The storage.
    pub buffer: *mut u8,
    /// Its length.
    pub size: usize,
    /// Where the IP packet begins in it.
    pub start: usize,
    /// Length of the packet.
    pub len: usize,
    /// The longest piece that the path takes; 0 where the packet is short enough.
    pub cut_to: usize,
}

/// `CASEMATE_ESP`.
pub const ESP: u32 = 50;
/// `CASEMATE_AH`.
pub const AH: u32 = 51;
/// `CASEMATE_TRANSPORT`.
pub const TRANSPORT: u32 = 1;
/// `CASEMATE_TUNNEL`.
pub const TUNNEL: u32 = 2;
/// `CASEMATE_DISCARD`.
pub const DISCARD: u32 = 1;
/// `CASEMATE_BYPASS`.
pub const BYPASS: u32 = 2;
/// `CASEMATE_PROTECT`.
pub const PROTECT: u32 = 3;
/// `CASEMATE_OUT`.
pub const OUT: u32 = 1;
/// `CASEMATE_IN`.
pub const IN: u32 = 2;
/// `CASEMATE_AH_ROOM`: the upper half of an extended sequence number (RFC 4302 section 2.5.1).
pub const AH_ROOM: u32 = 4;
/// `CASEMATE_DROPPED`: the packet ends here.
pub const DROPPED: i32 = 0;
/// `CASEMATE_CLEAR`: policy lets it pass as it is.
pub const CLEAR: i32 = 1;
/// `CASEMATE_CHANGED`: it was protected, or opened; the `casemate_packet` says where it is now.
pub const CHANGED: i32 = 2;
/// `CASEMATE_CONSUMED`: nothing is to be delivered, and rightly so.
pub const CONSUMED: i32 = 3;
