//! The firmware under QEMU, on a tap of the namespace, with a capture of everything on the wire.

use crate::case::{Case, Machine};
use casemate_interop::{Background, Error, Netns, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tap that QEMU is plugged into.
pub(crate) const TAP: &str = "tap0";
const BOOT: Duration = Duration::from_secs(10);

/// A running machine; dropping it ends QEMU.
pub(crate) struct Firmware {
    qemu: Background,
    console: PathBuf,
}

impl Firmware {
    /// Starts the machine.
    pub(crate) fn boot(netns: &Netns, case: &Case, image: &Path, directory: &Path) -> Result<Self> {
        let (file, console) = (directory.join("firmware.conf"), directory.join("console"));
        fs::write(&file, case.firmware_file()).map_err(Error::in_front(file.display()))?;
        let mut command = netns.command("qemu-system-x86_64");
        command.args(["-machine", case.machine.name(), "-accel", "tcg", "-cpu", "max", "-m", "64"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(&file);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        // Without virtio's own headers, which would stand in the capture in front of each frame.
        command.arg("-netdev").arg(format!("tap,id=net,ifname={TAP},script=no,downscript=no,vnet_hdr=off"));
        command
            .arg("-object")
            .arg(format!("filter-dump,id=wire,netdev=net,file={}", capture(directory).display()));
        match case.machine {
            Machine::Pc | Machine::Q35 => command.args(["-device", "virtio-net-pci,netdev=net,romfile="]),
            Machine::Microvm => command.args([
                "-device",
                "virtio-net-device,netdev=net",
                "-global",
                "virtio-mmio.force-legacy=false",
            ]),
        };
        let qemu = Background::start("qemu", command, &directory.join("qemu.log"))?;
        Ok(Self { qemu, console })
    }

    /// What it said on its console.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Waits until it takes packets.
    pub(crate) fn wait_until_ready(&mut self) -> Result<()> {
        let console = self.console.clone();
        let is_ready = |_: &str| fs::read_to_string(&console).is_ok_and(|said| said.contains("\nready"));
        self.qemu.wait_until(BOOT, is_ready)
    }
}

/// Where the capture is.
pub(crate) fn capture(directory: &Path) -> PathBuf {
    directory.join("wire.pcap")
}
