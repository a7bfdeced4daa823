//! What a machine must have for a step.

use casemate_stage::governor::Governors;
use casemate_stage::{Netns, is_root};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To be root, and network namespaces.
    Namespaces,
    /// TUN interfaces.
    Tun,
    /// Frequencies of the processor that can be governed.
    Governor,
    /// A program in the PATH, and the Debian package that it comes from.
    Program(&'static str, &'static str),
    /// The image of the machine without an operating system, which `CASEMATE_FIRMWARE` names.
    Firmware,
    /// The image for a Raspberry Pi that counts instructions, which `CASEMATE_PI` names.
    Pi,
    /// A Linux kernel for a guest and its modules, below the directory that `CASEMATE_GUEST_KERNEL` names, in `boot` and `lib/modules`.
    GuestKernel,
}

/// What the environment has to say where something is.
const FIRMWARE: &str = "CASEMATE_FIRMWARE";
const PI: &str = "CASEMATE_PI";
const GUEST_KERNEL: &str = "CASEMATE_GUEST_KERNEL";

impl Need {
    /// QEMU for this kind of processor, on which firmware and guest run.
    pub const QEMU: Self = Self::Program("qemu-system-x86_64", "qemu-system-x86");
    /// QEMU for boards with ARM's processors.
    pub const QEMU_ARM: Self = Self::Program("qemu-system-arm", "qemu-system-arm");
    /// What a guest has for programs.
    pub const BUSYBOX: Self = Self::Program("/bin/busybox", "busybox-static");
    /// What knows which modules a kernel needs.
    pub const MODPROBE: Self = Self::Program("/sbin/modprobe", "kmod");

    /// The file or directory that the environment names.
    pub fn path(self) -> Option<PathBuf> {
        match self {
            Self::Firmware => std::env::var_os(FIRMWARE).map(Into::into),
            Self::Pi => std::env::var_os(PI).map(Into::into),
            Self::GuestKernel => std::env::var_os(GUEST_KERNEL).map(Into::into),
            _ => None,
        }
    }

    /// What is missing here, in a line; `None` if nothing is.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Namespaces if !is_root() => Some("no root: network namespaces need it".into()),
            Self::Namespaces => Netns::new().err().map(|error| error.to_string()),
            Self::Tun => {
                let opened = File::options().read(true).write(true).open("/dev/net/tun");
                opened.err().map(|error| format!("no TUN interfaces: /dev/net/tun: {error}"))
            }
            Self::Governor => Governors::here().err().map(|error| error.to_string()),
            Self::Program(name, package) => {
                let started =
                    Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
                started.err().map(|error| format!("no program {name} (Debian package {package}): {error}"))
            }
            Self::Firmware => no_file(FIRMWARE, self.path(), "the image that `cargo xtask firmware` builds"),
            Self::Pi => no_file(PI, self.path(), "the image that `cargo xtask pi` builds"),
            Self::GuestKernel => {
                no_file(GUEST_KERNEL, self.path(), "a directory with boot/vmlinuz-* and lib/modules")
            }
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaces => f.write_str("root, network namespaces"),
            Self::Tun => f.write_str("TUN interfaces"),
            Self::Governor => f.write_str("a frequency governor that can be set"),
            Self::Program(name, _) => f.write_str(name),
            Self::Firmware => f.write_str(FIRMWARE),
            Self::Pi => f.write_str(PI),
            Self::GuestKernel => f.write_str(GUEST_KERNEL),
        }
    }
}

/// What is wrong with a path that the environment was to name.
fn no_file(variable: &str, path: Option<PathBuf>, expected: &str) -> Option<String> {
    let Some(path) = path.filter(|path| path.as_os_str() != OsStr::new("")) else {
        return Some(format!("the environment has no {variable}: {expected}"));
    };
    let there = std::fs::metadata(&path).err();
    there.map(|error| format!("{variable}: {}: {error}; expected was {expected}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let missing = Need::Program("no-such-program", "no-package").missing().unwrap();
        assert!(missing.contains("no-such-program (Debian package no-package)"), "{missing}");
        assert_eq!(Need::Program("sh", "dash").missing(), None);
    }

    #[test]
    fn a_path_of_the_environment_is_named_with_what_was_expected() {
        let missing = no_file(FIRMWARE, None, "an image").unwrap();
        assert_eq!(missing, "the environment has no CASEMATE_FIRMWARE: an image");
        let missing = no_file(FIRMWARE, Some("/no/such/file".into()), "an image").unwrap();
        assert!(missing.starts_with("CASEMATE_FIRMWARE: /no/such/file: "), "{missing}");
        assert_eq!(no_file(FIRMWARE, Some("/".into()), "an image"), None);
    }
}
