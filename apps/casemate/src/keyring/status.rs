//! Whether the certificates of a peer are still valid for their issuers, by the conditions of its connection.

use super::verifier::PeerVerifier;
use crate::revocation::{Authorities, PathCheck, PathVerdict, RevocationLink};
use casemate_crypto::Providers;
use casemate_ike::{PeerStatus, StatusQuery};

/// A check of the certificates that a verifier has accepted.
pub(super) struct StatusCheck<'k> {
    pub(super) verifier: &'k PeerVerifier,
    pub(super) authorities: &'k Authorities,
    /// The threads that fetch what is missing; `None` if nothing is fetched.
    pub(super) link: Option<&'k RevocationLink>,
    pub(super) providers: &'k Providers<'k>,
}

impl StatusCheck<'_> {
    /// Decides, or orders a look-up. The error says why a certificate is refused.
    pub(super) fn run(&self, query: &StatusQuery<'_>) -> Result<PeerStatus, String> {
        let Some(path) = self.verifier.path(&query.shown, self.providers) else {
            return Ok(PeerStatus::Accepted);
        };
        let check = PathCheck {
            policy: self.verifier.conditions().revocation,
            store: &self.verifier.store,
            authorities: self.authorities,
            cache: self.link.map(RevocationLink::cache),
            now: query.shown.unix_time,
            stapled: query.stapled,
            is_last: query.is_last,
            providers: self.providers,
        };
        let mut verdict = check.run(&path.map_err(|fault| fault.to_string())?);
        if let (PathVerdict::Wanted(wanted), Some(link)) = (&mut verdict, self.link) {
            let trusted = self.authorities.responders.clone();
            match link.look_up(query.ike, std::mem::take(wanted), trusted) {
                Ok(()) => return Ok(PeerStatus::Pending),
                Err((wanted, why)) => verdict = check.without_look_up(&wanted, why),
            }
        }
        match verdict {
            PathVerdict::Accepted => Ok(PeerStatus::Accepted),
            // Nothing is wanted without a link.
            PathVerdict::Wanted(_) => Err("its status cannot be looked up".into()),
            PathVerdict::Refused(why) => Err(why),
        }
    }
}
