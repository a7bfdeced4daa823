//! The machine without an operating system as a peer: it is told everything at its start, and obeys nobody afterwards.

use crate::peer::{IkeSa, Peer, Target};
use crate::place::OnQemu;
use crate::plan::SidePlan;
use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// IKE in the machine.
pub(crate) struct InFirmware(Rc<OnQemu>);

impl InFirmware {
    /// In the machine at `place`.
    pub(crate) fn new(place: Rc<OnQemu>) -> Self {
        Self(place)
    }
}

fn deaf<T>() -> Result<T> {
    Err(Error::new("the firmware obeys nobody"))
}

impl Peer for InFirmware {
    fn start(&mut self, _: &SidePlan) -> Result<()> {
        Ok(())
    }

    fn reload(&mut self, _: &SidePlan) -> Result<()> {
        deaf()
    }

    fn initiate(&mut self, _: Target<'_>) -> Result<()> {
        deaf()
    }

    fn terminate(&mut self, _: Target<'_>) -> Result<()> {
        deaf()
    }

    fn rekey(&mut self, _: Target<'_>) -> Result<()> {
        deaf()
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        deaf()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        deaf()
    }

    fn patience(&self) -> Duration {
        // The delay itself, and 1, 2, 4, 8, 16, 32 and 60 seconds between repetitions.
        Duration::from_secs(160)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        deaf()
    }

    fn log(&self) -> String {
        self.0.console()
    }

    fn stop(&mut self) -> Result<()> {
        // It ends with the router. Whatever it cannot work with makes it start again, which is QEMU's end.
        if self.0.console().contains("panic") { Err(Error::new("the firmware gave up")) } else { Ok(()) }
    }
}
