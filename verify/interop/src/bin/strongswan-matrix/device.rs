//! A device as a peer: a program that takes orders (`casemate_interop::Device`) and reads the `swanctl.conf` that Casemate
//! reads.

use crate::casemate::{dns, ike_sas};
use crate::peer::{IkeSa, Peer, Target};
use crate::pki::Pki;
use crate::place::OnTap;
use crate::plan::SidePlan;
use casemate_interop::{Error, Result};
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// IKE in a device, and its files.
pub(crate) struct OnDevice {
    place: Rc<OnTap>,
    pki: Arc<Pki>,
    directory: PathBuf,
}

impl OnDevice {
    /// In the device at `place`, with all files in `directory`.
    pub(crate) fn new(place: Rc<OnTap>, pki: Arc<Pki>, directory: PathBuf) -> Self {
        Self { place, pki, directory }
    }

    /// Gives an order that has to succeed.
    fn demand(&self, order: &str) -> Result<String> {
        let said = self.place.order(order)?;
        if said.status == 0 { Ok(said.stdout) } else { Err(Error::new(format!("{order}: {}", said.stdout))) }
    }

    fn report(&self) -> Result<Vec<Value>> {
        let text = self.demand("status")?;
        serde_json::from_str(&text).map_err(Error::in_front(format!("status: {text}")))
    }
}

impl Peer for OnDevice {
    fn start(&mut self, plan: &SidePlan) -> Result<()> {
        let file = plan.write(&self.directory, &self.pki)?;
        self.demand(&format!("connections {}", file.display())).map(drop)
    }

    fn reload(&mut self, plan: &SidePlan) -> Result<()> {
        self.start(plan)
    }

    fn initiate(&mut self, target: Target<'_>) -> Result<()> {
        self.demand(&format!("initiate {}", words(target))).map(drop)
    }

    fn terminate(&mut self, target: Target<'_>) -> Result<()> {
        let (Target::Ike(name) | Target::Child(name)) = target;
        self.demand(&format!("terminate {name}")).map(drop)
    }

    fn rekey(&mut self, target: Target<'_>) -> Result<()> {
        self.demand(&format!("rekey {}", words(target))).map(drop)
    }

    fn status(&self) -> Result<Vec<IkeSa>> {
        ike_sas(&self.report()?)
    }

    fn dns(&self) -> Result<Vec<IpAddr>> {
        dns(&self.report()?)
    }

    fn patience(&self) -> Duration {
        // The delay itself, five waits of a second, and a little.
        Duration::from_secs(8)
    }

    fn cookie_threshold(&self) -> usize {
        // `Settings::DEVICE`.
        2
    }

    fn keys(&self) -> Result<PathBuf> {
        Err(Error::new("a device saves no keys"))
    }

    fn log(&self) -> String {
        self.place.log()
    }

    fn stop(&mut self) -> Result<()> {
        // It ends with the router. Until then it has to obey.
        self.demand("drops").map(drop)
    }
}

fn words(target: Target<'_>) -> String {
    match target {
        Target::Ike(name) => format!("{name} --ike"),
        Target::Child(name) => name.into(),
    }
}
