//! The sections of `connections`: peers, their addresses, and the parameters of their IKE SAs.

use super::address;
use super::auth_round::{self, ANY_PROOF, OwnSignature, PeerConditions};
use super::child::{self, ChildEntry};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::tunnel::{self, InterfaceRequest};
use super::value::{choice, parse_number, positive, time, truth};
use casemate_crypto::KexMethod;
use casemate_datapath::pmtu;
use casemate_ike::config::{
    self, AddrPattern, ChildConfig, Childless, Connection, EapIdentity, Encapsulation, Fragmentation,
    IdPattern, Lifespan, LocalMethod, PacketLimits, RemoteEap, RemoteMethod, SERVER_POOL, SendCert, Shunt,
    StartAction, Unique,
};
use casemate_sa::SpdPair;
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
        ("if_id_in", Rule::Read),
        ("if_id_out", Rule::Read),
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
    pub(super) own: OwnSignature,
    pub(super) conditions: PeerConditions,
    pub(super) interfaces: Vec<InterfaceRequest>,
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
    let (name, directory, problems) = (resolved.name(), context.directory, context.problems);
    let (local, own) =
        auth_round::local(single_section(resolved, "local", &keys).as_ref(), name, directory, problems);
    let remote = single_section(resolved, "remote", &keys);
    if remote.is_none() {
        keys.section_warning(&format!("there is no section `remote`: {ANY_PROOF}"));
    }
    let (remote, conditions) = auth_round::remote(remote.as_ref(), name, directory, problems);
    let remote_addrs = addresses_or_any(&keys, "remote_addrs");
    let peer = remote_addrs.iter().find(|addr| addr.is_single());
    let Children { children, shunts, interfaces } = children(resolved, peer, tunnel::ids(&keys), context);
    let packet_limits = packet_limits(&keys, peer);
    let (lifespan, reauth) = lifespan(&keys);
    let proposals: Vec<_> =
        keys.list("proposals", casemate_strongswan::proposal::parse_ike).into_iter().flatten().collect();
    if proposals.iter().any(|proposal| proposal.kex.contains(&KexMethod::Modp1024)) {
        keys.warn("proposals", WEAK_GROUP);
    }
    let pools: Vec<String> = keys.list("pools", |pool| known_pool(pool, context.pools));
    let is_relayed = matches!(&remote.method, RemoteMethod::Eap(remote) if remote.is_relayed());
    if pools.iter().any(|pool| pool == SERVER_POOL) && !is_relayed {
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
        children,
        shunts,
        vips: keys.list("vips", address::addr),
        pools,
        mobike: keys.get("mobike", truth).unwrap_or(true),
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
    ParsedConnection { connection, own, conditions, interfaces }
}

/// Warns of identities that a peer only claims, and of responders that any certificate of the CA satisfies.
fn warn_of_unproven_identities(connection: &Connection, keys: &Keys<'_>) {
    let is_any = connection.remote.id == IdPattern::Any;
    if let RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Asked, .. }) = connection.remote.method
        && !is_any
    {
        keys.section_warning(
            "with `eap_id = %any`, any user may claim remote.id and get the addresses and networks of this \
             connection: `eap_id` with the same identity was expected, or remote.id = %any",
        );
    }
    if matches!(connection.local.method, LocalMethod::Eap(_)) && is_any {
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

/// The section whose name begins with `prefix`; more than one is an error.
fn single_section<'r, 't>(
    resolved: &Resolved<'r, 't>,
    prefix: &str,
    keys: &Keys<'_>,
) -> Option<Resolved<'r, 't>> {
    let mut sections: Vec<_> = resolved.sections();
    sections.retain(|section| section.name().starts_with(prefix));
    if sections.len() > 1 {
        // Several rounds of authentication: RFC 4739.
        let why = format!(
            "several rounds of authentication are not implemented: one section `{prefix}` was expected"
        );
        keys.section_error(&why);
    }
    sections.into_iter().next()
}

/// The entries of `children`.
#[derive(Default)]
struct Children {
    children: Vec<Arc<ChildConfig>>,
    shunts: Vec<Shunt>,
    /// What they say about interfaces of tunnels.
    interfaces: Vec<InterfaceRequest>,
}

fn children(
    resolved: &Resolved<'_, '_>,
    peer: Option<&AddrPattern>,
    spds: SpdPair,
    context: &Context<'_>,
) -> Children {
    let mut entries = Children::default();
    let sections = resolved.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "children") else {
        return entries;
    };
    Keys::new(section, &CHILDREN, context.problems);
    for entry in section.sections() {
        match child::read(&entry, peer, spds, context) {
            ChildEntry::Child(child, interface) => {
                entries.children.push(Arc::from(child));
                entries.interfaces.extend(interface);
            }
            ChildEntry::Shunt(shunt) => entries.shunts.push(shunt),
        }
    }
    entries
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
