//! Builds the data path from a file with manual keys: SAs, policies, and MTUs.

use super::manual::DirectedSa;
use super::plan::InitialPolicies;
use crate::failure::Failure;
use crate::log::Log;
use crate::providers;
use crate::xfrm::{self, XfrmFile};
use casemate_crypto::Providers;
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, SaId, Unmatched, pmtu};
use casemate_linux::counters::CounterStoreBuilder;
use casemate_linux::netlink::Netlink;
use casemate_linux::{DummyTraffic, ManualSa};
use casemate_sa::{Instant, Limits, Protocol};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;

/// Assumed MTU of a destination without a route.
const USUAL_MTU: usize = 1500;
/// Maximum MTU of IP; the loopback interface has a larger one.
const MAX_MTU: usize = 65_535;

/// The data path under construction, with information about its SAs.
pub(super) struct DatapathBuilder {
    pub(super) datapath: Datapath,
    pub(super) sas: Vec<ManualSa>,
    /// Name of the crypto provider of each SA.
    pub(super) provider_names: HashMap<SaId, String>,
    /// Number of outbound SAs.
    pub(super) outbound_count: usize,
    /// Number of inbound SAs.
    pub(super) inbound_count: usize,
    now: Instant,
}

impl DatapathBuilder {
    pub(super) fn new(limits: Limits, seed: u64, now: Instant) -> Self {
        // Traffic without a policy passes in clear, as on Linux with the same file.
        let config = Config { limits, seed, unmatched: Unmatched::PassClear, link_mtu: USUAL_MTU };
        let datapath = Datapath::new(config);
        Self {
            datapath,
            sas: Vec::new(),
            provider_names: HashMap::new(),
            outbound_count: 0,
            inbound_count: 0,
            now,
        }
    }

    /// Adds the SAs. Outbound SAs continue from the sequence numbers in the counter file.
    pub(super) fn add_sas(
        &mut self,
        sas: &mut [DirectedSa],
        path: &Path,
        mut counters: Option<&mut CounterStoreBuilder>,
        log: &mut Log,
    ) -> Result<(), Failure> {
        let providers = providers::for_sas(sas.iter().map(|sa| &sa.sa.value));
        if let Some(counters) = counters.as_deref_mut() {
            adopt(counters, sas, log);
        }
        for DirectedSa { direction, sa } in sas {
            let failed = |error: &dyn std::fmt::Display| {
                Failure::bad_input(format!("{}:{}: {error}", path.display(), sa.line))
            };
            let outbound = *direction == Direction::Outbound;
            if let Some(counters) = counters.as_deref_mut().filter(|_| outbound) {
                let last = counters.resume(&mut sa.value);
                if !sa.value.esn && last >= u64::from(u32::MAX) {
                    return Err(failed(&format!(
                        "the key of spi {} has no sequence numbers left: a new key was expected",
                        sa.value.spi
                    )));
                }
            }
            let sa = &sa.value;
            let added = self.datapath.add_sa(sa, *direction, &Providers(&providers), self.now);
            let id = added.map_err(|error| failed(&error))?;
            if let Some(counters) = counters.as_deref_mut().filter(|_| outbound) {
                counters.bind_last(id);
            }
            let count = if outbound { &mut self.outbound_count } else { &mut self.inbound_count };
            *count = count.saturating_add(1);
            self.provider_names
                .insert(id, providers::name_for(providers::algorithms(&sa.transform), &providers));
            self.sas.push(ManualSa { id, params: sa.clone() });
        }
        Ok(())
    }

    /// Adds the policies. One inbound SPD serves `in` and `fwd` policies.
    pub(super) fn add_policies(&mut self, file: &XfrmFile, path: &Path) -> Result<(), Failure> {
        let mut inbound: HashSet<_> = HashSet::new();
        for policy in &file.policies {
            let direction = match policy.value.direction {
                xfrm::Direction::Out => Direction::Outbound,
                xfrm::Direction::In | xfrm::Direction::Forward => Direction::Inbound,
            };
            let Policy { selector, action, priority, .. } = &policy.value.policy;
            // Files usually have each inbound policy twice, as `in` and `fwd`.
            if direction == Direction::Inbound && !inbound.insert((*selector, *priority, action.to_string()))
            {
                continue;
            }
            self.datapath.add_policy(direction, policy.value.policy.clone()).map_err(|error| {
                Failure::bad_input(format!("{}:{}: {error}", path.display(), policy.line))
            })?;
        }
        Ok(())
    }

    /// Sets the link MTUs of the SAs. Returns the MTU for the TUN interface, so that packets of the host
    /// fit after encryption.
    pub(super) fn learn_links(&mut self, netlink: &mut Netlink, mark: u32, log: &mut Log) -> usize {
        let outbound = self.sas.iter().filter(|sa| sa.is(Direction::Outbound));
        let mut mtus: HashMap<IpAddr, usize> = HashMap::new();
        let ends: Vec<(SaId, usize)> = outbound
            .map(|ManualSa { id, params: sa }| {
                let mtu = mtus.entry(sa.dst).or_insert_with(|| link_mtu(netlink, sa.dst, mark, log));
                (*id, *mtu)
            })
            .collect();
        let widest = mtus.values().copied().max().unwrap_or(USUAL_MTU);
        self.datapath.set_link_mtu(widest);
        for (id, mtu) in ends {
            self.datapath.set_sa_link_mtu(id, mtu);
        }
        self.tun_mtu(widest)
    }

    fn tun_mtu(&mut self, link_mtu: usize) -> usize {
        let policies: Vec<(Bundle, bool)> = self
            .datapath
            .policies(Direction::Outbound)
            .filter_map(|(_, policy)| match &policy.action {
                Action::Protect(bundle) => Some((bundle.clone(), policy.selector.src.is_ipv4())),
                _ => None,
            })
            .collect();
        // Thousands of policies use few different bundles.
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut mtu = link_mtu;
        for (bundle, v4) in policies {
            let name = bundle.to_string();
            let inner = match known.get(&name) {
                Some(inner) => *inner,
                None => *known.entry(name).or_insert(self.inner_mtu(&bundle, link_mtu)),
            };
            // RFC 8200 section 5: every IPv6 link has an MTU of at least 1,280 bytes.
            mtu = mtu.min(inner.max(if v4 { pmtu::V4_MIN_MTU } else { pmtu::V6_MIN_MTU }));
        }
        mtu
    }

    /// The largest packet that fits into every SA that may serve the bundle.
    fn inner_mtu(&mut self, bundle: &Bundle, link_mtu: usize) -> usize {
        let Self { datapath, sas, .. } = self;
        bundle.templates().iter().rev().fold(link_mtu, |mtu, template| {
            let serving = sas.iter().filter(|ManualSa { id, params: sa }| {
                id.direction() == Direction::Outbound
                    && template.accepts(sa.transform.protocol(), sa.mode, sa.src, sa.dst, sa.reqid)
            });
            serving.filter_map(|sa| datapath.inner_mtu(sa.id, mtu)).min().unwrap_or(mtu)
        })
    }

    /// The policies, in order of precedence.
    pub(super) fn policies(&self) -> InitialPolicies {
        let of = |direction| {
            let policies = self.datapath.policies(direction);
            policies.map(|(id, policy)| (id, policy.clone())).collect()
        };
        InitialPolicies { outbound: of(Direction::Outbound), inbound: of(Direction::Inbound) }
    }

    /// The dummy traffic of every outbound ESP SA, up to the maximum length of real packets. An SA nested
    /// inside another SA gets none: its dummy packets would leave without the outer header and be
    /// distinguishable.
    pub(super) fn dummy_traffic(&self, per_second: NonZeroU16, longest: usize) -> DummyTraffic {
        let inner: Vec<&Template> = self
            .datapath
            .policies(Direction::Outbound)
            .filter_map(|(_, policy)| match &policy.action {
                Action::Protect(bundle) => bundle.templates().split_last(),
                _ => None,
            })
            .flat_map(|(_outermost, inner)| inner)
            .collect();
        let carries = |ManualSa { id, params: sa }: &&ManualSa| {
            let protocol = sa.transform.protocol();
            id.direction() == Direction::Outbound
                && protocol == Protocol::Esp
                && !inner.iter().any(|template| template.accepts(protocol, sa.mode, sa.src, sa.dst, sa.reqid))
        };
        DummyTraffic {
            sas: self.sas.iter().filter(carries).map(|sa| sa.id).collect(),
            per_second,
            max_len: longest,
        }
    }

    /// Local UDP ports that receive encapsulated ESP.
    pub(super) fn encap_ports(&self) -> Vec<u16> {
        let inbound = self.sas.iter().filter(|sa| sa.is(Direction::Inbound));
        let mut ports: Vec<u16> =
            inbound.filter_map(|sa| sa.params.encap.map(|encap| encap.dst_port)).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Destinations of the outbound SAs.
    pub(super) fn peers(&self) -> Vec<IpAddr> {
        let outbound = self.sas.iter().filter(|sa| sa.is(Direction::Outbound));
        let mut peers: Vec<IpAddr> = outbound.map(|sa| sa.params.dst).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

/// Matches the SAs with records that an earlier version wrote to the counter file.
fn adopt(counters: &mut CounterStoreBuilder, sas: &[DirectedSa], log: &mut Log) {
    let outbound = sas.iter().filter(|sa| sa.direction == Direction::Outbound);
    let unknown = counters.migrate_v1(outbound.map(|sa| &sa.sa.value));
    if unknown > 0 {
        log.warn(&format!(
            "the counter file has records of an earlier version that match no SA: any key may have been \
             used up to number {unknown}, so each counter-mode SA continues after it. To avoid this, give \
             all SAs new keys and delete the counter file"
        ));
    }
}

fn link_mtu(netlink: &mut Netlink, dst: IpAddr, mark: u32, log: &mut Log) -> usize {
    match netlink.link_mtu_to(dst, mark) {
        Ok(mtu) => mtu.map_or(USUAL_MTU, |mtu| mtu.min(MAX_MTU)),
        Err(error) => {
            log.warn(&format!("{error}: a link MTU of {USUAL_MTU} bytes is assumed"));
            USUAL_MTU
        }
    }
}
