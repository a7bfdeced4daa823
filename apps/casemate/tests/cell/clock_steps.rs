//! Gateways whose wall clocks are wrong, or are set during the run. The clock of one process is changed by a
//! small library that it loads (`clock_steps.c`).

use crate::failover::TAKEOVER;
use crate::gateways::ike_spis;
use crate::many::check_owner_has_all;
use crate::net::{CellNet, NODES};
use crate::partitions::spis_of_peer;
use crate::repeated_kills::rekey_all;
use crate::testbed::Testbed;
use casemate_test_support::{Program, skip};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Time in which a new owner renews what has expired as its clock says, and a bit more.
const RENEWAL: Duration = Duration::from_secs(75);
/// Number of further tunnels.
const TUNNELS: u16 = 20;

/// The clocks of the gateways, as differences from that of the machine.
pub(crate) struct Clocks {
    library: PathBuf,
    files: [PathBuf; NODES],
}

impl Clocks {
    /// Builds the library. Reports the skipped test and returns `None` without a C compiler.
    pub(crate) fn build(net: &CellNet) -> Option<Self> {
        const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cell/clock_steps.c");
        let library = net.scratch.file("clock.so");
        let compiler = Program::new("sh").args(["-c", "command -v cc"]).output();
        if !compiler.status.success() {
            skip("cc (Debian package gcc)");
            return None;
        }
        let program = Program::new("cc").args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
        let built = program.arg(&library).arg(SOURCE).output();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let files = [0, 1, 2].map(|index| net.scratch.file(&format!("clock-{index}")));
        files.iter().for_each(|file| fs::write(file, 0_i64.to_ne_bytes()).unwrap());
        Some(Self { library, files })
    }

    /// Sets a clock this number of seconds ahead.
    pub(crate) fn set(&self, index: usize, ahead: i64) {
        let file = File::options().write(true).open(&self.files[index]).unwrap();
        file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }

    /// Gives a program the clock with this index.
    pub(crate) fn configure(&self, index: usize, program: Program) -> Program {
        program.env("LD_PRELOAD", &self.library).env("CLOCK_STEP", &self.files[index])
    }
}

/// Kills the owner after it has written records by a clock that is so far ahead. The clock of the next owner
/// is so far ahead, too. Nothing is lost, and after `wait`, the rekeyings are counted.
fn take_over(testbed: &mut Testbed<'_>, [of_owner, of_next]: [i64; 2], wait: Duration) -> Counted {
    let mut flows = testbed.flows();
    flows.extend(testbed.many_flows(200));
    let before = (spis_of_peer(testbed.net), ike_spis(&testbed.net.peer.status()));
    let (counted, deliveries) = testbed.during_rekeyings(&flows, |testbed| {
        let owner = testbed.gateways.wait_for_owner(None);
        testbed.gateways.set_clock(owner, of_owner);
        for index in (0..NODES).filter(|index| *index != owner) {
            testbed.gateways.set_clock(index, of_next);
        }
        rekey_all(testbed);
        let written = spis_of_peer(testbed.net);
        assert!(written.is_disjoint(&before.0));
        testbed.gateways.kill(owner);
        testbed.gateways.wait_for_owner(None);
        thread::sleep(wait);
        let counted = Counted::of(testbed, &written, &before.1);
        testbed.gateways.set_clock(owner, 0);
        testbed.gateways.rejoin(owner);
        counted
    });
    testbed.check(&deliveries, TAKEOVER);
    check_owner_has_all(testbed);
    println!("  clocks {of_owner} and {of_next} s ahead: {counted:?} after {wait:?}");
    counted
}

/// What was rekeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    ikes: usize,
    spis: usize,
}

impl Counted {
    /// What is rekeyed of Child SAs and IKE SAs of the peer that are `former`.
    fn of(testbed: &Testbed<'_>, former: &BTreeSet<u32>, former_ikes: &[String]) -> Self {
        let (spis, ikes) = (spis_of_peer(testbed.net), ike_spis(&testbed.net.peer.status()));
        Self {
            ikes: ikes.iter().filter(|spis| !former_ikes.contains(spis)).count(),
            spis: spis.difference(former).count(),
        }
    }
}

#[test]
fn clock_steps_of_an_owner_cost_no_tunnel() {
    let Some(net) = CellNet::build("clock_steps_of_an_owner_cost_no_tunnel") else { return };
    let Some(mut testbed) = Testbed::cell_with_clocks(&net, TUNNELS) else { return };
    for step in [HOUR, -HOUR] {
        take_over(&mut testbed, [step, 0], 2 * SECOND);
    }
    testbed.finish();
}

#[test]
fn clock_of_the_next_owner_that_is_a_day_ahead_costs_no_tunnel() {
    let Some(net) = CellNet::build("clock_of_the_next_owner_that_is_a_day_ahead_costs_no_tunnel") else {
        return;
    };
    let Some(mut testbed) = Testbed::cell_with_clocks(&net, TUNNELS) else { return };
    // Not all at once.
    let counted = take_over(&mut testbed, [0, DAY], 2 * SECOND);
    assert!(counted.ikes < usize::from(TUNNELS) / 2, "{counted:?}");
    take_over(&mut testbed, [DAY, 0], 2 * SECOND);
    testbed.finish();
}

/// All SAs are rekeyed once, and then no more.
#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn clock_that_is_ahead_rekeys_all_sas_within_a_minute() {
    let Some(net) = CellNet::build("clock_that_is_ahead_rekeys_all_sas_within_a_minute") else { return };
    let Some(mut testbed) = Testbed::cell_with_clocks(&net, TUNNELS) else { return };
    let all = usize::from(TUNNELS) + 1;
    let counted = take_over(&mut testbed, [0, DAY], RENEWAL);
    assert_eq!(counted, Counted { ikes: all, spis: 2 * all });
    let (spis, ikes) = (spis_of_peer(&net), ike_spis(&net.peer.status()));
    thread::sleep(RENEWAL);
    assert_eq!(Counted::of(&testbed, &spis, &ikes), Counted { ikes: 0, spis: 0 });
    // A clock that is behind makes nothing expire.
    assert_eq!(take_over(&mut testbed, [0, -DAY], 5 * SECOND).ikes, 0);
    testbed.finish();
}
