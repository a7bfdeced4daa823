//! The section `cell.etcd`: the servers of the store of a cell (docs/decisions/0142-etcd.md).

use super::address::is_host;
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{Parsed, time};
use casemate_etcd::MAX_ENDPOINTS;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const ETCD: Schema = Schema {
    keys: &[
        ("servers", Rule::Read),
        ("server_name", Rule::Read),
        ("ca", Rule::Read),
        ("cert", Rule::Read),
        ("key", Rule::Read),
        ("user", Rule::Read),
        ("password", Rule::Read),
        ("deadline", Rule::Read),
    ],
    sections: &[],
};

/// Longest default of `deadline`.
const DEADLINE: Duration = Duration::from_secs(2);
/// Longest name of a user in bytes.
const MAX_USER: usize = 256;

/// The servers of the store of a cell, and how this node connects to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdServers {
    /// Addresses and ports for clients, different ones, in the order of the file: 1 to
    /// [`MAX_ENDPOINTS`].
    pub servers: Vec<SocketAddr>,
    /// Name in the certificates of the servers; `None` if each contains the address of its server.
    pub server_name: Option<String>,
    /// Files for TLS; `None` for clear text.
    pub tls: Option<TlsFiles>,
    /// User, if the cluster has users.
    pub login: Option<LoginFile>,
    /// Time in which each request is completed, in whole seconds and below the lease of the cell.
    pub deadline: Duration,
}

/// Files for TLS, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities of the servers.
    pub authorities: PathBuf,
    /// The certificate of this node and its private key, if the servers ask for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFile {
    /// Name of the user.
    pub user: String,
    /// File with the password.
    pub password: PathBuf,
}

/// Reads the section in a cell with this lease. `None` if there is no valid server.
pub(super) fn read(
    resolved: &Resolved<'_, '_>,
    directory: &Path,
    lease: Duration,
    problems: &Problems,
) -> Option<EtcdServers> {
    let keys = Keys::new(resolved, &ETCD, problems);
    let servers = read_servers(&keys);
    let file = |name: &str| keys.get(name, |file| Ok(directory.join(file)));
    needs_each_other(&keys, ["cert", "key"]);
    needs_each_other(&keys, ["user", "password"]);
    for key in ["server_name", "cert", "key"].into_iter().filter(|key| keys.has(key) && !keys.has("ca")) {
        keys.error(key, "it belongs to TLS: `ca` was expected, the certificates of the servers' authorities");
    }
    if !keys.has("ca") && servers.iter().any(|server| !server.ip().is_loopback()) {
        keys.section_warning(
            "without TLS, any host between this one and the servers can change the store and learn the \
             password: `ca` was expected, or servers on loopback addresses",
        );
    }
    let tls = file("ca").map(|authorities| TlsFiles { authorities, own: file("cert").zip(file("key")) });
    let login = keys.get("user", user).zip(file("password"));
    let server_name = keys.get("server_name", server_name);
    let deadline = read_deadline(&keys, lease);
    let login = login.map(|(user, password)| LoginFile { user, password });
    (!servers.is_empty()).then_some(EtcdServers { servers, server_name, tls, login, deadline })
}

/// Reports the key that is missing if only one of both has a value.
fn needs_each_other(keys: &Keys<'_>, names: [&str; 2]) {
    let [first, second] = names;
    match names.map(|name| keys.has(name)) {
        [true, false] => keys.error(first, &format!("`{second}` was expected beside it")),
        [false, true] => keys.error(second, &format!("`{first}` was expected beside it")),
        _ => {}
    }
}

fn read_servers(keys: &Keys<'_>) -> Vec<SocketAddr> {
    let servers = keys.list("servers", server);
    if servers.is_empty() {
        keys.error("servers", "the addresses of the servers with their ports were expected");
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = servers.iter().find(|server| !known.insert(**server)) {
        keys.error("servers", &format!("{twice} occurs twice: different servers were expected"));
    }
    if servers.len() > MAX_ENDPOINTS {
        let count = servers.len();
        keys.error("servers", &format!("{count} servers: at most {MAX_ENDPOINTS} were expected"));
    }
    servers
}

fn server(text: &str) -> Parsed<SocketAddr> {
    let is_of_host = |address: IpAddr| !address.is_unspecified() && !address.is_multicast();
    let server: Option<SocketAddr> = text.parse().ok();
    server.filter(|server| is_of_host(server.ip()) && server.port() != 0).ok_or_else(|| {
        "the address of a server with its port was expected, not a name, such as 192.0.2.11:2379 or \
         [2001:db8::11]:2379"
            .into()
    })
}

fn server_name(text: &str) -> Parsed<String> {
    if is_host(text) { Ok(text.into()) } else { Err("the name of a host was expected".into()) }
}

fn user(text: &str) -> Parsed<String> {
    let is_text = !text.chars().any(char::is_control);
    if is_text && text.len() <= MAX_USER {
        return Ok(text.into());
    }
    Err(format!("the name of a user of etcd was expected, at most {MAX_USER} bytes"))
}

/// The deadline is below the lease: a server that hangs must be left while the lease still holds.
fn read_deadline(keys: &Keys<'_>, lease: Duration) -> Duration {
    let below_lease = lease.saturating_sub(Duration::from_secs(1));
    let deadline = keys.get("deadline", |text| {
        time(text).ok().flatten().ok_or_else(|| "a time of at least 1s was expected, such as 2s".into())
    });
    let deadline = deadline.unwrap_or(DEADLINE.min(below_lease));
    if deadline > below_lease {
        keys.error(
            "deadline",
            &format!(
                "{} s: less than the lease of {} s was expected, because a server that does not respond \
                 must be left before the lease ends",
                deadline.as_secs(),
                lease.as_secs()
            ),
        );
    }
    deadline
}
