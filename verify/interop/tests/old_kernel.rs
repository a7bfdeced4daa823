//! Gateway on a kernel before 6.2, whose TUN interface does not accept coalesced UDP datagrams: every
//! datagram of a burst arrives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use casemate_interop::{Guest, GuestNetwork, Netns, build_images, with_probe};
use casemate_test_support::{Process, Program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Generous, because the guest is emulated and the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);
const COUNT: usize = 400;
const NFT: &str = "/usr/sbin/nft";
/// Kernel modules of the gateway. Modules that are built in or have another name are skipped.
const MODULES: &[&str] = &[
    "tun",
    "nf_tables",
    "nft_ct",
    "nft_fib",
    "nft_fib_inet",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "nft_socket",
    "nft_xfrm",
    "nft_reject_inet",
];
const TUNNEL: &str = "\
xfrm state add src 10.9.0.1 dst 10.9.0.2 proto esp spi 0x1001 mode tunnel replay-window 1024 \
aead 'rfc4106(gcm(aes))' 0x0123456789abcdef0123456789abcdef01234567 128
xfrm policy add src 10.99.1.1 dst 10.99.2.1 dir DIR tmpl src 10.9.0.1 dst 10.9.0.2 proto esp mode tunnel
";

/// Program without debug information, because the guest has little memory.
fn stripped(cache: &Path) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_probe")).with_file_name("casemate");
    let to = cache.join("gateway");
    fs::create_dir_all(&to).unwrap();
    let to = to.canonicalize().unwrap().join("casemate");
    let done = Command::new("strip").arg("-o").arg(&to).arg(&program).status();
    if !program.exists() || !done.is_ok_and(|status| status.success()) {
        casemate_test_support::skip(
            "needs the program casemate (cargo build -p casemate-app) and strip (binutils)",
        );
        return None;
    }
    Some(to)
}

/// Starts the sending gateway in the namespace.
fn gateway(netns: &Netns, program: &Path, cache: &Path) -> Process {
    let file = |name: &str| cache.join(format!("old-kernel-{name}.{}", std::process::id()));
    fs::write(file("xfrm"), TUNNEL.replace("DIR", "out")).unwrap();
    let program = Program::from(netns.command(program)).args(["run", "--xfrm"]).arg(file("xfrm"));
    let program = program.arg("--counters").arg(file("counters")).log_to(&file("log"));
    let mut running = program.start();
    running.wait_for_line("ready", LIMIT);
    for name in ["xfrm", "log", "counters"] {
        let _ = fs::remove_file(file(name));
    }
    running
}

#[test]
fn gateway_on_an_old_kernel_delivers_each_datagram_of_a_burst() {
    let needed = ["/usr/bin/qemu-system-x86_64", "/bin/busybox", NFT];
    if let Some(absent) = needed.iter().find(|program| !Path::new(program).exists()) {
        return casemate_test_support::skip(format!("needs {absent} (cargo xtask test installs it)"));
    }
    let Ok(netns) = Netns::new() else {
        return casemate_test_support::skip("cannot create a network namespace");
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../interop");
    fs::create_dir_all(&cache).unwrap();
    let Some(program) = stripped(&cache) else { return };
    let content = with_probe(Path::new(env!("CARGO_BIN_EXE_probe"))).unwrap();
    let content = content.with_modules(MODULES).with_programs("gateway", [program.clone(), NFT.into()]);
    let images = build_images(&cache, &content).unwrap();
    netns
        .ip("tuntap add dev tap0 mode tap\nlink set tap0 up\naddr add 10.9.0.1/24 dev tap0\naddr add 10.99.1.1/32 dev lo\n\
             link set lo up\nneigh add 10.9.0.2 lladdr 52:54:00:09:00:02 dev tap0\n")
        .unwrap();
    let console = cache.join(format!("console-old-kernel.{}", std::process::id()));
    let spec = GuestNetwork { netns: &netns, tap: "tap0", mac: "52:54:00:09:00:02" };
    let mut guest = Guest::boot(&images, spec, &console).unwrap();
    let release = guest.check("uname -r", LIMIT).unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0u32));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 2) {
        casemate_test_support::skip(format!(
            "the guest has kernel {release}, which accepts coalesced UDP; the test needs 6.1"
        ));
    }
    let name = program.display();
    let start = format!(
        "ip addr add 10.9.0.2/24 dev eth0; ip addr add 10.99.2.1/32 dev lo; mkdir -p /run /tmp\n\
         echo 4194304 >/proc/sys/net/core/rmem_default\n\
         cat >/tmp/xfrm <<'END'\n{}END\n\
         setsid {name} run --xfrm /tmp/xfrm >/tmp/log 2>&1 </dev/null &\n\
         echo $! >/tmp/pid; n=0\n\
         until grep -qx ready /tmp/log; do n=$((n+1)); [ $n -lt 400 ] || break; usleep 100000; done\n\
         grep -qx ready /tmp/log || {{ cat /tmp/log; exit 1; }}\n\
         setsid probe gather 10.99.2.1 {COUNT} >/tmp/arrived 2>&1 </dev/null &\n\
         until netstat -uln | grep -q ':9 '; do usleep 50000; done\n\
         kill -STOP $(cat /tmp/pid)",
        TUNNEL.replace("DIR", "in")
    );
    let _sender = gateway(&netns, &program, &cache);
    guest.check(&start, LIMIT).unwrap();
    let count = COUNT.to_string();
    let probe = Program::from(netns.command(Path::new(env!("CARGO_BIN_EXE_probe"))));
    let burst = probe.args(["burst", "10.99.1.1", "10.99.2.1", &count]).limit(LIMIT).output();
    assert!(burst.status.success(), "{}", String::from_utf8_lossy(&burst.stderr));
    // The datagrams wait at the stopped gateway of the guest. It then reads them in batches, and coalesces
    // its writes where possible.
    let end = format!(
        "n=0; until [ $(awk '/eth0:/{{print $3}}' /proc/net/dev) -ge {COUNT} ]; do n=$((n+1)); [ $n -lt 100 ] || break; usleep 50000; done\n\
         kill -CONT $(cat /tmp/pid); n=0\n\
         until grep -q arrived /tmp/arrived; do n=$((n+1)); [ $n -lt 400 ] || break; usleep 50000; done\n\
         cat /tmp/arrived /tmp/log; {name} status --json"
    );
    let output = guest.check(&end, LIMIT).unwrap();
    assert!(output.contains(&format!("{COUNT} of {COUNT} arrived")), "{output}");
    assert!(output.replace(' ', "").contains("\"rejected_joined_writes\":0"), "{output}");
    fs::remove_file(console).unwrap();
}
