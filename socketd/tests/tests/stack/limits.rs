//! Limits of the server.

use crate::harness::Harness;

#[test]
fn limits_of_sockets_and_applications_are_enforced() {
    let Some(mut harness) =
        Harness::clear("full", &["--sockets", "40", "--applications", "3", "--buffer", "16"])
    else {
        return;
    };
    assert_eq!(harness.application("hoard", "").line(), "40 sockets, then QuotaExceeded");
    harness.server.await_line("application 1: ended");
    let mut idle = [harness.ready("idle", ""), harness.ready("idle", ""), harness.ready("idle", "")];
    let refused = casemate_socketd_client::Session::connect(harness.socket()).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::QuotaExceeded));
    idle[1].crash();
    harness.server.await_line("application 3: ended");
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 1_000);
    assert!(harness.server.stop());
    let summary = harness.server.await_line("casemate:");
    assert!(summary.starts_with("casemate: 5 applications, 1 refused, 0 violated the protocol"), "{summary}");
}

/// The interface goes down and up again. No process ends, and requests made meanwhile wait.
#[test]
fn the_stack_survives_an_interface_that_goes_down() {
    let Some(mut harness) = Harness::clear("stopped", &[]) else { return };
    let _echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 1_000);
    let switch = |word: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(["link", "set", "stack0", word]);
        assert!(harness.netns.spawn(&mut command).unwrap().wait().unwrap().success());
    };
    switch("down");
    let fetch = harness.application("fetch", "192.0.2.2:9000");
    assert_eq!(fetch.line(), "fetch: timed out");
    switch("up");
    harness.at_peer(|| {
        let mut netlink = casemate_linux::netlink::Netlink::open().unwrap();
        let link = netlink.link("stack0").unwrap();
        // The kernel may have kept the address.
        let _ = netlink.add_address(link.index, crate::harness::PEER, 24);
    });
    harness.echoes(7_000, 1_000);
    assert!(harness.server.stop());
}
