//! Programs that lead packets to the owner of a cell: what their tests have in common. Their configurations
//! are those of docs/manual/cell.md.

use crate::gateways::end_of;
use crate::net::{CellNet, Cut, GATEWAYS, OUTSIDE_VIRTUAL};
use crate::testbed::Testbed;
use crate::testnet::Host;
use crate::traffic::Delivery;
use casemate_test_support::{Process, Program, eventually};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Number of disruptions of each kind in `cargo xtask cell`.
pub(crate) const ROUNDS: usize = 10;

/// What happens to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disruption {
    /// `kill -9`.
    Kill,
    /// SIGTERM.
    Stop,
    /// The machine has no power: all its links end, and its process, too.
    PowerOff,
    /// Its link to the servers ends, and returns after it is replaced.
    CutServers,
    /// SIGSTOP, and SIGCONT after it is replaced.
    Suspend,
}

impl Disruption {
    /// Disrupts the cell, and waits until another gateway owns it and has the outside address.
    fn happen(self, net: &CellNet, testbed: &mut Testbed<'_>, owner: usize) -> usize {
        let gateways = &mut testbed.gateways;
        match self {
            Self::Kill => gateways.kill(owner),
            Self::Stop => gateways.stop(owner),
            Self::PowerOff => {
                net.cut_gateway(owner);
                gateways.kill(owner);
            }
            Self::CutServers => net.etcd.cut(GATEWAYS[owner], Cut::Silent),
            Self::Suspend => gateways.signal(owner, "STOP"),
        }
        let next = gateways.wait_for_owner(Some(owner));
        if self == Self::Suspend {
            gateways.signal(owner, "CONT");
        }
        next
    }
}

/// Disrupts the owner a number of times under traffic, and prints the longest gap of each time. Fails the
/// test if a peer negotiates, if a datagram arrives twice, or if a gap is above `limit`. The ordinary tests
/// run beside others and allow more.
pub(crate) fn disrupt(
    net: &CellNet,
    testbed: &mut Testbed<'_>,
    disruption: Disruption,
    rounds: usize,
    limit: Duration,
) {
    let limit = if cfg!(debug_assertions) { limit.max(Duration::from_secs(20)) } else { limit };
    let mut longest = Vec::new();
    for _ in 0..rounds {
        let ((owner, next), deliveries) = testbed.during(|testbed| {
            let owner = testbed.gateways.wait_for_owner(None);
            thread::sleep(SECOND);
            let next = disruption.happen(net, testbed, owner);
            thread::sleep(2 * SECOND);
            (owner, next)
        });
        longest.push(deliveries.iter().map(Delivery::longest_gap).max().unwrap_or_default());
        testbed.check(&deliveries, limit);
        assert!(testbed.wire.look(|oracle| oracle.esp_packets(GATEWAYS[next])) > 0, "{}", testbed.logs());
        match disruption {
            Disruption::PowerOff => net.restore_gateway(owner),
            Disruption::CutServers => net.etcd.restore(GATEWAYS[owner]),
            Disruption::Kill | Disruption::Stop | Disruption::Suspend => {}
        }
        testbed.gateways.rejoin(owner);
        eventually("one gateway has the address", || (net.holders(OUTSIDE_VIRTUAL) == [next]).then_some(()));
        testbed.gateways.wait_for_owner(None);
    }
    longest.sort_unstable();
    println!("{disruption:?}, gaps in order: {longest:?}");
}

/// Starts a shell script on a host, with process and mount namespaces of its own: all its processes end with
/// the returned one.
pub(crate) fn start_script(host: &Host, name: &str, script: &str) -> Process {
    let namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"];
    let program = Program::new("unshare").args(namespaces).args(["sh", "-c", script]);
    let log = host.file(&format!("{name}.log"));
    program.log_to(&log).start_with(|command| host.netns.spawn(command))
}

/// The block of docs/manual/cell.md that begins with this line.
pub(crate) fn manual_block(first_line: &str) -> String {
    let manual = include_str!("../../../../docs/manual/cell.md");
    let blocks = manual.split("\n```").skip(1).step_by(2);
    let mut texts = blocks.filter_map(|block| block.split_once('\n')).map(|(_, text)| text);
    let text = texts.find(|text| text.lines().next() == Some(first_line));
    text.unwrap_or_else(|| panic!("the manual has no block `{first_line}`")).to_owned()
}

/// Prints the logs of these processes if the test fails.
pub(crate) struct Logs<'p>(pub(crate) &'p [Process]);

impl Drop for Logs<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.iter().for_each(|process| println!("---\n{}", end_of(&process.log())));
        }
    }
}
