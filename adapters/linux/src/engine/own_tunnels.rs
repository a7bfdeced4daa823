//! Interfaces of SPDs that belong to one SA: they are made and removed with the SPD.
//!
//! The endpoint has chosen the number and installed the SA when the interface is made, before the peer gets
//! the message that lets it use the SA. Until the interface exists, no packet can enter the SPD, and packets
//! that the SA decrypts are dropped. If the interface cannot be made, the endpoint closes the Child SA.

use super::event_loop::EventLoop;
use super::shared::Shared;
use super::{EngineHandler, SystemProblem};
use crate::Error;
use casemate::{Notice, PolicyChange};
use casemate_sa::SpdId;

impl EventLoop {
    /// Makes and removes interfaces for these notices.
    pub(super) fn follow_own_spds(
        &mut self,
        notices: &[Notice],
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) {
        let mut has_changed = false;
        for notice in notices {
            let done = match notice {
                Notice::Policy(PolicyChange::SpdAdded { spd }) => {
                    let made = make(*spd, shared, handler);
                    self.rejected_spds.extend(made.is_err().then_some(*spd));
                    made
                }
                Notice::Policy(PolicyChange::SpdRemoved { spd }) => {
                    self.rejected_spds.retain(|rejected| rejected != spd);
                    shared.tunnels.remove_own(*spd, &mut shared.lock_rx().tunnels)
                }
                _ => continue,
            };
            has_changed = true;
            if let Err(error) = done {
                handler.on_problem(SystemProblem::Policies, format!("interface for %unique: {error}"));
            }
        }
        if has_changed {
            shared.lock_endpoint().tunnel_names = shared.tunnels.names();
        }
    }

    /// Closes the Child SAs whose interfaces could not be made.
    pub(super) fn reject_spds(&mut self, shared: &Shared, handler: &mut dyn EngineHandler) {
        while !self.rejected_spds.is_empty() {
            let mut context = shared.lock_endpoint();
            for spd in std::mem::take(&mut self.rejected_spds) {
                context.with(|endpoint, context| endpoint.reject_spd(spd, context));
            }
            self.collect_output(context, shared, handler);
        }
    }
}

fn make(spd: SpdId, shared: &Shared, handler: &dyn EngineHandler) -> Result<(), Error> {
    let spec = handler.own_tunnel(spd);
    let spec = spec.ok_or_else(|| Error::other("interface for %unique", "it has no name"))?;
    shared.tunnels.add_own(&spec, &mut shared.lock_rx().tunnels)
}
