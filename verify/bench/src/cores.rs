//! One SA on one core and on two: numbers in order, sealing and opening side by side, the outcome in order.
//!
//! One core takes the ordinary road. Two share a data path behind a lock; a turnstile lets batches out in the order in which
//! they went in. Outcomes are checked: every packet passes, and the peer's window drops none of them.

use crate::bare::Way;
use crate::crew::{Batch, Crew, Road};
use crate::esp::{Row, rows};
use crate::harness::Load;
use crate::instructions::stands_for_others;
use crate::report::{Entry, Report};
use crate::suites::BATCH;
use crate::world::{Counting, NOW, gateway, stride, udp};
use casemate_bench::sys;
use casemate_datapath::{Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Opening, Outbound, Sealing};
use casemate_wire::packet::Packet;
use std::time::Duration;

/// Batches between two looks at the clock. Many, because a pipeline has to fill and to run empty.
const BATCHES: usize = 32;

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
    image: Vec<u8>,
    batches: Vec<Batch>,
}

impl Tunnel {
    /// Helpers on these CPUs take part in what is timed; `None` if the provider has not got the suite.
    fn load(row: &Row, helpers: &[usize]) -> Option<Box<dyn Load>> {
        let Row { provider, suite, way, size } = *row;
        let near = gateway(provider, suite, Direction::Outbound)?;
        let far = gateway(provider, suite, Direction::Inbound)?;
        let helpers_at = |end| if way == end { helpers } else { &[] };
        let image = udp(size);
        Some(Box::new(Self {
            way,
            near: Crew::new(helpers_at(Way::Seal), Leaving { near, rng: Counting::new() }),
            far: Crew::new(helpers_at(Way::Open), Arriving { far }),
            batches: (0..BATCHES).map(|_| batch(&image)).collect(),
            image,
        }))
    }
}

/// A batch of equal packets. Their buffers stay for as long as the program runs: it is one size or another for each row.
fn batch(image: &[u8]) -> Batch {
    let buffers = vec![0; stride(image.len()) * BATCH].leak();
    let packet = |buffer: &'static mut [u8]| {
        buffer[HEAD_ROOM..HEAD_ROOM + image.len()].copy_from_slice(image);
        Packet::new(buffer, HEAD_ROOM, image.len()).unwrap()
    };
    buffers.chunks_exact_mut(stride(image.len())).map(packet).collect()
}

impl Load for Tunnel {
    fn run(&mut self) -> (Duration, u32) {
        let Self { way, near, far, image, batches } = self;
        let sealing = near.work(batches);
        let opening = far.work(batches);
        // What comes out is what went in, in its old place: ready to go in again.
        assert!(batches.iter().flatten().all(|packet| packet.data() == &image[..]));
        (if *way == Way::Seal { sealing } else { opening }, (BATCHES * BATCH) as u32)
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

    fn begin(&mut self, packets: &mut [Packet<'_>]) -> Sealing {
        self.near.begin_outbound(NOW, &mut self.rng, packets)
    }

    fn fly(sealing: &mut Sealing, packets: &mut [Packet<'_>]) {
        sealing.seal(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], sealing: Sealing) {
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

    fn begin(&mut self, packets: &mut [Packet<'_>]) -> Opening {
        self.far.begin_inbound(NOW, packets)
    }

    fn fly(opening: &mut Opening, packets: &mut [Packet<'_>]) {
        opening.open(packets);
    }

    fn finish(&mut self, packets: &mut [Packet<'_>], opening: Opening) {
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); BATCH];
        self.far.finish_inbound(NOW, packets, opening, &mut verdicts);
        Self::check(verdicts);
    }
}
