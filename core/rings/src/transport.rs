//! What the system below has to offer.

use crate::Geometry;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One side's end of memory that it shares with the other.
pub trait Transport {
    /// The shared memory: [`Geometry::words`] of zeros at first. The other side may write to it at any moment.
    fn memory(&self) -> &[AtomicU64];

    /// Wakes the other side, soon. Several calls may become one. Must not wait for the other side, whatever that one does.
    fn ring(&self);
}

/// Both sides in one process: for tests, and where applications and server share an address space anyway.
#[derive(Debug, Clone)]
pub struct Local {
    memory: Arc<[AtomicU64]>,
    own: Arc<AtomicBool>,
    other: Arc<AtomicBool>,
}

impl Local {
    /// Two ends of one memory.
    pub fn pair(geometry: Geometry) -> (Self, Self) {
        let memory: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
        let memory: Arc<[AtomicU64]> = memory.into();
        let [own, other] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let first = Self { memory: memory.clone(), own: own.clone(), other: other.clone() };
        (first, Self { memory, own: other, other: own })
    }

    /// Whether the other side has rung since the last call.
    pub fn was_rung(&self) -> bool {
        self.own.swap(false, Ordering::AcqRel)
    }
}

impl Transport for Local {
    fn memory(&self) -> &[AtomicU64] {
        &self.memory
    }

    fn ring(&self) {
        self.other.store(true, Ordering::Release);
    }
}
