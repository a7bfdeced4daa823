//! The addresses in the sandbox of an instance: they are opened before it is entered, and used inside.

use super::super::frames;
use super::*;
use crate::sandbox;

/// Runs in a process of its own, because a sandbox cannot be left.
#[test]
#[ignore = "addresses_move_in_the_sandbox starts it as a process of its own"]
fn runs_in_the_sandbox() {
    let Some(lan) = lan(2) else { return };
    let [host, other] = &lan.hosts[..] else { unreachable!() };
    let (injector, capture) = other.run(|| (injector(), capture())).unwrap();
    host.run(|| {
        let mut owner = open(Duration::from_secs(20));
        if !sandbox::enter().unwrap() {
            return casemate_test_support::skip("a seccomp filter: this kernel has none");
        }
        let refused = Command::new("true").status().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "the sandbox works");
        for round in 0..2 {
            let start = round * 100_000;
            let _ = announcements(&capture);
            owner.take(at(start)).unwrap();
            assert_eq!((present().len(), announcements(&capture).len()), (2, 2));
            let mac = MacAddress([2, 0, 0, 0, 0, 0x99]);
            injector.send(&frames::arp_announcement([192, 0, 2, 1].into(), mac)).unwrap();
            let expected = vec![("192.0.2.1".to_string(), mac)];
            let seen = casemate_test_support::eventually("the conflict is reported", || {
                Some(conflicts(owner.poll(at(start + 10)))).filter(|seen| !seen.is_empty())
            });
            assert_eq!(seen, expected);
            for millis in [100, 5_000, 10_000] {
                assert!(owner.poll(at(start + millis)).is_empty(), "extended and announced");
            }
            owner.give_up().unwrap();
            assert!(present().is_empty());
        }
    })
    .unwrap();
}

#[test]
fn addresses_move_in_the_sandbox() {
    if lan(1).is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "virtual_addresses::tests::sandboxed::runs_in_the_sandbox";
    command.args(["--ignored", "--exact", test, "--test-threads=1"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
