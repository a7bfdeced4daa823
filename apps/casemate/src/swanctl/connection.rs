//! `connections`: with whom, and how.

use super::address::{self, End};
use super::child::{self, Entry};
use super::files::Host;
use super::round::{self, ANY_PROOF, OwnSignature, PeerConditions};
use super::schema::{Keys, Problems, Rule, Schema};
use super::value::{choice, number, positive, time, truth};
use super::view::View;
use casemate_ike::config::{
    self, AddrPattern, Child, Childless, Connection, Fragmentation, Lifespan, SendCert, Shunt, Unique,
};
use casemate_ike::spelling;
use casemate_sa::AddrRange;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time until rekeying where none is given.
const REKEY: Duration = Duration::from_secs(4 * 3_600);

const NO_IKEV1: &str = "IKEv1 is not implemented";
const NO_PPK: &str = "post-quantum pre-shared keys are not implemented";
const NO_INTERFACES: &str = "XFRM interfaces are the kernel's";
const NO_MEDIATION: &str = "mediation is not implemented";

pub(super) const CONNECTION: Schema = Schema {
    keys: &[
        ("version", Rule::Only(&["0", "2"], NO_IKEV1)),
        ("local_addrs", Rule::Take),
        ("remote_addrs", Rule::Take),
        ("local_port", Rule::Take),
        ("remote_port", Rule::Take),
        ("proposals", Rule::Take),
        ("vips", Rule::Take),
        ("aggressive", Rule::Off(NO_IKEV1)),
        ("pull", Rule::Only(&["yes", "true", "enabled", "1"], NO_IKEV1)),
        ("dscp", Rule::Only(&["000000"], "IKE packets have no DSCP of their own")),
        ("encap", Rule::Take),
        ("mobike", Rule::Off("MOBIKE is not implemented")),
        ("dpd_delay", Rule::Take),
        ("dpd_timeout", Rule::NoEffect),
        ("fragmentation", Rule::Take),
        ("childless", Rule::Take),
        ("send_certreq", Rule::Take),
        ("send_cert", Rule::Take),
        ("ocsp", Rule::Only(&["never"], "OCSP is not implemented")),
        ("ppk_id", Rule::Never(NO_PPK)),
        ("ppk_required", Rule::Off(NO_PPK)),
        ("keyingtries", Rule::Take),
        ("unique", Rule::Take),
        ("reauth_time", Rule::Take),
        ("rekey_time", Rule::Take),
        ("over_time", Rule::Take),
        ("rand_time", Rule::Take),
        ("pools", Rule::Take),
        ("if_id_in", Rule::Only(&["0"], NO_INTERFACES)),
        ("if_id_out", Rule::Only(&["0"], NO_INTERFACES)),
        ("mediation", Rule::Off(NO_MEDIATION)),
        ("mediated_by", Rule::Never(NO_MEDIATION)),
        ("mediation_peer", Rule::Never(NO_MEDIATION)),
    ],
    sections: &["local", "remote", "=children"],
};

const CHILDREN: Schema = Schema { keys: &[], sections: &[""] };

/// What is read of a connection.
pub(super) struct Whole {
    pub(super) connection: Connection,
    pub(super) own: OwnSignature,
    pub(super) conditions: PeerConditions,
}

/// Where a configuration stands, and what it may ask.
pub(super) struct Context<'c> {
    pub(super) host: &'c dyn Host,
    /// The directory of the configuration, with the folders of certificates and keys.
    pub(super) directory: &'c Path,
    /// Names of the pools.
    pub(super) pools: &'c [String],
    /// Whether urgent packets from a peer overtake others.
    pub(super) packets_overtake: bool,
    pub(super) problems: &'c Problems,
}

/// Reads one connection. What is wrong becomes a problem, and some value in its place.
pub(super) fn read(view: &View<'_, '_>, context: &Context<'_>) -> Whole {
    let keys = Keys::new(view, &CONNECTION, context.problems);
    let (name, directory, problems) = (view.name(), context.directory, context.problems);
    let (local, own) = round::local(only(view, "local", &keys).as_ref(), name, directory, problems);
    let remote = only(view, "remote", &keys);
    if remote.is_none() {
        keys.warn_section(&format!("there is no section `remote`: {ANY_PROOF}"));
    }
    let (remote, conditions) = round::remote(remote.as_ref(), name, directory, problems);
    let remote_addrs = ends(&keys, "remote_addrs", context.host);
    let peer = remote_addrs.iter().find_map(|addr| addr.single());
    let (children, shunts) = children(view, peer, context);
    let (lifespan, reauth) = lifespan(&keys);
    let proposals: Vec<_> = keys.list("proposals", spelling::proposal::ike).into_iter().flatten().collect();
    let connection = Connection {
        name: name.into(),
        local_addrs: ends(&keys, "local_addrs", context.host),
        remote_addrs,
        local_port: keys.get("local_port", positive).unwrap_or(500),
        remote_port: keys.get("remote_port", positive).unwrap_or(500),
        proposals: if proposals.is_empty() { config::ike_proposals() } else { proposals },
        local,
        remote,
        children,
        shunts,
        vips: keys.list("vips", address::addr),
        pools: keys.list("pools", |pool| known_pool(pool, context.pools)),
        force_encap: keys.get("encap", truth).unwrap_or(false),
        dpd_delay: keys.get("dpd_delay", time).flatten(),
        fragmentation: keys.get("fragmentation", fragmentation).unwrap_or(Fragmentation::Yes),
        childless: keys.get("childless", choice(&CHILDLESS)).unwrap_or(Childless::Allow),
        keying_tries: keys.get("keyingtries", number).unwrap_or(1),
        unique: keys.get("unique", choice(&UNIQUE)).unwrap_or(Unique::No),
        lifespan,
        reauth,
        send_cert: keys.get("send_cert", choice(&SEND_CERT)).unwrap_or(SendCert::IfAsked),
        send_certreq: keys.get("send_certreq", truth).unwrap_or(true),
    };
    Whole { connection, own, conditions }
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

/// Of IKEv2 messages only `yes` and `accept` differ from `force`, which concerns the first message of IKEv1.
fn fragmentation(text: &str) -> Result<Fragmentation, String> {
    let words = [
        ("yes", Fragmentation::Yes),
        ("accept", Fragmentation::Accept),
        ("no", Fragmentation::No),
        ("force", Fragmentation::Yes),
    ];
    choice(&words)(text)
}

fn known_pool(name: &str, pools: &[String]) -> Result<String, String> {
    if pools.iter().any(|pool| pool == name) {
        return Ok(name.into());
    }
    Err("there is no such pool: the name of a section in `pools` was expected".into())
}

/// The one section whose name begins so.
fn only<'r, 't>(view: &View<'r, 't>, front: &str, keys: &Keys<'_>) -> Option<View<'r, 't>> {
    let mut sections: Vec<_> = view.sections();
    sections.retain(|section| section.name().starts_with(front));
    if sections.len() > 1 {
        // RFC 4739.
        let why = format!(
            "several rounds of authentication are not implemented: one section `{front}` was expected"
        );
        keys.wrong_section(&why);
    }
    sections.into_iter().next()
}

fn children(
    view: &View<'_, '_>,
    peer: Option<IpAddr>,
    context: &Context<'_>,
) -> (Vec<Arc<Child>>, Vec<Shunt>) {
    let (mut children, mut shunts) = (Vec::new(), Vec::new());
    let sections = view.sections();
    let Some(section) = sections.iter().find(|section| section.name() == "children") else {
        return (children, shunts);
    };
    Keys::new(section, &CHILDREN, context.problems);
    for entry in section.sections() {
        match child::read(&entry, peer, context) {
            Entry::Child(child) => children.push(Arc::new(child)),
            Entry::Shunt(shunt) => shunts.push(shunt),
        }
    }
    (children, shunts)
}

/// Addresses of an end; hosts are looked up.
fn ends(keys: &Keys<'_>, name: &str, host: &dyn Host) -> Vec<AddrPattern> {
    let read = |text: &str| match address::end(text)? {
        End::Is(pattern) => Ok(vec![pattern]),
        End::Host(name) => match host.addresses(&name) {
            Ok(addrs) if addrs.is_empty() => Err("this host has no address".into()),
            Ok(addrs) => {
                Ok(addrs.into_iter().map(|addr| AddrPattern::Range(AddrRange::single(addr))).collect())
            }
            Err(error) => Err(format!("looking up this host failed: {error}")),
        },
    };
    let ends: Vec<AddrPattern> = keys.list(name, read).into_iter().flatten().collect();
    if ends.is_empty() { vec![AddrPattern::Any] } else { ends }
}

/// Times of the IKE SA: rekeying by default, but not beside reauthentication unless both are asked for.
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
    let half = shortest.and_then(|time| time.checked_div(2)).unwrap_or_default();
    let random = child::random(keys, shortest, over.min(half));
    let hard = rekey.or(reauth).map(|time| time.saturating_add(over));
    (Lifespan { rekey, random, hard }, reauth)
}
