//! A case at work: the path, both peers, the capture, and what a script does with them.

use crate::flow::{self, Flow};
use crate::path::Path;
use crate::peer::{ChildSa, IkeSa, Peer, Target};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::side::{Family, Side};
use crate::wire::{Capture, Wire};
use crate::xfrm::Xfrm;
use casemate_interop::{Error, Result, run};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// How long a change that one side made may take to be seen.
pub(crate) const SOON: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// Around the edges of an outer packet of 1500 bytes.
const SIZES: &[&str] = &["1", "64", "333", "1200", "1400", "1452", "3001"];
const TCP_BYTES: &str = "100000";

/// The two peers and what lies between them.
pub(crate) struct Arena {
    pub(crate) path: Path,
    pub(crate) plan: Plan,
    left: Box<dyn Peer>,
    right: Box<dyn Peer>,
    capture: Capture,
    probe: PathBuf,
}

impl Arena {
    /// Starts the capture; the peers not yet.
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

    /// Starts both peers with their parts of the plan: strongSwan first, for the left side may begin at once.
    pub(crate) fn start(&mut self) -> Result<()> {
        if let Some(ports) = &self.plan.hidden_behind {
            self.path.translate(self.plan.initiator, ports)?;
        }
        for side in [Side::Right, Side::Left] {
            let plan = self.plan.side(side).clone();
            self.peer(side).start(&plan).map_err(Error::in_front(side.name()))?;
        }
        Ok(())
    }

    /// The peer on a side.
    pub(crate) fn peer(&mut self, side: Side) -> &mut dyn Peer {
        match side {
            Side::Left => self.left.as_mut(),
            Side::Right => self.right.as_mut(),
        }
    }

    /// The side that initiates.
    pub(crate) fn initiator(&self) -> Side {
        self.plan.initiator
    }

    /// The initiator sets up `target`.
    pub(crate) fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        let side = self.initiator();
        self.peer(side).initiate(target).map_err(Error::in_front(side.name()))
    }

    /// Gives both peers what the plan says by now.
    pub(crate) fn reload(&mut self) -> Result<()> {
        for side in Side::BOTH {
            let plan = self.plan.side(side).clone();
            self.peer(side).reload(&plan).map_err(Error::in_front(side.name()))?;
        }
        Ok(())
    }

    /// Sets up the child, and demands that both sides say the same of it.
    pub(crate) fn establish(&mut self) -> Result<()> {
        self.initiate(Target::Child(CHILD))?;
        self.agree().map(drop)
    }

    /// The one IKE SA of a side.
    pub(crate) fn ike_sa(&mut self, side: Side) -> Result<IkeSa> {
        let mut sas = self.peer(side).status().map_err(Error::in_front(side.name()))?;
        match (sas.pop(), sas.len()) {
            (Some(sa), 0) if sa.name == CONNECTION => Ok(sa),
            (Some(sa), 0) => Err(Error::new(format!("{}: its IKE SA is called {}", side.name(), sa.name))),
            (last, more) => {
                let count = more.saturating_add(usize::from(last.is_some()));
                Err(Error::new(format!("{}: {count} IKE SAs, expected 1", side.name())))
            }
        }
    }

    /// The one Child SA of this name on a side.
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

    /// Demands that both sides have the same IKE SA with the same Child SAs, soon; returns the left side's.
    pub(crate) fn agree(&mut self) -> Result<IkeSa> {
        self.wait_until(SOON, Self::agree_now)
    }

    /// Demands that both sides have the same IKE SA with the same Child SAs at this moment.
    pub(crate) fn agree_now(&mut self) -> Result<IkeSa> {
        let (left, right) = (self.ike_sa(Side::Left)?, self.ike_sa(Side::Right)?);
        compare(&left, &right).map(|()| left)
    }

    /// Demands that no side has an IKE SA, soon.
    pub(crate) fn demand_nothing_left(&mut self) -> Result<()> {
        self.wait_until(SOON, |arena| {
            Side::BOTH.into_iter().try_for_each(|side| match arena.peer(side).status()?.len() {
                0 => Ok(()),
                count => Err(Error::new(format!("{}: {count} IKE SAs, expected none", side.name()))),
            })
        })
    }

    /// Tries until it succeeds; the last error if it does not within `limit`.
    pub(crate) fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            match attempt(self) {
                Err(error) if start.elapsed() > limit => {
                    return Err(Error::in_front(format!("after {} s", limit.as_secs()))(error));
                }
                Err(_) => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
    }

    /// Ping and TCP through the tunnel, from both sides.
    pub(crate) fn traffic(&mut self, family: Family) -> Result<String> {
        let [left, right] = Side::BOTH.map(|side| self.plan.between.address(side, family));
        self.traffic_between(&left, &right)
    }

    /// Ping and TCP from both sides, between these two addresses; all of it protected, says the wire.
    pub(crate) fn traffic_between(&mut self, left: &str, right: &str) -> Result<String> {
        self.traffic_from([(Side::Left, left, right), (Side::Right, right, left)])
    }

    /// Ping and TCP from each of these sides, from the first address to the second; all of it protected, says
    /// the wire.
    pub(crate) fn traffic_from(&mut self, [first, second]: [(Side, &str, &str); 2]) -> Result<String> {
        let before = self.wire()?.protected();
        let ping = self.ping(first.0, first.1, first.2)?;
        self.ping(second.0, second.1, second.2)?;
        self.tcp(first.0, first.1, first.2)?;
        self.tcp(second.0, second.1, second.2)?;
        // Requests and answers of both sides, at least.
        let expected = before.saturating_add(SIZES.len().saturating_mul(4));
        self.wait_until(SOON, |arena| match arena.wire()?.protected() {
            count if count >= expected => Ok(()),
            count => Err(Error::new(format!(
                "{count} protected packets on the wire, expected {expected} at least"
            ))),
        })?;
        self.demand_counted()?;
        Ok(ping)
    }

    /// Demands that both sides say of each IKE SA that packets came and went.
    fn demand_counted(&mut self) -> Result<()> {
        for side in Side::BOTH {
            let children = self.ike_sa(side)?.children;
            let some = |count: fn(&ChildSa) -> u64| children.iter().any(|child| count(child) > 0);
            if !some(|child| child.bytes_in) || !some(|child| child.bytes_out) {
                return Err(Error::new(format!("{}: its Child SAs counted no bytes", side.name())));
            }
        }
        Ok(())
    }

    /// Echo requests of several sizes from a side, all of which have to be answered.
    pub(crate) fn ping(&mut self, side: Side, from: &str, to: &str) -> Result<String> {
        self.ping_sizes(side, from, to, SIZES)
    }

    /// Echo requests of these sizes from a side, all of which have to be answered.
    pub(crate) fn ping_sizes(&mut self, side: Side, from: &str, to: &str, sizes: &[&str]) -> Result<String> {
        self.probe(side, &[&["ping", from, to], sizes].concat())
    }

    /// A transfer over TCP from a side, there and back.
    pub(crate) fn tcp(&mut self, side: Side, from: &str, to: &str) -> Result<String> {
        self.probe(side, &["tcp", from, to, TCP_BYTES])
    }

    /// `probe ARGUMENTS` on a side; what it says.
    pub(crate) fn probe(&self, side: Side, arguments: &[&str]) -> Result<String> {
        let output = self.path.end(side).probe(arguments)?;
        let said = output.stdout.trim_end().to_owned();
        if output.status == 0 {
            return Ok(said);
        }
        let [command, from, to, ..] = arguments else { return Err(Error::new(said)) };
        Err(Error::new(format!("{command} from {from} to {to}: {said} (status {})", output.status)))
    }

    /// Starts echo requests from a side at a steady pace.
    pub(crate) fn start_flow(&self, side: Side) -> Result<Flow> {
        let [from, to] = [side, side.other()].map(|side| self.plan.between.address(side, Family::V4));
        self.path.end(side).start_flow(&from, &to).map(Flow::new)
    }

    /// Ends flows during which SAs were replaced so many times: see [`flow::stop_all`].
    pub(crate) fn stop_flows(&self, flows: Vec<Flow>, replaced: u64) -> Result<String> {
        flow::stop_all(flows, replaced, || self.kernels())
    }

    /// Leaves half-open IKE SAs with the responder, as many as make it ask for cookies: the last request that was seen is
    /// sent again from the addresses of the router, each time with another SPI.
    pub(crate) fn leave_half_open(&mut self) -> Result<()> {
        let responder = self.plan.responder();
        let count = self.peer(responder).cookie_threshold().to_string();
        let wire = self.wire()?;
        let request = wire.last_request().ok_or_else(|| Error::new("no request of IKE_SA_INIT was seen"))?;
        let bytes: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
        let to = responder.wire(Family::V4);
        // Casemate asks for cookies from half of the quota of one source on, so two sources share the number.
        for side in Side::BOTH {
            let from = side.router(Family::V4);
            let arguments = ["half-open", &from, &to, &bytes, &count];
            let output = run(self.path.middle(), PROBE_LIMIT, &self.probe, &arguments)?;
            if output.status != 0 {
                return Err(Error::new(output.stdout));
            }
        }
        Ok(())
    }

    /// What the kernels say of their SAs that have ESP and AH.
    pub(crate) fn kernels(&self) -> Result<Vec<Xfrm>> {
        let reports = Side::BOTH.into_iter().map(|side| self.path.end(side).xfrm());
        reports.filter_map(Result::transpose).collect()
    }

    /// Demands that no kernel counted an error, other than these.
    pub(crate) fn demand_no_errors(&self, tolerated: &[&str]) -> Result<()> {
        let is_tolerated = |error: &String| tolerated.iter().any(|name| error.starts_with(name));
        for kernel in self.kernels()? {
            let errors: Vec<_> = kernel.errors.into_iter().filter(|error| !is_tolerated(error)).collect();
            if !errors.is_empty() {
                let errors = errors.join(", ");
                return Err(Error::new(format!("the kernel counted errors (/proc/net/xfrm_stat): {errors}")));
            }
        }
        Ok(())
    }

    /// What went over the wire so far.
    pub(crate) fn wire(&self) -> Result<Wire> {
        self.capture.so_far()
    }

    /// What the peers logged.
    pub(crate) fn logs(&self) -> [String; 2] {
        [self.left.log(), self.right.log()]
    }

    /// Whether the log of the right side, which is strongSwan, holds these words.
    pub(crate) fn strongswan_said(&self, words: &str) -> bool {
        self.right.log().contains(words)
    }

    /// Stops the peers and the capture. Whatever happened, everything is stopped.
    pub(crate) fn stop(mut self) -> Result<Wire> {
        let stopped = [self.left.stop(), self.right.stop()];
        let wire = self.capture.stop()?;
        stopped.into_iter().collect::<Result<()>>()?;
        Ok(wire)
    }
}

fn compare(left: &IkeSa, right: &IkeSa) -> Result<()> {
    let differ = |what: &str, left: &str, right: &str| {
        Err(Error::new(format!("{what}: the left side says {left}, the right side {right}")))
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
