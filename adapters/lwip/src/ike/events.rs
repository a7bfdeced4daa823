//! Queue of events for C.

use super::types::{
    EVENT_CHILD_DOWN, EVENT_CHILD_REKEYED, EVENT_CHILD_UP, EVENT_IKE_DOWN, EVENT_IKE_REKEYED, EVENT_IKE_UP,
    EVENT_NOT_BEGUN, IkeEvent, NAME_BYTES, REASON_BYTES,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use casemate::Notice;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{ChildId, DownReason, Event};
use core::ffi::c_char;
use core::fmt::{self, Display, Write as _};

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
            Notice::Ike(Event::ChildFailed { connection, child, reason }) => {
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
            Notice::Ike(Event::Fault { .. })
            | Notice::Ike(
                Event::IkeRekeyed { .. }
                | Event::ChildActive(_)
                | Event::ChildClosing(_)
                | Event::ConfigAssigned { .. }
                | Event::AddrsReleased { .. }
                | Event::PathChanged { .. }
                | Event::Keys(_),
            )
            | Notice::Datapath(_)
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
            part.bytes().zip(self.0.by_ref()).for_each(|(byte, place)| *place = byte as c_char);
            Ok(())
        }
    }
    let mut out = [0; N];
    if let Some((_, places)) = out.split_last_mut() {
        // Writing never fails; text that does not fit is truncated.
        let _ = write!(ArrayWriter(places.iter_mut()), "{value}");
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
