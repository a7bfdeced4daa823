//! Examines the packages: the unit with systemd-analyze, the package with lintian and in a new Debian root,
//! where systemd runs the service, and the demo in a container without root.

use super::tree::{Tree, set_mode};
use super::{renew, text};
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The highest exposure of the unit that is accepted, in tenths (systemd-analyze(1)).
const EXPOSURE: &str = "30";
/// The tests of the service in a container, in this order.
const SERVICE_TESTS: [&str; 2] = ["service.sh", "name-servers.sh"];
/// Debian packages of the root besides the minimum: those that the package depends on, and those that manage
/// the name servers of a host.
const ROOT_PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,nftables,libipsec-mb1,passwd,\
                             systemd-resolved,libpam-systemd,polkitd";
/// Files that package managers and logs change in a root.
const VOLATILE: &str = r"^\./(proc|sys|dev|run|tmp|var/(log|cache|tmp)|var/lib/(dpkg|apt|systemd/(linger|timers)))(/| )|^\./etc/[^ ]*- ";

/// Checks the unit without other packages: its syntax and its exposure.
pub(super) fn unit(tree: &Tree) -> Result {
    let root = format!("--root={}", tree.root().display());
    let mut verify = shell::command("systemd-analyze");
    let output =
        verify.args(["verify", "--man=no", "--recursive-errors=no", &root, "casemate.service"]).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !messages.trim().is_empty() {
        return Err(Failure::new(format!("systemd-analyze verify: {}\n{messages}", output.status)));
    }
    let unit = tree.root().join("usr/lib/systemd/system/casemate.service");
    let threshold = format!("--threshold={EXPOSURE}");
    let listed =
        text(shell::command("systemd-analyze").args(["security", "--offline=true", &threshold]).arg(unit))?;
    println!("{}", listed.lines().last().unwrap_or_default());
    Ok(())
}

/// Runs all checks.
pub(super) fn all(tree: &Tree, package: &Path, image: &Path) -> Result {
    unit(tree)?;
    shell::run(
        shell::command("lintian")
            .args(["--fail-on", "error,warning", "--tag-display-limit", "0"])
            .arg(package),
    )?;
    container(image)?;
    let root = package.with_file_name("debian");
    let result = in_new_root(&root, package);
    // The root belongs to several users; `cargo clean` as another one could not remove it.
    fs::remove_dir_all(&root)?;
    result
}

/// Runs the demo in a user namespace with the capabilities and the device of a container.
fn container(image: &Path) -> Result {
    let mut command = shell::command("bwrap");
    // As root of the container, the demo would need CAP_SETFCAP for a user namespace of its own.
    command.args(["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-net", "--unshare-pid"]);
    command.arg("--ro-bind").arg(image).arg("/");
    command.args(["--dev", "/dev", "--dev-bind", "/dev/net/tun", "/dev/net/tun", "--proc", "/proc"]);
    command.args(["--tmpfs", "/run", "--tmpfs", "/tmp", "--cap-drop", "ALL"]);
    command.args(["--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_NET_RAW"]);
    shell::run(command.args(["/usr/bin/casemate", "demo", "--no-install"]))
}

/// Installs the package in a new root, runs the service there, and removes the package.
fn in_new_root(root: &Path, package: &Path) -> Result {
    renew(root)?;
    make_root(root)?;
    let before = files(root)?;
    let deb = root.join("casemate.deb");
    fs::copy(package, &deb)?;
    shell::run(in_root(root).args(["dpkg", "--install", "/casemate.deb"]))?;
    let copy = "/tmp/example.conf";
    let example = "/usr/share/doc/casemate/examples/site-to-site.conf";
    let run =
        format!("install -m 600 {example} {copy} && casemate run --dry-run --config {copy} && rm {copy}");
    let planned = text(in_root(root).args(["sh", "-c", &run]))?;
    if !planned.contains("# connection office: 192.0.2.1 -> 192.0.2.2") {
        return Err(Failure::new(format!("the dry run of {example} printed\n{planned}")));
    }
    run_service(root)?;
    fs::remove_file(deb)?;
    shell::run(in_root(root).args(["dpkg", "--purge", "casemate"]))?;
    let after = files(root)?;
    let left: Vec<String> = after.difference(&before).cloned().collect();
    Failure::unless_empty(&left, "the package has left these files")?;
    let missing: Vec<String> = before.difference(&after).cloned().collect();
    Failure::unless_empty(&missing, "the package has removed these files of others")
}

/// Boots systemd in the root and runs the tests of the service.
fn run_service(root: &Path) -> Result {
    for test in SERVICE_TESTS {
        fs::copy(shell::root().join("packaging/tests").join(test), root.join(test))?;
    }
    let units = root.join("etc/systemd/system");
    let unit = units.join("service-test.service");
    // The result of the test is the output: a container that is not registered returns no status.
    let content = "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nTimeoutStartSec=180\n\
                   ExecStart=/bin/bash -c '(bash /service.sh && bash /name-servers.sh) >/service.log 2>&1'\n\
                   ExecStopPost=/bin/systemctl poweroff --no-block\n";
    fs::write(&unit, content)?;
    let wants = units.join("multi-user.target.wants/service-test.service");
    std::os::unix::fs::symlink("../service-test.service", &wants)?;
    // A hang is noticed after 3 seconds instead of 30.
    let settings = units.join("casemate.service.d");
    fs::create_dir_all(&settings)?;
    fs::write(settings.join("test.conf"), "[Service]\nWatchdogSec=3\n")?;
    let mut boot = shell::command("timeout");
    boot.args(["--kill-after=10", "240", "systemd-nspawn", "--quiet", "--boot", "--private-network"]);
    // The file of the root leads to systemd-resolved.
    boot.arg("--resolv-conf=off");
    // nspawn forbids by itself what a host allows: programs for queues, and locked memory.
    boot.args(["--system-call-filter=bpf @memlock", "--capability=CAP_NET_ADMIN,CAP_BPF"]);
    boot.args(["--bind=/dev/net/tun", "--register=no", "--keep-unit", "--directory"]);
    let booted = shell::succeeds(boot.arg(root));
    let log = fs::read_to_string(root.join("service.log")).unwrap_or_default();
    println!("{log}");
    let tests = SERVICE_TESTS.map(|test| root.join(test));
    for path in [unit, wants, settings.join("test.conf"), root.join("service.log")].into_iter().chain(tests) {
        fs::remove_file(path)?;
    }
    fs::remove_dir(settings)?;
    let _ = fs::remove_file(root.join("etc/casemate/conf.d/office.conf"));
    if log.trim_end().ends_with("name servers: passed") {
        return Ok(());
    }
    let how = if booted { "the test of the service failed" } else { "the container did not end by itself" };
    Err(Failure::new(how))
}

/// Makes a Debian root of this machine's release, from the archive that apt uses.
fn make_root(root: &Path) -> Result {
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or_else(|| Failure::new("/etc/os-release: no VERSION_CODENAME"))?;
    let format = "$(CODENAME) $(COMPONENT) $(REPO_URI)";
    let archives =
        text(shell::command("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let prefix = format!("{suite} main ");
    let archive = archives.lines().find_map(|line| line.strip_prefix(&prefix));
    let archive = archive.ok_or_else(|| Failure::new(format!("apt has no archive with {suite} main")))?;
    let include = format!("--include={ROOT_PACKAGES}");
    println!("Making a Debian root with debootstrap");
    // The output names the archive.
    let mut command = shell::command("debootstrap");
    text(command.args(["--variant=minbase", &include, suite]).arg(root).arg(archive)).map(drop)?;
    set_mode(root, 0o755)
}

/// A command in the root.
fn in_root(root: &Path) -> Command {
    let mut command = shell::command("systemd-nspawn");
    command
        .args(["--quiet", "--register=no", "--keep-unit", "--as-pid2", "--private-network", "--directory"])
        .arg(root);
    command.arg("--pipe");
    command
}

/// The files of the root with their owners and permissions, and the names of its users and groups.
fn files(root: &Path) -> Result<std::collections::BTreeSet<String>> {
    let list = format!(
        "find . -xdev -printf '%p %u %g %m\\n' | grep -vE '{VOLATILE}'; sed 's/:.*//' etc/passwd etc/group"
    );
    let listed = text(shell::command("sh").args(["-c", &list]).current_dir(root))?;
    Ok(listed.lines().map(str::to_owned).collect())
}
