//! The variables of a script: those of strongSwan's plugin `updown`, in its notation.
//!
//! A Child SA with several traffic selectors runs its script once for each pair of a local and a remote one.
//! `PLUTO_INTERFACE` is the TUN interface, on which the host sees the traffic in clear; with strongSwan it is
//! the interface of the local address. A child with an interface of its own has that one. IPComp does not
//! exist here, so its variable is never set. docs/manual/updown.md lists the variables.

use crate::swanctl::{UpdownScript, mark_of};
use crate::vici::shown_reqid;
use casemate_ike::config::{ChildConfig, Connection, Identity};
use casemate_ike::{ChildId, ChildUp, IkeSaId, IkeStatus, TrafficSelector, UserIdentity, packet_selector};
use casemate_linux::EndpointContext;
use casemate_sa::{AddrRange, PortRange, Protocol, SpdId, SpdPair};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

/// Pairs of traffic selectors of a Child SA for which its script runs, at most.
pub(super) const MAX_PAIRS: usize = 64;
/// The standard directories of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes of an identity in its variable, at most: a peer must not fill the environment with its identity.
const MAX_IDENTITY: usize = 2_048;
/// Length of a backslash with three octal digits.
const OCTAL_LEN: usize = 4;
/// What follows an identity that was cut. No other identity ends like this: after a backslash it has digits.
const CUT: &str = "\\...";

/// Characters of identities that stay as they are, besides letters, digits and spaces.
const SAFE: &[u8] = b"@._-+=,:/";

/// A new Child SA, as far as scripts are concerned.
#[derive(Debug, Clone)]
pub(super) struct NewChild {
    pub(super) id: ChildId,
    pub(super) ike: IkeSaId,
    pub(super) connection: Arc<Connection>,
    pub(super) child: Arc<ChildConfig>,
    protocol: Protocol,
    /// UDP port of the peer, if ESP is encapsulated.
    udp_port: Option<u16>,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

impl From<&ChildUp> for NewChild {
    fn from(up: &ChildUp) -> Self {
        Self {
            id: up.id,
            ike: up.ike,
            connection: up.connection.clone(),
            child: up.child.clone(),
            protocol: up.suite.protocol(),
            udp_port: up.outbound.encap.map(|encap| encap.dst_port),
            local: up.local.clone(),
            remote: up.remote.clone(),
        }
    }
}

impl NewChild {
    /// Identifies the traffic: scripts for the same traffic run in order, also those of another Child SA,
    /// which follows after reauthentication.
    pub(super) fn lane(&self) -> Arc<str> {
        let remote: Vec<String> = self.remote.iter().map(ToString::to_string).collect();
        format!("{}/{} {}", self.connection.name, self.child.name, remote.join(",")).into()
    }
}

/// Identifies a peer by its connection and the identity that it has proved, or else by its login.
pub(super) fn peer_of(new: &NewChild, status: &IkeStatus) -> Arc<str> {
    let identity = match &status.eap_identity {
        Some(UserIdentity::Proven(name)) => String::from_utf8_lossy(name).into_owned(),
        Some(UserIdentity::Claimed { login, .. }) => format!("[{login}]"),
        None => status.peer.as_ref().map_or_else(String::new, ToString::to_string),
    };
    format!("{} {identity}", new.connection.name).into()
}

/// The request identifier of a Child SA in the data path.
pub(super) fn reqid_of(child: ChildId, context: &EndpointContext) -> u32 {
    let endpoint = context.endpoint();
    let inbound = endpoint.sas_of(child).and_then(|sas| endpoint.datapath().sa(sas.inbound));
    inbound.map_or(0, |sa| sa.reqid)
}

/// What else the variables depend on.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The IKE SA.
    pub(super) status: &'a IkeStatus,
    pub(super) local_id: &'a Identity,
    /// Of the SAs in the data path.
    pub(super) reqid: u32,
    pub(super) script: &'a UpdownScript,
    /// The TUN interface of the child.
    pub(super) interface: &'a str,
    pub(super) spds: SpdPair,
}

/// The variables for one pair of traffic selectors, without the verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variables {
    /// What follows `up-` and `down-` in the verb.
    kind: &'static str,
    variables: Vec<(String, String)>,
}

impl Variables {
    /// The variables of each pair of traffic selectors.
    pub(super) fn of(new: &NewChild, facts: &Facts<'_>) -> Vec<Self> {
        let shared = shared(new, facts);
        let pairs = new.local.iter().flat_map(|local| new.remote.iter().map(move |remote| (local, remote)));
        // Pairs of which no packet has both have no policies either.
        let pairs = pairs.filter(|(local, remote)| packet_selector(local, remote).is_some());
        let own = facts.status.path.local.ip();
        pairs.map(|(local, remote)| Self::of_pair(local, remote, own, &shared)).collect()
    }

    fn of_pair(
        local: &TrafficSelector,
        remote: &TrafficSelector,
        own: IpAddr,
        shared: &[(String, String)],
    ) -> Self {
        let kind = match (local.addrs == AddrRange::single(own), local.addrs.is_ipv4()) {
            (true, true) => "host",
            (true, false) => "host-v6",
            (false, true) => "client",
            (false, false) => "client-v6",
        };
        let [own_port, peer_port] = ports(local, remote);
        let mut variables = shared.to_vec();
        for (side, selector, port) in [("MY", local, own_port), ("PEER", remote, peer_port)] {
            variables.extend([
                (format!("PLUTO_{side}_CLIENT"), subnet(&selector.addrs)),
                (format!("PLUTO_{side}_PORT"), port),
                (format!("PLUTO_{side}_PROTOCOL"), selector.proto.unwrap_or(0).to_string()),
            ]);
        }
        Self { kind, variables }
    }

    /// The verb.
    pub(super) fn verb(&self, is_up: bool) -> String {
        format!("{}-{}", if is_up { "up" } else { "down" }, self.kind)
    }

    /// The whole environment.
    pub(super) fn environment(&self, is_up: bool) -> Vec<(String, String)> {
        let verb = ("PLUTO_VERB".to_owned(), self.verb(is_up));
        std::iter::once(verb).chain(self.variables.iter().cloned()).collect()
    }
}

/// The variables that do not depend on the traffic selectors.
fn shared(new: &NewChild, facts: &Facts<'_>) -> Vec<(String, String)> {
    let Facts { status, local_id, reqid, script, interface, spds } = *facts;
    let mut all = Vec::new();
    let mut set = |name: String, value: String| all.push((name, value));
    let peer_id = status.peer.as_ref().map(identity_text).unwrap_or_default();
    let protocol = if new.protocol == Protocol::Ah { "ah" } else { "esp" };
    for (name, value) in [
        ("PATH", PATH.into()),
        ("PLUTO_VERSION", "1.1".into()),
        ("PLUTO_CONNECTION", new.child.name.clone()),
        ("PLUTO_INTERFACE", interface.to_owned()),
        ("PLUTO_REQID", shown_reqid(reqid).to_string()),
        ("PLUTO_PROTO", protocol.into()),
        ("PLUTO_UNIQUEID", status.id.to_string()),
        ("PLUTO_ME", status.path.local.ip().to_string()),
        ("PLUTO_MY_ID", identity_text(local_id)),
        ("PLUTO_PEER", status.path.remote.ip().to_string()),
        ("PLUTO_PEER_ID", peer_id),
    ] {
        set(name.into(), value);
    }
    // Scripts decide by the name of the user, so one that is only claimed is none.
    if let Some(identity) = status.eap_identity.as_ref().and_then(UserIdentity::proven) {
        let text = casemate_pki::is_der_sequence(identity).then(|| Identity::Dn(identity.into()));
        let text = text.map_or_else(|| escape(identity), |name| identity_text(&name));
        set("PLUTO_XAUTH_ID".into(), text);
    }
    // Only one side of a connection has pools.
    let side = if new.connection.pools.is_empty() { "MY" } else { "PEER" };
    if let Some(first) = status.virtual_addrs.first() {
        set(format!("PLUTO_{side}_SOURCEIP"), first.to_string());
    }
    numbered(&format!("PLUTO_{side}_SOURCEIP"), &status.virtual_addrs, &mut set);
    numbered("PLUTO_DNS", &status.dns, &mut set);
    if let Some(port) = new.udp_port {
        set("PLUTO_UDP_ENC".into(), port.to_string());
    }
    for (direction, spd) in [("IN", spds.inbound), ("OUT", spds.outbound)] {
        let spd_variable = spd_variable(direction, spd);
        spd_variable.into_iter().for_each(|(name, value)| set(name, value));
    }
    if script.host_access {
        set("PLUTO_HOST_ACCESS".into(), "1".into());
    }
    all
}

/// The interface ID or the mark of a direction, if there is one.
fn spd_variable(direction: &str, spd: SpdId) -> Option<(String, String)> {
    match mark_of(spd) {
        _ if spd.is_main() => None,
        Some(mark) => Some((format!("PLUTO_MARK_{direction}"), format!("{mark}/0xffffffff"))),
        None => Some((format!("PLUTO_IF_ID_{direction}"), spd.number().to_string())),
    }
}

/// Addresses of each IP version, numbered from 1.
fn numbered(name: &str, addrs: &[IpAddr], set: &mut impl FnMut(String, String)) {
    for (version, is_v4) in [('4', true), ('6', false)] {
        let addrs = addrs.iter().filter(|addr| addr.is_ipv4() == is_v4);
        for (number, addr) in (1..).zip(addrs) {
            set(format!("{name}{version}_{number}"), addr.to_string());
        }
    }
}

/// Ports of both sides. The type of ICMP counts as the local port, and its code as that of the peer.
fn ports(local: &TrafficSelector, remote: &TrafficSelector) -> [String; 2] {
    const ICMP: [u8; 2] = [1, 58];
    if local.proto.or(remote.proto).is_some_and(|proto| ICMP.contains(&proto)) {
        let ports = if local.ports.is_any() { remote.ports } else { local.ports };
        let [kind, code] = if ports.is_any() { [0, 0] } else { ports.first().to_be_bytes() };
        return [kind.to_string(), code.to_string()];
    }
    [local.ports, remote.ports].map(range)
}

/// A port, a range with a colon, or 0 for all ports.
fn range(ports: PortRange) -> String {
    match (ports.first(), ports.last()) {
        _ if ports.is_any() => "0".into(),
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}:{last}"),
    }
}

/// The smallest subnet that contains the addresses.
fn subnet(addrs: &AddrRange) -> String {
    let (base, len) = match (addrs.first(), addrs.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let len = (first.to_bits() ^ last.to_bits()).leading_zeros();
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(len)).unwrap_or(0);
            (IpAddr::V4((first.to_bits() & mask).into()), len)
        }
        (first, last) => {
            let [first, last] = [first, last].map(v6_bits);
            let len = (first ^ last).leading_zeros();
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(len)).unwrap_or(0);
            (IpAddr::V6((first & mask).into()), len)
        }
    };
    format!("{base}/{len}")
}

fn v6_bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The value for an identity. A name is written without its type, as by strongSwan.
fn identity_text(identity: &Identity) -> String {
    match identity {
        Identity::Fqdn(name) | Identity::Email(name) => escape(name.as_bytes()),
        Identity::KeyId(id) if id.iter().all(|byte| byte.is_ascii_graphic()) => escape(id),
        other => escape(other.to_string().as_bytes()),
    }
}

/// Escapes text of a peer, which a script may pass on to a shell. Every byte that is not safe becomes a
/// backslash with three octal digits, which `printf "$PLUTO_PEER_ID"` turns back; scripts made for strongSwan
/// often have that line. A hyphen at the beginning of a word is escaped, too, so that no word looks like an
/// option. Different identities stay different, unless they are so long that they are cut.
fn escape(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_start = true;
    for byte in text.iter().copied() {
        let is_option = is_start && byte == b'-';
        is_start = byte == b' ';
        let is_safe = (byte.is_ascii_alphanumeric() || is_start || SAFE.contains(&byte)) && !is_option;
        let len = if is_safe { 1 } else { OCTAL_LEN };
        if escaped.len().saturating_add(len) > MAX_IDENTITY {
            escaped.push_str(CUT);
            break;
        }
        if is_safe {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "\\{byte:03o}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const HOSTILE: &str = "-x `id` $(id)${IFS} \"';|&<>*?[]{}~#!%s\\044\n\r\t\u{1b}[2J é -j ACCEPT";

    #[test]
    fn nothing_remains_that_a_shell_interprets() {
        let escaped = escape(HOSTILE.as_bytes());
        assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" @._-+=,:/\\".contains(&byte)));
        assert!(!escaped.split(' ').any(|word| word.starts_with('-')), "{escaped}");
        for plain in ["C=CH, O=strong Swan-Project, CN=moon", "carol@example.org", "2001:db8::1", "a_b/c+d"] {
            assert_eq!(escape(plain.as_bytes()), plain);
        }
        assert_ne!(escape(b"a$"), escape(b"a?"));
        assert_eq!(identity_text(&Identity::KeyId(b"key$".into())), "key\\044");
        assert_eq!(identity_text(&Identity::KeyId(vec![0, 1])), "keyid:\\0430001");
    }

    #[test]
    fn a_long_identity_is_cut_between_characters_and_looks_like_no_other() {
        let whole = "a".repeat(MAX_IDENTITY);
        assert_eq!(escape(whole.as_bytes()), whole);
        for (text, kept) in [("a", MAX_IDENTITY), ("$", MAX_IDENTITY), ("aaa$", MAX_IDENTITY - 1)] {
            let escaped = escape(text.repeat(20_000).as_bytes());
            assert_eq!((escaped.len(), escaped.ends_with("\\...")), (kept + CUT.len(), true), "{text}");
            let before = escaped.strip_suffix(CUT).unwrap();
            assert!(escape(text.repeat(400).as_bytes()).starts_with(&before[..400]));
            assert_ne!(escape(before.as_bytes()), escaped);
        }
        assert_eq!(escape(br"a\..."), r"a\134...");
    }

    #[test]
    fn printf_restores_the_identity() {
        let shell = |id: &[u8]| {
            let script = "printf \"$PLUTO_PEER_ID\"; eval \"x=$PLUTO_PEER_ID\" >/dev/null 2>&1 || true";
            let output =
                Command::new("/bin/sh").args(["-c", script]).env("PLUTO_PEER_ID", escape(id)).output();
            output.unwrap().stdout
        };
        assert_eq!(String::from_utf8(shell(HOSTILE.as_bytes())).unwrap(), HOSTILE);
        assert_eq!(shell(&[1, 0xff, b'%', b'a']), [1, 0xff, b'%', b'a']);
    }

    fn selector(text: &str) -> TrafficSelector {
        casemate_strongswan::parse_traffic_selector(text).unwrap().fill(&[]).next().unwrap()
    }

    fn of_pair(local: &str, remote: &str) -> (String, Vec<String>) {
        let own = [192, 0, 2, 1].into();
        let variables = Variables::of_pair(&selector(local), &selector(remote), own, &[]);
        let values = variables.variables.iter().map(|(_, value)| value.clone());
        (variables.verb(true), values.collect())
    }

    #[test]
    fn interface_ids_and_marks_have_variables() {
        for (number, name, value) in [
            (42, "PLUTO_IF_ID_OUT", "42"),
            // The SPD of a mark.
            (0x4000_0007, "PLUTO_MARK_OUT", "7/0xffffffff"),
        ] {
            assert_eq!(spd_variable("OUT", SpdId::new(number)), Some((name.into(), value.into())));
        }
        assert_eq!(spd_variable("IN", SpdId::MAIN), None);
    }

    /// The values are those that charon 5.9.8 gave to a script for the same selectors.
    #[test]
    fn traffic_selectors_are_written_as_by_charon() {
        for (local, remote, verb, expected) in [
            (
                "10.9.0.1/32",
                "10.2.0.0/16[tcp/1000-2000]",
                "up-client",
                "10.9.0.1/32 0 0 10.2.0.0/16 1000:2000 6",
            ),
            ("10.9.0.1/32", "10.2.0.0/16[udp/53]", "up-client", "10.9.0.1/32 0 0 10.2.0.0/16 53 17"),
            ("10.2.0.0-10.2.0.9[icmp/0x0803]", "10.9.0.1/32", "up-client", "10.2.0.0/28 8 1 10.9.0.1/32 3 0"),
            ("10.9.0.1/32", "10.2.0.0-10.2.0.9[icmp/0x0803]", "up-client", "10.9.0.1/32 8 0 10.2.0.0/28 3 1"),
            ("192.0.2.1/32", "0.0.0.0/0", "up-host", "192.0.2.1/32 0 0 0.0.0.0/0 0 0"),
            ("fd00::1/128", "::/0", "up-client-v6", "fd00::1/128 0 0 ::/0 0 0"),
        ] {
            let (actual, values) = of_pair(local, remote);
            assert_eq!((actual.as_str(), values.join(" ").as_str()), (verb, expected), "{local} {remote}");
        }
    }
}
