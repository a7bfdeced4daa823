//! A device with a stack of its own, on a tap of the router's namespace.

use super::{FAMILIES, Flow, Place};
use crate::path::interface;
use crate::plan::Between;
use crate::side::{Family, Side};
use crate::xfrm::Xfrm;
use casemate_interop::{Device, Error, Netns, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// The device on a side of the path.
pub(crate) struct OnTap {
    program: PathBuf,
    side: Side,
    stack: Stack,
    log: PathBuf,
    running: Running,
}

/// What the program is, and how it is told its addresses.
enum Stack {
    /// `casemate-device`, for a case that connects this.
    Smoltcp(Between),
    /// The example of adapters/lwip, by this file.
    Lwip(PathBuf),
}

/// The program, once it runs.
type Running = Rc<RefCell<Option<Device>>>;

impl OnTap {
    /// Will run `casemate-device` for a case that connects what `between` says. What it tells of itself goes to the file `log`.
    pub(crate) fn smoltcp(program: PathBuf, side: Side, between: Between, log: PathBuf) -> Self {
        Self { program, side, stack: Stack::Smoltcp(between), log, running: Running::default() }
    }

    /// Will run the example of adapters/lwip, with its files in `directory`.
    pub(crate) fn lwip(program: PathBuf, side: Side, directory: &Path) -> Self {
        let (log, file) = (directory.join("device"), directory.join("lwip.conf"));
        Self { program, side, stack: Stack::Lwip(file), log, running: Running::default() }
    }

    /// Gives the device an order and waits for what becomes of it.
    pub(crate) fn order(&self, order: &str) -> Result<Output> {
        tell(&self.running, order)
    }

    /// What it told of itself.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its addresses with the lengths of their networks. The first of an IP version is the source of packets to wherever no
    /// other is nearer.
    fn addresses(&self, between: Between) -> Vec<String> {
        let mut addresses = Vec::new();
        for (family, bits) in FAMILIES {
            let wire = format!("{}/{bits}", self.side.wire(family));
            let host = if family == Family::V4 { 32 } else { 128 };
            let behind = format!("{}/{host}", self.side.behind(family));
            addresses.extend(match between {
                Between::Hosts => [wire, behind],
                Between::Networks => [behind, wire],
            });
        }
        addresses.push(format!("{}/32", self.side.second()));
        addresses
    }

    /// Tells the program its addresses and routes.
    fn tell_addresses(&self, command: &mut Command) -> Result<()> {
        let file = match &self.stack {
            Stack::Smoltcp(between) => {
                let addresses = self.addresses(*between);
                command.args(addresses.iter().flat_map(|address| ["--address", address]));
                for (family, _) in FAMILIES {
                    command.args(["--gateway", &self.side.router(family)]);
                }
                return Ok(());
            }
            Stack::Lwip(file) => file,
        };
        let mut lines = String::from("housekeeping\ntables ike-sas 4 ike-children 2\n");
        for (family, bits) in FAMILIES {
            let (own, gateway) = (self.side.wire(family), self.side.router(family));
            lines.push_str(&format!("address {own}/{bits}\ngateway {gateway}\n"));
        }
        fs::write(file, lines).map_err(Error::in_front(file.display()))?;
        command.arg("--console").arg("--config").arg(file);
        Ok(())
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
    fn plug_into(&self, router: &Rc<Netns>) -> Result<()> {
        let tap = interface(self.side);
        router.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        let mut command = router.command(&self.program);
        command.args(["--tap", tap]);
        self.tell_addresses(&mut command)?;
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
