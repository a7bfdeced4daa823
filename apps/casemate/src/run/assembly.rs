//! Makes the data path from the file: SAs, policies, and what the links say of sizes.

use super::direction::DirectedSa;
use super::logbook::Logbook;
use crate::failure::Failure;
use crate::providers::providers;
use crate::xfrm::{self, XfrmFile};
use casemate_crypto::{EspSuite, Provider, Providers};
use casemate_datapath::spd::{Action, Bundle, Policy, PolicyId, Template};
use casemate_datapath::{Config, Datapath, Direction, SaId, Unmatched, pmtu};
use casemate_linux::DummyTraffic;
use casemate_linux::counters::Opened;
use casemate_linux::netlink::Netlink;
use casemate_sa::{Instant, Limits, Protocol, SaParams, Transform};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;

/// What is assumed of a link that there is no route to yet.
const USUAL_MTU: usize = 1500;
/// IP's own limit, which the loopback interface exceeds.
const MAX_MTU: usize = 65_535;

/// The data path and what is known of its parts.
pub(super) struct Assembly {
    pub(super) datapath: Datapath,
    pub(super) sas: Vec<(SaId, SaParams)>,
    /// Name of the provider that computes for each SA, in the order of `sas`.
    pub(super) provider_names: HashMap<SaId, String>,
    /// Outbound and inbound SAs.
    pub(super) counts: (usize, usize),
    now: Instant,
}

impl Assembly {
    pub(super) fn new(limits: Limits, seed: u64, now: Instant) -> Self {
        // What no policy names passes, as on a Linux host with the same file.
        let config = Config { limits, seed, unmatched: Unmatched::PassClear, link_mtu: USUAL_MTU };
        let datapath = Datapath::new(config);
        Self { datapath, sas: Vec::new(), provider_names: HashMap::new(), counts: (0, 0), now }
    }

    /// Adds the SAs. Outbound ones go on where the counter file says.
    pub(super) fn add_sas(
        &mut self,
        sas: &mut [DirectedSa],
        path: &Path,
        mut counters: Option<&mut Opened>,
        log: &mut Logbook,
    ) -> Result<(), Failure> {
        let providers = providers(sas.iter().map(|(_, sa)| &sa.value));
        if let Some(counters) = counters.as_deref_mut() {
            adopt(counters, sas, log);
        }
        for (direction, sa) in sas {
            let failed = |error: &dyn std::fmt::Display| {
                Failure::bad_input(format!("{}:{}: {error}", path.display(), sa.line))
            };
            let outbound = *direction == Direction::Outbound;
            if let Some(counters) = counters.as_deref_mut().filter(|_| outbound) {
                let last = counters.resume(&mut sa.value);
                if !sa.value.esn && last >= u64::from(u32::MAX) {
                    return Err(failed(&format!(
                        "all sequence numbers of the key of spi {} are used: a new key was expected",
                        sa.value.spi
                    )));
                }
            }
            let sa = &sa.value;
            let added = self.datapath.add_sa(sa, *direction, &Providers(&providers), self.now);
            let id = added.map_err(|error| failed(&error))?;
            if let Some(counters) = counters.as_deref_mut().filter(|_| outbound) {
                counters.belongs_to(id);
            }
            let count = if outbound { &mut self.counts.0 } else { &mut self.counts.1 };
            *count = count.saturating_add(1);
            self.provider_names.insert(id, provider_name(&sa.transform, &providers));
            self.sas.push((id, sa.clone()));
        }
        Ok(())
    }

    /// Adds the policies. Those for forwarded packets join those for this host's: one SPD serves both.
    pub(super) fn add_policies(&mut self, file: &XfrmFile, path: &Path) -> Result<(), Failure> {
        let mut inbound: HashSet<_> = HashSet::new();
        for policy in &file.policies {
            let direction = match policy.value.direction {
                xfrm::Direction::Out => Direction::Outbound,
                xfrm::Direction::In | xfrm::Direction::Forward => Direction::Inbound,
            };
            let Policy { selector, action, priority } = &policy.value.policy;
            // The same policy is usually written twice, `in` and `fwd`.
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

    /// Learns the MTUs of the links that the SAs use; answers the one that the TUN interface should have, so that what the
    /// host sends fits once it is protected.
    pub(super) fn learn_links(&mut self, netlink: &mut Netlink, mark: u32) -> usize {
        let outbound = self.sas.iter().filter(|(id, _)| id.direction() == Direction::Outbound);
        let mut mtus: HashMap<IpAddr, usize> = HashMap::new();
        let ends: Vec<(SaId, usize)> = outbound
            .map(|(id, sa)| {
                let mtu = mtus.entry(sa.dst).or_insert_with(|| link_mtu(netlink, sa.dst, mark));
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
        // Policies by the thousand ask for few different bundles.
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut mtu = link_mtu;
        for (bundle, v4) in policies {
            let name = bundle.to_string();
            let inner = match known.get(&name) {
                Some(inner) => *inner,
                None => *known.entry(name).or_insert(self.inner_mtu(&bundle, link_mtu)),
            };
            // RFC 8200 section 5: every IPv6 link takes 1,280 bytes.
            mtu = mtu.min(inner.max(if v4 { pmtu::V4_MIN_MTU } else { pmtu::V6_MIN_MTU }));
        }
        mtu
    }

    /// What fits into the narrowest SAs that may serve the bundle.
    fn inner_mtu(&mut self, bundle: &Bundle, link_mtu: usize) -> usize {
        let Self { datapath, sas, .. } = self;
        bundle.templates().iter().rev().fold(link_mtu, |mtu, template| {
            let serving = sas.iter().filter(|(id, sa)| {
                id.direction() == Direction::Outbound
                    && template.accepts(sa.transform.protocol(), sa.mode, sa.src, sa.dst, sa.reqid)
            });
            serving.filter_map(|(id, _)| datapath.inner_mtu(*id, mtu)).min().unwrap_or(mtu)
        })
    }

    /// The policies of one direction, the first that decides first.
    pub(super) fn policies(&self, direction: Direction) -> Vec<(PolicyId, &Policy)> {
        self.datapath.policies(direction).collect()
    }

    /// Dummy packets for every outbound ESP SA, up to the length that the host's own packets may have. An SA that stands
    /// inside of another one gets none: they would leave without that other one's header, and be known by it.
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
        let carries = |(id, sa): &&(SaId, SaParams)| {
            let protocol = sa.transform.protocol();
            id.direction() == Direction::Outbound
                && protocol == Protocol::Esp
                && !inner.iter().any(|template| template.accepts(protocol, sa.mode, sa.src, sa.dst, sa.reqid))
        };
        DummyTraffic {
            sas: self.sas.iter().filter(carries).map(|(id, _)| *id).collect(),
            per_second,
            longest,
        }
    }

    /// UDP ports on which ESP arrives.
    pub(super) fn encap_ports(&self) -> Vec<u16> {
        let inbound = self.sas.iter().filter(|(id, _)| id.direction() == Direction::Inbound);
        let mut ports: Vec<u16> =
            inbound.filter_map(|(_, sa)| sa.encap.map(|encap| encap.dst_port)).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The other ends of the outbound SAs.
    pub(super) fn peers(&self) -> Vec<IpAddr> {
        let outbound = self.sas.iter().filter(|(id, _)| id.direction() == Direction::Outbound);
        let mut peers: Vec<IpAddr> = outbound.map(|(_, sa)| sa.dst).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

/// Matches the SAs with the records of a counter file that an earlier version wrote.
fn adopt(counters: &mut Opened, sas: &[DirectedSa], log: &mut Logbook) {
    let outbound = sas.iter().filter(|(direction, _)| *direction == Direction::Outbound);
    let unknown = counters.adopt(outbound.map(|(_, sa)| &sa.value));
    if unknown > 0 {
        log.warn(&format!(
            "the counter file has records of an earlier version that match no SA: any key may have been used up to \
             number {unknown}, so each counter-mode SA begins after it. To end this, give all SAs new keys and delete \
             the counter file"
        ));
    }
}

fn link_mtu(netlink: &mut Netlink, dst: IpAddr, mark: u32) -> usize {
    netlink.link_mtu_to(dst, mark).ok().flatten().map_or(USUAL_MTU, |mtu| mtu.min(MAX_MTU))
}

/// Whose code computes; chosen as [`Providers`] chooses.
fn provider_name(transform: &Transform, providers: &[&'static dyn Provider]) -> String {
    let first = |able: &dyn Fn(&dyn Provider) -> bool| {
        providers.iter().find(|provider| able(**provider)).map_or("none", |provider| provider.name())
    };
    match transform {
        Transform::Esp { suite: EspSuite::Combined(alg), encr, .. } => {
            let key = encr.expose().get(..alg.key_len()).unwrap_or_default();
            first(&|provider| provider.aead(*alg, key).is_ok()).into()
        }
        Transform::Esp { suite: EspSuite::Separate(cipher, mac), encr, integ } => {
            let encr = encr.expose().get(..cipher.key_len()).unwrap_or_default();
            let integ = integ.expose().get(..mac.key_len()).unwrap_or_default();
            let joint = providers.iter().find(|p| p.etm(*cipher, encr, *mac, integ).is_ok());
            if let Some(provider) = joint {
                return provider.name().into();
            }
            let mac = first(&|provider| provider.mac(*mac, integ).is_ok());
            let cipher = match cipher {
                casemate_crypto::CipherAlg::Null => mac,
                cipher => first(&|provider| provider.cipher(*cipher, encr).is_ok()),
            };
            if cipher == mac { mac.into() } else { format!("{cipher}, {mac}") }
        }
        Transform::Ah { suite, integ } => {
            let key = integ.expose().get(..suite.0.key_len()).unwrap_or_default();
            first(&|provider| provider.mac(suite.0, key).is_ok()).into()
        }
    }
}
