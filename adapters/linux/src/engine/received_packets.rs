//! Which received packets are only for this program: the kernel's copies of them are dropped, and the data path
//! gets all of them.

use super::event_loop::EventLoop;
use super::shared::Shared;
use std::collections::{BTreeSet, HashSet};

impl EventLoop {
    /// Lets the kernel drop received ESP and AH packets to the local addresses of inbound SAs early, while no
    /// other program needs them.
    pub(super) fn update_early_drop(&mut self, shared: &Shared) {
        let Self { early_drop: Some(early_drop), host_rules, system, .. } = self else { return };
        let mut addrs = BTreeSet::new();
        if host_rules.received_are_ours() {
            let with_sas = &shared.protected_addrs().with_sas;
            addrs.extend(system.addresses().iter().filter(|addr| with_sas.contains(addr)).copied());
        }
        if early_drop.set(addrs).is_err() {
            // Closes the connection, which removes the table.
            self.early_drop = None;
        }
    }

    /// Passes protected packets to all local addresses to the data path, while no other program needs them: a
    /// peer may use SAs of a former run.
    pub(super) fn update_ike_addrs(&mut self, shared: &Shared) {
        let mut addrs = HashSet::new();
        if self.ike.is_some() && !self.host_rules.others_receive() {
            addrs.extend(self.system.addresses().iter().copied());
        }
        shared.set_ike_addrs(addrs);
    }
}
