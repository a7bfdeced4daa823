//! What is full says so.

use crate::lab::Lab;

#[test]
fn sockets_and_applications_run_out() {
    let Some(mut lab) = Lab::clear("full", &["--sockets", "40", "--applications", "3", "--buffer", "16"])
    else {
        return;
    };
    assert_eq!(lab.application("hoard", "").line(), "40 sockets, then QuotaExceeded");
    lab.server.await_line("application 1: has ended");
    let mut idle = [lab.ready("idle", ""), lab.ready("idle", ""), lab.ready("idle", "")];
    let refused = casemate_shm::Stack::connect(lab.socket()).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::QuotaExceeded));
    idle[1].crash();
    lab.server.await_line("application 3: has ended");
    let _echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 1_000);
    assert!(lab.server.stop());
    let summary = lab.server.await_line("casemate:");
    assert!(summary.starts_with("casemate: 5 applications, 1 turned away, 0 broke the rules"), "{summary}");
}

/// The wire goes away and comes back; nobody ends, and what is asked for meanwhile waits.
#[test]
fn an_interface_that_stops_is_waited_for() {
    let Some(mut lab) = Lab::clear("stopped", &[]) else { return };
    let _echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 1_000);
    let switch = |word: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(["link", "set", "stack0", word]);
        assert!(lab.netns.spawn(&mut command).unwrap().wait().unwrap().success());
    };
    switch("down");
    let fetch = lab.application("fetch", "192.0.2.2:9000");
    assert_eq!(fetch.line(), "fetch: timed out");
    switch("up");
    lab.at_peer(|| {
        let mut netlink = casemate_linux::netlink::Netlink::open().unwrap();
        let link = netlink.link("stack0").unwrap();
        // The address may have stayed.
        let _ = netlink.add_address(link.index, crate::lab::PEER, 24);
    });
    lab.echoes(7_000, 1_000);
    assert!(lab.server.stop());
}
