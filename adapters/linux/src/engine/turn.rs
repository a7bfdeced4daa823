//! How threads take turns at reading.
//!
//! Whoever reads a batch seals or opens it, so that packets stay in the cache of one processor, and takes it to the door; who comes there
//! before its turn leaves it to whoever is there. As soon as the numbers of a batch are reserved, or its SAs found, somebody else may read. Nobody is called unless more waits to be read, and who was called takes turns
//! for as long as that is so.

use super::batch::Batch;
use super::common::Common;
use super::wait::Ready;
use super::{entry, exit, intake};
use crate::Error;
use crate::sys::Watch;

impl Common {
    /// Reads once from each inlet that is ready, and does all there is to do with what was read. Answers whether more waits.
    pub(super) fn round(&self, ready: &Ready, batch: &mut Box<Batch>) -> Result<bool, Error> {
        let mut has_more = false;
        for inlet in ready.inlets() {
            has_more |= self.turn(inlet, batch)?;
        }
        Ok(has_more)
    }

    fn turn(&self, inlet: usize, batch: &mut Box<Batch>) -> Result<bool, Error> {
        let mut intake = self.intake();
        let has_more = intake.read(inlet, batch, self)?;
        let pass_on = || {
            drop(intake);
            if has_more {
                self.crew.call();
            }
        };
        match inlet {
            _ if batch.buffers.is_empty() => pass_on(),
            intake::TUN => {
                let ticket = exit::take(self, batch, pass_on);
                self.exit.bring(ticket, batch, |exit, batch| exit.conclude(batch, self));
            }
            _ => {
                let ticket = entry::take(self, batch, pass_on);
                self.entry.bring(ticket, batch, |entry, batch| entry.conclude(batch, self));
            }
        }
        Ok(has_more)
    }

    /// What a helper does all day.
    pub(super) fn help(&self, watch: &Watch) {
        let mut batch = Batch::new();
        while self.crew.wait() {
            while self.helps_once(watch, &mut batch) && !self.crew.is_over() {}
        }
    }

    /// Takes a turn at each inlet; answers whether more waits.
    fn helps_once(&self, watch: &Watch, batch: &mut Box<Batch>) -> bool {
        let round = Ready::now(self, watch).and_then(|ready| self.round(&ready, batch));
        if self.home().endpoint.datapath().has_events() {
            self.notes.bell.ring();
        }
        // What does not pass by itself, the engine's own thread will meet, too, and end.
        round.unwrap_or_else(|error| {
            self.notes.trouble(error.to_string());
            false
        })
    }
}
