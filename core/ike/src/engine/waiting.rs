//! What waits to be set up again: to look at, and to be cancelled.

use super::Ike;
use crate::config::{Child, Connection};
use crate::{Down, Env, Event, IkeSaId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;

/// A Child SA or IKE SA that is set up again later, because one ended or could not be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its connection.
    pub connection: Arc<Connection>,
    /// The Child SA; `None` is the IKE SA alone.
    pub child: Option<Arc<Child>>,
    /// When it is asked for. While the IKE SA is asked for something else, that may be later.
    pub at: Instant,
    /// Attempts in a row that failed, or whose SA ended soon.
    pub attempts: u8,
}

impl Ike {
    /// What waits to be set up again, beside [`status`](Self::status): for an IKE SA of its own, and in IKE
    /// SAs that are there.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        let alone = self.shared.restarts.iter().flat_map(|restart| {
            let waiting = |child| Waiting {
                connection: restart.connection.clone(),
                child,
                at: restart.at,
                attempts: restart.attempts,
            };
            let ike = restart.children.is_empty().then_some(None);
            restart.children.iter().cloned().map(Some).chain(ike).map(waiting)
        });
        let inside = self.sas.values().flat_map(|sa| {
            let waiting = |(child, at, attempts): (&Arc<Child>, _, _)| Waiting {
                connection: sa.head.connection.clone(),
                child: Some(child.clone()),
                at,
                attempts,
            };
            sa.again().map(waiting)
        });
        alone.chain(inside)
    }

    /// Whether an IKE SA of this connection has this Child SA, or is to have it.
    pub fn seeks(&self, connection: &Arc<Connection>, child: &Child) -> bool {
        self.sas.of_connection(connection).any(|sa| sa.has(child))
    }

    /// Cancels what is to be set up of a connection, or of one of its children, and was not asked for yet. An
    /// IKE SA that is being set up for nothing else ends. Returns whether there was something.
    pub fn cancel(&mut self, connection: &str, child: Option<&str>, env: &mut Env<'_>) -> bool {
        let mut any = self.shared.restarts.cancel(connection, child);
        let is_meant = |config: &Arc<Child>| child.is_none_or(|child| child == config.name);
        let (mut needless, mut events): (Vec<IkeSaId>, Vec<Event>) = (Vec::new(), Vec::new());
        for sa in self.sas.values_mut().filter(|sa| sa.head.connection.name == connection) {
            for config in sa.cancel(&is_meant) {
                let connection = sa.head.connection.clone();
                events.push(Event::ChildFailed { connection, child: config, why: Down::Local });
                needless.extend(sa.is_begun_for_nothing().then_some(sa.head.id));
            }
        }
        any |= !events.is_empty();
        self.shared.events.extend(events);
        for ike in needless {
            self.terminate(ike, Down::Local, env);
        }
        any
    }
}
