//! State of a running case: the path, both peers, the capture, and the operations that a script uses.

use crate::flow::{self, Flow};
use crate::path::Path;
use crate::peer::{ChildSa, IkeSa, Peer, Target};
use crate::peer::{Family, Side};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::stream::Streams;
use crate::wire::{Capture, Wire};
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Result, run};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// Limit for a change on one side to become visible on the other side.
pub(crate) const CONVERGENCE_LIMIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Sizes around the limits of an outer packet of 1500 bytes.
const SIZES: &[&str] = &["1", "64", "333", "1200", "1400", "1452", "3001"];
const TCP_BYTES: &str = "100000";
/// First source address of half-open IKE SAs: of the documentation (RFC 5737).
const SPOOFED: &str = "198.51.100.1";

/// The two peers of a case and the path between them.
pub(crate) struct Testbed {
    pub(crate) path: Path,
    pub(crate) plan: Plan,
    left: Box<dyn Peer>,
    right: Box<dyn Peer>,
    capture: Capture,
    probe: PathBuf,
}

/// Traffic that one side sends.
#[derive(Clone, Copy)]
pub(crate) struct Traffic<'a> {
    pub(crate) side: Side,
    /// Source address.
    pub(crate) from: &'a str,
    /// Destination address.
    pub(crate) to: &'a str,
}

impl Testbed {
    /// Starts the capture, but not the peers.
    pub(crate) fn new(
        path: Path,
        plan: Plan,
        [left, right]: [Box<dyn Peer>; 2],
        probe: PathBuf,
        directory: &std::path::Path,
    ) -> Result<Self> {
        let capture = Capture::start(&path, directory)?;
        Ok(Self { path, plan, left, right, capture, probe })
    }

    /// Starts both peers with their parts of the plan. strongSwan starts first, because the left side may
    /// initiate immediately.
    pub(crate) fn start(&mut self) -> Result<()> {
        if let Some(ports) = &self.plan.hidden_behind {
            self.path.translate(self.plan.initiator, ports)?;
        }
        for side in [Side::Right, Side::Left] {
            let plan = self.plan.side(side).clone();
            self.peer(side).start(&plan).map_err(Error::context(side.name()))?;
        }
        Ok(())
    }

    /// Returns the peer on a side.
    pub(crate) fn peer(&mut self, side: Side) -> &mut dyn Peer {
        match side {
            Side::Left => self.left.as_mut(),
            Side::Right => self.right.as_mut(),
        }
    }

    /// Returns the side that initiates.
    pub(crate) fn initiator(&self) -> Side {
        self.plan.initiator
    }

    /// Sets up `target` from the initiator.
    pub(crate) fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        let side = self.initiator();
        self.peer(side).initiate(target).map_err(Error::context(side.name()))
    }

    /// Sends the current configuration of the plan to both peers.
    pub(crate) fn reload(&mut self) -> Result<()> {
        for side in Side::BOTH {
            let plan = self.plan.side(side).clone();
            self.peer(side).reload(&plan).map_err(Error::context(side.name()))?;
        }
        Ok(())
    }

    /// Sets up the child and checks that both sides report the same SAs.
    pub(crate) fn establish(&mut self) -> Result<()> {
        self.initiate(Target::Child(CHILD))?;
        self.wait_for_same_sas().map(drop)
    }

    /// Returns the IKE SA of a side; an error unless there is exactly one.
    pub(crate) fn ike_sa(&mut self, side: Side) -> Result<IkeSa> {
        let mut sas = self.peer(side).status().map_err(Error::context(side.name()))?;
        match (sas.pop(), sas.len()) {
            (Some(sa), 0) if sa.name == CONNECTION => Ok(sa),
            (Some(sa), 0) => Err(Error::new(format!("{}: the IKE SA has the name {}", side.name(), sa.name))),
            (last, more) => {
                let count = more.saturating_add(usize::from(last.is_some()));
                Err(Error::new(format!("{}: {count} IKE SAs, expected 1", side.name())))
            }
        }
    }

    /// Returns the Child SA `name` of a side; an error unless there is exactly one.
    pub(crate) fn child_sa(&mut self, side: Side, name: &str) -> Result<ChildSa> {
        let mut children = self.ike_sa(side)?.children;
        children.retain(|child| child.name == name);
        match (children.pop(), children.len()) {
            (Some(child), 0) => Ok(child),
            (last, more) => {
                let count = more.saturating_add(usize::from(last.is_some()));
                Err(Error::new(format!("{}: {count} Child SAs `{name}`, expected 1", side.name())))
            }
        }
    }

    /// Waits until both sides have the same IKE SA with the same Child SAs, and returns the IKE SA of the
    /// left side.
    pub(crate) fn wait_for_same_sas(&mut self) -> Result<IkeSa> {
        self.wait_until(CONVERGENCE_LIMIT, Self::compare_sas)
    }

    /// Checks that both sides have the same IKE SA with the same Child SAs now.
    pub(crate) fn compare_sas(&mut self) -> Result<IkeSa> {
        let (left, right) = (self.ike_sa(Side::Left)?, self.ike_sa(Side::Right)?);
        compare(&left, &right).map(|()| left)
    }

    /// Waits until neither side has an IKE SA.
    pub(crate) fn expect_no_sas(&mut self) -> Result<()> {
        self.wait_until(CONVERGENCE_LIMIT, |testbed| {
            Side::BOTH.into_iter().try_for_each(|side| match testbed.peer(side).status()?.len() {
                0 => Ok(()),
                count => Err(Error::new(format!("{}: {count} IKE SAs, expected none", side.name()))),
            })
        })
    }

    /// Repeats `attempt` until it succeeds. Returns its last error if `limit` has passed.
    pub(crate) fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            match attempt(self) {
                Err(error) if start.elapsed() > limit => {
                    return Err(Error::context(format!("after {} s", limit.as_secs()))(error));
                }
                Err(_) => std::thread::sleep(POLL_INTERVAL),
                done => return done,
            }
        }
    }

    /// Sends echo requests and TCP data through the tunnel from both sides.
    pub(crate) fn traffic(&mut self, family: Family) -> Result<String> {
        let [left, right] = Side::BOTH.map(|side| self.plan.between.address(side, family));
        self.traffic_between(&left, &right)
    }

    /// Sends echo requests and TCP data between these two addresses from both sides. Checks in the capture
    /// that all are protected.
    pub(crate) fn traffic_between(&mut self, left: &str, right: &str) -> Result<String> {
        self.traffic_from([
            Traffic { side: Side::Left, from: left, to: right },
            Traffic { side: Side::Right, from: right, to: left },
        ])
    }

    /// Sends echo requests and TCP data from both sides. Checks in the capture that all are protected.
    pub(crate) fn traffic_from(&mut self, [first, second]: [Traffic<'_>; 2]) -> Result<String> {
        let before = self.wire()?.protected();
        let ping = self.ping(first.side, first.from, first.to)?;
        self.ping(second.side, second.from, second.to)?;
        self.tcp(first.side, first.from, first.to)?;
        self.tcp(second.side, second.from, second.to)?;
        // At least the requests and replies of both sides.
        let expected = before.saturating_add(SIZES.len().saturating_mul(4));
        self.wait_until(CONVERGENCE_LIMIT, |testbed| match testbed.wire()?.protected() {
            count if count >= expected => Ok(()),
            count => Err(Error::new(format!(
                "{count} protected packets on the wire, expected at least {expected}"
            ))),
        })?;
        self.expect_byte_counters()?;
        Ok(ping)
    }

    /// Checks that both sides count received and sent bytes in the Child SAs.
    fn expect_byte_counters(&mut self) -> Result<()> {
        for side in Side::BOTH {
            let children = self.ike_sa(side)?.children;
            let some = |count: fn(&ChildSa) -> u64| children.iter().any(|child| count(child) > 0);
            if !some(|child| child.bytes_in) || !some(|child| child.bytes_out) {
                return Err(Error::new(format!(
                    "{}: the byte counters of the Child SAs are zero",
                    side.name()
                )));
            }
        }
        Ok(())
    }

    /// Sends echo requests of several sizes from a side. Each of them must be answered.
    pub(crate) fn ping(&mut self, side: Side, from: &str, to: &str) -> Result<String> {
        self.ping_sizes(side, from, to, SIZES)
    }

    /// Sends echo requests of these sizes from a side. Each of them must be answered.
    pub(crate) fn ping_sizes(&mut self, side: Side, from: &str, to: &str, sizes: &[&str]) -> Result<String> {
        self.probe(side, &[&["ping", from, to], sizes].concat())
    }

    /// Transfers data over TCP from a side in both directions.
    pub(crate) fn tcp(&mut self, side: Side, from: &str, to: &str) -> Result<String> {
        self.probe(side, &["tcp", from, to, TCP_BYTES])
    }

    /// Runs `probe ARGUMENTS` on a side and returns its output.
    pub(crate) fn probe(&self, side: Side, arguments: &[&str]) -> Result<String> {
        let output = self.path.end(side).probe(arguments)?;
        let summary = output.stdout.trim_end().to_owned();
        if output.status == 0 {
            return Ok(summary);
        }
        let [command, from, to, ..] = arguments else { return Err(Error::new(summary)) };
        Err(Error::new(format!("{command} from {from} to {to}: {summary} (status {})", output.status)))
    }

    /// Starts to send echo requests from a side at a constant rate.
    pub(crate) fn start_flow(&self, side: Side) -> Result<Flow> {
        let [from, to] = [side, side.other()].map(|side| self.plan.between.address(side, Family::V4));
        self.path.end(side).start_flow(&from, &to).map(Flow::new)
    }

    /// Starts streams of iperf3 between the initiator and the responder, in both directions.
    pub(crate) fn start_streams(&self) -> Result<Streams> {
        let [client, server] = [self.plan.initiator, self.plan.responder()];
        let [from, to] = [client, server].map(|side| self.plan.between.address(side, Family::V4));
        let command = |side| self.path.end(side).command("iperf3");
        Streams::start(command(server)?, command(client)?, &from, &to)
    }

    /// Ends the flows. SAs were replaced `replaced` times during the flows; see [`flow::stop_all`].
    pub(crate) fn stop_flows(&self, flows: Vec<Flow>, replaced: u64) -> Result<String> {
        flow::stop_all(flows, replaced, || self.kernel_states())
    }

    /// Creates half-open IKE SAs in the responder, enough that the responder asks for cookies. Sends the
    /// last captured request of IKE_SA_INIT again from as many spoofed addresses, each time with another SPI.
    pub(crate) fn create_half_open_sas(&mut self) -> Result<()> {
        let responder = self.plan.responder();
        let count = self.peer(responder).cookie_threshold().to_string();
        let wire = self.wire()?;
        let request =
            wire.last_request().ok_or_else(|| Error::new("the capture has no request of IKE_SA_INIT"))?;
        let bytes: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
        let arguments = ["flood", SPOOFED, &responder.wire(Family::V4), &bytes, &count, &count];
        let output = run(self.path.router(), PROBE_LIMIT, &self.probe, &arguments)?;
        if output.status == 0 { Ok(()) } else { Err(Error::new(output.stdout)) }
    }

    /// Returns the SAs and error counters of the kernels that process ESP and AH.
    pub(crate) fn kernel_states(&self) -> Result<Vec<Xfrm>> {
        let reports = Side::BOTH.into_iter().map(|side| self.path.end(side).xfrm());
        reports.filter_map(Result::transpose).collect()
    }

    /// Checks that no kernel counted an error, except for the counters in `tolerated`.
    pub(crate) fn expect_no_kernel_errors(&self, tolerated: &[&str]) -> Result<()> {
        let is_tolerated = |error: &String| tolerated.iter().any(|name| error.starts_with(name));
        for kernel in self.kernel_states()? {
            let errors: Vec<_> = kernel.errors.into_iter().filter(|error| !is_tolerated(error)).collect();
            if !errors.is_empty() {
                let errors = errors.join(", ");
                return Err(Error::new(format!(
                    "error counters of the kernel increased (/proc/net/xfrm_stat): {errors}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the packets captured so far.
    pub(crate) fn wire(&self) -> Result<Wire> {
        self.capture.so_far()
    }

    /// Returns the logs of both peers.
    pub(crate) fn logs(&self) -> [String; 2] {
        [self.left.log(), self.right.log()]
    }

    /// Returns whether the log of strongSwan, on the right side, contains `words`.
    pub(crate) fn strongswan_logged(&self, words: &str) -> bool {
        self.right.log().contains(words)
    }

    /// Stops the peers and the capture, even if one of them fails.
    pub(crate) fn stop(mut self) -> Result<Wire> {
        let stopped = [self.left.stop(), self.right.stop()];
        let wire = self.capture.stop()?;
        stopped.into_iter().collect::<Result<()>>()?;
        Ok(wire)
    }
}

fn compare(left: &IkeSa, right: &IkeSa) -> Result<()> {
    let differ = |what: &str, left: &str, right: &str| {
        Err(Error::new(format!("{what} differ: {left} on the left side, {right} on the right side")))
    };
    if (&left.spi_i, &left.spi_r) != (&right.spi_i, &right.spi_r) {
        let spis = |sa: &IkeSa| format!("{} {}", sa.spi_i, sa.spi_r);
        return differ("SPIs of the IKE SA", &spis(left), &spis(right));
    }
    let children = |sa: &IkeSa, text: fn(&ChildSa) -> String| {
        let mut all: Vec<String> = sa.children.iter().map(text).collect();
        all.sort();
        all.join(", ")
    };
    let ours = children(left, |child| format!("{} {}/{}", child.name, child.spi_in, child.spi_out));
    let theirs = children(right, |child| format!("{} {}/{}", child.name, child.spi_out, child.spi_in));
    if ours != theirs {
        return differ("SPIs of the Child SAs", &ours, &theirs);
    }
    let ours = children(left, |child| format!("{} {:?} {:?}", child.name, child.local_ts, child.remote_ts));
    let theirs =
        children(right, |child| format!("{} {:?} {:?}", child.name, child.remote_ts, child.local_ts));
    if ours == theirs { Ok(()) } else { differ("traffic selectors", &ours, &theirs) }
}
