//! The machine without an operating system (apps/firmware) under QEMU.

use crate::{Background, Error, Netns, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BOOT: Duration = Duration::from_secs(10);

/// What the machine is started with.
#[derive(Debug, Clone, Copy)]
pub struct FirmwareSpec<'a> {
    /// The image.
    pub image: &'a Path,
    /// QEMU's machine: `pc`, `q35` or `microvm`.
    pub machine: &'a str,
    /// A tap interface that exists in the namespace.
    pub tap: &'a str,
    /// Its configuration (docs/manual/firmware.md).
    pub words: &'a str,
    /// Where its configuration, its console and the capture of its frames, `wire.pcap`, are written.
    pub directory: &'a Path,
}

/// A running machine; dropping it ends QEMU.
#[derive(Debug)]
pub struct Firmware {
    qemu: Background,
    console: PathBuf,
}

impl Firmware {
    /// Starts the machine in a namespace.
    pub fn boot(netns: &Netns, spec: FirmwareSpec<'_>) -> Result<Self> {
        let FirmwareSpec { image, machine, tap, words, directory } = spec;
        let (file, console) = (directory.join("firmware.conf"), directory.join("console"));
        fs::write(&file, words).map_err(Error::in_front(file.display()))?;
        let mut command = netns.command("qemu-system-x86_64");
        command.args(["-machine", machine, "-accel", "tcg", "-cpu", "max", "-m", "64"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(&file);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        // Without virtio's own headers, which would stand in the capture in front of each frame.
        command.arg("-netdev").arg(format!("tap,id=net,ifname={tap},script=no,downscript=no,vnet_hdr=off"));
        let capture = directory.join("wire.pcap");
        command.arg("-object").arg(format!("filter-dump,id=wire,netdev=net,file={}", capture.display()));
        if machine == "microvm" {
            command.args(["-device", "virtio-net-device,netdev=net"]);
            command.args(["-global", "virtio-mmio.force-legacy=false"]);
        } else {
            command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        }
        let qemu = Background::start("qemu", command, &directory.join("qemu.log"))?;
        Ok(Self { qemu, console })
    }

    /// What it said on its console.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Waits until it takes packets.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let console = self.console.clone();
        let is_ready = |_: &str| fs::read_to_string(&console).is_ok_and(|said| said.contains("\nready"));
        self.qemu.wait_until(BOOT, is_ready)
    }
}
