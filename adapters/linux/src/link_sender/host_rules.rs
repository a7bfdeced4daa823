//! Whether rules of this host could apply to packets that are sent past the kernel's IP output: base chains
//! of nftables, tables of iptables, and policies of the kernel's own IPsec.

use super::xfrm::Xfrm;
use crate::netfilter::{BaseChain, Netfilter, early_drop_table};
use crate::{Error, leak_guard};
use casemate_sa::Instant;
use casemate_wire::ip::proto;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Lists of the tables of iptables that do not use nftables. Missing without such tables.
const IPTABLES: [&str; 2] =
    ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];

/// Lists of raw sockets. The local port is the protocol.
const RAW_SOCKETS: [&str; 2] = ["/proc/thread-self/net/raw", "/proc/thread-self/net/raw6"];

/// How protected packets leave that are not sent in GSO batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkSending {
    /// Through a packet socket, if the next hop is known.
    InUse,
    /// Through a raw socket, and why.
    Off(String),
}

/// Which packets may be sent past the kernel's IP output. Read for each run of packets.
#[derive(Debug, Default)]
pub(crate) struct Permission(AtomicU8);

/// No packets.
const NOTHING: u8 = 0;
/// ESP and AH packets.
const ESP_AND_AH: u8 = 1;
/// ESP in UDP as well.
const ALL: u8 = 2;

impl Permission {
    #[inline]
    pub(crate) fn allows_esp_and_ah(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= ESP_AND_AH
    }

    #[inline]
    pub(crate) fn allows_udp(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= ALL
    }

    fn set(&self, level: u8) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// Allows all packets.
    #[cfg(test)]
    pub(super) fn all() -> Self {
        Self(AtomicU8::new(ALL))
    }
}

/// Checks the rules of this host.
pub(crate) struct HostRules {
    /// `None` if the rules cannot be listed.
    sources: Option<Sources>,
    /// Why the link sender is not used whatever the rules are, if so.
    switched_off: Option<String>,
    permission: Arc<Permission>,
    state: LinkSending,
    checked_at: Instant,
}

/// Shortest time between checks because of changes of nftables.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Where the rules are listed.
struct Sources {
    netfilter: Netfilter,
    xfrm: Xfrm,
    /// Our own tables.
    tables: [String; 2],
    chains: Option<KnownChains>,
}

/// Base chains of other programs as of a transaction.
struct KnownChains {
    generation: u32,
    chains: Vec<BaseChain>,
}

impl HostRules {
    /// The rules of a host where the instance with this TUN interface runs.
    pub(crate) fn open(tun: &str) -> Result<Self, Error> {
        let open = || {
            let (netfilter, xfrm) = (Netfilter::open()?, Xfrm::open()?);
            let tables = [leak_guard::table_name(tun), early_drop_table(tun)];
            Ok(Sources { netfilter, xfrm, tables, chains: None })
        };
        let sources = open().map_err(|error| Error::new("rules of the host", error))?;
        let mut rules = Self { sources: Some(sources), ..Self::unknown(String::new()) };
        rules.check(Instant::ZERO);
        Ok(rules)
    }

    /// Rules that cannot be listed: they could apply to any packet.
    pub(crate) fn unknown(reason: String) -> Self {
        let state = LinkSending::Off(reason);
        Self {
            sources: None,
            switched_off: None,
            permission: Arc::default(),
            state,
            checked_at: Instant::ZERO,
        }
    }

    /// Allows no packet to be sent past the kernel's IP output, whatever the rules are.
    pub(crate) fn switch_off(&mut self, reason: String) {
        self.permission.set(NOTHING);
        self.state = LinkSending::Off(reason.clone());
        self.switched_off = Some(reason);
    }

    pub(crate) fn permission(&self) -> Arc<Permission> {
        self.permission.clone()
    }

    pub(crate) const fn state(&self) -> &LinkSending {
        &self.state
    }

    /// Whether received ESP and AH packets are for this instance alone, as far as is known.
    pub(crate) fn received_are_ours(&mut self) -> bool {
        self.sources.as_mut().is_some_and(|sources| sources.others_need_received().is_ok_and(|need| !need))
    }

    /// Whether ESP and AH packets with an SPI that this instance does not know may be for another receiver on
    /// this host, as far as is known.
    pub(crate) fn others_receive(&mut self) -> bool {
        self.sources.as_mut().is_none_or(|sources| sources.others_receive().unwrap_or(true))
    }

    /// Checks the rules after a change of nftables, unless they were just checked. Many changes must not keep
    /// the event loop busy; the regular [`check`](Self::check) sees the last one.
    pub(crate) fn check_after_change(&mut self, now: Instant) {
        if now.since(self.checked_at) >= MIN_CHECK_INTERVAL {
            self.check(now);
        }
    }

    /// Checks the rules again. Cheap while no rule of nftables has changed.
    pub(crate) fn check(&mut self, now: Instant) {
        self.checked_at = now;
        let Some(sources) = self.sources.as_mut().filter(|_| self.switched_off.is_none()) else { return };
        let (level, state) = match sources.objection() {
            Ok(None) if sources.has_base_chains() => (ESP_AND_AH, LinkSending::InUse),
            Ok(None) => (ALL, LinkSending::InUse),
            Ok(Some(reason)) => (NOTHING, LinkSending::Off(reason)),
            Err(error) => (NOTHING, LinkSending::Off(format!("the rules of the host are unknown: {error}"))),
        };
        self.permission.set(level);
        self.state = state;
    }
}

impl Sources {
    /// Reads the base chains of other programs again if nftables has changed.
    fn read_chains(&mut self) -> io::Result<()> {
        let generation = self.netfilter.generation()?;
        if self.chains.as_ref().is_none_or(|known| known.generation != generation) {
            self.chains = None;
            let mut chains = self.netfilter.base_chains()?;
            chains.retain(|chain| is_ip(chain) && !self.tables.contains(&chain.table));
            self.chains = Some(KnownChains { generation, chains });
        }
        Ok(())
    }

    /// Whether another program needs received ESP and AH packets: the kernel's own IPsec, a raw socket, or a
    /// rule that sends them to another host.
    fn others_need_received(&mut self) -> io::Result<bool> {
        self.read_chains()?;
        let mut chains = self.chains.iter().flat_map(|known| &known.chains);
        Ok(chains.any(|chain| chain.kind == "nat" && chain.hook == libc::NF_INET_PRE_ROUTING as u32)
            || legacy_table()?.is_some()
            || self.others_receive()?)
    }

    /// Whether the kernel's own IPsec or a raw socket receives ESP or AH packets.
    fn others_receive(&mut self) -> io::Result<bool> {
        Ok(has_other_raw_sockets()? || self.xfrm.states()? > 0)
    }

    /// Why no packet may be sent past the kernel's IP output, if so.
    fn objection(&mut self) -> io::Result<Option<String>> {
        self.read_chains()?;
        let mut chains = self.chains.iter().flat_map(|known| &known.chains);
        if let Some(BaseChain { table, name, .. }) = chains.find(|chain| applies_to_sent(chain)) {
            return Ok(Some(format!("the chain `{name}` of the nftables table `{table}` sees sent packets")));
        }
        if let Some(table) = legacy_table()? {
            return Ok(Some(format!("the iptables table `{table}` is loaded")));
        }
        let policies = self.xfrm.outbound_policies()?;
        Ok((policies > 0).then(|| "the kernel's IPsec has outbound policies (ip xfrm policy)".into()))
    }

    /// Whether any program filters packets, and may therefore need the connection tracking of UDP packets
    /// that are sent.
    fn has_base_chains(&self) -> bool {
        self.chains.iter().any(|known| !known.chains.is_empty())
    }
}

fn is_ip(chain: &BaseChain) -> bool {
    matches!(chain.family, libc::NFPROTO_INET | libc::NFPROTO_IPV4 | libc::NFPROTO_IPV6)
}

fn applies_to_sent(chain: &BaseChain) -> bool {
    [libc::NF_INET_LOCAL_OUT, libc::NF_INET_POST_ROUTING].iter().any(|hook| *hook as u32 == chain.hook)
}

/// The first table of iptables that does not use nftables.
fn legacy_table() -> io::Result<Option<String>> {
    for path in IPTABLES {
        if let Some(table) = read(path)?.lines().next() {
            return Ok(Some(table.to_owned()));
        }
    }
    Ok(None)
}

/// Whether there are more raw sockets for ESP or AH than the one for each IP version that this instance has.
fn has_other_raw_sockets() -> io::Result<bool> {
    for path in RAW_SOCKETS {
        let sockets = read(path)?;
        let count = |protocol: u8| {
            let port = format!(":{protocol:04X}");
            let local = |line: &str| line.split_whitespace().nth(1).is_some_and(|addr| addr.ends_with(&port));
            sockets.lines().filter(|line| local(line)).count()
        };
        if count(proto::ESP) > 1 || count(proto::AH) > 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Text of a file; empty if the file is missing.
fn read(path: &str) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}
