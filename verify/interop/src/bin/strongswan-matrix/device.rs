//! Peer on a device: a program that executes commands (`casemate_interop::Device`) and the same
//! `swanctl.conf` as Casemate.

use crate::casemate::{dns, ike_sas};
use crate::peer::{IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::plan::SidePlan;
use crate::platform::DevicePlatform;
use casemate_interop::{Error, Result};
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// IKE on a device, and its files.
pub(crate) struct DevicePeer {
    platform: Rc<DevicePlatform>,
    pki: Arc<Pki>,
    directory: PathBuf,
}

impl DevicePeer {
    /// Creates the peer on the device at `platform` with all its files in `directory`.
    pub(crate) fn new(platform: Rc<DevicePlatform>, pki: Arc<Pki>, directory: PathBuf) -> Self {
        Self { platform, pki, directory }
    }

    /// Executes a command and returns an error unless it succeeds.
    fn execute_ok(&self, command: &str) -> Result<String> {
        let reply = self.platform.execute(command)?;
        if reply.status == 0 {
            Ok(reply.stdout)
        } else {
            Err(Error::new(format!("{command}: {}", reply.stdout)))
        }
    }

    fn report(&self) -> Result<Vec<Value>> {
        let text = self.execute_ok("status")?;
        serde_json::from_str(&text).map_err(Error::context(format!("status: {text}")))
    }
}

impl Peer for DevicePeer {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        let file = plan.write(&self.directory, &self.pki)?;
        self.execute_ok(&format!("connections {}", file.display())).map(drop)
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.start(plan)
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        self.execute_ok(&format!("initiate {}", target_arguments(target))).map(drop)
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (Target::Ike(name) | Target::Child(name)) = target;
        self.execute_ok(&format!("terminate {name}")).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        self.execute_ok(&format!("rekey {}", target_arguments(target))).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        ike_sas(&self.report()?)
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        dns(&self.report()?)
    }

    fn dpd_timeout(&self) -> Duration {
        // The delay itself, five timeouts of one second, and a margin.
        Duration::from_secs(8)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        Err(Error::new("a device cannot save keys"))
    }

    fn log(&self) -> String {
        self.platform.log()
    }

    fn stop(&mut self) -> Result<()> {
        // The device ends together with the router. Until then it must execute commands.
        self.execute_ok("drops").map(drop)
    }
}

fn target_arguments(target: Target<'_>) -> String {
    match target {
        Target::Ike(name) => format!("{name} --ike"),
        Target::Child(name) => name.into(),
    }
}
