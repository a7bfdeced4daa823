//! Packets that are dropped with an ICMP error for their source. Called by the outbound path, and by callers whose
//! link does not take what policy lets pass.

use crate::icmp::{self, NoReply};
use crate::sealing::Step;
use crate::{Datapath, DropReason, Outbound};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;

impl Datapath {
    /// Drops a packet that policy lets pass in clear, that is longer than its link of `mtu` bytes takes, and that only
    /// its source may cut (RFC 1191 section 4, RFC 8201). The verdict is `Reply` or `Drop`.
    pub fn refuse_too_long(&mut self, now: Instant, packet: &mut Packet<'_>, mtu: usize) -> Outbound {
        let mut step = Step::NEW;
        self.refuse(now, packet, DropReason::TooBig, &mut step, |packet| icmp::too_big(packet, mtu, None));
        step.verdict()
    }

    /// Drops a packet and turns it into the ICMP error that `reply` makes of it, as often as the rate limit allows.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        reason: DropReason,
        step: &mut Step,
        reply: impl FnOnce(&mut Packet<'_>) -> Result<(), NoReply>,
    ) {
        step.stop(reason);
        // Counted here, because the reply takes the packet's place.
        self.count_drop(now, reason, packet.data(), None);
        step.counted = true;
        if self.icmp_limit.allow(now) && reply(packet).is_ok() {
            step.verdict = Outbound::Reply(reason);
        }
    }
}
