//! The machine without an operating system (apps/firmware) under QEMU.

use crate::qmp::Qmp;
use crate::{Background, Error, Netns, Result};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BOOT: Duration = Duration::from_secs(10);
/// How long it may take for an answer on its console.
const ANSWER: Duration = Duration::from_secs(5);
/// What the last line of such an answer begins with.
const LAST_LINE: &str = "\nheap: ";

/// What the machine is started with.
#[derive(Debug, Clone, Copy)]
pub struct FirmwareSpec<'a> {
    /// The image.
    pub image: &'a Path,
    /// QEMU's machine: `pc`, `q35` or `microvm`.
    pub machine: &'a str,
    /// A tap interface that exists in the namespace.
    pub tap: &'a str,
    /// Ethernet address of its network card.
    pub mac: &'a str,
    /// Whether its frames are captured, which takes a while for each.
    pub captures: bool,
    /// Its configuration (docs/manual/firmware.md).
    pub words: &'a str,
    /// Where its configuration, its console and the capture of its frames, `wire.pcap`, are written. Its path is short.
    pub directory: &'a Path,
}

/// A running machine; dropping it ends QEMU.
#[derive(Debug)]
pub struct Firmware {
    qemu: Background,
    directory: PathBuf,
}

impl Firmware {
    /// Starts the machine in a namespace.
    pub fn boot(netns: &Netns, spec: FirmwareSpec<'_>) -> Result<Self> {
        Self::boot_with(netns, spec, &[])
    }

    /// The same with more options for QEMU.
    pub fn boot_with(netns: &Netns, spec: FirmwareSpec<'_>, options: &[&str]) -> Result<Self> {
        let FirmwareSpec { image, machine, tap, mac, captures, words, directory } = spec;
        let file = directory.join("firmware.conf");
        fs::write(&file, words).map_err(Error::in_front(file.display()))?;
        // What an earlier machine said is not this one's.
        fs::write(console(directory), "").map_err(Error::in_front(directory.display()))?;
        let mut command = netns.command("qemu-system-x86_64");
        command.args(["-machine", machine, "-accel", "tcg", "-cpu", "max", "-m", "64"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(&file);
        add_sockets(&mut command, directory);
        // Without virtio's own headers, which would stand in the capture in front of each frame.
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

    /// What it said on its console.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(console(&self.directory)).unwrap_or_default()).into_owned()
    }

    /// Waits until it takes packets.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        self.wait_until(BOOT, |said| said.contains("\nready"))
    }

    /// Waits until this holds for what it said. It is an error that it ends before, or takes longer than `limit`.
    pub fn wait_until(&mut self, limit: Duration, mut is_said: impl FnMut(&str) -> bool) -> Result<()> {
        let console = console(&self.directory);
        self.qemu.wait_until(limit, |_| fs::read_to_string(&console).is_ok_and(|said| is_said(&said)))
    }

    /// Types something on its console, and returns its answer: frames, pages, drops and the heap.
    pub fn status(&mut self) -> Result<String> {
        let before = self.said();
        let socket = keyboard(&self.directory);
        let mut keyboard = UnixStream::connect(&socket).map_err(Error::in_front(socket.display()))?;
        keyboard.write_all(b"\n").map_err(Error::in_front("console"))?;
        let answer = |said: &str| said.get(before.len()..).unwrap_or_default().replace('\r', "");
        let is_whole =
            |said: &str| answer(said).split_once(LAST_LINE).is_some_and(|(_, last)| last.contains('\n'));
        self.wait_until(ANSWER, is_whole)?;
        Ok(answer(&self.said()))
    }

    /// Plugs the cable of its network card in, or out. What either side sends while it is out is lost.
    pub fn set_link(&self, is_up: bool) -> Result<()> {
        Qmp::connect(&monitor(&self.directory))?.set_link("net", is_up)
    }
}

/// What it says on its console is written here.
fn console(directory: &Path) -> PathBuf {
    directory.join("console")
}

/// Here one can type on its console.
fn keyboard(directory: &Path) -> PathBuf {
    directory.join("keys")
}

/// Here QEMU takes orders.
fn monitor(directory: &Path) -> PathBuf {
    directory.join("qmp")
}

fn add_sockets(command: &mut Command, directory: &Path) {
    let (keyboard, console) = (keyboard(directory), console(directory));
    let (keyboard, console) = (keyboard.display(), console.display());
    command.arg("-chardev");
    command.arg(format!("socket,id=console,path={keyboard},server=on,wait=off,logfile={console}"));
    command.args(["-serial", "chardev:console", "-qmp"]);
    command.arg(format!("unix:{},server=on,wait=off", monitor(directory).display()));
}
