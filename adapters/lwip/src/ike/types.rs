//! What passes between C and Rust for IKE: plain data, as in `include/casemate_ike.h`.

use crate::types::Address;
use core::ffi::{c_char, c_void};

/// Bytes of a name with the 0 at its end.
pub const NAME_BYTES: usize = 32;
/// Bytes of a reason with the 0 at its end.
pub const REASON_BYTES: usize = 96;

/// `casemate_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    /// The first, or null where there are none.
    pub data: *const u8,
    /// How many.
    pub bytes: usize,
}

/// `casemate_child`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ChildSpec {
    /// Its name, unique in its connection.
    pub name: *const c_char,
    /// Proposals with commas between, as strongSwan spells them; null is the usual ones.
    pub proposals: *const c_char,
    /// Traffic of our side, with commas between; null is `dynamic`.
    pub local_traffic: *const c_char,
    /// Traffic of the peer's side.
    pub remote_traffic: *const c_char,
    /// `CASEMATE_ESP` or `CASEMATE_AH`.
    pub protocol: u32,
    /// `CASEMATE_TRANSPORT` or `CASEMATE_TUNNEL`.
    pub mode: u32,
    /// `CASEMATE_START_AT_ONCE` and `CASEMATE_START_ON_TRAFFIC`, both or none.
    pub start: u32,
    /// 1: it is set up again when the peer closes it or dies.
    pub restart: u32,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// Seconds until it is rekeyed; 0 is never.
    pub rekey_seconds: u32,
    /// Bytes until it is rekeyed; 0 is any number.
    pub rekey_bytes: u64,
}

/// `casemate_connection`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConnectionSpec {
    /// Its name, unique.
    pub name: *const c_char,
    /// Our address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// Proposals with commas between, as strongSwan spells them; null is the usual ones.
    pub proposals: *const c_char,
    /// Our identity.
    pub local_id: *const c_char,
    /// The peer's identity.
    pub remote_id: *const c_char,
    /// How we prove who we are: `CASEMATE_SHARED_KEY`, `CASEMATE_RAW_KEY` or `CASEMATE_CERTIFICATE`.
    pub local_auth: u32,
    /// How the peer does.
    pub remote_auth: u32,
    /// The pre-shared key.
    pub shared_key: Bytes,
    /// Our private key.
    pub private_key: Bytes,
    /// Our certificate, and CAs that are sent with it.
    pub certificates: Bytes,
    /// The peer's public key.
    pub peer_key: Bytes,
    /// Authorities that the peer's certificate has to lead to.
    pub authorities: Bytes,
    /// Seconds of silence after which the peer is asked whether it lives; 0 is never.
    pub dpd_seconds: u32,
    /// Seconds until the IKE SA is rekeyed; 0 is never.
    pub rekey_seconds: u32,
    /// How often a whole sequence of requests to a peer that does not answer is sent; 0 is without end.
    pub tries: u32,
    /// 1 puts ESP into UDP even if no NAT was found.
    pub force_encap: u32,
    /// The Child SAs that there may be.
    pub children: *const ChildSpec,
    /// How many.
    pub child_count: usize,
}

/// `casemate_source_fn`: our address on the way to another.
pub type Source =
    unsafe extern "C" fn(context: *mut c_void, remote: *const Address, local: *mut Address) -> i32;

/// `casemate_wake_fn`: there is work for `casemate_ike_serve`.
pub type Wake = unsafe extern "C" fn(context: *mut c_void);

/// `casemate_home`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Home {
    /// Ways to others.
    pub source: Option<Source>,
    /// The alarm.
    pub wake: Option<Wake>,
    /// Handed to both.
    pub context: *mut c_void,
}

/// `casemate_datagram`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Datagram {
    /// Our address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// What is behind the UDP header.
    pub data: *mut u8,
    /// Its length.
    pub bytes: usize,
}

/// `casemate_event`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Told {
    /// What happened: one of `CASEMATE_EVENT_...`.
    pub kind: u32,
    /// The connection.
    pub connection: [c_char; NAME_BYTES],
    /// The child; empty if it is about the IKE SA.
    pub child: [c_char; NAME_BYTES],
    /// Why; empty if nothing is wrong.
    pub reason: [c_char; REASON_BYTES],
}

/// `casemate_ike_counts`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Counts {
    /// IKE SAs, half-open ones included.
    pub ike_sas: u32,
    /// Of these, half-open ones that peers began.
    pub half_open: u32,
    /// Child SAs.
    pub child_sas: u32,
    /// Events that nobody read in time.
    pub lost_events: u32,
    /// Messages refused, and work put off, because there was not memory enough.
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
/// `CASEMATE_EVENT_IKE_UP`: the peer is authenticated.
pub const EVENT_IKE_UP: u32 = 1;
/// `CASEMATE_EVENT_IKE_REKEYED`.
pub const EVENT_IKE_REKEYED: u32 = 2;
/// `CASEMATE_EVENT_IKE_DOWN`: ended, or not established.
pub const EVENT_IKE_DOWN: u32 = 3;
/// `CASEMATE_EVENT_CHILD_UP`: packets can go through.
pub const EVENT_CHILD_UP: u32 = 4;
/// `CASEMATE_EVENT_CHILD_REKEYED`.
pub const EVENT_CHILD_REKEYED: u32 = 5;
/// `CASEMATE_EVENT_CHILD_DOWN`: ended, or not set up.
pub const EVENT_CHILD_DOWN: u32 = 6;
/// `CASEMATE_EVENT_NOT_BEGUN`: an exchange that was due could not be begun.
pub const EVENT_NOT_BEGUN: u32 = 7;
