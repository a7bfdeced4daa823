//! Shunts: policies for traffic that passes in clear or is dropped, without an SA.

use super::Traps;
use crate::policy::{DirectionActions, PolicySet, Purpose, SpdWriter, priority};
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, InsertError};
use casemate_ike::config::{Connection, Shunt};
use casemate_ike::{TrafficSelector, TrafficSelectorTemplate};
use casemate_sa::{AddrRange, Selector, SpdPair};

const ANY_ADDRS: [AddrRange; 2] = [AddrRange::ANY_V4, AddrRange::ANY_V6];

impl Traps {
    /// Adds the shunts of a connection: traffic that passes or is dropped.
    pub(crate) fn add_shunts(
        &mut self,
        spds: &mut SpdWriter<'_>,
        connection: &Connection,
    ) -> Result<(), InsertError> {
        let has_vips = !connection.vips.is_empty();
        connection.shunts.iter().try_for_each(|shunt| self.add_shunt(spds, shunt, has_vips))
    }

    fn add_shunt(
        &mut self,
        spds: &mut SpdWriter<'_>,
        shunt: &Shunt,
        has_vips: bool,
    ) -> Result<(), InsertError> {
        let fill = |templates: &[TrafficSelectorTemplate]| -> Vec<TrafficSelector> {
            let each = |ts: &TrafficSelectorTemplate| match ts.addrs {
                Some(_) => ts.fill(&[]).collect::<Vec<_>>(),
                None => {
                    ANY_ADDRS.map(|addrs| TrafficSelector { addrs, proto: ts.proto, ports: ts.ports }).into()
                }
            };
            templates.iter().flat_map(each).collect()
        };
        let action = if shunt.passes { Action::Bypass } else { Action::Discard };
        // The Child SAs of a client have its virtual address alone. Exceptions from them are as narrow.
        let is_exception =
            has_vips && shunt.passes && shunt.local_ts.iter().all(|template| template.addrs.is_none());
        let priority_of = |selector: &Selector| {
            let selector = if is_exception { with_one_address(*selector) } else { *selector };
            priority(&selector, shunt.priority, Purpose::Child)
        };
        let (local, remote) = (fill(&shunt.local_ts), fill(&shunt.remote_ts));
        let actions = DirectionActions::both(&action);
        self.shunts.push(PolicySet::add(spds, SpdPair::MAIN, &local, &remote, actions, priority_of)?);
        Ok(())
    }
}

/// The selector with one address in place of all addresses, on one side.
fn with_one_address(mut selector: Selector) -> Selector {
    let is_any = |range: &AddrRange| ANY_ADDRS.contains(range);
    let side = if is_any(&selector.src) { &mut selector.src } else { &mut selector.dst };
    if is_any(side) {
        *side = AddrRange::single(side.first());
    }
    selector
}
