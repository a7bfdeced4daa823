//! Lifetime of the authentication (RFC 4478): a responder that cannot start the reauthentication announces when
//! it will close the IKE SA, and the initiator reauthenticates before.

use super::timers::Timer;
use crate::config::Lookup;
use crate::context::{Step, random_below};
use crate::state::{Established, SaCommon};
use crate::transport::Content;
use casemate_wire::ike::NotifyType;
use core::time::Duration;

/// Shortest lifetime that is respected. A peer that announces less does not make this host start without pause.
const SHORTEST: Duration = Duration::from_secs(10);

/// Data of the notification for the peer: seconds until it must have reauthenticated. `None` if this host does
/// not demand it, or can start the new IKE SA itself.
pub(super) fn announcement(common: &SaCommon, step: &Step<'_, '_>) -> Option<[u8; 4]> {
    let time = common.connection.reauth?;
    // The IKE SA is closed up to a tenth earlier than configured.
    let least = time.saturating_sub(time.checked_div(10).unwrap_or_default());
    match common.connection.path(Lookup::Cached, step.context.routes) {
        Err(error) if error.is_final() => {
            Some(u32::try_from(least.as_secs()).unwrap_or(u32::MAX).to_be_bytes())
        }
        _ => None,
    }
}

impl Established {
    /// Reauthenticates before the end of the lifetime that a message of the peer announces: in the second tenth
    /// before it, at a random time.
    pub(super) fn limit_authentication(&mut self, content: &Content<'_>, step: &mut Step<'_, '_>) {
        let announced = content.notify(NotifyType::AUTH_LIFETIME).and_then(|notify| notify.data.as_array());
        let Some(announced) = announced else { return };
        let lifetime = Duration::from_secs(u32::from_be_bytes(*announced).into()).max(SHORTEST);
        let tenth = lifetime.checked_div(10).unwrap_or_default();
        let early = tenth.saturating_add(random_below(step.context.rng, tenth));
        let at = step.context.now.after(lifetime.saturating_sub(early));
        let before = self.timers.get(Timer::Reauthenticate);
        self.timers.set(Timer::Reauthenticate, Some(before.map_or(at, |before| before.min(at))));
    }
}
