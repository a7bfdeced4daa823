//! Writes the configurations of both sides.
//!
//! The identity of a side is made from its public key, so that two sides that are converted on their own
//! agree. The secret is the PresharedKey, or a new random one.

use super::wireguard::{MAX_MTU, WIREGUARD_OVERHEAD, WgConfig, WgPeer};
use casemate_aws_lc::AWS_LC;
use casemate_crypto::{KexMethod, Provider, Rng};
use casemate_sa::AddrRange;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use zeroize::Zeroizing;

/// Something to say about a line.
#[derive(Debug)]
pub(super) struct Note {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// Smallest MTU inside a tunnel over IPv6, whose links have an MTU of 1,280 bytes or more (RFC 8200 section
/// 5).
const MIN_MTU_OVER_V6: u16 = 1_280 - WIREGUARD_OVERHEAD;

/// A converted file.
pub(super) struct Conversion<'c> {
    config: &'c WgConfig,
    identity: String,
    /// Address of this host for peers without Endpoint.
    address: Option<&'c str>,
    peers: Vec<ConvertedPeer<'c>>,
}

struct ConvertedPeer<'c> {
    name: String,
    identity: String,
    peer: &'c WgPeer,
    /// In the notation of `secret`.
    secret: Zeroizing<String>,
}

/// One side of a connection, as it is written.
struct Side<'t> {
    connection: &'t str,
    remote_addrs: Option<&'t str>,
    local_id: &'t str,
    remote_id: &'t str,
    local_ts: &'t str,
    remote_ts: &'t str,
    mtu: Option<u16>,
    /// Whether the tunnel is kept up, and not only set up by the first packet.
    stays_up: bool,
}

impl<'c> Conversion<'c> {
    /// Converts a file; each peer without a PresharedKey gets a new secret.
    pub(super) fn new(
        config: &'c WgConfig,
        address: Option<&'c str>,
        rng: &mut dyn Rng,
    ) -> Result<Self, Note> {
        let unusable = |line| Note { line, text: "a valid key of Curve25519 was expected".into() };
        let private = config.private_key.as_ref().ok_or_else(|| unusable(1))?;
        let public = public_key(&private.bytes).ok_or_else(|| unusable(1))?;
        check_mtu(config, address)?;
        let mut peers = Vec::new();
        for (number, peer) in config.peers.iter().enumerate() {
            let key = peer.public_key.as_ref().ok_or_else(|| unusable(peer.line))?;
            let secret = match &peer.preshared_key {
                Some(key) => Zeroizing::new(format!("0s{}", key.text.as_str())),
                None => random_secret(rng),
            };
            let name = format!("peer{}", number.saturating_add(1));
            peers.push(ConvertedPeer { name, identity: identity(&key.bytes), peer, secret });
        }
        Ok(Self { config, identity: identity(&public), address, peers })
    }

    pub(super) fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The configuration of this host. `source` is the name of the WireGuard file.
    pub(super) fn own(&self, source: &str) -> String {
        let source: String = source.chars().filter(|character| !character.is_control()).collect();
        let mut text = format!(
            "# Made from {source} by `casemate import`: the file of the host with the identity {}.\n",
            self.identity
        );
        for peer in self.peers.iter().filter(|peer| peer.peer.preshared_key.is_none()) {
            let _ = writeln!(text, "# The secret of {} is new: the peer needs the same one.", peer.name);
        }
        text.push_str("\nconnections {\n");
        let local_ts = self.addresses();
        for ConvertedPeer { name, identity, peer, .. } in &self.peers {
            write_connection(
                &mut text,
                &Side {
                    connection: name,
                    remote_addrs: peer.endpoint.as_ref().map(|endpoint| &*endpoint.value.0),
                    local_id: &self.identity,
                    remote_id: identity,
                    local_ts: &local_ts,
                    remote_ts: &ranges(&peer.allowed_ips),
                    mtu: self.mtu(),
                    stays_up: peer.keepalive.is_some(),
                },
            );
        }
        text.push_str("}\n\nsecrets {\n");
        for ConvertedPeer { name, identity, secret, .. } in &self.peers {
            let _ = write!(
                text,
                "  ike-{name} {{\n    id = {identity}\n    secret = {}\n  }}\n",
                secret.as_str()
            );
        }
        text.push_str("}\n");
        text
    }

    /// Name and configuration of a peer.
    pub(super) fn other_side(&self, number: usize) -> Option<(&str, String)> {
        let ConvertedPeer { name, identity, peer, secret } = self.peers.get(number)?;
        let mut text = format!(
            "# Made by `casemate import`: the file of the host with the identity {identity}.\n\n\
             connections {{\n"
        );
        write_connection(
            &mut text,
            &Side {
                connection: "host",
                remote_addrs: self.address.filter(|_| peer.endpoint.is_none()),
                local_id: identity,
                remote_id: &self.identity,
                local_ts: &ranges(&peer.allowed_ips),
                remote_ts: &self.addresses(),
                mtu: self.mtu(),
                stays_up: false,
            },
        );
        let _ = write!(
            text,
            "}}\n\nsecrets {{\n  ike-host {{\n    id = {}\n    secret = {}\n  }}\n}}\n",
            self.identity,
            secret.as_str()
        );
        Some((name, text))
    }

    /// What is not carried over, or not as it was, in the order of the lines.
    pub(super) fn notes(&self) -> Vec<Note> {
        let others = self.config.others.iter().map(|other| Note {
            line: other.line,
            text: format!("{} is not carried over: {}", other.value, why_not(&other.value)),
        });
        let addresses = self.config.addresses.iter().map(|addr| Note {
            line: addr.line,
            text: format!(
                "Address {0} is in local_ts, but not set: it must be on an interface \
                 (`ip address add {0} dev lo`); networks behind this host belong to local_ts, too",
                addr.value
            ),
        });
        let mtu = self.config.mtu.iter().map(|mtu| Note {
            line: mtu.line,
            text: format!(
                "MTU = {} is the length inside the tunnel; mtu = {} is the same with all headers",
                mtu.value,
                self.mtu().unwrap_or_default()
            ),
        });
        let peers = self.peers.iter().flat_map(|converted| self.peer_notes(converted));
        let mut notes: Vec<Note> = others.chain(addresses).chain(mtu).chain(peers).collect();
        notes.sort_by_key(|note| note.line);
        notes
    }

    fn peer_notes(&self, ConvertedPeer { name, peer, .. }: &ConvertedPeer<'_>) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut note = |line, text: String| notes.push(Note { line, text });
        if let Some(endpoint) = &peer.endpoint {
            note(
                endpoint.line,
                format!("port {} of Endpoint is not carried over: IKE uses 500 and 4500", endpoint.value.1),
            );
        } else if self.address.is_none() {
            note(
                peer.line,
                format!("{name} has no Endpoint: it must initiate, and needs the address of this host"),
            );
        }
        if let Some(keepalive) = &peer.keepalive {
            let text = match &peer.endpoint {
                Some(_) => "keeps the tunnel up; keepalives are sent every 20 s if there is a NAT",
                None => "is not carried over: the side with an Endpoint keeps the tunnel up",
            };
            note(keepalive.line, format!("PersistentKeepalive = {} {text}", keepalive.value));
        }
        if peer.preshared_key.is_none() {
            note(
                peer.line,
                format!("{name} has no PresharedKey: it gets a new secret, which the peer needs too"),
            );
        }
        notes
    }

    fn addresses(&self) -> String {
        self.config.addresses.iter().map(|addr| addr.value.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// The longest packet on the way: that of WireGuard, which has the MTU inside.
    fn mtu(&self) -> Option<u16> {
        self.config.mtu.as_ref().and_then(|mtu| mtu.value.checked_add(WIREGUARD_OVERHEAD))
    }
}

/// Checks that `mtu` accepts the MTU for each address that a file names.
fn check_mtu(config: &WgConfig, address: Option<&str>) -> Result<(), Note> {
    let endpoints = config.peers.iter().filter_map(|peer| peer.endpoint.as_ref());
    let mut hosts = endpoints.map(|endpoint| &*endpoint.value.0).chain(address);
    let is_over_v6 = hosts.any(|host| host.parse::<Ipv6Addr>().is_ok());
    match config.mtu.as_ref().filter(|mtu| is_over_v6 && mtu.value < MIN_MTU_OVER_V6) {
        None => Ok(()),
        Some(mtu) => Err(Note {
            line: mtu.line,
            text: format!("MTU: a number from {MIN_MTU_OVER_V6} to {MAX_MTU} was expected with IPv6"),
        }),
    }
}

fn write_connection(text: &mut String, side: &Side<'_>) {
    let Side { connection, local_id, remote_id, local_ts, remote_ts, .. } = side;
    let _ = writeln!(text, "  {connection} {{");
    if let Some(addrs) = side.remote_addrs {
        let _ = writeln!(text, "    remote_addrs = {addrs}\n    keyingtries = 0\n    dpd_delay = 30s");
    }
    if let Some(mtu) = side.mtu {
        let _ = writeln!(text, "    mtu = {mtu}");
    }
    let _ = write!(
        text,
        "    local {{\n      auth = psk\n      id = {local_id}\n    }}\n    remote {{\n      auth = psk\n      \
         id = {remote_id}\n    }}\n    children {{\n      net {{\n        local_ts = {local_ts}\n        \
         remote_ts = {remote_ts}\n"
    );
    if side.remote_addrs.is_some() {
        let start = if side.stays_up { "trap|start" } else { "trap" };
        let again = if side.stays_up { "restart" } else { "trap" };
        let _ = writeln!(text, "        start_action = {start}\n        dpd_action = {again}");
    }
    text.push_str("      }\n");
    if side.remote_addrs.is_none() {
        // No trap can hold packets for a peer whose address is not known.
        let _ = write!(
            text,
            "      # Without a tunnel, packets to the peer are dropped and do not leave in clear.\n      \
             away {{\n        mode = drop\n        start_action = trap\n        \
             priority = 150000 # after the tunnel\n        local_ts = {local_ts}\n        \
             remote_ts = {remote_ts}\n      }}\n"
        );
    }
    text.push_str("    }\n  }\n");
}

/// The name of a key without counterpart is among those of the parser.
fn why_not(name: &str) -> &'static str {
    match &*name.to_ascii_lowercase() {
        "listenport" => "IKE uses UDP ports 500 and 4500",
        "dns" => "name servers of this host are not changed for configured addresses",
        "table" | "fwmark" => "`casemate run` has a table and a mark of its own",
        "saveconfig" => "`casemate run` does not write its configuration",
        _ => "no scripts are run",
    }
}

fn ranges(ranges: &[AddrRange]) -> String {
    let one = |range: &AddrRange| match range.prefix_len() {
        Some(len) => format!("{}/{len}", range.first()),
        None => format!("{}-{}", range.first(), range.last()),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Name from the first 8 bytes of a public key.
fn identity(public: &[u8]) -> String {
    format!("wg-{}", hex(public.get(..8).unwrap_or(public)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// 32 random bytes, as WireGuard's PresharedKey has.
fn random_secret(rng: &mut dyn Rng) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; 32]);
    rng.secret(&mut *bytes);
    Zeroizing::new(format!("0x{}", hex(&*bytes)))
}

/// The public key of a private key of Curve25519.
fn public_key(private: &[u8]) -> Option<Vec<u8>> {
    let secret = AWS_LC.kex(KexMethod::X25519, &mut Known(private)).ok()?;
    Some(secret.public().to_vec())
}

/// Returns a known private key where a random one is drawn.
struct Known<'k>(&'k [u8]);

impl Rng for Known<'_> {
    fn public(&mut self, out: &mut [u8]) {
        out.fill(0);
    }

    fn secret(&mut self, out: &mut [u8]) {
        out.iter_mut().zip(self.0).for_each(|(to, from)| *to = *from);
    }
}
