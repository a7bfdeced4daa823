//! Configuration and state as the `list-` and `get-` commands describe them.
//!
//! The keys, their order and the notation of values are those of charon.

use super::message::MessageWriter;
use super::sas::{identity_text, selector};
use crate::keyring::Keyring;
use casemate_ike::config::{
    AddrPattern, ChildConfig, ChildMode, CloseAction, Connection, EapIdentity, IdPattern, LocalMethod, Pool,
    RemoteEap, RemoteMethod, Shunt, Unique,
};
use casemate_ike::{Credentials, IkeState, IkeStatus, TrafficSelector, TrafficSelectorTemplate};
use casemate_sa::AddrRange;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Writes a `list-conn` event.
pub(super) fn write_connection(connection: &Connection, keyring: &Keyring, message: &mut MessageWriter) {
    message.section(&connection.name, |section| {
        section.list("local_addrs", connection.local_addrs.iter().map(address));
        section.list("remote_addrs", connection.remote_addrs.iter().map(address));
        section.value("version", "IKEv2");
        section.display("reauth_time", seconds(connection.reauth));
        section.display("rekey_time", seconds(connection.lifespan.rekey));
        section.value("unique", unique(connection.unique));
        section.optional("dpd_delay", connection.dpd_delay.map(|delay| delay.as_secs()));
        for (round, in_round) in (1..).zip(connection.in_local_rounds()) {
            section.section(&format!("local-{round}"), |auth| write_local(&in_round, keyring, auth));
        }
        for (round, in_round) in (1..).zip(connection.in_remote_rounds()) {
            section.section(&format!("remote-{round}"), |auth| write_remote(&in_round, keyring, auth));
        }
        section.section("children", |children| {
            connection.children.iter().for_each(|child| write_child(child, children));
            connection.shunts.iter().for_each(|shunt| write_shunt(shunt, children));
        });
    });
}

fn write_local(connection: &Connection, keyring: &Keyring, message: &mut MessageWriter) {
    message.optional("id", connection.local.id.as_ref());
    let (class, subject) = match &connection.local.method {
        LocalMethod::SharedKey => ("pre-shared key", None),
        LocalMethod::Eap(_) => ("EAP", None),
        LocalMethod::Certificate(_) => {
            ("public key", keyring.own_key(connection, &[]).and_then(|key| key.subject))
        }
    };
    message.value("class", class);
    message.list::<&str>("groups", []);
    message.list::<&str>("cert_policy", []);
    message.list("certs", subject.map(|subject| subject.to_string()));
    message.list::<&str>("cacerts", []);
}

fn write_remote(connection: &Connection, keyring: &Keyring, message: &mut MessageWriter) {
    message.value("id", id_pattern(&connection.remote.id));
    let class = match &connection.remote.method {
        RemoteMethod::SharedKey => "pre-shared key",
        RemoteMethod::Certificate(_) => "public key",
        RemoteMethod::Any(_) => "any",
        RemoteMethod::Eap(_) => "EAP",
    };
    message.value("class", class);
    if let RemoteMethod::Eap(eap) = &connection.remote.method {
        write_eap(eap, message);
    }
    let policies = keyring.required_policies(connection).iter().map(ToString::to_string);
    let groups = match &connection.remote.method {
        RemoteMethod::Eap(eap) => &*eap.groups,
        _ => &[],
    };
    message.list("groups", groups);
    message.list("cert_policy", policies);
    message.list::<&str>("certs", []);
    message.list::<&str>("cacerts", []);
}

/// As charon does: the method if there is only one, and the EAP identity unless it is that of the ID payload.
fn write_eap(eap: &RemoteEap, message: &mut MessageWriter) {
    if let [method] = &*eap.methods {
        message.value("eap-type", method.to_string().to_uppercase().replace('-', "_"));
    }
    match &eap.identity {
        EapIdentity::Ike => {}
        EapIdentity::Fixed(identity) => message.value("eap_id", identity),
        EapIdentity::Asked => message.value("eap_id", "%any"),
    }
}

fn write_child(child: &ChildConfig, message: &mut MessageWriter) {
    message.section(&child.name, |section| {
        section.value("mode", child_mode(child.mode));
        section.display("rekey_time", seconds(child.lifespan.rekey));
        section.display("rekey_bytes", child.rekey_bytes.unwrap_or(0));
        section.display("rekey_packets", child.rekey_packets.unwrap_or(0));
        section.value("dpd_action", action(child.dpd_action));
        section.value("close_action", action(child.close_action));
        write_templates(&child.local_ts, &child.remote_ts, section);
    });
}

fn write_shunt(shunt: &Shunt, message: &mut MessageWriter) {
    message.section(&shunt.name, |section| {
        section.value("mode", shunt_mode(shunt));
        for name in ["rekey_time", "rekey_bytes", "rekey_packets"] {
            section.value(name, "0");
        }
        for name in ["dpd_action", "close_action"] {
            section.value(name, "none");
        }
        write_templates(&shunt.local_ts, &shunt.remote_ts, section);
    });
}

/// The policies to list.
#[derive(Clone, Copy)]
pub(super) struct PolicyFilter<'a> {
    pub(super) drop: bool,
    pub(super) pass: bool,
    pub(super) trap: bool,
    /// Name of the child.
    pub(super) child: Option<&'a str>,
    /// Name of the connection.
    pub(super) ike: Option<&'a str>,
}

/// Calls `list` with each trap and shunt, as messages of `list-policy` events.
pub(super) fn write_policies(
    connections: &[impl AsRef<Connection>],
    filter: PolicyFilter<'_>,
    mut list: impl FnMut(Vec<u8>),
) {
    let is_named = |wanted: Option<&str>, name: &str| wanted.is_none_or(|wanted| wanted == name);
    let connections = connections.iter().map(AsRef::as_ref);
    for connection in connections.filter(|connection| is_named(filter.ike, &connection.name)) {
        let mut write = |name: &str, mode: &str, local: &[TrafficSelectorTemplate], remote: &[_]| {
            list(MessageWriter::message(|message| {
                message.section(&format!("{}/{name}", connection.name), |section| {
                    section.value("child", name);
                    section.value("ike", &connection.name);
                    section.value("mode", mode);
                    write_templates(local, remote, section);
                });
            }));
        };
        let traps = connection.children.iter().filter(|child| filter.trap && child.start_action.on_traffic);
        for child in traps.filter(|child| is_named(filter.child, &child.name)) {
            write(&child.name, child_mode(child.mode), &child.local_ts, &child.remote_ts);
        }
        let is_wanted = |shunt: &&Shunt| if shunt.passes { filter.pass } else { filter.drop };
        let shunts = connection.shunts.iter().filter(is_wanted);
        for shunt in shunts.filter(|shunt| is_named(filter.child, &shunt.name)) {
            write(&shunt.name, shunt_mode(shunt), &shunt.local_ts, &shunt.remote_ts);
        }
    }
}

/// Writes a section of the response to `get-pools`. Addresses that no peer has now are not counted as
/// offline leases.
pub(super) fn write_pool(pool: &Pool, sas: &[IkeStatus], with_leases: bool, message: &mut MessageWriter) {
    let held = |sa: &IkeStatus| sa.state == IkeState::Established && !sa.connection.pools.is_empty();
    let leases: Vec<(IpAddr, String)> = sas
        .iter()
        .filter(|sa| held(sa))
        .flat_map(|sa| {
            let peer = sa.peer.as_ref().map_or_else(|| "%any".to_owned(), ToString::to_string);
            sa.virtual_addrs.iter().map(move |addr| (*addr, peer.clone()))
        })
        .filter(|(addr, _)| pool.addrs.contains(*addr))
        .collect();
    message.section(&pool.name, |section| {
        section.display("base", pool_base(&pool.addrs));
        section.display("size", pool_size(&pool.addrs));
        section.display("online", leases.len());
        section.display("offline", 0);
        if with_leases {
            section.section("leases", |section| {
                for (number, (addr, peer)) in leases.iter().enumerate() {
                    section.section(&number.to_string(), |lease| {
                        lease.display("address", addr);
                        lease.value("identity", peer);
                        lease.value("status", "online");
                    });
                }
            });
        }
    });
}

/// The first address, or the address of the subnet whose hosts are the pool, as in the configuration.
fn pool_base(addrs: &AddrRange) -> IpAddr {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (addrs.first(), addrs.last()) else { return addrs.first() };
    let around = first.to_bits().checked_sub(1).zip(last.to_bits().checked_add(1));
    let subnet = around.and_then(|(first, last)| {
        AddrRange::new(Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into()).ok()
    });
    subnet.filter(|subnet| subnet.prefix_len().is_some()).map_or(first.into(), |subnet| subnet.first())
}

/// Number of addresses; 2^128 - 1 stands for more.
fn pool_size(addrs: &AddrRange) -> u128 {
    let number = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    number(addrs.last()).saturating_sub(number(addrs.first())).saturating_add(1)
}

fn write_templates(
    local: &[TrafficSelectorTemplate],
    remote: &[TrafficSelectorTemplate],
    message: &mut MessageWriter,
) {
    message.list("local-ts", local.iter().map(template));
    message.list("remote-ts", remote.iter().map(template));
}

/// `dynamic` and a protocol, or the selector.
fn template(template: &TrafficSelectorTemplate) -> String {
    let TrafficSelectorTemplate { addrs, proto, ports } = *template;
    let text = |addrs| selector(&TrafficSelector { addrs, proto, ports });
    match addrs {
        Some(addrs) => text(addrs),
        None => text(AddrRange::ANY_V4).replacen(&AddrRange::ANY_V4.to_string(), "dynamic", 1),
    }
}

fn address(pattern: &AddrPattern) -> String {
    match pattern {
        AddrPattern::Any => "%any".to_owned(),
        AddrPattern::Range(range) if pattern.is_single() => range.first().to_string(),
        AddrPattern::Range(range) => range.to_string(),
        AddrPattern::Host(name) => name.to_string(),
    }
}

fn id_pattern(pattern: &IdPattern) -> String {
    match pattern {
        IdPattern::Any => "%any".to_owned(),
        IdPattern::Exact(id) => identity_text(id),
        IdPattern::Suffix(_, end) => format!("*{end}"),
        IdPattern::DnPattern(text) => text.clone(),
    }
}

const fn child_mode(mode: ChildMode) -> &'static str {
    match mode {
        ChildMode::Tunnel => "TUNNEL",
        ChildMode::Transport => "TRANSPORT",
    }
}

const fn shunt_mode(shunt: &Shunt) -> &'static str {
    if shunt.passes { "PASS" } else { "DROP" }
}

const fn action(action: CloseAction) -> &'static str {
    match action {
        CloseAction::Clear => "none",
        CloseAction::Trap => "trap",
        CloseAction::Restart => "start",
    }
}

const fn unique(unique: Unique) -> &'static str {
    match unique {
        Unique::Never => "UNIQUE_NEVER",
        Unique::No => "UNIQUE_NO",
        Unique::Keep => "UNIQUE_KEEP",
        Unique::Replace => "UNIQUE_REPLACE",
    }
}

fn seconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_secs())
}

/// What `stats` and `version` say about the program.
#[derive(Debug, Clone)]
pub(super) struct Program {
    ostype: String,
    osrelease: String,
    /// Seconds since 1970 at the start.
    started: u64,
    threads: usize,
    /// Names of the crypto providers.
    providers: Vec<&'static str>,
}

impl Program {
    /// Reads what does not change. Must be called before privileges are dropped.
    pub(super) fn new(threads: usize, providers: Vec<&'static str>) -> Self {
        let kernel = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
            text.trim().to_owned()
        };
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let started = since_1970.unwrap_or_default().as_secs();
        Self { ostype: kernel("ostype"), osrelease: kernel("osrelease"), started, threads, providers }
    }

    /// Writes the response to `version`.
    pub(super) fn write_version(&self, message: &mut MessageWriter) {
        message.value("daemon", "casemate");
        message.value("version", env!("CARGO_PKG_VERSION"));
        message.value("sysname", &self.ostype);
        message.value("release", &self.osrelease);
        message.value("machine", std::env::consts::ARCH);
    }

    /// Writes the response to `stats`. The jobs and queues of charon do not exist here.
    pub(super) fn write_stats(
        &self,
        uptime: Duration,
        ike_sas: usize,
        half_open: usize,
        message: &mut MessageWriter,
    ) {
        message.section("uptime", |section| {
            section.value("running", running(uptime.as_secs()));
            section.value("since", utc(self.started));
        });
        let priorities = ["critical", "high", "medium", "low"];
        let zeros = |section: &mut MessageWriter| priorities.iter().for_each(|name| section.value(name, "0"));
        message.section("workers", |section| {
            section.display("total", self.threads);
            section.display("idle", self.threads);
            section.section("active", zeros);
        });
        message.section("queues", zeros);
        message.value("scheduled", "0");
        message.section("ikesas", |section| {
            section.display("total", ike_sas);
            section.display("half-open", half_open);
        });
        message.list("plugins", &self.providers);
    }
}

/// A duration in its largest unit, as charon writes it.
fn running(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7_199 => (seconds / 60, "minute"),
        7_200..=172_799 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// A time in seconds since 1970, in charon's notation, in UTC.
fn utc(seconds: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (mut days, mut year) = (seconds / 86_400, 1970_u64);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let len = |year| if is_leap(year) { 366 } else { 365 };
    while days >= len(year) {
        days = days.saturating_sub(len(year));
        year = year.saturating_add(1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = "Jan";
    for (name, len) in MONTHS.into_iter().zip(lengths) {
        month = name;
        if days < len {
            break;
        }
        days = days.saturating_sub(len);
    }
    let [hour, minute, second] = [seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{month} {:02} {hour:02}:{minute:02}:{second:02} {year} UTC", days.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_charon_writes_them() {
        // `date -u -d @N '+%b %d %H:%M:%S %Y'`
        for (seconds, text) in [
            (0, "Jan 01 00:00:00 1970 UTC"),
            (951_782_400, "Feb 29 00:00:00 2000 UTC"),
            (1_795_675_528, "Nov 26 06:45:28 2026 UTC"),
            (4_107_542_399, "Feb 28 23:59:59 2100 UTC"),
            (4_107_542_400, "Mar 01 00:00:00 2100 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        assert_eq!(
            [1, 90, 150, 7_200, 200_000].map(running),
            ["1 second", "90 seconds", "2 minutes", "2 hours", "2 days"]
        );
    }

    #[test]
    fn templates_are_written_as_in_the_configuration() {
        for text in ["dynamic", "dynamic[tcp/80]", "10.1.0.0/16", "10.1.0.0/24[tcp/80-90]", "fd00::/64"] {
            let parsed = casemate_strongswan::parse_traffic_selector(text).unwrap();
            assert_eq!(template(&parsed), text);
        }
        let range = casemate_strongswan::parse_traffic_selector("10.1.0.1-10.1.0.6[udp]").unwrap();
        assert_eq!(template(&range), "10.1.0.1..10.1.0.6[udp]");
    }

    /// `base` and `size` of charon 5.9.8 for these values of `addrs`.
    #[test]
    fn pools_begin_with_their_subnet() {
        for (first, last, base, size) in [
            ("10.3.0.1", "10.3.0.254", "10.3.0.0", 254),
            ("10.3.0.1", "10.3.0.14", "10.3.0.0", 14),
            ("10.3.0.10", "10.3.0.19", "10.3.0.10", 10),
            ("0.0.0.0", "255.255.255.255", "0.0.0.0", 1 << 32),
        ] {
            let range = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
            assert_eq!((pool_base(&range).to_string(), pool_size(&range)), (base.to_owned(), size));
        }
    }
}
