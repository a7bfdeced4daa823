//! What the demo needs of the system: `nft`, namespaces and TUN interfaces. Each error names ways to get it.

use crate::failure::Failure;
use crate::output::print;
use casemate_linux::nft;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const APT_GET: &str = "/usr/bin/apt-get";
const ENV: &str = "env";
/// Waits while another apt-get runs, as a fresh machine does by itself after its start.
const LOCK_TIMEOUT: &str = "DPkg::Lock::Timeout=60";

/// Makes sure that `nft` is installed, because `casemate run` does not start without it. If it is missing
/// and `install` is set, installs Debian's package, which needs root or sudo without a password.
pub(super) fn ensure_nft(install: bool) -> Result<(), Failure> {
    let Err(missing) = nft::check_installed() else { return Ok(()) };
    let missing = Failure::failed(format!(
        "the demo needs the program that loads packet filters:\n  {missing}\n\
         Install it, on Debian and Ubuntu with `sudo apt-get install nftables`"
    ));
    if !install || !Path::new(APT_GET).exists() {
        return Err(missing);
    }
    let Some(prefix) = privilege() else { return Err(missing) };
    print("nft is missing. Installing Debian's package nftables with apt-get (--no-install prevents it).\n")?;
    // The lists of a fresh machine are empty. Old lists may suffice, so only the installation has to succeed.
    let _ = apt_get(prefix, &["update"]);
    apt_get(prefix, &["install", "--yes", "--no-install-recommends", "nftables"])
        .map_err(|reason| missing.clone().with_line(&format!("apt-get failed: {reason}")))?;
    nft::check_installed().map_err(|_| missing)?;
    print("\n")
}

/// The words before `apt-get`: none for root, sudo if it asks for no password. `None` if neither works.
fn privilege() -> Option<&'static [&'static str]> {
    // The effective user owns this directory.
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Some(&[]);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sudo.status().is_ok_and(|status| status.success()).then_some(&["sudo", "-n"])
}

/// Runs apt-get, whose output is shown only if it fails.
fn apt_get(prefix: &[&str], arguments: &[&str]) -> Result<(), String> {
    let mut command = match prefix {
        [] => Command::new(ENV),
        [program, options @ ..] => {
            let mut command = Command::new(program);
            command.args(options).arg(ENV);
            command
        }
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", APT_GET, "-q", "-o", LOCK_TIMEOUT]).args(arguments);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()))
}

pub(super) fn no_namespaces(error: &casemate_linux::Error) -> Failure {
    Failure::failed(format!(
        "the demo needs its own network namespaces, and the system refused them:\n  {error}\n\
         Try one of these:\n  \
         run it as root: `sudo casemate demo`\n  \
         in a container without root: `--user 1000 --cap-add NET_ADMIN,NET_RAW --device /dev/net/tun`\n  \
         in another container: `--cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun`, or `--privileged`\n  \
         allow user namespaces: `sysctl -w user.max_user_namespaces=10000`; on Debian also\n    \
         `kernel.unprivileged_userns_clone=1`, on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0`"
    ))
}

/// Checks for TUN before Casemate starts, because Casemate's own message does not help a user who is root
/// only in the user namespace.
pub(super) fn check_tun_access() -> Result<(), Failure> {
    const DEVICE: &str = "/dev/net/tun";
    let opened = fs::File::options().read(true).write(true).open(DEVICE);
    opened.map(drop).map_err(|error| {
        Failure::failed(format!(
            "the demo needs TUN interfaces, and the system refused them:\n  {DEVICE}: {error}\n\
             Try one of these:\n  \
             run it as root: `sudo casemate demo`\n  \
             let all users open the device, as on most systems: `chmod 0666 {DEVICE}`\n  \
             in a container: `--device {DEVICE}`; on the host itself: `modprobe tun`"
        ))
    })
}
