//! For devices, which have no routes that follow policies and no virtual addresses of a host: nothing is
//! withheld.

use crate::{Datapath, Unmatched};
use casemate_wire::flow::FlowKey;

impl Datapath {
    /// What happens to an outgoing packet that matches no policy.
    pub(crate) const fn unmatched(&self, _flow: &FlowKey) -> Unmatched {
        self.default_unmatched
    }

    /// Whether some packets that match no policy are discarded, even if others pass.
    pub(crate) const fn withholds_packets(&self) -> bool {
        false
    }
}
