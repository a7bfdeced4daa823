//! A host: the data path and its environment, in safe Rust. `api` is its C interface.

use crate::convert::SaKey;
use crate::ike::IkeState;
use crate::memory_costs::{self, CONTROL_PLANE_POLICIES, inbound_fragments, limits, of_new_entry};
use crate::types::{self, RandomFn, Setup};
use crate::{Status, allocator};
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate::path::{InboundFragments, OpenedFragments, OutboundPath};
use casemate_crypto::{Provider, Providers, Rng};
use casemate_datapath::{Config, Datapath, Direction, DropReason, Role, Unmatched, spd};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, SaParams};
use core::ffi::c_void;

pub(crate) const PROVIDERS: Providers<'static> = Providers(&[
    &RUSTCRYPTO as &dyn Provider,
    #[cfg(feature = "legacy")]
    &casemate_legacy::LEGACY,
]);

/// Minimum MTU: every IPv4 host accepts packets of this length (RFC 791 section 3.1).
const MIN_MTU: usize = 576;

/// `casemate_host`.
pub struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) ike_state: IkeState,
    pub(crate) rng: CallerRng,
    pub(crate) outbound: OutboundPath,
    /// Reassembles received fragments, if the stack does not.
    pub(crate) inbound_fragments: InboundFragments,
    pub(crate) opened: OpenedFragments,
    /// Buffer for an outgoing fragment.
    pub(crate) fragment: Box<[u8]>,
}

impl Host {
    pub(crate) fn new(setup: &Setup, random: RandomFn) -> Result<Self, Status> {
        let limits = limits(&setup.tables)?;
        let mtu = usize::try_from(setup.mtu).ok().filter(|mtu| (MIN_MTU..=65_535).contains(mtu));
        let mtu = mtu.ok_or(Status::Value)?;
        let unmatched = match setup.unmatched {
            types::DISCARD => Unmatched::Discard,
            types::BYPASS => Unmatched::PassClear,
            _ => return Err(Status::Value),
        };
        allocator::check(memory_costs::costs(&setup.tables)?.host.saturating_add(mtu))?;
        let mut rng = CallerRng::new(random, setup.random_context);
        let (mut seed, mut ident) = ([0; 8], [0; 4]);
        rng.secret(&mut seed);
        rng.public(&mut ident);
        let config = Config { limits, seed: u64::from_be_bytes(seed), unmatched, link_mtu: mtu };
        let settings = memory_costs::settings(&setup.tables)?;
        let mut datapath = Datapath::new(config);
        datapath.set_role(Role::Host);
        if settings.max_ike_sas > 0 {
            datapath.add_encap_port(settings.natt_port);
        }
        Ok(Self {
            endpoint: Endpoint::new(datapath, settings),
            ike_state: IkeState::new(&setup.tables)?,
            rng,
            outbound: OutboundPath::host(u32::from_be_bytes(ident)),
            inbound_fragments: InboundFragments::new(&limits, inbound_fragments(&setup.tables)?),
            opened: OpenedFragments::new(&limits, u32::from_be_bytes(ident)),
            fragment: vec![0; mtu].into(),
        })
    }

    pub(crate) fn add_sa(&mut self, sa: &SaParams, direction: Direction, now: Instant) -> Result<(), Status> {
        let window = usize::try_from(sa.replay_window.div_ceil(8)).map_err(|_| Status::Value)?;
        allocator::check(of_new_entry(self.endpoint.datapath().sas().count()).saturating_add(window))?;
        self.endpoint.add_sa(sa, direction, &PROVIDERS, now)?;
        Ok(())
    }

    pub(crate) fn remove_sa(&mut self, key: SaKey, direction: Direction) -> Result<(), Status> {
        let found = self.endpoint.datapath().sas().find(|sa| {
            let found = SaKey { spi: sa.spi, protocol: sa.protocol, dst: sa.dst };
            sa.id.direction() == direction && found == key
        });
        let id = found.ok_or(Status::Absent)?.id;
        self.endpoint.remove_sa(id);
        Ok(())
    }

    fn policies(&self) -> usize {
        let of = |direction| self.endpoint.datapath().policies(direction).count();
        of(Direction::Outbound).saturating_add(of(Direction::Inbound))
    }

    pub(crate) fn add_policy(&mut self, direction: Direction, policy: spd::Policy) -> Result<(), Status> {
        allocator::check(of_new_entry(self.policies()))?;
        self.endpoint.datapath_mut().add_policy(direction, policy)?;
        Ok(())
    }

    pub(crate) fn remove_policy(&mut self, direction: Direction, policy: &spd::Policy) -> Result<(), Status> {
        let datapath = self.endpoint.datapath_mut();
        let found = datapath.policies(direction).find(|(_, other)| *other == policy).map(|(id, _)| id);
        datapath.remove_policy(direction, found.ok_or(Status::Absent)?);
        Ok(())
    }

    pub(crate) fn add_control_plane_policies(&mut self) -> Result<(), Status> {
        allocator::check(of_new_entry(self.policies().saturating_add(CONTROL_PLANE_POLICIES)))?;
        casemate::bypass_control_plane(self.endpoint.datapath_mut())?;
        Ok(())
    }

    /// Returns whether every packet passes unchanged.
    pub(crate) fn is_idle(&self) -> bool {
        self.endpoint.datapath().passes_everything()
    }

    /// Returns name and counter of drop reason number `index`.
    pub(crate) fn drops(&self, index: usize) -> Result<(&'static str, u64), Status> {
        let reason = *DropReason::ALL.get(index).ok_or(Status::Absent)?;
        Ok((reason.name(), self.endpoint.datapath().drops().get(reason)))
    }
}

/// Random number generator of the caller.
pub(crate) struct CallerRng {
    fill: RandomFn,
    context: *mut c_void,
}

impl CallerRng {
    pub(crate) const fn new(fill: RandomFn, context: *mut c_void) -> Self {
        Self { fill, context }
    }
}

impl Rng for CallerRng {
    fn public(&mut self, out: &mut [u8]) {
        // One cryptographically secure generator serves both: its output does not reveal other output.
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        // SAFETY: the caller of casemate_create guarantees that the function can be called with its
        // context while the host exists; `out` is writable for its length.
        unsafe { (self.fill)(self.context, out.as_mut_ptr(), out.len()) }
    }
}
