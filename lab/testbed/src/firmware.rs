//! Casemate firmware (apps/firmware) in a virtual machine (QEMU).

use crate::{Background, Error, Netns, Result};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BOOT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the status output on the console.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Start of the last line of the status output.
const LAST_STATUS_LINE: &str = "\nheap: ";

/// Parameters of the virtual machine.
#[derive(Debug, Clone, Copy)]
pub struct FirmwareSpec<'a> {
    /// Firmware image.
    pub image: &'a Path,
    /// QEMU machine type: `pc`, `q35` or `microvm`.
    pub machine: &'a str,
    /// Existing TAP interface in the namespace.
    pub tap: &'a str,
    /// MAC address of the network card.
    pub mac: &'a str,
    /// Whether to capture the frames, which costs time per frame.
    pub capture: bool,
    /// Configuration of the firmware (docs/manual/firmware.md).
    pub config: &'a str,
    /// Directory for the configuration, the console output and the capture `wire.pcap`. Its path must be
    /// short, because it contains Unix sockets.
    pub directory: &'a Path,
}

/// Running virtual machine. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Firmware {
    qemu: Background,
    directory: PathBuf,
}

impl Firmware {
    /// Starts the firmware in a namespace.
    pub fn boot(netns: &Netns, spec: FirmwareSpec<'_>) -> Result<Self> {
        Self::boot_with_options(netns, spec, &[])
    }

    /// Starts the firmware with additional options for QEMU.
    pub fn boot_with_options(netns: &Netns, spec: FirmwareSpec<'_>, options: &[&str]) -> Result<Self> {
        let FirmwareSpec { image, machine, tap, mac, capture: captures, config: words, directory } = spec;
        let file = directory.join("firmware.conf");
        fs::write(&file, words).map_err(Error::context(file.display()))?;
        // The output of a previous machine must not be taken for that of the new one.
        fs::write(console_file(directory), "").map_err(Error::context(directory.display()))?;
        let mut command = netns.command("qemu-system-x86_64");
        command.args(["-machine", machine, "-accel", "tcg", "-cpu", "max", "-m", "64"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(&file);
        add_sockets(&mut command, directory);
        // Without virtio-net headers, which would precede every frame in the capture.
        command.arg("-netdev").arg(format!("tap,id=net,ifname={tap},script=no,downscript=no,vnet_hdr=off"));
        if captures {
            let capture = directory.join("wire.pcap");
            command.arg("-object").arg(format!("filter-dump,id=wire,netdev=net,file={}", capture.display()));
        }
        if machine == "microvm" {
            command.arg("-device").arg(format!("virtio-net-device,netdev=net,mac={mac}"));
            command.args(["-global", "virtio-mmio.force-legacy=false"]);
        } else {
            command.arg("-device").arg(format!("virtio-net-pci,netdev=net,mac={mac},romfile="));
        }
        command.args(options);
        let qemu = Background::start("qemu", command, &directory.join("qemu.log"))?;
        Ok(Self { qemu, directory: directory.into() })
    }

    /// Console output so far.
    pub fn console_output(&self) -> String {
        String::from_utf8_lossy(&fs::read(console_file(&self.directory)).unwrap_or_default()).into_owned()
    }

    /// Waits until the firmware accepts packets.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        self.wait_until(BOOT_TIMEOUT, |said| said.contains("\nready"))
    }

    /// Waits until `is_said` returns true for the console output. Fails if the machine ends first or `limit`
    /// elapses.
    pub fn wait_until(&mut self, limit: Duration, mut is_said: impl FnMut(&str) -> bool) -> Result<()> {
        let console = console_file(&self.directory);
        self.qemu.wait_until(limit, |_| fs::read_to_string(&console).is_ok_and(|said| is_said(&said)))
    }

    /// Requests the status on the console and returns it: frames, pages, drops and heap.
    pub fn status(&mut self) -> Result<String> {
        let before = self.console_output();
        let socket = input_socket(&self.directory);
        let mut keyboard = UnixStream::connect(&socket).map_err(Error::context(socket.display()))?;
        keyboard.write_all(b"\n").map_err(Error::context("console"))?;
        let answer = |said: &str| said.get(before.len()..).unwrap_or_default().replace('\r', "");
        let is_whole = |said: &str| {
            answer(said).split_once(LAST_STATUS_LINE).is_some_and(|(_, last)| last.contains('\n'))
        };
        self.wait_until(STATUS_TIMEOUT, is_whole)?;
        Ok(answer(&self.console_output()))
    }

    /// Connects or disconnects the network cable. Frames sent while it is disconnected are lost.
    pub fn set_link(&self, is_up: bool) -> Result<()> {
        Qmp::connect(&qmp_socket(&self.directory))?.set_link("net", is_up)
    }
}

/// File with the console output.
fn console_file(directory: &Path) -> PathBuf {
    directory.join("console")
}

/// Socket for input to the console.
fn input_socket(directory: &Path) -> PathBuf {
    directory.join("keys")
}

/// Socket of the QEMU monitor (QMP).
fn qmp_socket(directory: &Path) -> PathBuf {
    directory.join("qmp")
}

fn add_sockets(command: &mut Command, directory: &Path) {
    let (keyboard, console) = (input_socket(directory), console_file(directory));
    let (keyboard, console) = (keyboard.display(), console.display());
    command.arg("-chardev");
    command.arg(format!("socket,id=console,path={keyboard},server=on,wait=off,logfile={console}"));
    command.args(["-serial", "chardev:console", "-qmp"]);
    command.arg(format!("unix:{},server=on,wait=off", qmp_socket(directory).display()));
}

/// Time limit for a response of QEMU.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of messages (events) before the response.
const MAX_EVENTS: usize = 100;

/// Connection to the QEMU monitor: JSON protocol QMP (QEMU, docs/interop/qmp-spec.txt).
#[derive(Debug)]
pub(crate) struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects to QEMU's monitor socket.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(Error::context(socket.display()))?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(Error::context("QMP"))?;
        let mut qmp = Self(BufReader::new(stream));
        // QEMU sends a greeting and accepts no command before the capabilities are negotiated.
        qmp.read_message()?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Connects or disconnects the cable of a network device.
    pub(crate) fn set_link(&mut self, name: &str, is_up: bool) -> Result<()> {
        self.execute("set_link", json!({ "name": name, "up": is_up }))
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<()> {
        let order = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{order}").map_err(Error::context("QMP"))?;
        for _ in 0..MAX_EVENTS {
            let answer = self.read_message()?;
            if let Some(error) = answer.get("error") {
                return Err(Error::new(format!("QMP, {command}: {error}")));
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
        Err(Error::new(format!("QMP, {command}: no response")))
    }

    fn read_message(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(Error::context("QMP"))?;
        serde_json::from_str(&line).map_err(Error::context("QMP"))
    }
}
