//! What comes next out of the TUN interface: packets in the order in which they came, or as a scheduler says.

use super::ordered::Ordered;
use crate::buffers::Buffers;
use crate::offload::Cutter;
use crate::tun::Tun;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::DropReason;
use casemate_sa::Instant;
use casemate_sched::{Classifier, Config, Counters, PerClass};
use std::io;

/// How packets are put in order before they are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduling {
    /// Shares and bounds.
    pub config: Config,
    /// Which packets are of which class.
    pub classifier: Classifier,
}

/// Where packets to be protected come from.
pub(super) enum Source {
    /// As they came.
    Direct(Cutter),
    /// As a scheduler says.
    Ordered(Box<Ordered>),
}

impl Source {
    /// Of a TUN interface. With a scheduler, `seed` should be random.
    pub(super) fn new(scheduling: Option<Scheduling>, tun: &Tun, seed: u64) -> Result<Self, Error> {
        Ok(match scheduling {
            None => Self::Direct(Cutter::new()),
            Some(scheduling) => {
                Self::Ordered(Box::new(Ordered::new(scheduling, tun.queues().count(), seed)?))
            }
        })
    }

    /// Puts the next packets into the buffers, from the first on. What is dropped instead is told to `dropped`.
    pub(super) fn fill(
        &mut self,
        tun: &Tun,
        buffers: &mut Buffers,
        now: Instant,
        dropped: &mut dyn FnMut(DropReason, &[u8]),
    ) -> io::Result<()> {
        match self {
            Self::Direct(cutter) => fill_directly(cutter, tun, buffers),
            Self::Ordered(ordered) => ordered.fill(tun, buffers, now, dropped),
        }
    }

    /// Whether [`fill`](Self::fill) has packets, whatever the descriptors say.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Direct(cutter) => cutter.has_more(),
            Self::Ordered(ordered) => ordered.has_more(),
        }
    }

    /// What became of the packets of each class, if there is a scheduler.
    pub(super) fn counters(&self) -> Option<PerClass<Counters>> {
        match self {
            Self::Direct(_) => None,
            Self::Ordered(ordered) => Some(ordered.counters()),
        }
    }
}

fn fill_directly(cutter: &mut Cutter, tun: &Tun, buffers: &mut Buffers) -> io::Result<()> {
    let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
    for buffer in buffers.slices() {
        if let Some(len) = cutter.next(buffer) {
            lens.push(len);
            continue;
        }
        let Some(len) = tun.door().take(cutter.space())? else { break };
        // What is not understood is a packet of no bytes, which the data path counts.
        lens.push(cutter.first(len, buffer).unwrap_or(0));
    }
    buffers.hold(&lens);
    Ok(())
}
