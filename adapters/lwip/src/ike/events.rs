//! What happened, for C to read: a short queue of plain values.

use super::types::{
    EVENT_CHILD_DOWN, EVENT_CHILD_REKEYED, EVENT_CHILD_UP, EVENT_IKE_DOWN, EVENT_IKE_REKEYED, EVENT_IKE_UP,
    EVENT_NOT_BEGUN, NAME_BYTES, REASON_BYTES, Told,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use casemate::Notice;
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, Down, Event};
use core::ffi::c_char;
use core::fmt::{self, Display, Write as _};

/// Events that wait to be read; then the oldest goes.
const MOST: usize = 8;

/// The queue, and the names of the Child SAs that there are.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<Told>,
    pub(crate) lost: u32,
    up: BTreeMap<ChildId, (Arc<Connection>, Arc<Child>)>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(MOST), ..Self::default() }
    }

    pub(crate) fn next(&mut self) -> Option<Told> {
        self.queue.pop_front()
    }

    /// How many Child SAs there are.
    pub(crate) fn children(&self) -> usize {
        self.up.len()
    }

    /// How many there are of a connection, or of one of its children.
    pub(crate) fn children_of(&self, connection: &str, child: Option<&str>) -> usize {
        let is_meant = |(of, is): &&(Arc<Connection>, Arc<Child>)| {
            of.name == connection && child.is_none_or(|child| is.name == child)
        };
        self.up.values().filter(is_meant).count()
    }

    /// Takes note of what the endpoint tells. `refusal` says more of a peer that was not trusted.
    pub(crate) fn take(&mut self, notice: Notice, refusal: Option<&dyn Display>) {
        match notice {
            Notice::Ike(Event::IkeUp { connection, .. }) => self.push(EVENT_IKE_UP, &connection, None, None),
            Notice::Ike(Event::IkeDown { connection, why: Down::Replaced, .. }) => {
                self.push(EVENT_IKE_REKEYED, &connection, None, None);
            }
            Notice::Ike(Event::IkeDown { connection, why, .. }) => {
                let is_judgement = matches!(why, Down::Fault(_));
                let reason = refusal.filter(|_| is_judgement).unwrap_or(&why);
                self.push(EVENT_IKE_DOWN, &connection, None, Some(reason));
            }
            Notice::Ike(Event::ChildUp(up)) => {
                let kind = if up.replaces.is_some() { EVENT_CHILD_REKEYED } else { EVENT_CHILD_UP };
                self.push(kind, &up.connection, Some(&up.child), None);
                self.up.insert(up.id, (up.connection, up.child));
            }
            Notice::Ike(Event::ChildDown { id, why, .. }) => {
                if let Some((connection, child)) = self.up.remove(&id).filter(|_| why != Down::Replaced) {
                    self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&why));
                }
            }
            Notice::Ike(Event::ChildFailed { connection, child, why }) => {
                self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&why));
            }
            Notice::Ike(Event::NotBegun { connection, error }) => {
                self.push(EVENT_NOT_BEGUN, &connection, None, Some(&error));
            }
            Notice::NotInstalled { connection, child, why } => {
                self.push(EVENT_CHILD_DOWN, &connection, Some(&child), Some(&why));
            }
            Notice::NotHeld { connection, child, why } => {
                self.push(EVENT_NOT_BEGUN, &connection, Some(&child), Some(&why));
            }
            // Counters say how often, and a flood of them must not displace the others.
            Notice::Ike(Event::Fault { .. })
            | Notice::Ike(
                Event::IkeRekeyed { .. }
                | Event::ChildActive(_)
                | Event::ChildClosing(_)
                | Event::Assigned { .. }
                | Event::Unassigned { .. }
                | Event::Moved { .. }
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
        child: Option<&Child>,
        reason: Option<&dyn Display>,
    ) {
        if self.queue.len() == MOST {
            self.queue.pop_front();
            self.lost = self.lost.saturating_add(1);
        }
        let name = |name: &str| text::<NAME_BYTES>(&name);
        self.queue.push_back(Told {
            kind,
            connection: name(&connection.name),
            child: child.map_or([0; NAME_BYTES], |child| name(&child.name)),
            reason: reason.map_or([0; REASON_BYTES], text),
        });
    }
}

/// As much of a text as fits, with a 0 at the end.
fn text<const N: usize>(value: &(impl Display + ?Sized)) -> [c_char; N] {
    struct Filled<'a>(core::slice::IterMut<'a, c_char>);
    impl fmt::Write for Filled<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            // Whatever the signs of C's characters are here.
            part.bytes().zip(self.0.by_ref()).for_each(|(byte, place)| *place = byte as c_char);
            Ok(())
        }
    }
    let mut out = [0; N];
    if let Some((_, places)) = out.split_last_mut() {
        // It takes everything and leaves out what does not fit.
        let _ = write!(Filled(places.iter_mut()), "{value}");
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
    fn texts_end_in_time() {
        assert_eq!(read::<8>(&"abc"), "abc");
        assert_eq!(read::<8>(&"abcdefgh"), "abcdefg");
        assert_eq!(read::<8>(&format_args!("{}-{}", "abcde", "fgh")), "abcde-f");
        assert_eq!(read::<1>(&"a"), "");
    }
}
