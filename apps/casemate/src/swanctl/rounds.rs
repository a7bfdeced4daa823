//! The rounds of authentication of a connection (RFC 4739): the sections whose names begin with `local` and
//! `remote`.

use super::auth_round::{self, ANY_PROOF, RoundContext};
use super::connection::Context;
use super::credential_rules::{OwnSignature, PeerConditions};

use super::resolved::Resolved;
use super::schema::{Keys, is_kind};
use casemate_ike::config::{FurtherRounds, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod};

/// The authentication of both sides.
pub(super) struct Rounds {
    pub(super) local: LocalAuth,
    pub(super) remote: RemoteAuth,
    pub(super) further: FurtherRounds,
    pub(super) own: Vec<OwnSignature>,
    pub(super) conditions: Vec<PeerConditions>,
}

/// Maximum number of rounds of one side.
const MAX_ROUNDS: usize = 8;

/// Reads the sections whose names begin with `local` and `remote`: one round of authentication each (RFC
/// 4739).
pub(super) fn read(resolved: &Resolved<'_, '_>, keys: &Keys<'_>, context: &Context<'_>) -> Rounds {
    let Context { directory, has_groups, problems, .. } = *context;
    let in_round =
        |round| RoundContext { connection: resolved.name(), round, directory, has_groups, problems };
    let sections = |prefix, schema| {
        let mut sections: Vec<_> = resolved.sections();
        sections.retain(|section| is_kind(prefix, section.name()));
        let sections = auth_round::sort_rounds(sections, schema, problems);
        if sections.len() > MAX_ROUNDS {
            keys.section_error(&format!("at most {MAX_ROUNDS} sections `{prefix}` were expected"));
        }
        sections
    };
    let (locals, remotes) = (sections("local", &auth_round::LOCAL), sections("remote", &auth_round::REMOTE));
    if remotes.is_empty() {
        keys.section_warning(&format!("there is no section `remote`: {ANY_PROOF}"));
    }
    let (mut further_local, mut further_remote) = (Vec::new(), Vec::new());
    let (local, first_own) = auth_round::local(locals.first(), in_round(0));
    let (remote, first_conditions) = auth_round::remote(remotes.first(), in_round(0));
    let (mut own, mut conditions) = (vec![first_own], vec![first_conditions]);
    for (round, section) in locals.iter().enumerate().skip(1) {
        let (auth, signature) = auth_round::local(Some(section), in_round(round));
        further_local.push(auth);
        own.push(signature);
    }
    for (round, section) in remotes.iter().enumerate().skip(1) {
        let (auth, required) = auth_round::remote(Some(section), in_round(round));
        further_remote.push(auth);
        conditions.push(required);
    }
    let further = FurtherRounds::new(further_local, further_remote);
    check_eap_rounds(
        [&local].into_iter().chain(&further.local),
        [&remote].into_iter().chain(&further.remote),
    )
    .unwrap_or_else(|why| keys.section_error(why));
    Rounds { local, remote, further, own, conditions }
}

/// Checks that only an initiator uses EAP in several rounds.
fn check_eap_rounds<'a>(
    local: impl Iterator<Item = &'a LocalAuth>,
    remote: impl Iterator<Item = &'a RemoteAuth>,
) -> Result<(), &'static str> {
    let local: Vec<bool> = local.map(|auth| matches!(auth.method, LocalMethod::Eap(_))).collect();
    let remote: Vec<bool> = remote.map(|auth| matches!(auth.method, RemoteMethod::Eap(_))).collect();
    let both = local.contains(&true) && remote.contains(&true);
    if both && local.len().max(remote.len()) > 1 {
        return Err(
            "in several rounds of authentication, only the initiator can use EAP: `local` or `remote` \
                    without EAP was expected",
        );
    }
    Ok(())
}
