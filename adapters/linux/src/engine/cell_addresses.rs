//! The addresses of a cell in the engine: what their events mean for its owner.

use super::{EngineHandler, SystemProblem};
use crate::Error;
use crate::virtual_addresses::{AddressEvent, VirtualAddresses};
use casemate_cell::KeeperRole;
use casemate_sa::Instant;

const WHAT: &str = "the addresses of the cell";

/// Extends the lifetime of the addresses that an owner has, and reports what happens to them.
///
/// # Errors
///
/// The run must end: the kernel has removed the addresses because this process was stopped, or another host
/// uses them and this one could not renew its lease. A host on the same link can forge the use of an address,
/// so that it alone ends nothing.
pub(super) fn keep(
    addresses: &mut VirtualAddresses,
    role: KeeperRole,
    now: Instant,
    handler: &mut dyn EngineHandler,
) -> Result<(), Error> {
    if !addresses.is_held() {
        return Ok(());
    }
    for event in addresses.poll(now) {
        let what = match event {
            AddressEvent::Conflict { address, mac } if role == KeeperRole::Fenced => {
                let why = format!("{mac} uses {address}, and this node cannot renew its lease");
                return Err(Error::other(WHAT, why));
            }
            AddressEvent::Expired { .. } => {
                return Err(Error::other(WHAT, "this process was stopped for longer than its lease"));
            }
            AddressEvent::Conflict { address, mac } => format!("{mac} uses {address}, which this host has"),
            AddressEvent::NotExtended { address, error } => {
                format!("{address} ends, unless that becomes possible again: {error}")
            }
            AddressEvent::NotAnnounced { interface, error } => {
                format!("they are not announced on {interface}: {error}")
            }
        };
        handler.on_problem(SystemProblem::Addresses, what);
    }
    Ok(())
}
