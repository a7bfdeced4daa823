//! One SA on one core and on two cores: sequence numbers are assigned in order, sealing and opening run in
//! parallel, and the results are finished in order.
//!
//! One core processes batches with a single call. Two cores share a data path behind a lock and take turns,
//! like the workers of the Linux engine. Each core copies its packets into its own buffers before the clock
//! starts, as the kernel copies them into the buffers of a reader. A core has the same number of packets
//! whether it works alone or not. The results are checked: every packet passes, and the replay window of
//! the peer drops none of them.

use crate::esp::BATCH;
use crate::esp::Operation;
use crate::esp::{Row, rows};
use crate::esp::{tunnel_spec, udp_packet};
use crate::instructions::stands_for_others;
use crate::report::{Entry, Report};
use crate::worker_pool::{Packets, Pipeline, TURN, WorkerPool};
use casemate_datapath::{Datapath, Direction, DropReason, Inbound, OpenBatch, Outbound, SealBatch};
use casemate_measure::harness::Workload;
use casemate_measure::tunnel::NOW;
use casemate_sa::SpdId;
use casemate_test_support::TestRng;
use casemate_testbed::sys;
use casemate_wire::packet::Packet;
use std::sync::Arc;
use std::time::Duration;

/// Turns of a core in one measurement: enough to amortize filling and draining the pipeline, and few enough
/// for the cache.
const TURNS: usize = 8;

/// Measures the representative suites and sizes, and compares two cores with one.
pub(crate) fn run(report: &mut Report<'_>) {
    let rows: Vec<_> =
        rows().filter(stands_for_others).map(|row| (format!("cores/{}", row.name()), row)).collect();
    if !rows.iter().any(|(name, _)| report.wants(name)) {
        return;
    }
    let &[own, other, ..] = &*sys::allowed_cpus().expect("sched_getaffinity works") else {
        return report.say("cores: skipped, because there is only one CPU");
    };
    sys::pin_to_cpus(&[own]).expect("the CPU is allowed");
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

/// Tunnel, and the cores at its two ends.
struct Tunnel {
    operation: Operation,
    near: WorkerPool<OutboundPipeline>,
    far: WorkerPool<InboundPipeline>,
    packets: Arc<Packets>,
}

impl Tunnel {
    /// Load with helper threads on these CPUs in the measured direction. `None` if the provider does not
    /// support the suite.
    fn load(row: &Row, helpers: &[usize]) -> Option<Box<dyn Workload>> {
        let Row { provider, suite, operation, size } = *row;
        let end = |direction| tunnel_spec(suite).datapath(direction, &[provider]);
        let (near, far) = (end(Direction::Outbound)?, end(Direction::Inbound)?);
        let helpers_at = |end| if operation == end { helpers } else { &[] };
        let bytes = udp_packet(size).repeat(TURNS * TURN * (helpers.len() + 1));
        Some(Box::new(Self {
            operation,
            near: WorkerPool::new(
                helpers_at(Operation::Seal),
                OutboundPipeline { near, rng: TestRng::new(1) },
            ),
            far: WorkerPool::new(helpers_at(Operation::Open), InboundPipeline { far }),
            packets: Arc::new(Packets { len: udp_packet(size).len(), bytes }),
        }))
    }
}

impl Workload for Tunnel {
    fn run(&mut self) -> (Duration, u32) {
        let Self { operation, near, far, packets } = self;
        let (sealing, sealed) = near.run(packets);
        let (opening, opened) = far.run(&Arc::new(sealed));
        assert!(opened == **packets, "the opened packets equal the original ones");
        let count = packets.bytes.len() / packets.len;
        (if *operation == Operation::Seal { sealing } else { opening }, count as u32)
    }
}

struct OutboundPipeline {
    near: Datapath,
    rng: TestRng,
}

impl OutboundPipeline {
    fn check(verdicts: [Outbound; BATCH]) {
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Outbound::Send(_))), "{verdicts:?}");
    }
}

impl Pipeline for OutboundPipeline {
    type InFlight = SealBatch;

    fn process_batch(&mut self, packets: &mut [Packet<'_>]) {
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); BATCH];
        self.near.outbound(NOW, &mut self.rng, packets, &mut verdicts);
        Self::check(verdicts);
    }

    fn begin(&mut self, packets: &mut [Packet<'_>], sealing: &mut SealBatch) {
        self.near.begin_outbound(SpdId::MAIN, NOW, &mut self.rng, packets, sealing);
    }

    fn process(sealing: &mut SealBatch, packets: &mut [Packet<'_>]) {
        sealing.seal(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], sealing: &mut SealBatch) {
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); BATCH];
        self.near.finish_outbound(NOW, packets, sealing, &mut verdicts);
        Self::check(verdicts);
    }
}

struct InboundPipeline {
    far: Datapath,
}

impl InboundPipeline {
    fn check(verdicts: [Inbound; BATCH]) {
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Inbound::Deliver(_))), "{verdicts:?}");
    }
}

impl Pipeline for InboundPipeline {
    type InFlight = OpenBatch;

    fn process_batch(&mut self, packets: &mut [Packet<'_>]) {
        let mut verdicts = [const { Inbound::Drop(DropReason::NoRoom) }; BATCH];
        self.far.inbound(NOW, packets, &mut verdicts);
        Self::check(verdicts);
    }

    fn begin(&mut self, packets: &mut [Packet<'_>], opening: &mut OpenBatch) {
        self.far.begin_inbound(NOW, packets, opening);
    }

    fn process(opening: &mut OpenBatch, packets: &mut [Packet<'_>]) {
        opening.open(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], opening: &mut OpenBatch) {
        let mut verdicts = [const { Inbound::Drop(DropReason::NoRoom) }; BATCH];
        self.far.finish_inbound(NOW, packets, opening, &mut verdicts);
        Self::check(verdicts);
    }
}
