//! The sections of `connections`: peers, their addresses, and the parameters of their IKE SAs.

use super::address;
use super::auth_round::{self, ANY_PROOF, OwnSignature, PeerConditions, RoundContext};
use super::child::{self, ChildEntry};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{choice, parse_number, positive, time, truth};
use casemate_crypto::KexMethod;
use casemate_datapath::pmtu;
use casemate_ike::config::{
    self, AddrPattern, ChildConfig, Childless, Connection, EapIdentity, Encapsulation, Fragmentation,
    FurtherRounds, IdPattern, Lifespan, LocalAuth, LocalMethod, PacketLimits, RemoteAuth, RemoteEap,
    RemoteMethod, SERVER_POOL, SendCert, Shunt, StartAction, Unique,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Default of `rekey_time`.
const REKEY: Duration = Duration::from_secs(4 * 3_600);

/// Warning about `modp1024`.
pub(super) const WEAK_GROUP: &str = "modp1024 has only 1024 bits, and RFC 8247 section 2.4 says SHOULD NOT: \
                                     modp2048, ecp256 or another stronger group was expected; remove it as \
                                     soon as the peer has one";

const NO_IKEV1: &str = "IKEv1 is not implemented";
const NO_PPK: &str = "post-quantum pre-shared keys are not implemented";
const NO_INTERFACES: &str = "XFRM interfaces belong to the kernel's IPsec";
const NO_MEDIATION: &str = "mediation is not implemented";

pub(super) const CONNECTION: Schema = Schema {
    keys: &[
        ("version", Rule::Only(&["0", "2"], NO_IKEV1)),
        ("local_addrs", Rule::Read),
        ("remote_addrs", Rule::Read),
        ("local_port", Rule::Read),
        ("remote_port", Rule::Read),
        ("proposals", Rule::Read),
        ("vips", Rule::Read),
        ("aggressive", Rule::OnlyNo(NO_IKEV1)),
        ("pull", Rule::Only(&["yes", "true", "enabled", "1"], NO_IKEV1)),
        ("dscp", Rule::Only(&["000000"], "the DSCP of IKE packets cannot be set")),
        ("redirect_to", Rule::Read),
        ("encap", Rule::Read),
        ("mobike", Rule::Read),
        ("dpd_delay", Rule::Read),
        ("dpd_timeout", Rule::Ignored),
        ("fragmentation", Rule::Read),
        ("childless", Rule::Read),
        ("send_certreq", Rule::Read),
        ("send_cert", Rule::Read),
        ("ocsp", Rule::Only(&["never"], "OCSP is not implemented")),
        ("ppk_id", Rule::Refused(NO_PPK)),
        ("ppk_required", Rule::OnlyNo(NO_PPK)),
        ("keyingtries", Rule::Read),
        ("unique", Rule::Read),
        ("reauth_time", Rule::Read),
        ("rekey_time", Rule::Read),
        ("over_time", Rule::Read),
        ("rand_time", Rule::Read),
        ("pools", Rule::Read),
        ("mtu", Rule::Read),
        ("path_mtu_probes", Rule::Read),
        ("mss", Rule::Read),
        ("if_id_in", Rule::Only(&["0"], NO_INTERFACES)),
        ("if_id_out", Rule::Only(&["0"], NO_INTERFACES)),
        ("mediation", Rule::OnlyNo(NO_MEDIATION)),
        ("mediated_by", Rule::Refused(NO_MEDIATION)),
        ("mediation_peer", Rule::Refused(NO_MEDIATION)),
    ],
    sections: &["local", "remote", "=children"],
};

const CHILDREN: Schema = Schema { keys: &[], sections: &[""] };

/// Everything that one section of `connections` gives: the connection itself, and the rules for
/// signatures.
pub(super) struct ParsedConnection {
    pub(super) connection: Connection,
    /// Those of each round of this host.
    pub(super) own: Vec<OwnSignature>,
    /// Those of each round of the peer.
    pub(super) conditions: Vec<PeerConditions>,
}

/// What the readers of all connections share.
pub(super) struct Context<'c> {
    /// The directory of the configuration file, which holds the folders of certificates and keys.
    pub(super) directory: &'c Path,
    /// Names of the pools that the configuration defines.
    pub(super) pools: &'c [String],
    /// Whether a scheduler reorders packets, so that replay windows must be wider.
    pub(super) has_scheduler: bool,
    pub(super) problems: &'c Problems,
}

/// Reads one connection. An error becomes a problem, and a default value takes its place.
pub(super) fn read(resolved: &Resolved<'_, '_>, context: &Context<'_>) -> ParsedConnection {
    let keys = Keys::new(resolved, &CONNECTION, context.problems);
    let name = resolved.name();
    let Rounds { local, remote, further, own, conditions } = rounds(resolved, &keys, context);
    let remote_addrs = addresses_or_any(&keys, "remote_addrs");
    let peer = remote_addrs.iter().find(|addr| addr.is_single());
    let (children, shunts) = children(resolved, peer, context);
    let packet_limits = packet_limits(&keys, peer);
    let (lifespan, reauth) = lifespan(&keys);
    let proposals: Vec<_> =
        keys.list("proposals", casemate_strongswan::proposal::parse_ike).into_iter().flatten().collect();
    if proposals.iter().any(|proposal| proposal.kex.contains(&KexMethod::Modp1024)) {
        keys.warn("proposals", WEAK_GROUP);
    }
    let pools: Vec<String> = keys.list("pools", |pool| known_pool(pool, context.pools));
    let is_relayed = |auth: &RemoteAuth| matches!(&auth.method, RemoteMethod::Eap(eap) if eap.is_relayed());
    let has_server = is_relayed(&remote) || further.remote.iter().any(is_relayed);
    if pools.iter().any(|pool| pool == SERVER_POOL) && !has_server {
        keys.error("pools", "the addresses of a RADIUS server need `auth = eap-radius` in `remote`");
    }
    let connection = Connection {
        name: name.into(),
        local_addrs: addresses_or_any(&keys, "local_addrs"),
        remote_addrs,
        local_port: keys.get("local_port", positive).unwrap_or(500),
        remote_port: keys.get("remote_port", positive).unwrap_or(500),
        proposals: if proposals.is_empty() { config::ike_proposals() } else { proposals },
        local,
        remote,
        further_rounds: further,
        children,
        shunts,
        vips: keys.list("vips", address::addr),
        pools,
        mobike: keys.get("mobike", truth).unwrap_or(true),
        redirect_to: keys.get("redirect_to", address::addr),
        encapsulation: keys.get("encap", encapsulation).unwrap_or(Encapsulation::IfNat),
        dpd_delay: keys.get("dpd_delay", time).flatten(),
        fragmentation: keys.get("fragmentation", fragmentation).unwrap_or(Fragmentation::Yes),
        path_mtu_probes: keys.get("path_mtu_probes", truth).unwrap_or(packet_limits.mtu.is_none()),
        childless: keys.get("childless", choice(&CHILDLESS)).unwrap_or(Childless::Allow),
        keying_tries: keys.get("keyingtries", parse_number).unwrap_or(1),
        unique: keys.get("unique", choice(&UNIQUE)).unwrap_or(Unique::No),
        lifespan,
        reauth,
        send_cert: keys.get("send_cert", choice(&SEND_CERT)).unwrap_or(SendCert::IfAsked),
        send_certreq: keys.get("send_certreq", truth).unwrap_or(true),
        packet_limits,
    };
    warn_of_unproven_identities(&connection, &keys);
    if connection.is_started_by_peer()
        && connection.children.iter().any(|child| child.start_action != StartAction::default())
    {
        keys.section_error(
            "the peer authenticates itself by EAP and must start the IKE SA, but a child has a start_action: \
             none was expected",
        );
    }
    ParsedConnection { connection, own, conditions }
}

/// Warns of identities that a peer only claims, and of responders that any certificate of the CA satisfies.
fn warn_of_unproven_identities(connection: &Connection, keys: &Keys<'_>) {
    let remotes = || [&connection.remote].into_iter().chain(&connection.further_rounds.remote);
    let locals = || [&connection.local].into_iter().chain(&connection.further_rounds.local);
    let is_any = |auth: &RemoteAuth| auth.id == IdPattern::Any;
    let is_only_claimed = |auth: &RemoteAuth| {
        let asks = |eap: &RemoteEap| eap.identity == EapIdentity::Asked;
        matches!(&auth.method, RemoteMethod::Eap(eap) if asks(eap)) && !is_any(auth)
    };
    if remotes().any(is_only_claimed) {
        keys.section_warning(
            "with `eap_id = %any`, any user may claim remote.id and get the addresses and networks of this \
             connection: `eap_id` with the same identity was expected, or remote.id = %any",
        );
    }
    if locals().any(|auth| matches!(auth.method, LocalMethod::Eap(_))) && remotes().any(is_any) {
        keys.section_warning(
            "any peer with a trusted proof may ask for the password: the identity of the gateway was expected \
             as remote.id",
        );
    }
}

const CHILDLESS: [(&str, Childless); 4] = [
    ("allow", Childless::Allow),
    ("prefer", Childless::Prefer),
    ("force", Childless::Force),
    ("never", Childless::Never),
];

const UNIQUE: [(&str, Unique); 4] =
    [("no", Unique::No), ("never", Unique::Never), ("keep", Unique::Keep), ("replace", Unique::Replace)];

const SEND_CERT: [(&str, SendCert); 3] =
    [("ifasked", SendCert::IfAsked), ("always", SendCert::Always), ("never", SendCert::Never)];

/// Reads `fragmentation`. `force` concerns the first message of IKEv1, so it is the same as `yes` here.
fn fragmentation(text: &str) -> Result<Fragmentation, String> {
    let words = [
        ("yes", Fragmentation::Yes),
        ("accept", Fragmentation::Accept),
        ("no", Fragmentation::No),
        ("force", Fragmentation::Yes),
    ];
    choice(&words)(text)
}

/// Reads `encap`, which has the value `auto` only in Casemate.
fn encapsulation(text: &str) -> Result<Encapsulation, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Encapsulation::Auto);
    }
    let always = truth(text).map_err(|_| "yes, no or auto was expected")?;
    Ok(if always { Encapsulation::Always } else { Encapsulation::IfNat })
}

fn known_pool(name: &str, pools: &[String]) -> Result<String, String> {
    if name == SERVER_POOL || pools.iter().any(|pool| pool == name) {
        return Ok(name.into());
    }
    Err("there is no such pool: the name of a section in `pools` was expected".into())
}

/// The authentication of both sides.
struct Rounds {
    local: LocalAuth,
    remote: RemoteAuth,
    further: FurtherRounds,
    own: Vec<OwnSignature>,
    conditions: Vec<PeerConditions>,
}

/// Maximum number of rounds of one side.
const MAX_ROUNDS: usize = 8;

/// Reads the sections whose names begin with `local` and `remote`: one round of authentication each (RFC
/// 4739).
fn rounds(resolved: &Resolved<'_, '_>, keys: &Keys<'_>, context: &Context<'_>) -> Rounds {
    let Context { directory, problems, .. } = *context;
    let in_round = |round| RoundContext { connection: resolved.name(), round, directory, problems };
    let sections = |prefix, schema| {
        let mut sections: Vec<_> = resolved.sections();
        sections.retain(|section| section.name().starts_with(prefix));
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

fn children(
    resolved: &Resolved<'_, '_>,
    peer: Option<&AddrPattern>,
    context: &Context<'_>,
) -> (Vec<Arc<ChildConfig>>, Vec<Shunt>) {
    let (mut children, mut shunts) = (Vec::new(), Vec::new());
    let sections = resolved.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "children") else {
        return (children, shunts);
    };
    Keys::new(section, &CHILDREN, context.problems);
    for entry in section.sections() {
        match child::read(&entry, peer, context) {
            ChildEntry::Child(child) => children.push(Arc::new(child)),
            ChildEntry::Shunt(shunt) => shunts.push(shunt),
        }
    }
    (children, shunts)
}

/// Reads a list of endpoint addresses. An empty list is any address.
fn addresses_or_any(keys: &Keys<'_>, name: &str) -> Vec<AddrPattern> {
    let patterns = keys.list(name, address::endpoint);
    if patterns.is_empty() { vec![AddrPattern::Any] } else { patterns }
}

/// Smallest configurable MTU for peers with an IPv4 address, and for the others (RFC 8200 section 5).
const MIN_MTU: (u16, u16) = (pmtu::V4_MIN_MTU as u16, pmtu::V6_MIN_MTU as u16);
/// Smallest configurable MSS: that of the smallest IPv4 link (RFC 791 section 3.2), without headers.
const MIN_MSS: u16 = 28;

/// Reads `mtu` and `mss`, which only Casemate has: strongSwan configures them for all connections.
fn packet_limits(keys: &Keys<'_>, peer: Option<&AddrPattern>) -> PacketLimits {
    let is_v6 = matches!(peer, Some(AddrPattern::Range(range)) if !range.is_ipv4());
    let min_mtu = if is_v6 { MIN_MTU.1 } else { MIN_MTU.0 };
    PacketLimits {
        mtu: keys.get("mtu", |text| bytes_from(text, min_mtu)),
        mss: keys.get("mss", |text| bytes_from(text, MIN_MSS)),
    }
}

fn bytes_from(text: &str, min: u16) -> Result<u16, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes >= min);
    bytes.ok_or_else(|| format!("a number of bytes from {min} to {} was expected", u16::MAX))
}

/// Lifetimes of the IKE SA. The default is rekeying without reauthentication; with `reauth_time`, the SA
/// is rekeyed only if `rekey_time` is given too.
fn lifespan(keys: &Keys<'_>) -> (Lifespan, Option<Duration>) {
    let reauth = keys.get("reauth_time", time).flatten();
    let default = if reauth.is_none() { Some(REKEY) } else { None };
    let rekey = keys.get("rekey_time", time).unwrap_or(default);
    let longest = rekey.max(reauth).unwrap_or_default();
    let over = keys.get("over_time", time).map_or_else(|| child::tenth(longest), Option::unwrap_or_default);
    let shortest = match (rekey, reauth) {
        (Some(rekey), Some(reauth)) => Some(rekey.min(reauth)),
        (one, other) => one.or(other),
    };
    let half = shortest.unwrap_or_default() / 2;
    let random = child::random(keys, shortest, over.min(half));
    let hard = rekey.or(reauth).map(|time| time.saturating_add(over));
    (Lifespan { rekey, jitter: random, hard }, reauth)
}
