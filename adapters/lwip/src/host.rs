//! A host: the data path, and what it needs around it. Safe Rust; `api` is its door for C.

use crate::costs::{self, HOUSEKEEPING, arrivals, limits, of_one_more};
use crate::ike::Speaker;
use crate::random::CallersRandom;
use crate::types::{self, Random, Setup};
use crate::{Code, memory};
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate::path::{Arrivals, Opened, OutboundPath};
use casemate_crypto::{Provider, Providers, Rng};
use casemate_datapath::{Config, Datapath, Direction, DropReason, Role, Unmatched, spd};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Protocol, SaParams, Spi};
use core::net::IpAddr;

pub(crate) const PROVIDERS: Providers<'static> = Providers(&[
    &RUSTCRYPTO as &dyn Provider,
    #[cfg(feature = "legacy")]
    &casemate_legacy::LEGACY,
]);

/// The shortest MTU that makes sense: every IPv4 host takes packets of this length (RFC 791 section 3.1).
const LEAST_MTU: usize = 576;

/// `casemate_host`.
pub struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) speaker: Speaker,
    pub(crate) rng: CallersRandom,
    pub(crate) outbound: OutboundPath,
    /// Takes fragments if the stack leaves them to us.
    pub(crate) arrivals: Arrivals,
    pub(crate) opened: Opened,
    /// A fragment on its way out.
    pub(crate) fragment: Box<[u8]>,
}

impl Host {
    pub(crate) fn new(setup: &Setup, random: Random) -> Result<Self, Code> {
        let limits = limits(&setup.tables)?;
        let mtu = usize::try_from(setup.mtu).ok().filter(|mtu| (LEAST_MTU..=65_535).contains(mtu));
        let mtu = mtu.ok_or(Code::Value)?;
        let unmatched = match setup.unmatched {
            types::DISCARD => Unmatched::Discard,
            types::BYPASS => Unmatched::PassClear,
            _ => return Err(Code::Value),
        };
        memory::check(costs::costs(&setup.tables)?.host.saturating_add(mtu))?;
        let mut rng = CallersRandom::new(random, setup.random_context);
        let (mut seed, mut ident) = ([0; 8], [0; 4]);
        rng.secret(&mut seed);
        rng.public(&mut ident);
        let config = Config { limits, seed: u64::from_be_bytes(seed), unmatched, link_mtu: mtu };
        let settings = costs::settings(&setup.tables)?;
        let mut datapath = Datapath::new(config);
        datapath.set_role(Role::Host);
        if settings.ike_sas > 0 {
            datapath.listen_encapsulated(settings.natt_port);
        }
        Ok(Self {
            endpoint: Endpoint::new(datapath, settings),
            speaker: Speaker::new(&setup.tables)?,
            rng,
            outbound: OutboundPath::host(u32::from_be_bytes(ident)),
            arrivals: Arrivals::new(&limits, arrivals(&setup.tables)?),
            opened: Opened::new(&limits, u32::from_be_bytes(ident)),
            fragment: vec![0; mtu].into(),
        })
    }

    pub(crate) fn add_sa(&mut self, sa: &SaParams, direction: Direction, now: Instant) -> Result<(), Code> {
        let window = usize::try_from(sa.replay_window.div_ceil(8)).map_err(|_| Code::Value)?;
        memory::check(of_one_more(self.endpoint.datapath().sas().count()).saturating_add(window))?;
        self.endpoint.add_sa(sa, direction, &PROVIDERS, now)?;
        Ok(())
    }

    pub(crate) fn remove_sa(
        &mut self,
        (spi, protocol, dst): (Spi, Protocol, IpAddr),
        direction: Direction,
    ) -> Result<(), Code> {
        let found =
            self.endpoint.datapath().sas().find(|sa| {
                (sa.id.direction(), sa.spi, sa.protocol, sa.dst) == (direction, spi, protocol, dst)
            });
        let id = found.ok_or(Code::Absent)?.id;
        self.endpoint.remove_sa(id);
        Ok(())
    }

    fn policies(&self) -> usize {
        let of = |direction| self.endpoint.datapath().policies(direction).count();
        of(Direction::Outbound).saturating_add(of(Direction::Inbound))
    }

    pub(crate) fn add_policy(&mut self, direction: Direction, policy: spd::Policy) -> Result<(), Code> {
        memory::check(of_one_more(self.policies()))?;
        self.endpoint.datapath_mut().add_policy(direction, policy)?;
        Ok(())
    }

    pub(crate) fn remove_policy(&mut self, direction: Direction, policy: &spd::Policy) -> Result<(), Code> {
        let datapath = self.endpoint.datapath_mut();
        let found = datapath.policies(direction).find(|(_, other)| *other == policy).map(|(id, _)| id);
        datapath.remove_policy(direction, found.ok_or(Code::Absent)?);
        Ok(())
    }

    pub(crate) fn add_housekeeping(&mut self) -> Result<(), Code> {
        memory::check(of_one_more(self.policies().saturating_add(HOUSEKEEPING)))?;
        casemate::housekeeping(self.endpoint.datapath_mut())?;
        Ok(())
    }

    /// Whether every packet passes as it is.
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.datapath().passes_everything()
    }

    /// How many packets were dropped for the reason of this number, and its name.
    pub(crate) fn drops(&self, index: usize) -> Result<(&'static str, u64), Code> {
        let reason = *DropReason::ALL.get(index).ok_or(Code::Absent)?;
        Ok((reason.name(), self.endpoint.datapath().drops().get(reason)))
    }
}
