//! Peer in the firmware for a machine without an operating system. It gets its whole configuration at the
//! start and accepts no commands afterwards.

use crate::peer::{IkeSa, Peer, Target};
use crate::plan::SidePlan;
use crate::platform::FirmwarePlatform;
use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// IKE in the firmware.
pub(crate) struct FirmwarePeer(Rc<FirmwarePlatform>);

impl FirmwarePeer {
    /// Creates the peer in the machine at `platform`.
    pub(crate) fn new(platform: Rc<FirmwarePlatform>) -> Self {
        Self(platform)
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new("the firmware accepts no commands"))
}

impl Peer for FirmwarePeer {
    fn start(&mut self, _: &SidePlan) -> Result<()> {
        self.0.boot()
    }

    fn reload(&mut self, _: &SidePlan) -> Result<()> {
        unsupported()
    }

    fn initiate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn terminate(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn rekey(&mut self, _: Target<'_>) -> Result<()> {
        unsupported()
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        unsupported()
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        unsupported()
    }

    fn dpd_timeout(&self) -> Duration {
        // The delay itself, and retransmissions after 1, 2, 4, 8, 16, 32 and 60 seconds.
        Duration::from_secs(160)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        unsupported()
    }

    fn log(&self) -> String {
        self.0.console()
    }

    fn stop(&mut self) -> Result<()> {
        // The firmware ends together with the router. It restarts after a fatal error, and the restart ends
        // QEMU.
        if self.0.console().contains("panic") { Err(Error::new("the firmware panicked")) } else { Ok(()) }
    }
}
