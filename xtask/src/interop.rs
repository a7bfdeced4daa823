//! Interoperability: Casemate against a Linux kernel under QEMU and against strongSwan (verify/interop).

use crate::failure::Result;
use crate::packages::{GUEST, NETWORK, Package, STRONGSWAN, absent, is_root};
use crate::programs::{BUILT, Programs};
use crate::{firmware, lwip, metadata, shell};

pub(crate) const ABOUT: &str = "Run the kernel matrix or the strongSwan matrix (verify/interop)
Builds Casemate and the matrix. The kernel matrix boots Debian's cloud kernel under QEMU and talks to it through every
suite, mode and IP version. FILTER picks cases by parts of their names, all of which must match: `cargo xtask interop esp
tunnel v6`. Options: --list names the cases, --show prints their `ip xfrm` lines, --peer smoltcp puts a device in the
gateway's place (smoltcp behind Casemate, verify/device), --peer lwip or lwip-below one with lwIP (adapters/lwip/example,
Casemate inside IP or below it), --peer kernel a second kernel, which checks the matrix itself.
With --strongswan as the first option, Casemate's IKEv2 meets Debian's strongSwan in network namespaces: `cargo xtask
interop --strongswan rekey child`. In the cases `kernel/...` strongSwan is in a guest and has the ESP and AH of its kernel.
Options there: --esp libipsec|kernel for those without a guest or those with one, --list, --only PATTERN, --jobs N, --keep
DIR for the files of all cases, --json, --left smoltcp or --left lwip for a device in Casemate's place, --left firmware for the machine
without an operating system, and --left strongswan for a second strongSwan.
--built, before all others, builds nothing: the programs are there, as `cargo build --workspace --all-targets` leaves them.
The Debian packages that both need are installed by `cargo xtask test`.";

/// Options that put another implementation in Casemate's place. They show whether the fault is ours when Casemate fails.
const WITHOUT_CASEMATE: [[&str; 2]; 2] = [["--peer", "kernel"], ["--left", "strongswan"]];

/// What else the machine may do while a matrix runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Compile, with the lowest priority: its cases wait most of their time.
    Compilers,
    /// Nothing: a guest that shares a processor loses packets now and then, which nobody counts.
    Nobody,
}

/// A matrix, or a part of one, as `cargo xtask test` runs it.
pub(crate) struct Matrix {
    /// Its name in the summary.
    pub(crate) stage: &'static str,
    arguments: &'static [&'static str],
    packages: &'static [&'static [Package]],
    needs_root: bool,
    /// Beside what it runs.
    pub(crate) company: Company,
}

/// All of them.
pub(crate) const MATRICES: &[Matrix] = &[
    Matrix {
        stage: "test: strongSwan matrix",
        // A case takes two seconds and a quarter of a second of a processor.
        arguments: &["--strongswan", "--esp", "libipsec", "--jobs", "4"],
        packages: &[NETWORK, STRONGSWAN],
        needs_root: true,
        company: Company::Compilers,
    },
    Matrix {
        stage: "test: strongSwan matrix, with a kernel",
        arguments: &["--strongswan", "--esp", "kernel"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: strongSwan matrix, smoltcp",
        arguments: &["--strongswan", "--left", "smoltcp"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: strongSwan matrix, lwIP",
        arguments: &["--strongswan", "--left", "lwip"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: strongSwan matrix, firmware",
        arguments: &["--strongswan", "--left", "firmware"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: kernel matrix",
        arguments: &[],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: kernel matrix, smoltcp",
        arguments: &["--peer", "smoltcp"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: kernel matrix, lwIP",
        arguments: &["--peer", "lwip", "sha256"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        company: Company::Nobody,
    },
    Matrix {
        stage: "test: kernel matrix, lwIP below IP",
        arguments: &["--peer", "lwip-below", "gcm16"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        company: Company::Nobody,
    },
];

impl Matrix {
    /// What `run` is to be told where the whole workspace was built.
    pub(crate) fn arguments(&self) -> Vec<String> {
        [&[BUILT], self.arguments].concat().into_iter().map(Into::into).collect()
    }

    /// Why it cannot run here, if so. `installed` says whether packages could be installed.
    pub(crate) fn lacks(&self, installed: &std::result::Result<(), String>) -> Option<String> {
        let absent = absent(self.packages);
        if let (false, Err(why)) = (absent.is_empty(), installed) {
            return Some(format!("the packages {} are missing: {why}", absent.join(" ")));
        }
        if self.needs_root && !is_root() {
            return Some("this is not root".into());
        }
        unavailable().map(Into::into)
    }
}

/// Builds and runs a matrix.
pub(crate) fn run(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::of(arguments);
    let (matrix, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "--strongswan" => ("strongswan-matrix", rest),
        _ => ("kernel-matrix", arguments),
    };
    let mut packages = vec!["casemate-interop"];
    let says = |option: &[&str; 2]| arguments.windows(2).any(|pair| pair == option);
    if says(&["--left", "firmware"]) {
        firmware::run(&[])?;
    } else if says(&["--peer", "smoltcp"]) || says(&["--left", "smoltcp"]) {
        packages.push("casemate-device");
    } else if arguments.iter().any(|word| word.starts_with("lwip")) {
        lwip::example(&["--memory"])?;
    } else if !WITHOUT_CASEMATE.iter().any(says) {
        packages.push("casemate-app");
    }
    shell::run(shell::command(programs.of_packages(&packages)?.join(matrix)).args(arguments))
}

/// Whether the guest's kernel is there already, so that apt-get is not needed for it.
pub(crate) fn has_kernel() -> bool {
    metadata::target_directory().is_ok_and(|target| target.join("interop/kernel").exists())
}

/// Why no matrix can run here, if so.
pub(crate) fn unavailable() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("guests and namespaces are for x86-64 Linux");
    }
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return Some("/dev/net/tun cannot be opened");
    }
    let root = shell::succeeds(shell::command("unshare").args(["--net", "true"]));
    let user =
        shell::succeeds(shell::command("unshare").args(["--user", "--map-root-user", "--net", "true"]));
    (!root && !user)
        .then_some("network namespaces cannot be made, neither as root nor through a user namespace")
}
