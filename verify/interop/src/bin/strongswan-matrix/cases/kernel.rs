//! Cases in which strongSwan uses the ESP and AH of a Linux kernel: ESP without UDP, transport mode,
//! extended sequence numbers, AH.

use super::{Case, RunsOn, addresses, ensure, establish_and_talk, rekey};
use crate::flow::OUT_STATE_INVALID;
use crate::peer::Target;
use crate::peer::{Family, Side};
use crate::plan::{Between, CHILD, CONNECTION, Plan};
use crate::strongswan::Esp;
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use crate::wire::Packet;
use casemate_interop::{Error, Result};

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    add_lifecycle(cases, initiator);
    add_modes(cases, initiator);
    add_suites(cases, initiator);
}

/// Expected form of the packets of both SAs of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// `esp` or `ah`.
    protocol: &'static str,
    /// `tunnel` or `transport`.
    mode: &'static str,
    esn: bool,
    in_udp: bool,
}

pub(super) const TUNNEL: Form = Form { protocol: "esp", mode: "tunnel", esn: false, in_udp: false };
pub(super) const TRANSPORT: Form = Form { mode: "transport", ..TUNNEL };

impl Form {
    /// Checks that every kernel has both SAs in this form, that the SAs carried packets and dropped none,
    /// and that the wire had no packet of another form.
    fn check(self, testbed: &mut Testbed) -> Result<()> {
        let child = testbed.child_sa(Side::Right, CHILD)?;
        let kernel_states = testbed.kernel_states()?;
        ensure(!kernel_states.is_empty(), "no kernel reports SAs: the case is not valid")?;
        for (kernel, spi) in
            kernel_states.iter().flat_map(|kernel| [(kernel, &child.spi_in), (kernel, &child.spi_out)])
        {
            let state = kernel.states.iter().find(|state| state.spi == *spi);
            let state = state.ok_or_else(|| Error::new(format!("the kernel has no SA with SPI {spi}")))?;
            let (protocol, mode) = (state.protocol.as_str(), state.mode.as_str());
            let is_so = (protocol, mode, state.esn, state.in_udp)
                == (self.protocol, self.mode, self.esn, self.in_udp);
            ensure(
                is_so && state.is_error_free && state.packets > 0,
                &format!("expected {self:?}, the kernel has {state:?}"),
            )?;
        }
        self.check_packets(testbed)
    }

    /// Checks that all protected packets on the wire have this form.
    fn check_packets(self, testbed: &Testbed) -> Result<()> {
        let wire = testbed.wire()?;
        let kind = match (self.protocol, self.in_udp) {
            ("ah", _) => Packet::Ah,
            (_, true) => Packet::EspInUdp,
            (_, false) => Packet::Esp,
        };
        let (all, right) = (wire.protected(), wire.count(kind));
        ensure(
            all == right && all > 0,
            &format!("{right} of {all} protected packets are {kind:?}, expected all"),
        )
    }
}

/// Case whose Child SA has this form at the end of the script.
pub(super) fn case(
    name: &str,
    plan: Plan,
    form: Form,
    script: impl Fn(&mut Testbed) -> Result<String> + Send + Sync + 'static,
) -> Case {
    let script = move |testbed: &mut Testbed| {
        let summary = script(testbed)?;
        form.check(testbed).map(|()| summary)
    };
    let case = Case::new(&format!("kernel/{name}"), plan, script);
    Case { esp: Esp::Kernel, is_encrypted: form.protocol == "esp", ..case }
}

/// Sizes for every padding length, around the limit of a packet of 1500 bytes, and for many fragments.
const SIZES: &[&str] = &["1-70", "1380-1480", "9000"];

fn add_modes(cases: &mut Vec<Case>, initiator: Side) {
    for (outer, inner, name) in [
        (Family::V4, Family::V4, "4in4"),
        (Family::V4, Family::V6, "6in4"),
        (Family::V6, Family::V4, "4in6"),
        (Family::V6, Family::V6, "6in6"),
    ] {
        let mut plan = Plan::new(initiator);
        plan.outer(outer);
        plan.inner(&[inner]);
        cases.push(case(&format!("tunnel/{name}"), plan, TUNNEL, establish_and_send(inner)));
    }
    for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
        let mut plan = Plan::transport(initiator);
        plan.outer(family);
        cases.push(case(&format!("transport/{name}"), plan, TRANSPORT, establish_and_send(family)));
    }
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        cases.push(case(&format!("sizes/{}", form.mode), plan, form, ping_all_sizes));
    }
    one_side_wants_transport(cases, initiator);
    in_udp(cases, initiator);
    port_selector(cases, initiator);
}

fn establish_and_send(family: Family) -> impl Fn(&mut Testbed) -> Result<String> {
    move |testbed| {
        testbed.establish()?;
        testbed.traffic(family)
    }
}

fn ping_all_sizes(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    let [left, right] = Side::BOTH.map(|side| testbed.plan.between.address(side, Family::V4));
    testbed.ping_sizes(Side::Left, &left, &right, SIZES)?;
    testbed.ping_sizes(Side::Right, &right, &left, SIZES)
}

/// Transport mode needs the agreement of both sides (RFC 7296 section 1.3.1). Without it, the sides use a
/// tunnel between the two hosts.
fn one_side_wants_transport(cases: &mut Vec<Case>, initiator: Side) {
    for (side, who) in [(Side::Left, "us"), (Side::Right, "peer")] {
        let mut plan = Plan::transport(initiator);
        plan.child_of(side.other(), "mode", "tunnel");
        cases.push(case(&format!("transport/wanted-by-{who}-alone"), plan, TUNNEL, establish_and_talk));
    }
}

/// UDP decapsulation of the kernel, with and without a NAT.
fn in_udp(cases: &mut Vec<Case>, initiator: Side) {
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
            let mut plan = plan.clone();
            plan.connection("encap", "yes");
            plan.outer(family);
            if plan.between == Between::Networks {
                plan.inner(&[family]);
            }
            cases.push(case(
                &format!("udp/{}-{name}", form.mode),
                plan,
                Form { in_udp: true, ..form },
                establish_and_send(family),
            ));
        }
    }
    // strongSwan ignores the Vendor ID.
    let mut plan = Plan::new(initiator);
    plan.connection_of(Side::Left, "encap", "auto");
    let preferred = case("udp/preferred-by-us-alone", plan, TUNNEL, establish_and_send(Family::V4));
    cases.push(Case { runs_on: RunsOn::Casemate, ..preferred });
    let form = Form { in_udp: true, ..TUNNEL };
    cases.push(case(
        "udp/initiator-behind-nat",
        addresses::behind(initiator),
        form,
        addresses::through_a_nat,
    ));
    let (plan, form) = (addresses::behind_in_transport_mode(initiator), Form { in_udp: true, ..TRANSPORT });
    cases.push(case("udp/transport-behind-nat", plan, form, addresses::transport_through_a_nat));
}

/// The child is for TCP only, to one port of the responder.
fn port_selector(cases: &mut Vec<Case>, initiator: Side) {
    let mut plan = Plan::transport(initiator);
    let responder = plan.responder();
    for (side, near, far) in [(initiator, "local_ts", "remote_ts"), (responder, "remote_ts", "local_ts")] {
        plan.child_of(side, near, "dynamic[tcp]");
        plan.child_of(side, far, "dynamic[tcp/7]");
    }
    cases.push(case("transport/selector-port", plan, TRANSPORT, move |testbed| {
        testbed.establish()?;
        let child = testbed.child_sa(initiator, CHILD)?;
        let expected = format!("{}/32[tcp/7]", responder.wire(Family::V4));
        ensure(child.remote_ts == [expected], &format!("traffic selectors {:?}", child.remote_ts))?;
        let [from, to] = [initiator, responder].map(|side| side.wire(Family::V4));
        testbed.tcp(initiator, &from, &to)
    }));
}

/// Proposals of ESP in the syntax of strongSwan, one for each combination of a kind of cipher and a kind of
/// integrity algorithm. The other algorithms are negotiated in the same way, and the kernel matrix tests
/// all of them.
const ESP: &[&str] = &[
    "aes128-sha1",
    "aes256-sha512",
    "aes128-aesxcbc",
    "aes128-aescmac",
    "aes256ctr-sha384",
    "aes128ccm12",
    "chacha20poly1305",
    "null-sha256",
    "aes128gmac",
];
const AH: &[&str] = &["sha1", "sha256", "sha512", "aescmac"];
/// Proposals with extended sequence numbers.
const ESN: &[&str] = &["aes128gcm16", "aes128-sha256", "chacha20poly1305"];

fn add_suites(cases: &mut Vec<Case>, initiator: Side) {
    for proposal in ESP {
        let mut plan = Plan::transport(initiator);
        plan.child("esp_proposals", proposal);
        let case = case(&format!("esp/{proposal}"), plan, TRANSPORT, establish_and_talk);
        let is_encrypted = !proposal.starts_with("null") && !proposal.ends_with("gmac");
        cases.push(Case { is_encrypted, ..case });
    }
    add_ah(cases, initiator);
    for proposal in ESN {
        for form in [TUNNEL, TRANSPORT] {
            let mut plan = plan_for(form, initiator);
            plan.child("esp_proposals", &format!("{proposal}-esn"));
            cases.push(case(
                &format!("esn/{proposal}/{}", form.mode),
                plan,
                with_esn(form),
                establish_and_talk,
            ));
        }
    }
    // RFC 7296 section 3.3.2: the responder selects one of the offered values.
    for (name, offered, taken, esn) in [
        ("taken", "aes128gcm16-noesn-esn", "aes128gcm16-esn", true),
        ("declined", "aes128gcm16-esn-noesn", "aes128gcm16-noesn", false),
    ] {
        let mut plan = Plan::new(initiator);
        plan.child_of(initiator, "esp_proposals", offered);
        plan.child_of(plan.responder(), "esp_proposals", taken);
        cases.push(case(&format!("esn/{name}"), plan, Form { esn, ..TUNNEL }, establish_and_talk));
    }
}

fn add_ah(cases: &mut Vec<Case>, initiator: Side) {
    for proposal in AH {
        push_ah(cases, initiator, proposal, TRANSPORT);
    }
    push_ah(cases, initiator, "sha256", TUNNEL);
    push_ah(cases, initiator, "sha256-esn", with_esn(TUNNEL));
    push_ah(cases, initiator, "sha256-esn", with_esn(TRANSPORT));
}

fn push_ah(cases: &mut Vec<Case>, initiator: Side, proposal: &str, form: Form) {
    let mut plan = plan_for(form, initiator);
    for side in Side::BOTH {
        plan.without(side, "connections.t.children.c.esp_proposals");
    }
    plan.child("ah_proposals", proposal);
    cases.push(case(
        &format!("ah/{proposal}/{}", form.mode),
        plan,
        Form { protocol: "ah", ..form },
        establish_and_talk,
    ));
}

fn with_esn(form: Form) -> Form {
    Form { esn: true, ..form }
}

fn plan_for(form: Form, initiator: Side) -> Plan {
    if form.mode == TRANSPORT.mode { Plan::transport(initiator) } else { Plan::new(initiator) }
}

fn add_lifecycle(cases: &mut Vec<Case>, initiator: Side) {
    for (side, by) in [(Side::Left, "by-us"), (Side::Right, "by-peer")] {
        let [tunnel, transport] = forms(initiator);
        let mut add =
            |name: &str, (form, plan): &(Form, Plan), script: fn(&mut Testbed, Side) -> Result<String>| {
                let name = format!("{name}/{}/{by}", form.mode);
                let case = case(&name, plan.clone(), *form, move |testbed| script(testbed, side));
                cases.push(Case { is_exclusive: true, errors: &[OUT_STATE_INVALID], ..case });
            };
        add("rekey/child", &tunnel, rekey_child);
        add("rekey/child", &transport, rekey_child);
        add("rekey/ike", &transport, |testbed, side| {
            rekey::rekey_under_traffic(testbed, side, Target::Ike(CONNECTION))
        });
        for ((form, plan), target) in [(transport, Target::Child(CHILD)), (tunnel, Target::Ike(CONNECTION))] {
            let name = if matches!(target, Target::Ike(_)) { "ike" } else { "child" };
            let script = move |testbed: &mut Testbed| rekey::delete(testbed, side, target);
            cases.push(case(&format!("delete/{name}/{by}"), plan, form, script));
        }
        let mut plan = Plan::new(initiator);
        for (setting, packets) in [("rekey_packets", "400"), ("life_packets", "4000"), ("rand_packets", "0")]
        {
            plan.child_of(side, setting, packets);
        }
        let script = move |testbed: &mut Testbed| rekey::rekey_by_time(testbed, side, Target::Child(CHILD));
        let case = case(&format!("rekey/by-packets/{by}"), plan, TUNNEL, script);
        cases.push(Case { is_exclusive: true, errors: &[OUT_STATE_INVALID], ..case });
    }
    for (form, mut plan) in forms(initiator) {
        plan.child_of(initiator, "start_action", "trap");
        let case = case(&format!("trap/{}", form.mode), plan, form, establish_by_packet);
        // The kernel drops these packets until charon has an SA for them.
        cases.push(Case { errors: &["XfrmOutNoStates"], ..case });
    }
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        cases.push(case(&format!("wireshark/{}", form.mode), plan, form, rekey::decrypt_capture));
    }
}

fn rekey_child(testbed: &mut Testbed, side: Side) -> Result<String> {
    rekey::rekey_under_traffic(testbed, side, Target::Child(CHILD))
}

/// Both modes with extended sequence numbers.
fn forms(initiator: Side) -> [(Form, Plan); 2] {
    [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))].map(|(form, mut plan)| {
        plan.child("esp_proposals", "aes128gcm16-esn");
        (Form { esn: true, ..form }, plan)
    })
}

/// The packet that triggers the Child SA can be lost. Later packets must pass.
fn establish_by_packet(testbed: &mut Testbed) -> Result<String> {
    let side = testbed.initiator();
    let [from, to] = [side, side.other()].map(|side| testbed.plan.between.address(side, Family::V4));
    testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.ping(side, &from, &to))?;
    testbed.wait_for_same_sas()?;
    testbed.traffic(Family::V4)
}
