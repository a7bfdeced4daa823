//! `casemate run` on a client whose link goes away: it resumes its session (RFC 5723), without its password.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use serde_json::Value;
use std::net::IpAddr;
use testnet::{Host, Running, TestNet, WIRE, eventually};

const INNER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 1));

/// Configurations of a client with a password, and of its gateway.
fn confs(resumption: &str) -> [String; 2] {
    let conf = |connection: &str, local: &str, remote: &str, child: &str, eap: &str| {
        format!(
            "connections {{ t {{\n {connection}\n resumption = {resumption}\n path_mtu_probes = no\n\
             local {{ {local} }}\n\
             remote {{ {remote} }}\n children {{ c {{ {child} }} }} }} }}\n\
             pools {{ users {{ addrs = 10.9.0.0/24 }} }}\n\
             charon {{ retransmit_timeout = 0.5\n retransmit_base = 1\n retransmit_tries = 4 }}\n\
             secrets {{ ike {{ secret = \"a secret of the two\" }}\n\
             {eap} {{ id = carol\n secret = \"open sesame\" }} }}\n"
        )
    };
    [
        conf(
            "remote_addrs = 192.0.2.2\n vips = 0.0.0.0\n dpd_delay = 2s\n keyingtries = 0",
            "auth = eap-mschapv2\n id = carol",
            "auth = psk\n id = gateway",
            "remote_ts = 10.2.0.0/16\n start_action = start\n dpd_action = restart",
            "eap",
        ),
        conf(
            "pools = users",
            "auth = psk\n id = gateway",
            "auth = eap-mschapv2",
            "local_ts = 10.2.0.0/16",
            "eap",
        ),
    ]
}

/// The IKE SAs of a host: state, whether it is resumed, and virtual addresses.
fn ike_sas(status: &Value) -> Vec<(String, bool, Value)> {
    let sas = status["ike_sas"].as_array().unwrap();
    let of = |sa: &Value| {
        (sa["state"].as_str().unwrap().to_owned(), sa["resumed"].as_bool().unwrap(), sa["vips"].clone())
    };
    sas.iter().map(of).collect()
}

/// Number of UDP datagrams that a host has received.
fn datagrams(host: &Host) -> u64 {
    let counters = host.stdout_of("cat", &["/proc/net/snmp"]);
    let line = counters.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

struct Tunnel {
    net: TestNet,
    client: Running,
    gateway: Running,
}

impl Tunnel {
    fn set_up(test: &str, resumption: &str) -> Option<Self> {
        let net = TestNet::build(test)?;
        let [client, gateway] = confs(resumption);
        let gateway = net.right.run_config(&gateway, None);
        let client = net.left.run_config(&client, None);
        let tunnel = Self { net, client, gateway };
        tunnel.wait(1);
        Some(tunnel)
    }

    /// Waits until the tunnel carries traffic, in this IKE SA of the client.
    fn wait(&self, ike_sas: usize) {
        let established = || self.client.log().matches("established with").count();
        eventually("the tunnel is up", || established() >= ike_sas && self.net.left.pings_at_once(INNER, 8));
    }

    /// Takes the link of the client away until the client has noticed, and brings it back. Returns the number
    /// of datagrams that the gateway received until the tunnel was up again.
    fn lose_link(&self) -> u64 {
        let link = |state| drop(self.net.left.stdout_of("ip", &["link", "set", WIRE, state]));
        link("down");
        eventually("the client notices", || self.client.log().contains("the peer does not respond"));
        let before = datagrams(&self.net.right);
        link("up");
        self.wait(2);
        datagrams(&self.net.right) - before
    }

    fn logs(&self) -> String {
        format!("client: {}\ngateway: {}", self.client.log(), self.gateway.log())
    }
}

#[test]
fn a_client_whose_link_was_lost_resumes_its_session() {
    let Some(tunnel) = Tunnel::set_up("resume", "yes") else { return };
    let before = ike_sas(&tunnel.net.right.status());
    assert_eq!((before.len(), before[0].1), (1, false));
    let count = tunnel.lose_link();
    for host in [&tunnel.net.left, &tunnel.net.right] {
        let after = ike_sas(&host.status());
        assert_eq!(after, [("established".to_owned(), true, before[0].2.clone())], "{}", tunnel.logs());
    }
    for log in [tunnel.client.log(), tunnel.gateway.log()] {
        assert!(log.contains("resumes the session of"), "{log}");
    }
    println!("{count} datagrams with a ticket");
    // Besides IKE_SESSION_RESUME and IKE_AUTH there may be a check of the liveness.
    assert!((2..=3).contains(&count), "{count} datagrams\n{}", tunnel.logs());
    assert!(tunnel.client.stop().success() && tunnel.gateway.stop().success());
}

/// IKE_SA_INIT and four requests of IKE_AUTH with EAP-MSCHAPv2.
#[test]
fn without_tickets_the_client_authenticates_again() {
    let Some(tunnel) = Tunnel::set_up("no-resume", "no") else { return };
    let count = tunnel.lose_link();
    assert!(!tunnel.client.log().contains("resumes the session of"));
    println!("{count} datagrams without a ticket");
    assert!(count >= 5, "{count} datagrams\n{}", tunnel.logs());
    assert!(tunnel.client.stop().success() && tunnel.gateway.stop().success());
}
