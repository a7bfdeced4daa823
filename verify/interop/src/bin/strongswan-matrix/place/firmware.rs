//! The machine without an operating system, on a tap of the router's namespace. It sends nothing that it is not asked for: all
//! traffic begins on the other side.

use super::{FAMILIES, Flow, Place};
use crate::path::interface;
use crate::plan::Plan;
use crate::side::Side;
use crate::xfrm::Xfrm;
use casemate_interop::{Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Netns, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The machine on a side of the path.
pub(crate) struct OnQemu {
    image: PathBuf,
    side: Side,
    words: String,
    directory: PathBuf,
    /// The namespace of its tap.
    router: RefCell<Option<Rc<Netns>>>,
    running: RefCell<Option<Firmware>>,
}

impl OnQemu {
    /// Will boot `image` with what the plan says of a side, with its files in `directory`.
    pub(crate) fn new(image: PathBuf, side: Side, plan: &Plan, directory: PathBuf) -> Self {
        Self {
            image,
            side,
            words: words(side, plan),
            directory,
            router: RefCell::default(),
            running: RefCell::default(),
        }
    }

    /// Boots the machine, which begins at once if that is its part.
    pub(crate) fn boot(&self) -> Result<()> {
        let router = self.router.borrow();
        let router = router.as_ref().ok_or_else(|| Error::new("the firmware is not plugged in"))?;
        fs::create_dir_all(&self.directory).map_err(Error::in_front(self.directory.display()))?;
        let tap = interface(self.side);
        let (image, words, directory): (&Path, _, _) = (&self.image, &self.words, &self.directory);
        let spec =
            FirmwareSpec { image, machine: "pc", tap, mac: FIRMWARE_MAC, captures: true, words, directory };
        let mut firmware = Firmware::boot(router, spec)?;
        firmware.wait_until_ready()?;
        *self.running.borrow_mut() = Some(firmware);
        Ok(())
    }

    /// What it said on its console.
    pub(crate) fn console(&self) -> String {
        self.running.borrow().as_ref().map(Firmware::said).unwrap_or_default()
    }
}

/// The configuration for a side: the parts of `swanctl.conf` that the machine knows.
fn words(side: Side, plan: &Plan) -> String {
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

fn silent<T>() -> Result<T> {
    Err(Error::new("the firmware begins no traffic"))
}

impl Place for OnQemu {
    fn plug_into(&self, router: &Rc<Netns>) -> Result<()> {
        let tap = interface(self.side);
        router.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        *self.router.borrow_mut() = Some(router.clone());
        Ok(())
    }

    fn bring_up(&self) -> Result<()> {
        Ok(())
    }

    fn unplug(&self, _: &Netns) {
        *self.running.borrow_mut() = None;
        *self.router.borrow_mut() = None;
    }

    fn probe(&self, _: &[&str]) -> Result<Output> {
        silent()
    }

    fn start_flow(&self, _: &str, _: &str) -> Result<Box<dyn Flow>> {
        silent()
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}
