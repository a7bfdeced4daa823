//! C types for IKE, as declared in `include/casemate_ike.h`.

use crate::types::Address;
use core::ffi::{c_char, c_void};

/// Size of a name in bytes, including the NUL.
pub const NAME_BYTES: usize = 32;
/// Size of a reason in bytes, including the NUL.
pub const REASON_BYTES: usize = 96;

/// `casemate_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    /// First byte; may be null if `bytes` is 0.
    pub data: *const u8,
    /// Length in bytes.
    pub bytes: usize,
}

/// `casemate_child`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ChildSpec {
    /// Name, unique in its connection.
    pub name: *const c_char,
    /// Proposals in strongSwan's notation, separated by commas; null for the default proposals.
    pub proposals: *const c_char,
    /// Local traffic selectors, separated by commas; null for `dynamic`.
    pub local_traffic: *const c_char,
    /// Remote traffic selectors.
    pub remote_traffic: *const c_char,
    /// `CASEMATE_ESP` or `CASEMATE_AH`.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// `CASEMATE_START_AT_ONCE` and `CASEMATE_START_ON_TRAFFIC`, combined, or 0.
    pub start: u32,
    /// 1: set up the child again when the peer closes it or is dead.
    pub restart: u32,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// Seconds until rekeying; 0 for never.
    pub rekey_seconds: u32,
    /// Bytes until rekeying; 0 for no limit.
    pub rekey_bytes: u64,
}

/// `casemate_connection`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConnectionSpec {
    /// Name, unique.
    pub name: *const c_char,
    /// Local address.
    pub local: Address,
    /// Address of the peer.
    pub remote: Address,
    /// Proposals in strongSwan's notation, separated by commas; null for the default proposals.
    pub proposals: *const c_char,
    /// Local identity.
    pub local_id: *const c_char,
    /// Identity of the peer.
    pub remote_id: *const c_char,
    /// Local authentication: `CASEMATE_SHARED_KEY`, `CASEMATE_RAW_KEY` or `CASEMATE_CERTIFICATE`.
    pub local_auth: u32,
    /// Authentication of the peer.
    pub remote_auth: u32,
    /// The pre-shared key.
    pub shared_key: Bytes,
    /// Local private key.
    pub private_key: Bytes,
    /// Local certificate, followed by CA certificates that are sent with it.
    pub certificates: Bytes,
    /// Public key of the peer.
    pub peer_key: Bytes,
    /// CA certificates that are trusted for the peer.
    pub authorities: Bytes,
    /// Idle time in seconds after which dead peer detection starts; 0 for never.
    pub dpd_seconds: u32,
    /// Seconds until rekeying of the IKE SA; 0 for never.
    pub rekey_seconds: u32,
    /// Number of retransmission sequences for a silent peer; 0 for no limit.
    pub tries: u32,
    /// 1: use UDP encapsulation of ESP even without a NAT.
    pub force_encap: u32,
    /// Child SA configurations.
    pub children: *const ChildSpec,
    /// Number of children.
    pub child_count: usize,
}

/// `casemate_source_fn`: returns the local address for packets to `remote`.
pub type SourceFn =
    unsafe extern "C" fn(context: *mut c_void, remote: *const Address, local: *mut Address) -> i32;

/// `casemate_wake_fn`: `casemate_ike_serve` must be called soon.
pub type WakeFn = unsafe extern "C" fn(context: *mut c_void);

/// `casemate_home`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct IkeCallbacks {
    /// Source address selection.
    pub source: Option<SourceFn>,
    /// Wake-up function.
    pub wake: Option<WakeFn>,
    /// Argument of both functions.
    pub context: *mut c_void,
}

/// `casemate_datagram`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Datagram {
    /// Local address.
    pub local: Address,
    /// Address of the peer.
    pub remote: Address,
    /// Local port.
    pub local_port: u16,
    /// Port of the peer.
    pub remote_port: u16,
    /// UDP payload.
    pub data: *mut u8,
    /// Length of the payload in bytes.
    pub bytes: usize,
}

/// `casemate_event`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct IkeEvent {
    /// Type of the event: one of `CASEMATE_EVENT_...`.
    pub kind: u32,
    /// Name of the connection.
    pub connection: [c_char; NAME_BYTES],
    /// Name of the child; empty for an event of the IKE SA.
    pub child: [c_char; NAME_BYTES],
    /// Reason; empty if there is no error.
    pub reason: [c_char; REASON_BYTES],
}

/// `casemate_ike_counts`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct IkeCounts {
    /// IKE SAs, including half-open ones.
    pub ike_sas: u32,
    /// Half-open IKE SAs initiated by peers.
    pub half_open: u32,
    /// Child SAs.
    pub child_sas: u32,
    /// Events that were overwritten before they were read.
    pub lost_events: u32,
    /// Messages refused and work postponed because of low memory.
    pub refused: u64,
}

/// `CASEMATE_SHARED_KEY`.
pub const SHARED_KEY: u32 = 1;
/// `CASEMATE_RAW_KEY`.
pub const RAW_KEY: u32 = 2;
/// `CASEMATE_CERTIFICATE`.
pub const CERTIFICATE: u32 = 3;
/// `CASEMATE_START_AT_ONCE`.
pub const START_AT_ONCE: u32 = 1;
/// `CASEMATE_START_ON_TRAFFIC`.
pub const START_ON_TRAFFIC: u32 = 2;
/// `CASEMATE_EVENT_IKE_UP`: the IKE SA is established.
pub const EVENT_IKE_UP: u32 = 1;
/// `CASEMATE_EVENT_IKE_REKEYED`.
pub const EVENT_IKE_REKEYED: u32 = 2;
/// `CASEMATE_EVENT_IKE_DOWN`: the IKE SA has ended or was not established.
pub const EVENT_IKE_DOWN: u32 = 3;
/// `CASEMATE_EVENT_CHILD_UP`: the Child SA is installed.
pub const EVENT_CHILD_UP: u32 = 4;
/// `CASEMATE_EVENT_CHILD_REKEYED`.
pub const EVENT_CHILD_REKEYED: u32 = 5;
/// `CASEMATE_EVENT_CHILD_DOWN`: the Child SA has ended or was not set up.
pub const EVENT_CHILD_DOWN: u32 = 6;
/// `CASEMATE_EVENT_NOT_BEGUN`: a due exchange could not be started.
pub const EVENT_NOT_BEGUN: u32 = 7;
