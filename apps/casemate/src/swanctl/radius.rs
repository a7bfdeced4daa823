//! The section `eap-radius` of `charon.plugins`: AAA servers, under their names in strongswan.conf(5).

use super::charon::{base, tries};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::secret::take_secret;
use super::value::{Parsed, positive, time, truth};
use casemate_crypto::SecretBytes;
use casemate_radius::{MAX_SERVERS, Retransmission, Server};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const PLUGINS: Schema =
    Schema { keys: &[], sections: &["=eap-radius", "=pkcs11", "=resolve", "=revocation"] };

const WITHOUT_SERVER: &str = "it belongs to `server`: the address of the server was expected beside it";

pub(super) const EAP_RADIUS: Schema = Schema {
    keys: &[
        ("load", Rule::Ignored),
        ("accounting", Rule::Read),
        ("accounting_interval", Rule::Read),
        ("accounting_requires_vip", Rule::Read),
        ("accounting_send_class", Rule::Read),
        ("accounting_close_on_timeout", Rule::OnlyNo("a session goes on if its accounting gets no answer")),
        ("class_group", Rule::Read),
        ("filter_id", Rule::Read),
        ("close_all_on_timeout", Rule::OnlyNo("sessions go on if a server does not answer")),
        ("eap_start", Rule::OnlyNo("the identity of the peer is always sent")),
        ("id_prefix", Rule::Refused("the identity of the peer is sent as it is")),
        ("nas_identifier", Rule::Read),
        ("station_id_with_port", Rule::Read),
        ("retransmit_tries", Rule::Read),
        ("retransmit_timeout", Rule::Read),
        ("retransmit_base", Rule::Read),
        ("server", Rule::Read),
        ("secret", Rule::Read),
        ("port", Rule::Read),
        ("sockets", Rule::Ignored),
        ("trust_user_name", Rule::Read),
    ],
    sections: &["=servers", "=dae"],
};

const SERVERS: Schema = Schema { keys: &[], sections: &[""] };

pub(super) const SERVER: Schema = Schema {
    keys: &[
        ("address", Rule::Read),
        ("secret", Rule::Read),
        ("auth_port", Rule::Read),
        ("port", Rule::Read),
        ("acct_port", Rule::Read),
        ("nas_identifier", Rule::Read),
        ("preference", Rule::Read),
        ("sockets", Rule::Ignored),
        ("retransmit_tries", Rule::Refused(FOR_ALL)),
        ("retransmit_timeout", Rule::Refused(FOR_ALL)),
        ("retransmit_base", Rule::Refused(FOR_ALL)),
    ],
    sections: &[],
};

const FOR_ALL: &str = "it is the same for all servers: it was expected in `eap-radius`";

pub(super) const DAE: Schema = Schema {
    keys: &[("enable", Rule::Read), ("listen", Rule::Read), ("port", Rule::Read), ("secret", Rule::Read)],
    sections: &[],
};

/// Default ports (RFC 2865 section 3, RFC 2866 section 3, RFC 5176 section 2.1).
const AUTH_PORT: u16 = 1_812;
const ACCT_PORT: u16 = 1_813;
const DAE_PORT: u16 = 3_799;
/// Maximum length of a NAS-Identifier in bytes.
const MAX_NAS_IDENTIFIER: usize = 253;
/// Shortest interval of interim updates (RFC 2869 section 2.1).
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// AAA servers, and what is asked of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadiusConfig {
    /// Servers, the preferred one first. Never empty.
    pub servers: Vec<Server>,
    /// When requests are sent again.
    pub retransmission: Retransmission,
    /// Whether Called-Station-Id and Calling-Station-Id contain ports.
    pub ids_have_port: bool,
    /// What names the groups of a peer.
    pub groups: GroupSources,
    /// Whether User-Name in Access-Accept is the authenticated user in any case. If not, it may be a copy of
    /// the EAP identity that the peer has claimed.
    pub trusts_user_name: bool,
    /// Accounting, if it is wanted.
    pub accounting: Option<Accounting>,
    /// Requests of servers to end sessions, if they are accepted.
    pub dae: Option<DynamicAuthorization>,
}

/// Attributes of a server that name groups of a peer, for `groups` of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupSources {
    /// Class.
    pub class: bool,
    /// Filter-Id, beside a Tunnel-Type of ESP.
    pub filter_id: bool,
}

impl GroupSources {
    /// Whether any attribute names groups.
    pub const fn is_any(self) -> bool {
        self.class || self.filter_id
    }
}

/// What is reported about sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounting {
    /// Interval of interim updates, unless the server gives one.
    pub interval: Option<Duration>,
    /// Whether only sessions with a virtual address are reported.
    pub requires_vip: bool,
    /// Whether the Class attributes of Access-Accept are repeated.
    pub sends_class: bool,
}

/// Where servers may request the end of sessions (RFC 5176).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamicAuthorization {
    /// Local address and port.
    pub listen: SocketAddr,
    /// Secret that this host shares with the requesters.
    pub secret: SecretBytes,
}

/// Reads the section `plugins`.
pub(super) fn read(plugins: &Resolved<'_, '_>, problems: &Problems) -> Option<RadiusConfig> {
    Keys::new(plugins, &PLUGINS, problems);
    let sections = plugins.sections();
    let section = sections.iter().find(|section| section.name() == "eap-radius")?;
    let keys = Keys::new(section, &EAP_RADIUS, problems);
    let default = Retransmission::DEFAULT;
    let retransmission = Retransmission {
        tries: keys.get("retransmit_tries", tries).unwrap_or(default.tries).max(1),
        timeout: keys.get("retransmit_timeout", super::charon::seconds).unwrap_or(default.timeout),
        base_permille: keys.get("retransmit_base", base).unwrap_or(default.base_permille),
    };
    let name = keys.get("nas_identifier", nas_identifier).unwrap_or_else(|| b"casemate".to_vec());
    let (mut servers, mut count, mut dae) = (Vec::new(), 0, None);
    for inner in section.sections() {
        match inner.name() {
            "servers" => {
                Keys::new(&inner, &SERVERS, problems);
                count = inner.sections().len();
                servers.extend(inner.sections().iter().filter_map(|one| server(one, &name, problems)));
            }
            _ => dae = dynamic_authorization(&inner, problems),
        }
    }
    if keys.has("server") {
        if count > 0 {
            keys.error("server", "either `server` or sections in `servers` were expected");
        }
        count += 1;
        servers.extend(only_server(&keys, &name).map(|server| (0, server)));
    } else {
        for name in ["secret", "port"].into_iter().filter(|name| keys.has(name)) {
            keys.error(name, WITHOUT_SERVER);
        }
    }
    // A stable order: servers of the same preference keep that of the file.
    servers.sort_by_key(|(preference, _)| std::cmp::Reverse(*preference));
    let servers: Vec<Server> = servers.into_iter().map(|(_, server)| server).collect();
    if !(1..=MAX_SERVERS).contains(&count) {
        keys.section_error(&format!("from 1 to {MAX_SERVERS} sections in `servers` were expected"));
    }
    Some(RadiusConfig {
        servers,
        retransmission,
        ids_have_port: keys.get("station_id_with_port", truth).unwrap_or(true),
        groups: GroupSources {
            class: keys.get("class_group", truth).unwrap_or(false),
            filter_id: keys.get("filter_id", truth).unwrap_or(false),
        },
        trusts_user_name: keys.get("trust_user_name", truth).unwrap_or(false),
        accounting: accounting(&keys),
        dae,
    })
}

/// The configuration files that contain secrets of servers.
pub(super) fn secret_files(plugins: &Resolved<'_, '_>) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut holders = plugins.sections();
    while let Some(holder) = holders.pop() {
        files.extend(holder.key("secret").map(|secret| secret.location.file.to_path_buf()));
        holders.extend(holder.sections());
    }
    files
}

fn accounting(keys: &Keys<'_>) -> Option<Accounting> {
    let is_wanted = keys.get("accounting", truth).unwrap_or(false);
    let accounting = Accounting {
        interval: keys.get("accounting_interval", interval).flatten(),
        requires_vip: keys.get("accounting_requires_vip", truth).unwrap_or(false),
        sends_class: keys.get("accounting_send_class", truth).unwrap_or(true),
    };
    is_wanted.then_some(accounting)
}

/// The server that the keys of `eap-radius` itself describe.
fn only_server(keys: &Keys<'_>, nas_identifier: &[u8]) -> Option<Server> {
    let (address, secret) = (keys.get("server", address), take_secret(keys));
    let auth_port = keys.get("port", positive).unwrap_or(AUTH_PORT);
    let (address, secret) = (address?, secret?);
    Some(Server {
        name: address.to_string(),
        auth: SocketAddr::new(address, auth_port),
        acct: SocketAddr::new(address, ACCT_PORT),
        secret,
        nas_identifier: nas_identifier.to_vec(),
    })
}

fn server(section: &Resolved<'_, '_>, name: &[u8], problems: &Problems) -> Option<(u16, Server)> {
    let keys = Keys::new(section, &SERVER, problems);
    if !keys.has("address") {
        keys.section_error("`address` was expected, the address of the server");
    }
    let address = keys.get("address", address);
    let secret = take_secret(&keys);
    let port = keys.get("port", positive).or(Some(AUTH_PORT));
    let auth_port = keys.get("auth_port", positive).or(port)?;
    let acct_port = keys.get("acct_port", positive).unwrap_or(ACCT_PORT);
    let preference = keys.get("preference", super::value::parse_number).unwrap_or(0);
    let nas_identifier = keys.get("nas_identifier", nas_identifier).unwrap_or_else(|| name.to_vec());
    let (address, secret) = (address?, secret?);
    let server = Server {
        name: section.name().into(),
        auth: SocketAddr::new(address, auth_port),
        acct: SocketAddr::new(address, acct_port),
        secret,
        nas_identifier,
    };
    Some((preference, server))
}

fn dynamic_authorization(section: &Resolved<'_, '_>, problems: &Problems) -> Option<DynamicAuthorization> {
    let keys = Keys::new(section, &DAE, problems);
    let is_enabled = keys.get("enable", truth).unwrap_or(false);
    let listen = keys.get("listen", address).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let port = keys.get("port", positive).unwrap_or(DAE_PORT);
    if !is_enabled {
        return None;
    }
    Some(DynamicAuthorization { listen: SocketAddr::new(listen, port), secret: take_secret(&keys)? })
}

fn address(text: &str) -> Parsed<IpAddr> {
    text.parse().map_err(|_| "an IPv4 or IPv6 address was expected".into())
}

fn nas_identifier(text: &str) -> Parsed<Vec<u8>> {
    if text.is_empty() || text.len() > MAX_NAS_IDENTIFIER {
        return Err(format!("from 1 to {MAX_NAS_IDENTIFIER} bytes were expected"));
    }
    Ok(text.as_bytes().to_vec())
}

fn interval(text: &str) -> Parsed<Option<Duration>> {
    match time(text)? {
        Some(interval) if interval < MIN_INTERVAL => Err("0, or at least 60 s, was expected".into()),
        interval => Ok(interval),
    }
}
