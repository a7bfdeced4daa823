//! The plan of a run: the changes to the system that its mode asks for.

use super::RunArgs;
use crate::failure::Failure;
use casemate_datapath::Direction;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_linux::netlink::Netlink;
use casemate_linux::protected_traffic::ProtectedSelector;
use casemate_linux::route::RoutingNumbers;
use casemate_linux::setup::{Plan, PlanInput};
use casemate_linux::{Scheduling, VirtualAddress};
use std::net::IpAddr;

/// The parts of a [`PlanInput`] that depend on the mode.
pub(super) struct PlanParts {
    pub(super) tun_mtu: usize,
    pub(super) policies: InitialPolicies,
    /// UDP ports on which ESP arrives.
    pub(super) encap_ports: Vec<u16>,
    /// Addresses of a cell.
    pub(super) cell_addresses: Vec<VirtualAddress>,
    /// Remote addresses of the SAs.
    pub(super) peers: Vec<IpAddr>,
    /// Traffic that a previous run protected.
    pub(super) former_protected: Vec<ProtectedSelector>,
}

/// The policies at start, in order of precedence.
#[derive(Default)]
pub(super) struct InitialPolicies {
    pub(super) outbound: Vec<(PolicyId, Policy)>,
    pub(super) inbound: Vec<(PolicyId, Policy)>,
}

impl InitialPolicies {
    pub(super) fn add(&mut self, direction: Direction, id: PolicyId, policy: Policy) {
        match direction {
            Direction::Outbound => self.outbound.push((id, policy)),
            Direction::Inbound => self.inbound.push((id, policy)),
        }
    }
}

impl PlanParts {
    /// Plans the changes to the system, without making any.
    pub(super) fn plan(
        &self,
        args: &RunArgs,
        numbers: RoutingNumbers,
        scheduling: Option<&Scheduling>,
        netlink: &mut Netlink,
    ) -> Result<Plan, Failure> {
        let Self { tun_mtu, policies, encap_ports, cell_addresses, peers, former_protected } = self;
        let [outbound, inbound] =
            [&policies.outbound, &policies.inbound].map(|policies| by_reference(policies));
        let input = PlanInput {
            tun: &args.tun,
            tun_mtu: *tun_mtu,
            numbers,
            outbound: &outbound,
            inbound: &inbound,
            encap_ports,
            cell_addresses,
            peers,
            former_protected,
            classifier: scheduling.map(|scheduling| &scheduling.classifier),
        };
        Plan::new(&input, netlink).map_err(Failure::failed)
    }
}

fn by_reference(policies: &[(PolicyId, Policy)]) -> Vec<(PolicyId, &Policy)> {
    policies.iter().map(|(id, policy)| (*id, policy)).collect()
}
