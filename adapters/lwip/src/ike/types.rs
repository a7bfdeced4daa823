//! C types for IKE, as declared in `include/casemate_ike.h`, and the queue of events for C.

use crate::types::Address;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use casemate::Notice;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{ChildId, DownReason, Event};
use core::ffi::{c_char, c_void};
use core::fmt::{self, Display, Write as _};

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
    /// PPK_ID of the post-quantum pre-shared key; null for none.
    pub ppk_id: *const c_char,
    /// The post-quantum pre-shared key.
    pub ppk: Bytes,
    /// Idle time in seconds after which dead peer detection starts; 0 for never.
    pub dpd_seconds: u32,
    /// Seconds until rekeying of the IKE SA; 0 for never.
    pub rekey_seconds: u32,
    /// Number of retransmission sequences for a silent peer; 0 for no limit.
    pub tries: u32,
    /// 1: use UDP encapsulation of ESP even without a NAT.
    pub force_encap: u32,
    /// 1: refuse an IKE SA without the post-quantum pre-shared key.
    pub ppk_required: u32,
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

/// `casemate_ike_callbacks`.
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

/// Maximum number of unread events; a new event overwrites the oldest.
const MAX_EVENTS: usize = 8;

/// The event queue, and the names of the established Child SAs.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<IkeEvent>,
    pub(crate) lost: u32,
    up: BTreeMap<ChildId, (Arc<Connection>, Arc<ChildConfig>)>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(MAX_EVENTS), ..Self::default() }
    }

    pub(crate) fn next(&mut self) -> Option<IkeEvent> {
        self.queue.pop_front()
    }

    /// Returns the number of Child SAs.
    pub(crate) fn children(&self) -> usize {
        self.up.len()
    }

    /// Returns the number of Child SAs of a connection, or of one of its children.
    pub(crate) fn children_of(&self, connection: &str, child: Option<&str>) -> usize {
        let matches = |(known, configured): &&(Arc<Connection>, Arc<ChildConfig>)| {
            known.name == connection && child.is_none_or(|child| configured.name == child)
        };
        self.up.values().filter(matches).count()
    }

    /// Converts a notice of the endpoint to an event. `refusal` explains why a peer was not trusted.
    pub(crate) fn take(&mut self, notice: Notice, refusal: Option<&dyn Display>) {
        match notice {
            Notice::Ike(Event::IkeUp { connection, .. }) => self.push(EVENT_IKE_UP, &connection, None, None),
            Notice::Ike(Event::IkeDown { connection, reason: DownReason::Replaced, .. }) => {
                self.push(EVENT_IKE_REKEYED, &connection, None, None);
            }
            Notice::Ike(Event::IkeDown { connection, reason: down, .. }) => {
                let is_protocol_fault = matches!(down, DownReason::Fault(_));
                let reason = refusal.filter(|_| is_protocol_fault).unwrap_or(&down);
                self.push(EVENT_IKE_DOWN, &connection, None, Some(reason));
            }
            Notice::Ike(Event::ChildUp(up)) => {
                let kind = if up.replaces.is_some() { EVENT_CHILD_REKEYED } else { EVENT_CHILD_UP };
                self.push(kind, &up.connection, Some(&up.child), None);
                self.up.insert(up.id, (up.connection, up.child));
            }
            Notice::Ike(Event::ChildDown { id, reason, .. }) => {
                if let Some((connection, child)) =
                    self.up.remove(&id).filter(|_| reason != DownReason::Replaced)
                {
                    self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&reason));
                }
            }
            // The Child SA that should have been replaced stays.
            Notice::Ike(Event::ChildFailed { connection, child, replaces: None, reason }) => {
                self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&reason));
            }
            Notice::Ike(Event::InitiateFailed { connection, error }) => {
                self.push(EVENT_NOT_BEGUN, &connection, None, Some(&error));
            }
            Notice::ChildNotInstalled { connection, child, error } => {
                self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&error));
            }
            Notice::TrapNotInstalled { connection, child, error } => {
                self.push(EVENT_NOT_BEGUN, &connection, Some(&child), Some(&error));
            }
            // Not reported: these are counted, and a flood of them must not displace other events.
            Notice::Ike(Event::Fault { .. } | Event::Retransmitted { .. })
            | Notice::Ike(
                Event::IkeRekeyed { .. }
                | Event::Redirected { .. }
                | Event::NotResumed { .. }
                | Event::IkeRekeyFailed { .. }
                | Event::ChildFailed { replaces: Some(_), .. }
                | Event::ChildActive(_)
                | Event::ChildClosing(_)
                | Event::ConfigAssigned { .. }
                | Event::AddrsReleased { .. }
                | Event::PathChanged { .. }
                | Event::NumbersSkipped { .. }
                | Event::PathMtu { .. }
                | Event::Keys(_),
            )
            | Notice::Datapath(_)
            | Notice::SaCounters { .. }
            | Notice::PeerUsesUnknownSpi { .. }
            | Notice::Policy(_) => {}
        }
    }

    fn push(
        &mut self,
        kind: u32,
        connection: &Connection,
        child: Option<&ChildConfig>,
        reason: Option<&dyn Display>,
    ) {
        if self.queue.len() == MAX_EVENTS {
            self.queue.pop_front();
            self.lost = self.lost.saturating_add(1);
        }
        let name = |name: &str| text::<NAME_BYTES>(&name);
        self.queue.push_back(IkeEvent {
            kind,
            connection: name(&connection.name),
            child: child.map_or([0; NAME_BYTES], |child| name(&child.name)),
            reason: reason.map_or([0; REASON_BYTES], text),
        });
    }
}

/// Converts a value to a C string, truncated to the array, with a NUL at the end.
fn text<const N: usize>(value: &(impl Display + ?Sized)) -> [c_char; N] {
    struct ArrayWriter<'a>(core::slice::IterMut<'a, c_char>);
    impl fmt::Write for ArrayWriter<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            // `c_char` is signed on some platforms.
            part.bytes().zip(self.0.by_ref()).for_each(|(byte, to)| *to = byte as c_char);
            Ok(())
        }
    }
    let mut out = [0; N];
    if let Some((_, text)) = out.split_last_mut() {
        // Writing never fails; text that does not fit is truncated.
        let _ = write!(ArrayWriter(text.iter_mut()), "{value}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn read<const N: usize>(value: &dyn Display) -> std::string::String {
        let bytes = text::<N>(value).map(|byte| byte as u8);
        CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().into()
    }

    #[test]
    fn texts_are_truncated_to_the_array() {
        assert_eq!(read::<8>(&"abc"), "abc");
        assert_eq!(read::<8>(&"abcdefgh"), "abcdefg");
        assert_eq!(read::<8>(&format_args!("{}-{}", "abcde", "fgh")), "abcde-f");
        assert_eq!(read::<1>(&"a"), "");
    }
}
