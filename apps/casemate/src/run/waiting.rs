//! Clients that wait until something stands, or is gone.

use super::control::Reply;
use crate::command::Wanted;
use crate::control::outcome;
use casemate_ike::Event;

/// Clients and what they wait for.
#[derive(Default)]
pub(super) struct Waiting(Vec<(Wanted, Reply)>);

impl Waiting {
    /// Lets a client wait, unless everything is as it wants it already.
    pub(super) fn wait(&mut self, wanted: Wanted, reply: Reply) {
        if wanted.is_met() {
            let _ = reply.send(outcome(&Ok(())));
        } else {
            // Those who have left are still among them if nothing has happened since.
            self.0.retain(|(_, reply)| reply.is_open());
            self.0.push((wanted, reply));
        }
    }

    /// Something happened.
    pub(super) fn hear(&mut self, event: &Event) {
        self.0.retain_mut(|(wanted, reply)| match wanted.hear(event) {
            None => true,
            Some(done) => {
                let _ = reply.send(outcome(&done));
                false
            }
        });
    }
}
