//! C types, as declared in `include/casemate.h`.

use core::ffi::{c_char, c_void};

/// `casemate_address`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Address {
    /// IP version: 4 or 6; 0 for none.
    pub version: u8,
    /// Address in network byte order; IPv4 uses the first four bytes.
    pub bytes: [u8; 16],
}

/// `casemate_tables`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Tables {
    /// SAs in both directions.
    pub sas: u32,
    /// Policies per direction.
    pub policies: u32,
    /// Cached flow decisions per direction.
    pub flows: u32,
    /// Maximum anti-replay window in packets.
    pub replay_window: u32,
    /// Concurrent reassemblies of packets from the link.
    pub arrivals: u32,
    /// Concurrent reassemblies of fragments received through SAs.
    pub reassemblies: u32,
    /// Maximum length of a reassembled datagram in bytes.
    pub reassembly_bytes: u32,
    /// IKE SAs; 0 for a host without IKE.
    pub ike_sas: u32,
    /// Child SAs per IKE SA.
    pub ike_children: u32,
}

/// `casemate_costs`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Costs {
    /// The host with its flows and buffers.
    pub host: usize,
    /// One SA.
    pub sa: usize,
    /// One policy.
    pub policy: usize,
    /// One IKE SA, including state that a peer can make it keep.
    pub ike_sa: usize,
    /// One Child SA, without its SAs and policies.
    pub ike_child: usize,
    /// Memory that one IKE exchange needs temporarily.
    pub ike_exchange: usize,
    /// Total with all tables full.
    pub total: usize,
}

/// `casemate_random_fn`: fills `bytes` bytes at `out` with random data.
pub type RandomFn = unsafe extern "C" fn(context: *mut c_void, out: *mut u8, bytes: usize);

/// `casemate_emit_fn`: receives a fragment.
pub type EmitFn = unsafe extern "C" fn(context: *mut c_void, fragment: *const u8, bytes: usize);

/// `casemate_setup`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Setup {
    /// Sizes of the tables.
    pub tables: Tables,
    /// MTU of the link, in bytes.
    pub mtu: u32,
    /// Action for packets that match no policy: `CASEMATE_DISCARD` or `CASEMATE_BYPASS`.
    pub unmatched: u32,
    /// Random number generator.
    pub random: Option<RandomFn>,
    /// Argument of `random`.
    pub random_context: *mut c_void,
}

/// `casemate_sa`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sa {
    /// SPI in host byte order; not 0.
    pub spi: u32,
    /// `CASEMATE_ESP` or `CASEMATE_AH`.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// Source address: of the outer header in tunnel mode, of the packets in transport mode.
    pub src: Address,
    /// Destination address, likewise.
    pub dst: Address,
    /// Name of the suite.
    pub suite: *const c_char,
    /// Encryption key, with the salt.
    pub encryption_key: *const u8,
    /// Length of the encryption key in bytes.
    pub encryption_key_bytes: usize,
    /// Integrity key, with the salt.
    pub integrity_key: *const u8,
    /// Length of the integrity key in bytes.
    pub integrity_key_bytes: usize,
    /// Source port of the UDP encapsulation, or 0.
    pub encap_src_port: u16,
    /// Destination port of the UDP encapsulation, or 0.
    pub encap_dst_port: u16,
    /// 1 for extended sequence numbers.
    pub esn: u32,
    /// Anti-replay window in packets; 0 to disable the check.
    pub replay_window: u32,
    /// Last sequence number sent, or received for an inbound SA; 0 for a new SA.
    pub last_sequence: u64,
    /// Request ID that connects policies with this SA; 0 for none.
    pub reqid: u32,
    /// 1 to pad AH to 8 bytes with IPv4 too, as Linux does by default.
    pub ah_align8: u32,
}

/// `casemate_template`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Template {
    /// `CASEMATE_ESP` or `CASEMATE_AH`; 0 for no SA.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// Source address of the SA; version 0 for any.
    pub src: Address,
    /// Destination address of the SA; version 0 for any.
    pub dst: Address,
    /// Request ID of the SA; 0 for any.
    pub reqid: u32,
}

/// `casemate_policy`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Policy {
    /// First source address.
    pub src_first: Address,
    /// Last source address.
    pub src_last: Address,
    /// First destination address.
    pub dst_first: Address,
    /// Last destination address.
    pub dst_last: Address,
    /// Protocol number of the upper layer; -1 for any.
    pub upper: i32,
    /// First source port or ICMP type.
    pub src_port_first: u16,
    /// Last source port or ICMP type.
    pub src_port_last: u16,
    /// First destination port or ICMP code.
    pub dst_port_first: u16,
    /// Last destination port or ICMP code.
    pub dst_port_last: u16,
    /// Priority; the policy with the lowest value is tried first.
    pub priority: u32,
    /// `CASEMATE_DISCARD`, `CASEMATE_BYPASS` or `CASEMATE_PROTECT`.
    pub action: u32,
    /// SA for `CASEMATE_PROTECT`.
    pub sa: Template,
    /// Second SA around the first.
    pub around: Template,
}

/// `casemate_packet`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PacketRef {
    /// The buffer.
    pub buffer: *mut u8,
    /// Size of the buffer.
    pub size: usize,
    /// Offset of the IP packet in the buffer.
    pub start: usize,
    /// Length of the packet.
    pub len: usize,
    /// Maximum fragment length for the path; 0 if the packet needs no fragmentation.
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
/// `CASEMATE_AH_ROOM`: upper half of an extended sequence number (RFC 4302 section 2.5.1).
pub const AH_ROOM: u32 = 4;
/// `CASEMATE_DROPPED`: the packet was dropped.
pub const DROPPED: i32 = 0;
/// `CASEMATE_CLEAR`: the packet passes in clear text.
pub const CLEAR: i32 = 1;
/// `CASEMATE_CHANGED`: the packet was protected or decrypted; `casemate_packet` has its new position.
pub const CHANGED: i32 = 2;
/// `CASEMATE_CONSUMED`: there is nothing to deliver, and this is not an error.
pub const CONSUMED: i32 = 3;
