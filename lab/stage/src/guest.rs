//! The guest: a Linux kernel under QEMU with an agent in it, a program that is told what to do or knows it.
//!
//! TCG only (no KVM), machine `pc`, the whole system in an initramfs; up in some three seconds. What the agent is told, and says,
//! goes through a virtio serial port whose other end is QEMU's standard input and output.

mod content;
mod control;
mod cpio;
mod images;
mod modules;

pub use content::Content;
pub use images::Images;

use crate::{Error, Netns, Output, Result};
use control::Control;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const BOOT_LIMIT: Duration = Duration::from_secs(60);
const MEMORY_MIB: u32 = 256;

/// Quick and quiet: no self-tests of ciphers, no probing of what QEMU does not have, off on panic. The usual clock, the TSC, has
/// to be measured first, and comes out several times too fast on a machine that is busy with other things.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 random.trust_cpu=on clocksource=acpi_pm no_timer_check \
     mitigations=off no5lvl cryptomgr.notests=1 net.ifnames=0 i8042.noaux i8042.nokbd reboot=t";

/// Where the guest's one network interface, `eth0`, is plugged in.
#[derive(Debug, Clone, Copy)]
pub struct NetworkSpec<'a> {
    /// The namespace that QEMU runs in.
    pub netns: &'a Netns,
    /// A tap interface that exists in that namespace.
    pub tap: &'a str,
    /// Ethernet address of `eth0`.
    pub mac: &'a str,
}

/// A running guest; dropping it ends QEMU.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    control: Control,
    console: PathBuf,
}

impl Guest {
    /// Boots the guest and waits until its agent says that it is ready. What the kernel says goes to the file `console`.
    pub fn boot(images: &Images, network: NetworkSpec<'_>, console: &Path) -> Result<Self> {
        let mut command = network.netns.command("qemu-system-x86_64");
        command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-m"]).arg(MEMORY_MIB.to_string());
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&images.kernel).arg("-initrd").arg(&images.initrd);
        command.args(["-append", KERNEL_ARGUMENTS]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-chardev", "stdio,id=control,signal=off", "-device", "virtio-serial-pci"]);
        command.args(["-device", "virtserialport,chardev=control,name=control"]);
        command.arg("-netdev").arg(format!("tap,id=net,ifname={},script=no,downscript=no", network.tap));
        command.arg("-device").arg(format!("virtio-net-pci,netdev=net,mac={},romfile=", network.mac));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut qemu = command.spawn().map_err(Error::in_front("qemu-system-x86_64"))?;
        let control = Control::new(&mut qemu)?;
        let mut guest = Self { qemu, control, console: console.into() };
        guest.control.wait_until_ready(BOOT_LIMIT).map_err(|error| guest.explain(&error))?;
        Ok(guest)
    }

    /// Has the guest's agent run a script, and returns its status and what it printed. A script that runs for longer than `limit` is
    /// ended by the agent, with status 124.
    pub fn run(&mut self, script: &str, limit: Duration) -> Result<Output> {
        self.control.run(script, limit).map_err(|error| self.explain(&error))
    }

    /// Runs a script that has to succeed.
    pub fn check(&mut self, script: &str, limit: Duration) -> Result<String> {
        let output = self.run(script, limit)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::new(format!("guest script ended with {}: {}", output.status, output.stdout.trim_end())))
    }

    /// The error with the last words of the console, which tell of a panic.
    fn explain(&self, error: &Error) -> Error {
        let console = std::fs::read(&self.console).unwrap_or_default();
        let tail = console.get(console.len().saturating_sub(1000)..).unwrap_or_default();
        Error::new(format!("guest: {error}; console: {}", String::from_utf8_lossy(tail)))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // QEMU may have ended by itself; then there is nothing left to end.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
