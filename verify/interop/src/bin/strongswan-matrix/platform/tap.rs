//! Device with its own stack, on a tap device in the namespace of the router: a program, or the firmware
//! without an operating system, which only sends replies. With the firmware all traffic starts on the other
//! side.

use super::{FAMILIES, FlowProbe, Platform};
use crate::path::interface;
use crate::peer::{Family, Side};
use crate::plan::{Between, Plan};
use crate::xfrm::Xfrm;
use casemate_interop::{Device, Error, FIRMWARE_MAC, Firmware, FirmwareSpec, Netns, Output, Result};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Device on a side of the path.
pub(crate) struct DevicePlatform {
    program: PathBuf,
    side: Side,
    stack: Stack,
    log: PathBuf,
    running: SharedDevice,
}

/// Kind of program, and how it gets its addresses.
enum Stack {
    /// `casemate-device`, for a case with these endpoints of the traffic.
    Smoltcp(Between),
    /// Example of adapters/lwip, which reads this configuration file.
    Lwip(PathBuf),
}

/// The program, `None` until it runs.
type SharedDevice = Rc<RefCell<Option<Device>>>;

impl DevicePlatform {
    /// Creates a platform with `casemate-device` for a case with the endpoints `between`. The output of the
    /// program goes to the file `log`.
    pub(crate) fn smoltcp(program: PathBuf, side: Side, between: Between, log: PathBuf) -> Self {
        Self { program, side, stack: Stack::Smoltcp(between), log, running: SharedDevice::default() }
    }

    /// Creates a platform with the example of adapters/lwip, with its files in `directory`.
    pub(crate) fn lwip(program: PathBuf, side: Side, directory: &Path) -> Self {
        let (log, file) = (directory.join("device"), directory.join("lwip.conf"));
        Self { program, side, stack: Stack::Lwip(file), log, running: SharedDevice::default() }
    }

    /// Executes a command on the device and waits for the result.
    pub(crate) fn execute(&self, command: &str) -> Result<Output> {
        execute(&self.running, command)
    }

    /// Returns the log of the device.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the addresses of the device with their prefix lengths. The first address of an IP version is
    /// the source address for all destinations without a nearer address.
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

    /// Passes the addresses and routes to the program.
    fn pass_addresses(&self, command: &mut Command) -> Result<()> {
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
        let mut lines = String::from("control-plane\ntables ike-sas 4 ike-children 2\n");
        for (family, bits) in FAMILIES {
            let (own, gateway) = (self.side.wire(family), self.side.router(family));
            lines.push_str(&format!("address {own}/{bits}\ngateway {gateway}\n"));
        }
        fs::write(file, lines).map_err(Error::context(file.display()))?;
        command.arg("--console").arg("--config").arg(file);
        Ok(())
    }
}

fn execute(running: &SharedDevice, command: &str) -> Result<Output> {
    let mut running = running.borrow_mut();
    let device = running.as_mut().ok_or_else(|| Error::new("the device is not running"))?;
    device.execute(command)
}

fn execute_ok(running: &SharedDevice, command: &str) -> Result<String> {
    let reply = execute(running, command)?;
    if reply.status == 0 { Ok(reply.stdout) } else { Err(Error::new(format!("{command}: {}", reply.stdout))) }
}

impl Platform for DevicePlatform {
    fn connect_to(&self, router: &Rc<Netns>) -> Result<()> {
        let tap = interface(self.side);
        router.ip(&format!("tuntap add dev {tap} mode tap\nlink set {tap} addrgenmode none up\n"))?;
        let mut command = router.command(&self.program);
        command.args(["--tap", tap]);
        self.pass_addresses(&mut command)?;
        *self.running.borrow_mut() = Some(Device::start(command, &self.log)?);
        Ok(())
    }

    fn bring_up(&self) -> Result<()> {
        Ok(())
    }

    fn disconnect(&self, _: &Netns) {
        *self.running.borrow_mut() = None;
    }

    fn probe(&self, arguments: &[&str]) -> Result<Output> {
        self.execute(&arguments.join(" "))
    }

    fn start_flow(&self, from: &str, to: &str) -> Result<Box<dyn FlowProbe>> {
        execute_ok(&self.running, &format!("flow {from} {to}"))?;
        Ok(Box::new(DeviceFlow(self.running.clone())))
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}

/// Flow of echo requests on the device, which ends with the device.
struct DeviceFlow(SharedDevice);

impl FlowProbe for DeviceFlow {
    fn stop(self: Box<Self>) -> Result<String> {
        execute_ok(&self.0, "stop")
    }
}

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
    let conf = &plan.side(side).conf;
    let of = |path: &str| conf.get(path).trim_matches('"');
    let (secret, mode) = (of("secrets.ike-t.secret"), of("connections.t.children.c.mode"));
    let (ike, esp) = (of("connections.t.proposals"), of("connections.t.children.c.esp_proposals"));
    let ppk = match of("connections.t.ppk_id") {
        "" => String::new(),
        id => {
            let required = if of("connections.t.ppk_required") == "yes" { "yes" } else { "no" };
            format!("ppk-id={id} ppk={} ppk-required={required}\n", of("secrets.ppk-t.secret"))
        }
    };
    format!(
        "address={}/{bits} gateway={}\nkeys=ike peer={} mode={mode} role={role} ike={ike} esp={esp}\n\
         id={} peer-id={} psk={secret}\n{ppk}",
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

    fn start_flow(&self, _: &str, _: &str) -> Result<Box<dyn FlowProbe>> {
        unsupported()
    }

    fn xfrm(&self) -> Result<Option<Xfrm>> {
        Ok(None)
    }
}
