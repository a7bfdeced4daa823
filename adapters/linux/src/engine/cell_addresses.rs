//! The addresses of a cell in the engine: what their events and their interfaces mean for its nodes.

use super::shared::Shared;
use super::state_keeper::StateKeeper;
use super::{EngineHandler, SystemProblem};
use crate::Error;
use crate::virtual_addresses::{AddressEvent, VirtualAddresses};
use casemate::Endpoint;
use casemate_cell::KeeperRole;
use casemate_sa::Instant;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

const WHAT: &str = "the addresses of the cell";
/// Interval in which the interfaces are looked at.
const CHECK: Duration = Duration::from_millis(250);
/// Time without a carrier after which an owner hands over.
const PATIENCE: Duration = Duration::from_secs(1);
/// Probes of a fenced owner before it takes addresses back, and the time after each of them in which another
/// host may answer.
const PROBES: u32 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// The addresses of a cell, which its owner has, and the state of their interfaces.
pub(super) struct CellAddresses {
    addresses: VirtualAddresses,
    checked_at: Instant,
    /// Since when an interface has no carrier.
    lost_at: Option<Instant>,
    /// The kernel has removed the addresses of this owner, which asks whether another host has them.
    probing: Option<Probing>,
}

/// Probes for addresses that this host had.
#[derive(Debug, Clone, Copy)]
struct Probing {
    sent: u32,
    last_at: Instant,
}

impl CellAddresses {
    pub(super) const fn new(addresses: VirtualAddresses) -> Self {
        Self { addresses, checked_at: Instant::ZERO, lost_at: None, probing: None }
    }

    /// Adds and announces the addresses.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Error> {
        self.addresses.take(now)
    }

    /// Removes the addresses at once.
    pub(super) fn give_up(&mut self) {
        // What remains after an error ends with its lifetime.
        let _ = self.addresses.give_up();
    }

    /// Extends the lifetime of the addresses of an owner, and reports what happens to them. A node without
    /// a carrier does not become the owner.
    ///
    /// # Errors
    ///
    /// The run must end: another host uses the addresses and this one could not renew its lease; or an
    /// interface has no carrier, and another node can take over. A host on the same link can forge the use of
    /// an address, so that it alone ends nothing.
    pub(super) fn keep(
        &mut self,
        keeper: &mut StateKeeper,
        now: Instant,
        handler: &mut dyn EngineHandler,
    ) -> Result<(), Error> {
        self.check_carrier(keeper, now)?;
        if !self.addresses.is_held() && self.probing.is_none() {
            return Ok(());
        }
        let role = keeper.status(now).role;
        for event in self.addresses.poll(now) {
            if matches!(event, AddressEvent::Expired { .. }) {
                self.probing = Some(Probing { sent: 0, last_at: now });
            }
            handler.on_problem(SystemProblem::Addresses, described(event, role)?);
        }
        self.take_back(role, now)
    }

    /// Takes addresses back that have ended because this process was stopped: at once if it has renewed its
    /// lease since, otherwise when no other host has answered. While the store does not respond, no node
    /// becomes the owner, but one may have become it before.
    fn take_back(&mut self, role: KeeperRole, now: Instant) -> Result<(), Error> {
        let Some(Probing { sent, last_at }) = &mut self.probing else { return Ok(()) };
        match role {
            KeeperRole::Owner => {}
            KeeperRole::Fenced => {
                if *sent > 0 && now.since(*last_at) < PROBE_INTERVAL {
                    return Ok(());
                }
                if *sent < PROBES {
                    // Without a carrier, probes fail until there is one.
                    *sent = sent.saturating_add(u32::from(self.addresses.probe().is_ok()));
                    *last_at = now;
                    return Ok(());
                }
            }
            // The run ends.
            _ => return Ok(()),
        }
        self.probing = None;
        self.addresses.take(now)
    }

    fn check_carrier(&mut self, keeper: &mut StateKeeper, now: Instant) -> Result<(), Error> {
        if now.since(self.checked_at) < CHECK {
            return Ok(());
        }
        self.checked_at = now;
        let Some(interface) = self.addresses.without_carrier() else {
            self.lost_at = None;
            keeper.allow_takeover(true, now);
            return Ok(());
        };
        keeper.allow_takeover(false, now);
        let lost_at = *self.lost_at.get_or_insert(now);
        if now.since(lost_at) < PATIENCE || !keeper.has_standby() {
            return Ok(());
        }
        Err(Error::other(WHAT, format!("interface {interface} has no carrier, and another node stands by")))
    }
}

/// Local addresses of restored IKE SAs that this host does not have yet, because another program assigns them
/// after the takeover.
#[derive(Default)]
pub(super) struct AwaitedAddresses(BTreeSet<IpAddr>);

impl AwaitedAddresses {
    /// Those of the IKE SAs of an endpoint, without the addresses of this host.
    pub(super) fn of(endpoint: &Endpoint, own: &[IpAddr]) -> Self {
        let local = endpoint.ike().status().map(|sa| sa.path.local.ip());
        Self(local.filter(|addr| !own.contains(addr)).collect())
    }

    /// Repeats the requests that could not be sent from the addresses that this host has now. Returns whether
    /// there may be any.
    pub(super) fn resend(&mut self, own: &[IpAddr], shared: &Shared) -> bool {
        let before = self.0.len();
        for addr in own.iter().filter(|addr| self.0.remove(addr)) {
            shared.lock_endpoint().with(|endpoint, context| endpoint.resend_from(*addr, context));
        }
        self.0.len() < before
    }
}

/// What an event means. An error if the run must end.
fn described(event: AddressEvent, role: KeeperRole) -> Result<String, Error> {
    Ok(match event {
        AddressEvent::Conflict { address, mac } if role == KeeperRole::Fenced => {
            let why = format!("{mac} uses {address}, and this node cannot renew its lease");
            return Err(Error::other(WHAT, why));
        }
        AddressEvent::Expired { .. } => "this process was stopped for longer than their lifetime: they come \
                                         back if no other host has them"
            .into(),
        AddressEvent::Conflict { address, mac } => format!("{mac} uses {address}, which this host has"),
        AddressEvent::NotExtended { address, error } => {
            format!("{address} ends, unless that becomes possible again: {error}")
        }
        AddressEvent::NotAnnounced { interface, error } => {
            format!("they are not announced on {interface}: {error}")
        }
    })
}
