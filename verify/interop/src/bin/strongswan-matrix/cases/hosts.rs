//! Cases for the firmware without an operating system and for lwIP, which accept every peer and do not
//! report their SAs. The cases check what strongSwan reports about the SAs and the traffic through them.

use super::{Case, RunsOn, addresses, auth, ensure, kernel, ppk, rekey};
use crate::peer::Target;
use crate::peer::{Family, Side};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use casemate_interop::Result;
use std::time::Duration;

/// Limit for a guest that shares the CPUs, including retransmissions.
const ESTABLISHED: Duration = Duration::from_secs(20);
const SIZES: &[&str] = &["1-40", "1400", "1472", "3000", "8000"];
const PAGES: &str = "50";
const BYTES: &str = "200000";
const PPK_ID: &str = "ppk-of-both@t.test";
/// Text without blanks, as the configuration of these hosts requires.
const PPK: &str = "\"a-post-quantum-key-of-both-hosts\"";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    add_for(LeftHost { name: "firmware", runs_on: RunsOn::Firmware }, cases, initiator);
    add_for(LWIP, cases, initiator);
    let mut certified = plan(initiator, "tunnel", Family::V4);
    auth::certify(&mut certified, ["ecdsa256"; 2], "ca-ecdsa");
    let mut raw = plan(initiator, "tunnel", Family::V4);
    auth::exchange_public_keys(&mut raw, "ed25519");
    for (name, plan) in [("lwip/certificates", certified), ("lwip/raw-keys", raw)] {
        cases.push(LWIP.case(Case::new(name, plan, |testbed| LWIP.serve(testbed))));
    }
}

/// Host on the left side.
#[derive(Debug, Clone, Copy)]
struct LeftHost {
    name: &'static str,
    runs_on: RunsOn,
}

const LWIP: LeftHost = LeftHost { name: "lwip", runs_on: RunsOn::Lwip };

fn add_for(host: LeftHost, cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |case: Case| cases.push(host.case(case));
    let name = |what: &str| format!("{}/{what}", host.name);
    let serve = move |testbed: &mut Testbed| host.serve(testbed);
    for (family, version) in [(Family::V4, "v4"), (Family::V6, "v6")] {
        let (tunnel, transport) = (plan(initiator, "tunnel", family), plan(initiator, "transport", family));
        push(Case::new(&name(&format!("tunnel/{version}")), tunnel, serve));
        push(kernel::case(&name(&format!("transport/{version}")), transport, kernel::TRANSPORT, serve));
    }
    let tunnel = plan(initiator, "tunnel", Family::V4);
    push(kernel::case(&name("tunnel/v4"), tunnel, kernel::TUNNEL, serve));
    let rekey_and_restart = move |testbed: &mut Testbed| host.rekey_and_restart(testbed);
    push(Case::new(&name("rekey"), plan(initiator, "tunnel", Family::V4), rekey_and_restart));
    let transport = plan(initiator, "transport", Family::V4);
    let case = kernel::case(&name("rekey"), transport, kernel::TRANSPORT, rekey_and_restart);
    push(Case { is_exclusive: true, ..case });
    let mut lossy = plan(initiator, "tunnel", Family::V4);
    Side::BOTH.into_iter().for_each(|side| rekey::retransmit_quickly(&mut lossy, side));
    push(Case::new(&name("loss"), lossy, move |testbed| {
        testbed.path.drop_ike(0, 3)?;
        host.serve(testbed)
    }));
    if initiator == Side::Left {
        let mut hidden = plan(initiator, "tunnel", Family::V4);
        hidden.connection_of(Side::Right, "remote_addrs", "%any");
        hidden.child_of(Side::Right, "remote_ts", &format!("{}/32", Side::Left.wire(Family::V4)));
        // Before the peers start, because lwIP initiates without a command.
        addresses::hide_initiator(&mut hidden);
        push(Case::new(&name("behind-nat"), hidden, move |testbed| host.serve(testbed)));
    }
    post_quantum(host, &mut push, initiator);
    let mut wrong = plan(initiator, "tunnel", Family::V4);
    wrong.on(Side::Left, "secrets.ike-t.secret", "another-secret");
    push(Case::new(&name("wrong-secret"), wrong, expect_refusal));
}

/// Post-quantum pre-shared keys, with every strongSwan, and ML-KEM, which needs strongSwan 6.
fn post_quantum(host: LeftHost, push: &mut dyn FnMut(Case), initiator: Side) {
    let name = |what: &str| format!("{}/{what}", host.name);
    let plan = || plan(initiator, "tunnel", Family::V4);
    let with_ppk = |required: bool| {
        let mut plan = plan();
        plan.both("secrets.ppk-t.id", PPK_ID);
        plan.both("secrets.ppk-t.secret", PPK);
        plan.connection("ppk_id", PPK_ID);
        plan.connection("ppk_required", if required { "yes" } else { "no" });
        plan
    };
    push(Case::new(&name("ppk/required"), with_ppk(true), move |testbed| {
        host.rekey_and_restart_logged(testbed, ppk::USED)
    }));
    let mut other = with_ppk(false);
    other.on(Side::Right, "secrets.ppk-t.id", "ppk-of-another@t.test");
    other.without(Side::Right, "connections.t.ppk_id");
    push(Case::new(&name("ppk/unknown"), other, move |testbed| {
        let summary = host.serve(testbed)?;
        ensure(!testbed.strongswan_logged(ppk::USED), "strongSwan has logged that it uses a PPK")?;
        Ok(summary)
    }));
    let mut wrong = with_ppk(true);
    wrong.on(Side::Right, "secrets.ppk-t.secret", "\"a-wrong-post-quantum-key\"");
    push(Case::new(&name("ppk/wrong"), wrong, expect_refusal));

    let with_kex = |left: &str, right: &str| {
        let mut plan = plan();
        for (side, kex) in [(Side::Left, left), (Side::Right, right)] {
            plan.connection_of(side, "proposals", &format!("aes128-sha256-{kex}"));
            plan.child_of(side, "esp_proposals", &format!("aes128gcm16-{kex}"));
        }
        plan
    };
    for (what, kex, logged) in [
        ("x25519-mlkem768", "x25519-ke1_mlkem768", "/CURVE_25519/KE1_ML_KEM_768"),
        ("ecp384-mlkem1024", "ecp384-ke1_mlkem1024", "/ECP_384/KE1_ML_KEM_1024"),
    ] {
        let script = move |testbed: &mut Testbed| host.rekey_and_restart_logged(testbed, logged);
        let case = Case::new(&name(&format!("post-quantum/{what}")), with_kex(kex, kex), script);
        push(Case { needs_ml_kem: true, ..case });
    }
    // Each tenth message is lost, the third or the eighth of ten.
    for index in [2, 7] {
        let mut lossy = with_kex("x25519-ke1_mlkem768", "x25519-ke1_mlkem768");
        Side::BOTH.into_iter().for_each(|side| rekey::retransmit_quickly(&mut lossy, side));
        let case = Case::new(&name(&format!("post-quantum/loss-{index}")), lossy, move |testbed| {
            testbed.path.drop_ike(index, 10)?;
            host.rekey_and_restart_logged(testbed, "KE1_ML_KEM_768")
        });
        push(Case { needs_ml_kem: true, ..case });
    }
    let mut fallback = with_kex("x25519", "x25519");
    fallback.connection_of(Side::Left, "proposals", "aes128-sha256-x25519-ke1_mlkem768,aes128-sha256-x25519");
    push(Case::new(&name("post-quantum/classical-peer"), fallback, move |testbed| host.serve(testbed)));
}

impl LeftHost {
    fn case(self, case: Case) -> Case {
        Case { runs_on: self.runs_on, ..case }
    }

    /// Uses ping, HTTP and bulk TCP.
    fn serve(self, testbed: &mut Testbed) -> Result<String> {
        establish(testbed)?;
        self.traffic(testbed)
    }

    fn traffic(self, testbed: &mut Testbed) -> Result<String> {
        let family = testbed.plan.family();
        let (right, left) = (Side::Right.wire(family), Side::Left.wire(family));
        let before = testbed.wire()?.protected();
        let ping = testbed.ping_sizes(Side::Right, &right, &left, SIZES)?;
        testbed.probe(Side::Right, &["tcp", &right, &left, BYTES])?;
        let page = match self.runs_on {
            RunsOn::Lwip => {
                // lwIP accepts commands, and its iperf server requires a protocol.
                testbed.ping_sizes(Side::Left, &left, &right, SIZES)?;
                testbed.probe(Side::Left, &["tcp", &left, &right, BYTES])?;
                testbed.probe(Side::Right, &["site", &right, &left, PAGES])?
            }
            _ => {
                testbed.probe(Side::Right, &["discard", &right, &left, BYTES])?;
                testbed.probe(Side::Right, &["page", &right, &left, PAGES])?
            }
        };
        let protected = testbed.wire()?.protected().saturating_sub(before);
        ensure(
            protected > 400,
            &format!("{protected} protected packets on the wire, expected more than 400"),
        )?;
        Ok(format!("{ping}; page: {page}"))
    }

    /// [`rekey_and_restart`](Self::rekey_and_restart); strongSwan must log this.
    fn rekey_and_restart_logged(self, testbed: &mut Testbed, logged: &str) -> Result<String> {
        let summary = self.rekey_and_restart(testbed)?;
        ensure(testbed.strongswan_logged(logged), &format!("strongSwan's log does not name {logged}"))?;
        Ok(summary)
    }

    /// Replaces the keys of the SAs, then deletes the SAs and sets them up again.
    fn rekey_and_restart(self, testbed: &mut Testbed) -> Result<String> {
        establish(testbed)?;
        for target in [Target::Child(CHILD), Target::Ike(CONNECTION), Target::Child(CHILD)] {
            let before = spis(testbed)?;
            let flow = testbed.start_flow(Side::Right)?;
            testbed.peer(Side::Right).rekey(target)?;
            testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
                let now = spis(testbed)?;
                let replaced =
                    if matches!(target, Target::Ike(_)) { now.0 != before.0 } else { now.1 != before.1 };
                ensure(replaced, "the SA was not replaced")
            })?;
            flow.stop()?;
        }
        testbed.peer(Side::Right).terminate(Target::Ike(CONNECTION))?;
        // The initiator sets up the SA again for the next packet; strongSwan does so on a request of the
        // case.
        testbed.peer(Side::Right).initiate(Target::Child(CHILD))?;
        self.traffic(testbed)
    }
}

/// Plan for traffic between the two hosts in this mode. They have no networks behind them.
fn plan(initiator: Side, mode: &str, family: Family) -> Plan {
    let mut plan = Plan::transport(initiator);
    plan.outer(family);
    plan.child("mode", mode);
    // A value in the configuration of these hosts must not contain blanks.
    plan.both("secrets.ike-t.secret", "\"a-secret-of-the-two\"");
    // With libipsec, packets to the peer are routed to its TUN interface. Packets that libipsec has
    // processed must not be routed there again.
    plan.daemon(Side::Right, "plugins.kernel-netlink.fwmark", "!0x42");
    plan.daemon(Side::Right, "plugins.socket-default.fwmark", "0x42");
    plan
}

/// Waits until strongSwan reports the Child SA as established. If strongSwan is the initiator, requests the
/// SA first.
fn establish(testbed: &mut Testbed) -> Result<()> {
    if testbed.initiator() == Side::Right {
        return testbed.initiate(Target::Child(CHILD));
    }
    testbed.wait_until(ESTABLISHED, |testbed| testbed.child_sa(Side::Right, CHILD).map(drop))
}

fn spis(testbed: &mut Testbed) -> Result<(String, String)> {
    let ike = testbed.ike_sa(Side::Right)?.spi_i;
    Ok((ike, testbed.child_sa(Side::Right, CHILD)?.spi_in))
}

fn expect_refusal(testbed: &mut Testbed) -> Result<String> {
    if testbed.initiator() == Side::Right {
        let begun = testbed.initiate(Target::Child(CHILD));
        ensure(begun.is_err(), "the SA was set up, expected a refusal")?;
    }
    testbed.wait_until(ESTABLISHED, |testbed| {
        ensure(
            testbed.strongswan_logged("AUTH_FAILED"),
            "strongSwan's log does not contain AUTHENTICATION_FAILED",
        )
    })?;
    let left = testbed.peer(Side::Right).status()?.len();
    ensure(left == 0, "an IKE SA is established although the secret is wrong")?;
    Ok(String::new())
}
