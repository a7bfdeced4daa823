//! Names of the SAs that exist: events name an SA by its identifier, and people by its connection.

use crate::log::message::Subject;
use casemate::Notice;
use casemate_ike::{ChildId, Event, IkeSaId};
use std::collections::HashMap;

/// Connection of each IKE SA, and connection and child of each Child SA. Bounded by the number of SAs.
#[derive(Debug, Default)]
pub(super) struct SaNames {
    ikes: HashMap<IkeSaId, String>,
    children: HashMap<ChildId, ChildName>,
}

#[derive(Debug, Clone)]
struct ChildName {
    connection: String,
    child: String,
}

impl SaNames {
    /// Notes the names of new SAs.
    pub(super) fn learn(&mut self, notice: &Notice) {
        match notice {
            Notice::Ike(
                Event::IkeUp { ike, connection, .. } | Event::Retransmitted { ike, connection, .. },
            ) => {
                self.ikes.insert(*ike, connection.name.clone());
            }
            Notice::Ike(Event::IkeRekeyed { old, new }) => {
                if let Some(name) = self.ikes.get(old).cloned() {
                    self.ikes.insert(*new, name);
                }
            }
            Notice::Ike(Event::ChildUp(up)) => {
                let (connection, child) = (up.connection.name.clone(), up.child.name.clone());
                self.ikes.insert(up.ike, connection.clone());
                self.children.insert(up.id, ChildName { connection, child });
            }
            _ => {}
        }
    }

    /// Forgets SAs that have ended.
    pub(super) fn forget(&mut self, notice: &Notice) {
        match notice {
            Notice::Ike(Event::IkeDown { ike, .. }) => drop(self.ikes.remove(ike)),
            Notice::Ike(Event::ChildDown { id, .. }) => drop(self.children.remove(id)),
            _ => {}
        }
    }

    /// Fills in the names of the SAs of a subject.
    pub(super) fn complete(&self, subject: &mut Subject) {
        if subject.connection.is_some() {
            return;
        }
        if let Some(ChildName { connection, child }) = subject.child_sa.and_then(|id| self.children.get(&id))
        {
            (subject.connection, subject.child) = (Some(connection.clone()), Some(child.clone()));
        } else if let Some(name) = subject.ike.and_then(|ike| self.ikes.get(&ike)) {
            subject.connection = Some(name.clone());
        }
    }
}
