//! One SA on one core and on two: numbers in order, sealing and opening side by side, the outcome in order.
//!
//! One core takes the ordinary road. Two share a data path behind a lock and take turns, as the threads of the Linux engine do. Each core
//! has read its packets into its own buffers before the clock starts, as the kernel copies them for whoever reads; a core has as many
//! whether it is alone or not. Outcomes are checked: every packet passes, and the peer's window drops none of them.

use crate::bare::Way;
use crate::crew::{Crew, Packets, Road, TURN};
use crate::esp::{Row, rows};
use crate::instructions::stands_for_others;
use crate::report::{Entry, Report};
use crate::suites::BATCH;
use crate::world::{Counting, spec, udp};
use casemate_datapath::{Datapath, Direction, DropReason, Inbound, Opening, Outbound, Sealing};
use casemate_measure::harness::Load;
use casemate_measure::tunnel::NOW;
use casemate_stage::sys;
use casemate_wire::packet::Packet;
use std::sync::Arc;
use std::time::Duration;

/// Turns of a core between two looks at the clock: many, because a pipeline has to fill and to run empty, and few enough for its cache.
const TURNS: usize = 8;

/// Measures the rows whose suites and sizes stand for the others. What one core takes is compared with what two take.
pub(crate) fn run(report: &mut Report<'_>) {
    let rows: Vec<_> =
        rows().filter(stands_for_others).map(|row| (format!("cores/{}", row.name()), row)).collect();
    if !rows.iter().any(|(name, _)| report.wants(name)) {
        return;
    }
    let &[own, other, ..] = &*sys::allowed_cpus().expect("a thread may ask where it may run") else {
        return report.say("cores: left out, because there is only one CPU");
    };
    sys::stay_on(&[own]).expect("a CPU that may be used");
    for (name, row) in rows {
        if report.wants(&name)
            && let (Some(two), Some(one)) = (Tunnel::load(&row, &[other]), Tunnel::load(&row, &[]))
        {
            let two = Entry { label: "two", base: None, load: two };
            let one = Entry { label: "one", base: Some(0), load: one };
            report.measure(&name, vec![two, one]);
        }
    }
}

/// A tunnel and the cores at its ends.
struct Tunnel {
    way: Way,
    near: Crew<Leaving>,
    far: Crew<Arriving>,
    packets: Arc<Packets>,
}

impl Tunnel {
    /// Helpers on these CPUs take part in what is timed; `None` if the provider has not got the suite.
    fn load(row: &Row, helpers: &[usize]) -> Option<Box<dyn Load>> {
        let Row { provider, suite, way, size } = *row;
        let end = |direction| spec(suite).end(direction, &[provider]);
        let (near, far) = (end(Direction::Outbound)?, end(Direction::Inbound)?);
        let helpers_at = |end| if way == end { helpers } else { &[] };
        let bytes = udp(size).repeat(TURNS * TURN * (helpers.len() + 1));
        Some(Box::new(Self {
            way,
            near: Crew::new(helpers_at(Way::Seal), Leaving { near, rng: Counting::new() }),
            far: Crew::new(helpers_at(Way::Open), Arriving { far }),
            packets: Arc::new(Packets { len: udp(size).len(), bytes }),
        }))
    }
}

impl Load for Tunnel {
    fn run(&mut self) -> (Duration, u32) {
        let Self { way, near, far, packets } = self;
        let (sealing, sealed) = near.work(packets);
        let (opening, opened) = far.work(&Arc::new(sealed));
        assert!(opened == **packets, "what comes out is what went in");
        let count = packets.bytes.len() / packets.len;
        (if *way == Way::Seal { sealing } else { opening }, count as u32)
    }
}

struct Leaving {
    near: Datapath,
    rng: Counting,
}

impl Leaving {
    fn check(verdicts: [Outbound; BATCH]) {
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Outbound::Send(_))), "{verdicts:?}");
    }
}

impl Road for Leaving {
    type Flying = Sealing;

    fn whole(&mut self, packets: &mut [Packet<'_>]) {
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); BATCH];
        self.near.outbound(NOW, &mut self.rng, packets, &mut verdicts);
        Self::check(verdicts);
    }

    fn begin(&mut self, packets: &mut [Packet<'_>], sealing: &mut Sealing) {
        self.near.begin_outbound(NOW, &mut self.rng, packets, sealing);
    }

    fn fly(sealing: &mut Sealing, packets: &mut [Packet<'_>]) {
        sealing.seal(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], sealing: &mut Sealing) {
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); BATCH];
        self.near.finish_outbound(NOW, packets, sealing, &mut verdicts);
        Self::check(verdicts);
    }
}

struct Arriving {
    far: Datapath,
}

impl Arriving {
    fn check(verdicts: [Inbound; BATCH]) {
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Inbound::Deliver(_))), "{verdicts:?}");
    }
}

impl Road for Arriving {
    type Flying = Opening;

    fn whole(&mut self, packets: &mut [Packet<'_>]) {
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); BATCH];
        self.far.inbound(NOW, packets, &mut verdicts);
        Self::check(verdicts);
    }

    fn begin(&mut self, packets: &mut [Packet<'_>], opening: &mut Opening) {
        self.far.begin_inbound(NOW, packets, opening);
    }

    fn fly(opening: &mut Opening, packets: &mut [Packet<'_>]) {
        opening.open(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], opening: &mut Opening) {
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); BATCH];
        self.far.finish_inbound(NOW, packets, opening, &mut verdicts);
        Self::check(verdicts);
    }
}
