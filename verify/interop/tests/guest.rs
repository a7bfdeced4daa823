//! Boots the guest, runs scripts, and stops scripts that exceed their time limit.

use casemate_interop::{Guest, GuestNetwork, Netns, build_images, with_probe};
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn guest_boots_and_runs_scripts() {
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() || !Path::new("/bin/busybox").exists() {
        casemate_test_support::skip(
            "needs qemu-system-x86 and busybox-static (cargo xtask test installs them)",
        );
        return;
    }
    let Ok(netns) = Netns::new() else {
        casemate_test_support::skip("cannot create a network namespace");
        return;
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../interop");
    let images = build_images(&cache, &with_probe(Path::new(env!("CARGO_BIN_EXE_probe"))).unwrap()).unwrap();
    netns.ip("tuntap add dev tap0 mode tap\nlink set tap0 up\naddr add 10.9.0.1/24 dev tap0\n").unwrap();
    let console = cache.join(format!("console.{}", std::process::id()));
    let spec = GuestNetwork { netns: &netns, tap: "tap0", mac: "52:54:00:09:00:02" };
    let start = Instant::now();
    let mut guest = Guest::boot(&images, spec, &console).unwrap();
    println!("booted in {:?}", start.elapsed());

    assert_eq!(guest.check("echo hello; ip xfrm state", LIMIT).unwrap(), "hello\n");
    assert_eq!(guest.run("exit 3", LIMIT).unwrap().status, 3);
    assert_eq!(guest.run("sleep 60", Duration::from_millis(200)).unwrap().status, 124);
    let start = Instant::now();
    guest.check("sleep 1", LIMIT).unwrap();
    assert!(start.elapsed() > Duration::from_millis(950), "the clock of the guest is too fast");
    guest.check("ip addr add 10.9.0.2/24 dev eth0", LIMIT).unwrap();
    let start = Instant::now();
    let answer = guest.check("probe ping 10.9.0.2 10.9.0.1 1 9000", LIMIT).unwrap();
    println!("{answer} {:?}", start.elapsed());
    assert!(
        guest.run("probe ping 10.9.0.2 10.9.0.77 1", LIMIT).unwrap().stdout.contains("no reply to 1 bytes")
    );
    std::fs::remove_file(console).unwrap();
}
