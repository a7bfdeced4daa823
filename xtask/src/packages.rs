//! The Debian packages that tests need: which are missing, and installing them.

use crate::failure::{Failure, Result};
use crate::{interop, shell};
use std::path::Path;

/// A Debian package and how to tell that it is there.
pub(crate) struct Package {
    name: &'static str,
    /// A program that it brings, or the path of some other file.
    program: &'static str,
}

impl Package {
    /// That brings this program, or this file.
    pub(crate) const fn new(name: &'static str, program: &'static str) -> Self {
        Self { name, program }
    }
}

/// What every test of `casemate run` needs, the matrices (verify/interop) among them.
pub(crate) const NETWORK: &[Package] =
    &[Package { name: "nftables", program: "nft" }, Package { name: "iproute2", program: "ip" }];

/// What a guest needs besides.
pub(crate) const GUEST: &[Package] = &[
    Package { name: "qemu-system-x86", program: "qemu-system-x86_64" },
    Package { name: "busybox-static", program: "busybox" },
    Package { name: "kmod", program: "depmod" },
    Package { name: "xz-utils", program: "xz" },
];

/// What the strongSwan matrix needs besides.
pub(crate) const STRONGSWAN: &[Package] = &[
    Package { name: "charon-systemd", program: "charon-systemd" },
    Package { name: "strongswan-swanctl", program: "swanctl" },
    Package { name: "strongswan-pki", program: "pki" },
    Package {
        name: "libcharon-extra-plugins",
        program: "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so",
    },
    Package { name: "libstrongswan-extra-plugins", program: "/usr/lib/ipsec/plugins/libstrongswan-ccm.so" },
    Package {
        name: "libstrongswan-standard-plugins",
        program: "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    },
    Package { name: "conntrack", program: "conntrack" },
    Package { name: "tcpdump", program: "tcpdump" },
    Package { name: "tshark", program: "tshark" },
];

/// What is built and run where there is no operating system (verify/bare): a compiler with the sources of `core`, and QEMU.
pub(crate) const BARE: &[Package] = &[
    Package { name: "rustc-web", program: "/usr/bin/rustc" },
    Package { name: "rust-web-src", program: "/usr/lib/rustlib/src/rust/library/core/Cargo.toml" },
    Package { name: "qemu-system-arm", program: "qemu-system-arm" },
];

/// Intel's library and its header (providers/ipsec-mb).
const MULTI_BUFFER: &[Package] =
    &[Package { name: "libipsec-mb-dev", program: "/usr/include/intel-ipsec-mb.h" }];

/// What `cargo xtask bench tunnels` needs besides, and the test that it works.
const TUNNELS: &[Package] =
    &[Package { name: "iperf3", program: "iperf3" }, Package { name: "iputils-ping", program: "ping" }];

/// What looks at pages of results (apps/casemate), with a font to look at, and what `casemate lab` compares with.
const PAGES: &[Package] = &[
    Package { name: "chromium", program: "chromium" },
    Package { name: "fonts-dejavu-core", program: "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf" },
    Package { name: "openssl", program: "openssl" },
];

/// What libFuzzer is built with (verify/fuzz).
const COMPILER: Package = Package { name: "g++", program: "c++" };

/// Whether libFuzzer can be built here.
pub(crate) fn has_compiler() -> bool {
    is_present(COMPILER.program)
}

/// Whether there is a machine to emulate.
pub(crate) fn has_qemu() -> bool {
    is_present("qemu-system-x86_64")
}

/// Installs what is missing, saying so. The error says why something may be missing afterwards.
pub(crate) fn install() -> std::result::Result<(), String> {
    // Not every release of Debian has a compiler that is new enough, and not every processor Intel's library or a browser: without them,
    // only their tests are left out.
    let optional: Vec<_> = [BARE, MULTI_BUFFER, PAGES].map(|group| absent(&[group])).into();
    let absent = absent(&[NETWORK, GUEST, STRONGSWAN, TUNNELS, &[COMPILER]]);
    if absent.is_empty() && optional.iter().all(Vec::is_empty) && interop::has_kernel() {
        return Ok(());
    }
    let Some(prefix) = privilege() else {
        return Err("this is neither root nor may it use sudo without a password".into());
    };
    println!("Refreshing apt's lists: the guest's kernel and the packages that are missing come from there");
    let updated = apt(&prefix, &["update"]);
    for group in optional.iter().filter(|group| !group.is_empty()) {
        if let Err(failure) = install_packages(&prefix, group) {
            println!("{failure}");
        }
    }
    if absent.is_empty() {
        // The lists that are there may do.
        return Ok(());
    }
    updated.and_then(|()| install_packages(&prefix, &absent)).map_err(|failure| failure.to_string())
}

/// Installs what is missing of what `cargo xtask bench tunnels` needs.
pub(crate) fn install_for_tunnels() -> Result {
    install_groups(&[NETWORK, STRONGSWAN, TUNNELS])
}

/// Installs what is missing of these packages.
pub(crate) fn install_groups(groups: &[&[Package]]) -> Result {
    let absent = absent(groups);
    if absent.is_empty() {
        return Ok(());
    }
    let Some(prefix) = privilege() else {
        return Err(Failure::new(format!(
            "not installed, and no right to install it: {}",
            absent.join(", ")
        )));
    };
    apt(&prefix, &["update"]).and_then(|()| install_packages(&prefix, &absent))
}

fn install_packages(prefix: &[&str], names: &[&str]) -> Result {
    println!("Installing Debian packages: {}", names.join(" "));
    apt(prefix, &[&["install", "--yes", "--no-install-recommends"], names].concat())
}

/// The packages of these groups that are not there.
pub(crate) fn absent(groups: &[&[Package]]) -> Vec<&'static str> {
    let packages = groups.iter().copied().flatten();
    packages.filter(|package| !is_present(package.program)).map(|package| package.name).collect()
}

/// Administration programs are outside of a user's PATH in Debian.
fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = std::env::split_paths(&path).collect();
    directories.extend(["/sbin", "/usr/sbin"].map(Into::into));
    // To join an absolute path gives that path.
    directories.iter().any(|directory| directory.join(program).is_file())
}

/// What to put in front of apt-get: nothing for root, sudo where it asks for no password, none where neither works.
fn privilege() -> Option<Vec<&'static str>> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return None;
    }
    if is_root() {
        return Some(Vec::new());
    }
    shell::succeeds(shell::command("sudo").args(["-n", "true"])).then(|| vec!["sudo", "-n"])
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    shell::output(shell::command("id").arg("-u")).unwrap_or_default().trim_ascii() == b"0"
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Result {
    let line: Vec<&str> =
        prefix.iter().copied().chain(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).collect();
    let (program, rest) = line.split_first().map_or(("apt-get", &[][..]), |(program, rest)| (*program, rest));
    shell::run(shell::command(program).args(rest).args(arguments))
}
