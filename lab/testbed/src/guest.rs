//! Linux guest in a virtual machine (QEMU), controlled by an agent that runs inside it.
//!
//! The guest uses emulation only (TCG, no KVM), the machine type `pc` and an initramfs, and boots in about
//! three seconds. Requests to the agent and its responses go through a virtio serial port, which QEMU
//! connects to its standard input and output.

mod images;

use crate::{Error, Netns, Output, Result};
pub use images::{GuestImages, InitrdContent};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum memory of the guest, and what it needs besides its initramfs.
const MIN_MEMORY_MIB: u64 = 256;
const SYSTEM_MEMORY_MIB: u64 = 128;

/// Memory for an initramfs of this number of bytes. Linux keeps the archive until it is unpacked, and unpacks
/// it to a tmpfs of at most half of the other memory. A program of a debug build has 80 MB.
fn memory_mib(initrd: u64) -> u64 {
    (3 * initrd.div_ceil(1 << 20) + SYSTEM_MEMORY_MIB).max(MIN_MEMORY_MIB)
}

/// Kernel command line for a fast and quiet boot: no self-tests of ciphers, no probing of absent devices,
/// power off on panic. The default clock, the TSC, would be calibrated at boot and runs several times too
/// fast if the host is busy.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 random.trust_cpu=on clocksource=acpi_pm \
     no_timer_check mitigations=off no5lvl cryptomgr.notests=1 net.ifnames=0 i8042.noaux i8042.nokbd \
     reboot=t";

/// Connection of the guest's only network interface, `eth0`.
#[derive(Debug, Clone, Copy)]
pub struct GuestNetwork<'a> {
    /// Namespace in which QEMU runs.
    pub netns: &'a Netns,
    /// Existing TAP interface in that namespace.
    pub tap: &'a str,
    /// MAC address of `eth0`.
    pub mac: &'a str,
}

/// Running guest. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    control: Control,
    console: PathBuf,
}

impl Guest {
    /// Boots the guest and waits until its agent is ready. Kernel messages go to the file `console`.
    pub fn boot(images: &GuestImages, network: GuestNetwork<'_>, console: &Path) -> Result<Self> {
        let mut command = network.netns.command("qemu-system-x86_64");
        let initrd = std::fs::metadata(&images.initrd).map_err(Error::context(images.initrd.display()))?;
        let memory = memory_mib(initrd.len()).to_string();
        command.args(["-machine", "pc", "-accel", "tcg", "-cpu", "max", "-m", &memory]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(&images.kernel).arg("-initrd").arg(&images.initrd);
        command.args(["-append", KERNEL_ARGUMENTS]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-chardev", "stdio,id=control,signal=off", "-device", "virtio-serial-pci"]);
        command.args(["-device", "virtserialport,chardev=control,name=control"]);
        command.arg("-netdev").arg(format!("tap,id=net,ifname={},script=no,downscript=no", network.tap));
        command.arg("-device").arg(format!("virtio-net-pci,netdev=net,mac={},romfile=", network.mac));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut qemu = command.spawn().map_err(Error::context("qemu-system-x86_64"))?;
        let control = Control::new(&mut qemu)?;
        let mut guest = Self { qemu, control, console: console.into() };
        guest.control.wait_until_ready(BOOT_TIMEOUT).map_err(|error| guest.explain(&error))?;
        Ok(guest)
    }

    /// Runs a script in the guest and returns its status and output. The agent ends a script after `limit`,
    /// with status 124.
    pub fn run(&mut self, script: &str, limit: Duration) -> Result<Output> {
        self.control.run(script, limit).map_err(|error| self.explain(&error))
    }

    /// Runs a script that must succeed and returns its output.
    pub fn check(&mut self, script: &str, limit: Duration) -> Result<String> {
        let output = self.run(script, limit)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::new(format!("guest script ended with {}: {}", output.status, output.stdout.trim_end())))
    }

    /// Adds the end of the console output to an error: it shows a kernel panic.
    fn explain(&self, error: &Error) -> Error {
        let console = std::fs::read(&self.console).unwrap_or_default();
        let tail = console.get(console.len().saturating_sub(1000)..).unwrap_or_default();
        Error::new(format!("guest: {error}; console: {}", String::from_utf8_lossy(tail)))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // If QEMU has already ended, there is nothing to kill.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The guest itself ends a script at its limit. After this additional time the guest counts as dead.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Control {
    stdin: ChildStdin,
    outputs: Receiver<Output>,
}

impl Control {
    /// Takes QEMU's standard input and output.
    fn new(qemu: &mut Child) -> Result<Self> {
        let (Some(stdin), Some(stdout)) = (qemu.stdin.take(), qemu.stdout.take()) else {
            return Err(Error::new("QEMU was started without pipes"));
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            while let Some(output) = read_output(&mut reader) {
                if sender.send(output).is_err() {
                    break;
                }
            }
        });
        Ok(Self { stdin, outputs: answers })
    }

    /// The guest's first response is unsolicited: it reports that the agent is ready.
    fn wait_until_ready(&mut self, limit: Duration) -> Result<()> {
        self.receive(limit).map(drop)
    }

    fn run(&mut self, script: &str, limit: Duration) -> Result<Output> {
        let request = format!("{} {}\n{script}", script.len(), limit.as_millis());
        self.stdin.write_all(request.as_bytes()).map_err(Error::context("QEMU has ended"))?;
        self.stdin.flush().map_err(Error::context("QEMU has ended"))?;
        self.receive(limit.saturating_add(GRACE))
    }

    fn receive(&self, limit: Duration) -> Result<Output> {
        self.outputs.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::new(format!("no answer in {} s", limit.as_secs())),
            RecvTimeoutError::Disconnected => Error::new("QEMU has ended"),
        })
    }
}

fn read_output(reader: &mut BufReader<ChildStdout>) -> Option<Output> {
    let mut header = String::new();
    reader.read_line(&mut header).ok()?;
    let (status, length) = header.trim_end().split_once(' ')?;
    let mut body = vec![0; length.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Output { status: status.parse().ok()?, stdout: String::from_utf8_lossy(&body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_suffices_for_the_initramfs() {
        assert_eq!(memory_mib(30_000_000), MIN_MEMORY_MIB);
        for initrd in [50_000_000, 85_801_708, 300_000_000] {
            let (memory, archive) = (memory_mib(initrd) << 20, initrd);
            assert!((memory - archive) / 2 > archive, "{initrd}");
        }
    }
}
