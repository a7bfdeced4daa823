//! A device with a stack of its own, on a tap of the router's namespace.

use super::{FAMILIES, Flow, Place};
use crate::path::interface;
use crate::plan::Between;
use crate::side::{Family, Side};
use crate::xfrm::Xfrm;
use casemate_interop::{Device, Error, Netns, Output, Result};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// The device on a side of the path.
pub(crate) struct OnTap {
    program: PathBuf,
    side: Side,
    between: Between,
    log: PathBuf,
    running: Running,
}

/// The program, once it runs.
type Running = Rc<RefCell<Option<Device>>>;

impl OnTap {
    /// Will run `program` for a case that connects what `between` says. What it tells of itself goes to the file `log`.
    pub(crate) fn new(program: PathBuf, side: Side, between: Between, log: PathBuf) -> Self {
        Self { program, side, between, log, running: Running::default() }
    }

    /// Gives the device an order and waits for what becomes of it.
    pub(crate) fn order(&self, order: &str) -> Result<Output> {
        tell(&self.running, order)
    }

    /// What it told of itself.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its addresses with the lengths of their networks. The first of an IP version is the source of packets to wherever no
    /// other is nearer.
    fn addresses(&self) -> Vec<String> {
        let mut addresses = Vec::new();
        for (family, bits) in FAMILIES {
            let wire = format!("{}/{bits}", self.side.wire(family));
            let host = if family == Family::V4 { 32 } else { 128 };
            let behind = format!("{}/{host}", self.side.behind(family));
            addresses.extend(match self.between {
                Between::Hosts => [wire, behind],
                Between::Networks => [behind, wire],
            });
        }
        addresses.push(format!("{}/32", self.side.second()));
        addresses
    }
}

fn tell(running: &Running, order: &str) -> Result<Output> {
    let mut running = running.borrow_mut();
    let device = running.as_mut().ok_or_else(|| Error::new("the device does not run"))?;
    device.order(order)
}

fn demand(running: &Running, order: &str) -> Result<String> {
    let said = tell(running, order)?;
    if said.status == 0 { Ok(said.stdout) } else { Err(Error::new(format!("{order}: {}", said.stdout))) }
}

impl Place for OnTap {
    fn plug_into(&self, router: &Netns) -> Result<()> {
        let tap = interface(self.side);
        router.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        let mut command = router.command(&self.program);
        command.args(["--tap", tap]);
        command.args(self.addresses().iter().flat_map(|address| ["--address", address]));
        for (family, _) in FAMILIES {
            command.args(["--gateway", &self.side.router(family)]);
        }
        *self.running.borrow_mut() = Some(Device::start(command, &self.log)?);
        Ok(())
    }

    fn bring_up(&self) -> Result<()> {
        Ok(())
    }

    fn unplug(&self, _: &Netns) {
        *self.running.borrow_mut() = None;
    }

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        self.order(&arguments.join(" "))
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn Flow>> {
        demand(&self.running, &format!("flow {from} {to}"))?;
        Ok(Box::new(Pinging(self.running.clone())))
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}

/// Echo requests of the device, which end with it.
struct Pinging(Running);

impl Flow for Pinging {
    fn stop(self: Box<Self>) -> Result<String> {
        demand(&self.0, "stop")
    }
}
