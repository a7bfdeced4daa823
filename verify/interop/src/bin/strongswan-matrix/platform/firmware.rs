//! Firmware without an operating system, on a tap device in the namespace of the router. It only sends
//! replies: all traffic starts on the other side.

use super::{FAMILIES, Flow, Platform};
use crate::path::interface;
use crate::plan::Plan;
use crate::side::Side;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Netns, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// QEMU with the firmware on a side of the path.
pub(crate) struct FirmwarePlatform {
    image: PathBuf,
    side: Side,
    configuration: String,
    directory: PathBuf,
    /// Namespace of the tap device.
    router: RefCell<Option<Rc<Netns>>>,
    running: RefCell<Option<Firmware>>,
}

impl FirmwarePlatform {
    /// Creates the platform. It boots `image` with the configuration of a side, with its files in
    /// `directory`.
    pub(crate) fn new(image: PathBuf, side: Side, plan: &Plan, directory: PathBuf) -> Self {
        Self {
            image,
            side,
            configuration: configuration(side, plan),
            directory,
            router: RefCell::default(),
            running: RefCell::default(),
        }
    }

    /// Boots the machine. If the side is the initiator, it initiates immediately.
    pub(crate) fn boot(&self) -> Result<()> {
        let router = self.router.borrow();
        let router =
            router.as_ref().ok_or_else(|| Error::new("the firmware is not connected to the router"))?;
        fs::create_dir_all(&self.directory).map_err(Error::context(self.directory.display()))?;
        let tap = interface(self.side);
        let (image, configuration, directory): (&Path, _, _) =
            (&self.image, &self.configuration, &self.directory);
        let spec = FirmwareSpec {
            image,
            machine: "pc",
            tap,
            mac: FIRMWARE_MAC,
            capture: true,
            config: configuration,
            directory,
        };
        let mut firmware = Firmware::boot(router, spec)?;
        firmware.wait_until_ready()?;
        *self.running.borrow_mut() = Some(firmware);
        Ok(())
    }

    /// Returns the console output.
    pub(crate) fn console(&self) -> String {
        self.running.borrow().as_ref().map(Firmware::console_output).unwrap_or_default()
    }
}

/// Returns the configuration of a side, from the parts of `swanctl.conf` that the firmware supports.
fn configuration(side: Side, plan: &Plan) -> String {
    let family = plan.family();
    let bits = FAMILIES.iter().find(|(known, _)| *known == family).map_or(0, |(_, bits)| *bits);
    let role = if plan.initiator == side { "initiate" } else { "respond" };
    let secret = plan.side(side).conf.get("secrets.ike-t.secret").trim_matches('"');
    let mode = plan.side(side).conf.get("connections.t.children.c.mode");
    format!(
        "address={}/{bits} gateway={}\nkeys=ike peer={} mode={mode} role={role}\nid={} peer-id={} psk={secret}\n",
        side.wire(family),
        side.router(family),
        side.other().wire(family),
        side.id(),
        side.other().id(),
    )
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new("the firmware cannot start traffic"))
}

impl Platform for FirmwarePlatform {
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()> {
        let tap = interface(self.side);
        router.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        *self.router.borrow_mut() = Some(router.clone());
        Ok(())
    }

    fn bring_up(&self) -> Result<()> {
        Ok(())
    }

    fn disconnect(&self, _: &Netns) {
        *self.running.borrow_mut() = None;
        *self.router.borrow_mut() = None;
    }

    fn probe(&self, _: &[&str]) -> Result<Output> {
        unsupported()
    }

    fn start_flow(&self, _: &str, _: &str) -> Result<Box<dyn Flow>> {
        unsupported()
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}
