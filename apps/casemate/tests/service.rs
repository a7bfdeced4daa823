//! `casemate run` as a service: what it reports to the service manager.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use testnet::TestNet;

const CONF: &str = "\
connections {
  office {
    local_addrs = 192.0.2.1
    remote_addrs = 192.0.2.2
    local { auth = psk }
    remote { auth = psk }
    children { nets { remote_ts = 10.2.0.0/16 } }
  }
}
secrets {
  ike {
    secret = \"a secret of these two hosts\"
  }
}
";

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    /// The next report, within 20 seconds.
    fn report(&self) -> String {
        let mut buffer = [0; 1_024];
        let len = self.0.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    /// The next report that is not one of the watchdog.
    fn change(&self) -> String {
        loop {
            let report = self.report();
            if report != "WATCHDOG=1" {
                return report;
            }
        }
    }
}

#[test]
fn the_service_manager_gets_every_change_and_signs_of_life() {
    let Some(net) = TestNet::build("the_service_manager_gets_every_change") else { return };
    let path = net.left.file("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    manager.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A report each second.
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "2000000")];
    let running = net.left.run_config_with_variables(CONF, &variables);
    let ready = "READY=1\nSTATUS=ready; `casemate status` shows SAs and policies";
    assert_eq!(manager.report(), ready);
    for _ in 0..3 {
        assert_eq!(manager.report(), "WATCHDOG=1");
    }
    assert!(net.left.casemate(&["reload"]).status.success());
    let reloading = manager.change();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.change(), ready);
    std::fs::write(net.left.file("conf"), "connections {").unwrap();
    assert!(!net.left.casemate(&["reload"]).status.success());
    assert!(manager.change().starts_with("RELOADING=1\n"));
    let failed = manager.change();
    assert!(
        failed.starts_with("READY=1\nSTATUS=ready; the last reload failed and changed nothing"),
        "{failed}"
    );
    assert!(running.stop().success());
    assert_eq!(manager.change(), "STOPPING=1");
}
