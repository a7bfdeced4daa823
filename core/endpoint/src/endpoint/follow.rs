//! Traps of the configuration. Those whose local selector is `dynamic` follow the address that the host has on the way to the peer.

use super::{Endpoint, Means};
use crate::host::Routes;
use crate::policy::Spds;
use crate::traps::Held;
use crate::{HoldError, Notice};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::InsertError;
use casemate_ike::config::Connection;
use core::time::Duration;

/// How often it is checked whether the address on the way to a peer may have changed.
const FOLLOW: Duration = Duration::from_secs(1);
/// After how long the address is looked up in any case: a host may not be notified of every change.
const LOOK_UP: Duration = Duration::from_secs(30);

impl Endpoint {
    /// Addresses or routes of the host have changed: the next [`serve`](Self::serve) has traps follow them. Without
    /// this call they follow within a second of [`Routes::may_have_changed`].
    pub fn note_routes(&mut self) {
        self.follow_at = self.follow_at.map(|_| casemate_sa::Instant::ZERO);
        self.looked_up_at = None;
    }

    /// Has traps follow, if it is time.
    pub(super) fn follow_routes(&mut self, means: &Means<'_>) {
        if self.follow_at.is_none_or(|at| at > means.now) {
            return;
        }
        self.follow_at = Some(means.now.after(FOLLOW));
        // Asked before the look-ups: what changes during them counts for the next time.
        let has_changed = means.routes.may_have_changed();
        let is_recent = self.looked_up_at.is_some_and(|at| means.now.since(at) < LOOK_UP);
        if is_recent && !has_changed {
            return;
        }
        let Self { traps, datapath, notices, .. } = self;
        let refused = traps.follow(&mut Spds { datapath, notices }, means.routes);
        // A trap that was refused is tried again the next time.
        self.looked_up_at = refused.is_empty().then_some(means.now);
        for (Held { connection, child, .. }, why) in refused {
            self.notices.push_back(Notice::NotHeld { connection, child, why });
        }
    }

    /// Puts the traps and shunts of these connections in the place of all others.
    pub(super) fn set_traps(
        &mut self,
        connections: &[Arc<Connection>],
        held: Vec<Held>,
        means: &Means<'_>,
    ) -> Result<(), InsertError> {
        let Self { traps, datapath, notices, .. } = self;
        traps.clear(&mut Spds { datapath, notices });
        let set = self.add_traps(connections, held, means.routes);
        for (connection, child) in self.children.origins() {
            self.traps.came_up(&connection.name, &child.name);
        }
        self.follow_at = self.traps.follow_routes().then(|| means.now.after(FOLLOW));
        set
    }

    fn add_traps(
        &mut self,
        connections: &[Arc<Connection>],
        held: Vec<Held>,
        routes: &dyn Routes,
    ) -> Result<(), InsertError> {
        for held in held {
            self.add_trap(held)?;
        }
        for connection in connections {
            for child in connection.children.iter().filter(|child| child.start.on_traffic) {
                self.add_trap(Held::configured(connection, child, routes))?;
            }
            let Self { traps, datapath, notices, .. } = self;
            for shunt in &connection.shunts {
                traps.add_shunt(&mut Spds { datapath, notices }, shunt)?;
            }
        }
        Ok(())
    }

    /// A trap that can hold no packet is reported; there may be others.
    fn add_trap(&mut self, held: Held) -> Result<(), InsertError> {
        let Self { traps, datapath, notices, reqids, .. } = self;
        let (connection, child) = (held.connection.clone(), held.child.clone());
        match traps.add(&mut Spds { datapath, notices }, held, reqids.next()) {
            Ok(()) => Ok(()),
            Err(HoldError::Spd(error)) => Err(error),
            Err(why @ HoldError::NoTraffic) => {
                self.notices.push_back(Notice::NotHeld { connection, child, why });
                Ok(())
            }
        }
    }
}
