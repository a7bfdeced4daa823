//! Messages about IKE SAs that are established: with whom, and what they do without.

use super::level::Level;
use super::{negotiated, wording};
use casemate::NoticeSa;
use casemate_ike::config::Connection;
use casemate_ike::{Event, ProvenRound};

/// A message and the lines below it.
pub(super) struct Established {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) details: Vec<String>,
}

/// Formats [`Event::IkeUp`]; `None` is another event.
pub(super) fn established(event: &Event, sa: Option<&NoticeSa>) -> Option<Established> {
    let Event::IkeUp {
        connection,
        peer,
        path,
        eap_identity,
        earlier_rounds,
        resumes,
        ppk_id,
        is_restored,
        ..
    } = event
    else {
        return None;
    };
    let verb = if *is_restored { "continued" } else { "established" };
    let text = match eap_identity {
        None => format!("{verb} with {peer} at {}", path.remote),
        Some(user) => {
            format!("{verb} with {} at {}, which calls itself {peer}", wording::user(user), path.remote)
        }
    } + &resumes.map(|old| format!(", resumes the session of [{old}]")).unwrap_or_default()
        + &earlier_rounds.iter().map(earlier_round).collect::<String>()
        + &ppk_id.iter().map(|id| with_ppk(id)).collect::<String>();
    let mut details = negotiated(connection, ppk_id.as_deref(), sa);
    let users = earlier_rounds.iter().map(|round| &round.eap_identity).chain([eap_identity]).flatten();
    // The message about the first IKE SA of a login says it.
    let is_unproven = resumes.is_none() && users.into_iter().any(|user| user.claimed().is_some());
    if is_unproven {
        details.push(UNPROVEN.into());
        details.extend(UNPROVEN_USER.iter().map(|&line| line.to_owned()));
    }
    let level = if is_unproven { Level::Warning } else { Level::Info };
    Some(Established { level, text, details })
}

/// What a RADIUS server has to say so that its user counts as proven.
pub(crate) const UNPROVEN_USER: &[&str] = &[
    "let the server send the user whom it has authenticated as User-Name in Access-Accept: FreeRADIUS in \
     post-auth of inner-tunnel, `update outer.session-state { User-Name := &User-Name }`",
    "if it does, or if it refuses an EAP identity that differs from the authenticated user, set \
     trust_user_name = yes in `eap-radius`: a copy of the EAP identity then counts as well",
];

const UNPROVEN: &str = "the RADIUS server has not said which user it has authenticated, so this IKE SA \
                        replaces no other one, and takes over no virtual address";

/// What a peer proved before the last round of authentication.
fn earlier_round(round: &ProvenRound) -> String {
    let peer = &round.peer;
    match &round.eap_identity {
        None => format!(", earlier round: {peer}"),
        Some(user) => format!(", earlier round: {}, which calls itself {peer}", wording::user(user)),
    }
}

/// The post-quantum pre-shared key of an IKE SA.
fn with_ppk(id: &[u8]) -> String {
    format!(", with the post-quantum pre-shared key `{}`", wording::octets(id))
}

/// What the IKE SA has negotiated, and what it does without.
fn negotiated(connection: &Connection, ppk_id: Option<&[u8]>, sa: Option<&NoticeSa>) -> Vec<String> {
    let sa = if let Some(NoticeSa::Ike(status)) = sa { Some(status) } else { None };
    let suite = sa.and_then(|sa| sa.suite.as_ref()).map(negotiated::algorithms);
    let without_kex = sa.and_then(|sa| negotiated::without_additional_kex(sa));
    let without_ppk = negotiated::without_ppk(connection, ppk_id);
    [suite, without_kex, without_ppk].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::config::Identity;
    use casemate_ike::{IkeSaId, Path, UserIdentity};
    use std::sync::Arc;

    fn up(user: UserIdentity, resumes: Option<IkeSaId>) -> Established {
        let id = |name: &str| Identity::Fqdn(name.into());
        let event = Event::IkeUp {
            ike: IkeSaId::for_tests(2),
            connection: Arc::new(Connection::with_shared_key("users", id("gateway"), id("eve"))),
            peer: id("eve"),
            eap_identity: Some(user),
            earlier_rounds: Vec::new(),
            resumes,
            ppk_id: None,
            path: Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() },
            is_restored: false,
        };
        established(&event, None).unwrap()
    }

    #[test]
    fn an_identity_that_is_only_claimed_is_no_proven_one() {
        let proven = up(UserIdentity::Proven(b"alice".into()), None);
        assert_eq!(
            proven.text,
            "established with EAP identity `alice` at 192.0.2.2:500, which calls itself eve"
        );
        assert_eq!((proven.level, proven.details.len()), (Level::Info, 0));
        let login = IkeSaId::for_tests(1);
        let claimed = || UserIdentity::Claimed { identity: b"alice\x1b".into(), login };
        let message = up(claimed(), None);
        assert!(message.text.starts_with("established with unproven EAP identity `alice\\u{1b}` at"));
        assert_eq!((message.level, message.details.len()), (Level::Warning, 3));
        // Once for each login.
        let message = up(claimed(), Some(login));
        assert_eq!((message.level, message.details.len()), (Level::Info, 0));
    }
}
