//! Debian packages that the tests need: detects and installs missing ones.

use crate::cargo;
use crate::debian;
use crate::interop;
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::Path;

/// Debian package, and a file that shows that it is installed.
pub(crate) struct Package {
    name: &'static str,
    /// Name of a program in the package, or path of another file.
    program: &'static str,
}

impl Package {
    /// Package that contains this program or file.
    pub(crate) const fn new(name: &'static str, program: &'static str) -> Self {
        Self { name, program }
    }
}

/// Packages for all tests of `casemate run`, and for the matrices of verify/interop.
pub(crate) const NETWORK: &[Package] =
    &[Package { name: "nftables", program: "nft" }, Package { name: "iproute2", program: "ip" }];

/// Packages for a guest.
pub(crate) const GUEST: &[Package] = &[
    Package { name: "qemu-system-x86", program: "qemu-system-x86_64" },
    Package { name: "busybox-static", program: "busybox" },
    Package { name: "kmod", program: "depmod" },
    Package { name: "xz-utils", program: "xz" },
];

/// Packages for the strongSwan matrix.
pub(crate) const STRONGSWAN: &[Package] = &[
    Package { name: "charon-systemd", program: "charon-systemd" },
    Package { name: "strongswan-swanctl", program: "swanctl" },
    Package { name: "strongswan-pki", program: "pki" },
    Package {
        name: "libcharon-extra-plugins",
        program: "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so",
    },
    Package {
        name: "libcharon-extauth-plugins",
        program: "/usr/lib/ipsec/plugins/libstrongswan-eap-mschapv2.so",
    },
    Package { name: "libstrongswan-extra-plugins", program: "/usr/lib/ipsec/plugins/libstrongswan-ccm.so" },
    Package {
        name: "libstrongswan-standard-plugins",
        program: "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    },
    Package { name: "conntrack", program: "conntrack" },
    Package { name: "iptables", program: "iptables" },
    Package { name: "tcpdump", program: "tcpdump" },
    Package { name: "tshark", program: "tshark" },
];

/// Packages to build and run programs without an operating system (verify/bare): a compiler with the
/// sources of `core`, and QEMU.
pub(crate) const BARE: &[Package] = &[
    Package { name: "rustc-web", program: "/usr/bin/rustc" },
    Package { name: "rust-web-src", program: "/usr/lib/rustlib/src/rust/library/core/Cargo.toml" },
    Package { name: "qemu-system-arm", program: "qemu-system-arm" },
];

/// Intel's library and its header (providers/ipsec-mb).
const MULTI_BUFFER: &[Package] =
    &[Package { name: "libipsec-mb-dev", program: "/usr/include/intel-ipsec-mb.h" }];

/// Packages for `cargo xtask bench tunnels` and its test, and for the strongSwan matrix.
pub(crate) const TUNNELS: &[Package] =
    &[Package { name: "iperf3", program: "iperf3" }, Package { name: "iputils-ping", program: "ping" }];

/// Packages to build Debian packages and to examine their unit.
pub(crate) const PACKING: &[Package] = &[
    Package { name: "binutils", program: "objcopy" },
    Package { name: "dpkg-dev", program: "dpkg-shlibdeps" },
    Package { name: "systemd", program: "systemd-analyze" },
];

/// Packages to examine Debian packages: a tool, and those for a root in which systemd runs.
const PACKAGE_CHECKS: &[Package] = &[
    Package { name: "lintian", program: "lintian" },
    Package { name: "systemd-container", program: "systemd-nspawn" },
    Package { name: "debootstrap", program: "debootstrap" },
    Package { name: "bubblewrap", program: "bwrap" },
];

/// Package with promtool, which checks the metrics of `casemate run` and their rules. It is unpacked and not
/// installed: its installation would start a server.
const PROMETHEUS: &str = "prometheus";
/// Where it is unpacked in the target directory; apps/casemate/tests/scrape looks there.
const PROMTOOL_DIRECTORY: &str = "promtool";

/// Packages with programs that manage the name servers or the routes of a host, the directories for them,
/// and a file of each. They are unpacked and not installed: their installation would change this machine.
const HOST_SERVICES: [(&str, &str, &str); 3] = [
    ("systemd-resolved", "systemd-resolved", "usr/bin/resolvectl"),
    ("openresolv", "openresolv", "sbin/resolvconf"),
    ("bird2", "bird2", "usr/sbin/bird"),
];

/// Packages with etcd 3.5 and its tools, the first Debian release that has them, their directory in the
/// target directory, and a program (adapters/etcd). They are not installed, for the same reason.
const ETCD: (&[&str], &str, &str, &str) = (&["etcd-server", "etcd-client"], "trixie", "etcd", "usr/bin/etcd");

/// Library of the routing daemon BIRD (apps/casemate).
const ROUTING: &[Package] = &[Package { name: "libssh-gcrypt-4", program: LIBSSH }];
#[cfg(target_arch = "x86_64")]
const LIBSSH: &str = "/usr/lib/x86_64-linux-gnu/libssh-gcrypt.so.4";
#[cfg(not(target_arch = "x86_64"))]
const LIBSSH: &str = "/usr/lib/aarch64-linux-gnu/libssh-gcrypt.so.4";

/// Packages for the tests of result pages (apps/casemate): a browser with a font, and the tool that
/// `casemate lab` compares with.
const PAGES: &[Package] = &[
    Package { name: "chromium", program: "chromium" },
    Package { name: "fonts-dejavu-core", program: "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf" },
    Package { name: "openssl", program: "openssl" },
];

/// Validator of JSON output (apps/casemate).
const SCHEMAS: &[Package] = &[Package {
    name: "python3-jsonschema",
    program: "/usr/lib/python3/dist-packages/jsonschema/__init__.py",
}];

/// RADIUS servers and a client of theirs (apps/casemate). Debian does not start hostapd by itself.
const AAA: &[Package] = &[
    Package { name: "freeradius", program: "/usr/sbin/freeradius" },
    Package { name: "freeradius-utils", program: "radclient" },
    Package { name: "hostapd", program: "/usr/sbin/hostapd" },
];

/// Programs that lead packets to the owner of a cell (apps/casemate). Debian starts them by itself.
const CELLS: &[Package] = &[
    Package { name: "keepalived", program: "/usr/sbin/keepalived" },
    Package { name: "frr", program: "/usr/lib/frr/bgpd" },
];

/// strongSwan's client for the command line (apps/casemate).
const CLIENTS: &[Package] = &[Package { name: "charon-cmd", program: "charon-cmd" }];

/// Tokens in software, and a program that writes objects to them (adapters/pkcs11, apps/casemate).
const TOKENS: &[Package] = &[
    Package { name: "softhsm2", program: "softhsm2-util" },
    Package { name: "opensc", program: "pkcs11-tool" },
];

/// Compiler for libFuzzer (verify/fuzz).
const COMPILER: Package = Package { name: "g++", program: "c++" };

/// Whether the compiler for libFuzzer is installed.
pub(crate) fn has_compiler() -> bool {
    is_present(COMPILER.program)
}

/// Whether QEMU for x86-64 is installed.
pub(crate) fn has_qemu() -> bool {
    is_present("qemu-system-x86_64")
}

/// Installs missing packages and prints their names. Returns the reason why packages may still be missing if
/// this user cannot install any; the tests that need them are skipped then. An installation that fails is an
/// error, because otherwise most tests would be skipped on a machine that should run all of them.
pub(crate) fn install() -> Result<Option<String>> {
    let missing = install_for_tests()?;
    // Optional: the tests of the grammar have another parser, too.
    let promtool = if is_present("promtool") {
        Ok(())
    } else {
        unpack(PROMETHEUS, PROMTOOL_DIRECTORY, "usr/bin/promtool")
    };
    let services = HOST_SERVICES.map(|(package, directory, program)| unpack(package, directory, program));
    // Without them, the tests that need them are skipped.
    for failure in [promtool, unpack_etcd()].into_iter().chain(services).filter_map(Result::err) {
        println!("{failure}");
    }
    Ok(missing)
}

fn install_for_tests() -> Result<Option<String>> {
    // Optional: some Debian releases have no compiler that is new enough, some processors have no Intel
    // library or browser, and Python may have the validator from elsewhere. Only the tests that need them
    // are skipped then.
    let optional: Vec<_> = [BARE, MULTI_BUFFER, PAGES, SCHEMAS, AAA, CELLS, CLIENTS, ROUTING, TOKENS]
        .map(|group| absent(&[group]))
        .into();
    let absent = absent(&[NETWORK, GUEST, STRONGSWAN, TUNNELS, PACKING, &[COMPILER]]);
    if absent.is_empty() && optional.iter().all(Vec::is_empty) && interop::has_kernel() {
        return Ok(None);
    }
    let Some(prefix) = privilege() else {
        return Ok(Some("needs root or sudo without a password".into()));
    };
    println!("Updating apt's package lists for the guest's kernel and for missing packages");
    let updated = apt(&prefix, &["update"]);
    for group in optional.iter().filter(|group| !group.is_empty()) {
        if let Err(failure) = install_packages(&prefix, group) {
            println!("{failure}");
        }
        stop_services(&prefix, group);
    }
    if absent.is_empty() {
        // The current lists may suffice.
        return Ok(None);
    }
    updated.and_then(|()| install_packages(&prefix, &absent)).map(|()| None)
}

/// Packages whose service Debian starts when it installs them, with a service of the same name.
const SERVICES: [&str; 3] = ["freeradius", "keepalived", "frr"];

/// Ends the services that Debian has started for these packages: the tests start their own processes.
fn stop_services(prefix: &[&str], packages: &[&str]) {
    for service in SERVICES.iter().filter(|service| packages.contains(service)) {
        let line = [prefix, &["systemctl", "disable", "--now", service]].concat();
        // Fails without systemd, where nothing was started.
        if let Some((program, arguments)) = line.split_first() {
            shell::succeeds(shell::command(program).args(arguments));
        }
    }
}

/// Installs the missing packages for `cargo xtask cell`.
pub(crate) fn install_for_cells() -> Result {
    install_groups(&[NETWORK, CELLS])?;
    unpack_etcd()
}

/// Unpacks a package in a directory below the target directory, unless this program is there.
fn unpack(package: &str, directory: &str, program: &str) -> Result {
    let directory = cargo::target_directory()?.join(directory);
    if directory.join(program).is_file() {
        return Ok(());
    }
    println!("Unpacking {package}");
    let download = directory.join("download");
    fs::create_dir_all(&download)?;
    // apt-get(8): a package is downloaded to the current directory, as any user.
    shell::run(shell::command("apt-get").args(["-q", "download", package]).current_dir(&download))?;
    for package in fs::read_dir(&download)? {
        shell::run(shell::command("dpkg-deb").arg("--extract").arg(package?.path()).arg(&directory))?;
    }
    Ok(fs::remove_dir_all(download)?)
}

/// Unpacks etcd, unless it is there.
pub(crate) fn unpack_etcd() -> Result {
    let (packages, release, directory, program) = ETCD;
    let directory = cargo::target_directory()?.join(directory);
    if directory.join(program).is_file() {
        return Ok(());
    }
    debian::unpack_from(packages, release, &directory)
}

/// Installs the missing packages for `cargo xtask package --check`.
pub(crate) fn install_for_packaging() -> Result {
    install_groups(&[NETWORK, PACKING, PACKAGE_CHECKS])
}

/// Installs the missing packages for `cargo xtask bench tunnels`.
pub(crate) fn install_for_tunnels() -> Result {
    install_groups(&[NETWORK, STRONGSWAN, TUNNELS])
}

/// Installs the missing packages of these groups.
pub(crate) fn install_groups(groups: &[&[Package]]) -> Result {
    let absent = absent(groups);
    if absent.is_empty() {
        return Ok(());
    }
    let Some(prefix) = privilege() else {
        return Err(Failure::new(format!(
            "missing packages, and neither root nor sudo to install them: {}",
            absent.join(", ")
        )));
    };
    apt(&prefix, &["update"]).and_then(|()| install_packages(&prefix, &absent))?;
    stop_services(&prefix, &absent);
    Ok(())
}

/// Installs packages. A second attempt helps where another program has disturbed the first one.
fn install_packages(prefix: &[&str], names: &[&str]) -> Result {
    println!("Installing Debian packages: {}", names.join(" "));
    let install = || apt(prefix, &[&["install", "--yes", "--no-install-recommends"], names].concat());
    install().or_else(|failure| {
        println!("{failure}; trying once more");
        install()
    })
}

/// Packages of these groups that are missing.
pub(crate) fn absent(groups: &[&[Package]]) -> Vec<&'static str> {
    let packages = groups.iter().copied().flatten();
    packages.filter(|package| !is_present(package.program)).map(|package| package.name).collect()
}

/// Debian keeps administration programs outside of a user's PATH.
fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<_> = std::env::split_paths(&path).collect();
    directories.extend(["/sbin", "/usr/sbin"].map(Into::into));
    // Joining an absolute path results in that path.
    directories.iter().any(|directory| directory.join(program).is_file())
}

/// Prefix of apt-get: empty for root, sudo if it asks for no password; none if neither works.
fn privilege() -> Option<Vec<&'static str>> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return None;
    }
    if is_root() {
        return Some(Vec::new());
    }
    shell::succeeds(shell::command("sudo").args(["-n", "true"])).then(|| vec!["sudo", "-n"])
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    shell::output(shell::command("id").arg("-u")).unwrap_or_default().trim_ascii() == b"0"
}

/// A fresh machine often runs apt-get by itself after its start.
const LOCK_TIMEOUT: &str = "DPkg::Lock::Timeout=300";

fn apt(prefix: &[&str], arguments: &[&str]) -> Result {
    let line: Vec<&str> =
        [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", LOCK_TIMEOUT]].concat();
    let (program, rest) = line.split_first().map_or(("apt-get", &[][..]), |(program, rest)| (*program, rest));
    shell::run(shell::command(program).args(rest).args(arguments))
}
