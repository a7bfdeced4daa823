//! SAs that are set up by a packet, replaced, and deleted; and keys that open a capture.

use super::{Form, TRANSPORT, TUNNEL, case};
use crate::arena::{Arena, SOON};
use crate::cases::{Case, keys, rekey};
use crate::flow::CAUGHT;
use crate::peer::Target;
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for (side, by) in [(Side::Left, "by-us"), (Side::Right, "by-peer")] {
        let [tunnel, transport] = forms(initiator);
        let mut add =
            |name: &str, (form, plan): &(Form, Plan), script: fn(&mut Arena, Side) -> Result<String>| {
                let name = format!("{name}/{}/{by}", form.mode);
                let case = case(&name, plan.clone(), *form, move |arena| script(arena, side));
                cases.push(Case { is_alone: true, errors: &[CAUGHT], ..case });
            };
        add("rekey/child", &tunnel, rekey_child);
        add("rekey/child", &transport, rekey_child);
        add("rekey/ike", &transport, |arena, side| {
            rekey::rekey_under_traffic(arena, side, Target::Ike(CONNECTION))
        });
        for ((form, plan), target) in [(transport, Target::Child(CHILD)), (tunnel, Target::Ike(CONNECTION))] {
            let name = if matches!(target, Target::Ike(_)) { "ike" } else { "child" };
            let script = move |arena: &mut Arena| rekey::delete(arena, side, target);
            cases.push(case(&format!("delete/{name}/{by}"), plan, form, script));
        }
        let mut plan = Plan::new(initiator);
        for (setting, packets) in [("rekey_packets", "400"), ("life_packets", "4000"), ("rand_packets", "0")]
        {
            plan.child_of(side, setting, packets);
        }
        let script = move |arena: &mut Arena| rekey::rekey_by_time(arena, side, Target::Child(CHILD));
        let case = case(&format!("rekey/by-packets/{by}"), plan, TUNNEL, script);
        cases.push(Case { is_alone: true, errors: &[CAUGHT], ..case });
    }
    for (form, mut plan) in forms(initiator) {
        plan.child_of(initiator, "start_action", "trap");
        let case = case(&format!("trap/{}", form.mode), plan, form, set_up_by_a_packet);
        // Packets that a kernel drops until charon has an SA for them.
        cases.push(Case { errors: &["XfrmOutNoStates"], ..case });
    }
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        cases.push(case(&format!("wireshark/{}", form.mode), plan, form, keys::open_the_capture));
    }
}

fn rekey_child(arena: &mut Arena, side: Side) -> Result<String> {
    rekey::rekey_under_traffic(arena, side, Target::Child(CHILD))
}

/// Both modes, with extended sequence numbers.
fn forms(initiator: Side) -> [(Form, Plan); 2] {
    [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))].map(|(form, mut plan)| {
        plan.child("esp_proposals", "aes128gcm16-esn");
        (Form { esn: true, ..form }, plan)
    })
}

/// The packet that asks for the Child SA may be lost; soon others are not.
fn set_up_by_a_packet(arena: &mut Arena) -> Result<String> {
    let side = arena.initiator();
    let [from, to] = [side, side.other()].map(|side| arena.plan.between.address(side, Family::V4));
    arena.wait_until(SOON, |arena| arena.ping(side, &from, &to))?;
    arena.agree()?;
    arena.traffic(Family::V4)
}
