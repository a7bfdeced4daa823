//! The sections of `connections`: peers, their addresses, and the parameters of their IKE SAs.

use super::address;
use super::child::{self, ChildEntry};
use super::credential_rules::{OwnSignature, PeerConditions};
use super::lifetime;
use super::pool;
use super::pool_warnings;
use super::ppk;
use super::problem::Problems;
use super::resolved::Resolved;
use super::rounds::{self, Rounds};
use super::schema::{Keys, Rule, Schema};
use super::secret::SharedKey;
use super::selector_warnings;
use super::tunnel::{self, InterfaceRequest};
use super::updown::UpdownScripts;
use super::value::{choice, parse_number, positive, time, truth};
use casemate_datapath::pmtu;
use casemate_ike::TrafficSelectorTemplate;
use casemate_ike::config::{
    AddrPattern, ChildConfig, Childless, CloseAction, Connection, DomainPolicy, EapIdentity, Encapsulation,
    Fragmentation, IdPattern, LocalMethod, OcspInIke, PacketLimits, Pool, RemoteAuth, RemoteEap,
    RemoteMethod, ReplayTakeover, SERVER_POOL, SendCert, Shunt, StartAction, Unique,
};
use casemate_sa::{AddrRange, SpdRules};
use casemate_strongswan::proposal;
use std::path::Path;
use std::sync::Arc;

const NO_IKEV1: &str = "IKEv1 is not implemented";
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
        ("dns_domains", Rule::Read),
        ("aggressive", Rule::OnlyNo(NO_IKEV1)),
        ("pull", Rule::Only(&["yes", "true", "enabled", "1"], NO_IKEV1)),
        ("dscp", Rule::Only(&["000000"], "the DSCP of IKE packets cannot be set")),
        ("redirect_to", Rule::Read),
        ("resumption", Rule::Read),
        ("replay_takeover", Rule::Read),
        ("encap", Rule::Read),
        ("mobike", Rule::Read),
        ("dpd_delay", Rule::Read),
        ("dpd_timeout", Rule::Ignored),
        ("fragmentation", Rule::Read),
        ("childless", Rule::Read),
        ("full_transcript_auth", Rule::Read),
        ("send_certreq", Rule::Read),
        ("send_cert", Rule::Read),
        ("ocsp", Rule::Read),
        ("ppk_id", Rule::Read),
        ("ppk_required", Rule::Read),
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

/// Everything that one section of `connections` gives: the connection itself, the rules for signatures, and
/// the scripts of its children.
pub(super) struct ParsedConnection {
    pub(super) connection: Connection,
    /// Those of each round of this host.
    pub(super) own: Vec<OwnSignature>,
    /// Those of each round of the peer.
    pub(super) conditions: Vec<PeerConditions>,
    pub(super) scripts: UpdownScripts,
    pub(super) interfaces: Vec<InterfaceRequest>,
}

/// What the readers of all connections share.
pub(super) struct Context<'c> {
    /// The directory of the configuration file, which holds the folders of certificates and keys.
    pub(super) directory: &'c Path,
    /// Names of the pools that the configuration defines.
    pub(super) pools: &'c [String],
    /// The pools of the same file.
    pub(super) own_pools: &'c [Pool],
    /// Whether a scheduler reorders packets, so that replay windows must be wider.
    pub(super) has_scheduler: bool,
    /// Whether AAA servers name groups of peers.
    pub(super) has_groups: bool,
    /// The secrets of the whole configuration; `None` if others may be loaded later.
    pub(super) secrets: Option<&'c [SharedKey]>,
    pub(super) problems: &'c Problems,
}

/// Reads one connection. An error becomes a problem, and a default value takes its place.
pub(super) fn read(resolved: &Resolved<'_, '_>, context: &Context<'_>) -> ParsedConnection {
    let keys = Keys::new(resolved, &CONNECTION, context.problems);
    let name = resolved.name();
    let Rounds { local, remote, further, own, conditions } = rounds::read(resolved, &keys, context);
    let remote_addrs = addresses_or_any(&keys, "remote_addrs");
    let peer = remote_addrs.iter().find(|addr| addr.is_single());
    let Children { children, shunts, scripts, interfaces } =
        children(resolved, peer, tunnel::ids(&keys), context);
    let packet_limits = packet_limits(&keys, peer);
    let (lifespan, reauth) = lifetime::of_ike_sa(&keys);
    let proposals = keys.proposals("proposals", proposal::parse_ike);
    let pools: Vec<String> = keys.list("pools", |pool| known_pool(pool, context.pools));
    let is_relayed = |auth: &RemoteAuth| matches!(&auth.method, RemoteMethod::Eap(eap) if eap.is_relayed());
    let has_server = is_relayed(&remote) || further.remote.iter().any(is_relayed);
    if pools.iter().any(|pool| pool == SERVER_POOL) && !has_server {
        keys.error("pools", "the addresses of a RADIUS server need `auth = eap-radius` in `remote`");
    }
    let tries: Option<u32> = keys.get("keyingtries", parse_number);
    let connection = Connection {
        name: name.into(),
        local_addrs: addresses_or_any(&keys, "local_addrs"),
        remote_addrs,
        local_port: keys.get("local_port", positive).unwrap_or(500),
        remote_port: keys.get("remote_port", positive).unwrap_or(500),
        proposals: if proposals.is_empty() { proposal::default_ike() } else { proposals },
        local,
        remote,
        further_rounds: further,
        children,
        shunts,
        vips: keys.list("vips", address::addr),
        pools,
        dns_domains: DomainPolicy { accepted: keys.list("dns_domains", pool::domain) },
        mobike: keys.get("mobike", truth).unwrap_or(true),
        redirect_to: keys.get("redirect_to", address::gateway),
        resumption: keys.get("resumption", truth).unwrap_or(false),
        replay_takeover: keys
            .get("replay_takeover", choice(&REPLAY_TAKEOVER))
            .unwrap_or(ReplayTakeover::Sync),
        ppk: ppk::policy(&keys, context.secrets),
        encapsulation: keys.get("encap", encapsulation).unwrap_or(Encapsulation::IfNat),
        dpd_delay: keys.get("dpd_delay", time).flatten(),
        fragmentation: keys.get("fragmentation", fragmentation).unwrap_or(Fragmentation::Yes),
        path_mtu_probes: keys.get("path_mtu_probes", truth).unwrap_or(packet_limits.mtu.is_none()),
        childless: keys.get("childless", choice(&CHILDLESS)).unwrap_or(Childless::Allow),
        full_transcript_auth: keys.get("full_transcript_auth", truth).unwrap_or(true),
        keying_tries: tries.unwrap_or(1),
        keeps_trying: tries.is_none_or(|tries| tries == 0),
        unique: keys.get("unique", choice(&UNIQUE)).unwrap_or(Unique::No),
        lifespan,
        reauth,
        send_cert: keys.get("send_cert", choice(&SEND_CERT)).unwrap_or(SendCert::IfAsked),
        send_certreq: keys.get("send_certreq", truth).unwrap_or(true),
        ocsp: keys.get("ocsp", choice(&OCSP)).unwrap_or(OcspInIke::Reply),
        packet_limits,
    };
    if connection.has_further_rounds() && (connection.ppk.id.is_some() || connection.ppk.required) {
        let key = if keys.has("ppk_id") { "ppk_id" } else { "ppk_required" };
        keys.error(key, "with several rounds of authentication, no post-quantum pre-shared key is used");
    }
    warn_of_unproven_identities(&connection, &keys);
    selector_warnings::warn(&connection, &keys);
    warn_of_blocked_look_up(&connection, &keys);
    pool_warnings::warn(&connection, context.own_pools, &keys);
    if connection.vips.is_empty() && keys.has("dns_domains") {
        keys.error(
            "dns_domains",
            "the peer assigns name servers together with an address: `vips` was expected",
        );
    }
    if connection.is_started_by_peer()
        && connection.children.iter().any(|child| child.start_action != StartAction::default())
    {
        keys.section_error(
            "the peer authenticates itself by EAP and must start the IKE SA, but a child has a start_action: \
             none was expected",
        );
    }
    ParsedConnection { connection, own, conditions, scripts, interfaces }
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

/// Warns of a client that looks up the name of its gateway, and whose trap blocks the look-up.
fn warn_of_blocked_look_up(connection: &Connection, keys: &Keys<'_>) {
    let is_name = |addr: &&AddrPattern| matches!(addr, AddrPattern::Host(_));
    let is_all = |template: &TrafficSelectorTemplate| {
        [AddrRange::ANY_V4, AddrRange::ANY_V6].map(Some).contains(&template.addrs)
    };
    let blocks = |child: &Arc<ChildConfig>| {
        let is_trapped = child.start_action.on_traffic || child.has_action(CloseAction::Trap);
        is_trapped && child.remote_ts.iter().any(is_all)
    };
    let passes = connection.shunts.iter().any(|shunt| shunt.passes);
    if connection.remote_addrs.iter().all(|addr| is_name(&addr))
        && connection.children.iter().any(blocks)
        && !passes
    {
        keys.warn(
            "remote_addrs",
            "remote_ts has all addresses, so the name is not found while the tunnel is down: the trap, and \
             what a crash leaves, block the look-up. An address was expected, or a child with `mode = pass` \
             for the name servers of the local network",
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

const REPLAY_TAKEOVER: [(&str, ReplayTakeover); 3] =
    [("sync", ReplayTakeover::Sync), ("strict", ReplayTakeover::Strict), ("learn", ReplayTakeover::Learn)];

const SEND_CERT: [(&str, SendCert); 3] =
    [("ifasked", SendCert::IfAsked), ("always", SendCert::Always), ("never", SendCert::Never)];

const OCSP: [(&str, OcspInIke); 4] = [
    ("reply", OcspInIke::Reply),
    ("request", OcspInIke::Request),
    ("both", OcspInIke::Both),
    ("never", OcspInIke::Never),
];

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

/// The entries of the section `children`.
#[derive(Default)]
struct Children {
    children: Vec<Arc<ChildConfig>>,
    shunts: Vec<Shunt>,
    scripts: UpdownScripts,
    /// What they say about interfaces of tunnels.
    interfaces: Vec<InterfaceRequest>,
}

fn children(
    resolved: &Resolved<'_, '_>,
    peer: Option<&AddrPattern>,
    spds: SpdRules,
    context: &Context<'_>,
) -> Children {
    let mut read = Children::default();
    let sections = resolved.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "children") else {
        return read;
    };
    Keys::new(section, &CHILDREN, context.problems);
    for entry in section.sections() {
        match child::read(&entry, peer, spds, context) {
            ChildEntry::Child(child, script, interface) => {
                read.scripts.extend(script.map(|script| (child.name.clone(), script)));
                read.children.push(child);
                read.interfaces.extend(interface);
            }
            ChildEntry::Shunt(shunt) => read.shunts.push(shunt),
        }
    }
    read
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
