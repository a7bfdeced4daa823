//! The templates for cloud gateways (docs/manual/cloud) against charon with the documented parameters of each
//! provider: its proposals, lifetimes, identities, and traffic selectors for all addresses. The providers
//! themselves are not tested.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_test_support::{Program, TempDir};
use charon::Charon;
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use testnet::{Host, Side, TestNet, WIRE};

/// A template, and the gateway of its provider.
struct Provider {
    name: &'static str,
    /// Identity of this host towards each tunnel.
    customers: [&'static str; 2],
    /// Everything that the provider accepts, in the notation of strongSwan.
    ike: &'static str,
    esp: &'static str,
    /// Lifetimes of the provider in seconds: IKE SA and Child SA.
    lifetimes: [u32; 2],
    dpd_delay: u32,
    /// What is negotiated.
    negotiated: [&'static str; 2],
}

const CUSTOMER: &str = "192.0.2.1";

/// "Tunnel options for your AWS Site-to-Site VPN connection", with the default values of each option.
const AWS: Provider = Provider {
    name: "aws",
    customers: [CUSTOMER; 2],
    ike: "aes128-aes256-sha1-sha256-sha384-sha512-modp2048-modp4096-ecp256-ecp384-ecp521",
    esp: "aes128gcm16-aes256gcm16-modp2048-ecp256-ecp384-ecp521",
    lifetimes: [28_800, 3_600],
    dpd_delay: 10,
    negotiated: ["aes256-sha384-ecp384", "aes256gcm16"],
};

/// "Configure custom IPsec/IKE connection policies" of Azure: one policy, without alternatives.
const AZURE: Provider = Provider {
    name: "azure",
    customers: [CUSTOMER; 2],
    ike: "aes256-sha384-ecp384",
    esp: "aes256gcm16-ecp384",
    lifetimes: [28_800, 27_000],
    dpd_delay: 45,
    negotiated: ["aes256-sha384-ecp384", "aes256gcm16"],
};

/// "Supported IKE ciphers" of Google Cloud VPN: the table for combined-mode ciphers.
const GOOGLE: Provider = Provider {
    name: "google",
    customers: [CUSTOMER; 2],
    ike: "aes128gcm16-aes192gcm16-aes256gcm16-prfaesxcbc-prfaescmac-prfsha1-prfsha256-prfsha384-prfsha512-modp2048-\
          modp3072-modp4096-ecp256-ecp384-ecp521-curve25519",
    esp: "aes128gcm16-aes256gcm16-aes192gcm16-modp2048-modp3072-modp4096-ecp256-ecp384-ecp521-curve25519",
    lifetimes: [36_000, 10_800],
    dpd_delay: 20,
    negotiated: ["aes256gcm16-prfsha384-ecp384", "aes256gcm16"],
};

/// "GRE and IPsec tunnels" of Cloudflare Magic WAN: the classical methods, no ESN.
const CLOUDFLARE: Provider = Provider {
    name: "cloudflare",
    customers: ["tunnel1.account.ipsec.cloudflare.com", "tunnel2.account.ipsec.cloudflare.com"],
    ike: "aes128gcm16-aes256gcm16-prfsha256-prfsha384-prfsha512-ecp384-modp2048-modp1536",
    esp: "aes128gcm16-aes256gcm16-ecp384-modp2048-modp1536-noesn",
    lifetimes: [86_400, 28_800],
    dpd_delay: 20,
    negotiated: ["aes256gcm16-prfsha384-ecp384", "aes256gcm16"],
};

/// "About VPN devices and IPsec/IKE parameters" of Azure: the default policy of a route-based gateway, which
/// has one group for IKE.
const AZURE_DEFAULT: Provider = Provider {
    ike: "aes256-aes128-3des-sha1-sha256-modp1024",
    esp: "aes256gcm16,aes256-aes128-3des-sha1-sha256",
    negotiated: ["aes256-sha256-modp1024", "aes256gcm16"],
    ..AZURE
};

const PROVIDERS: [&Provider; 4] = [&AWS, &AZURE, &GOOGLE, &CLOUDFLARE];

/// Addresses of the two tunnels of the provider.
const GATEWAYS: [&str; 2] = ["192.0.2.2", "192.0.2.3"];

impl Provider {
    /// The template as it is published.
    fn template(&self) -> String {
        let path = templates().join(self.name).with_extension("conf");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The template for the hosts of the test, which replaces what its first comment names.
    fn filled_in(&self) -> String {
        let template = self.template();
        let filled_in = template
            .replace("198.51.100.10", GATEWAYS[0])
            .replace("198.51.100.20", GATEWAYS[1])
            .replace("203.0.113.1", CUSTOMER);
        assert_ne!(filled_in, template);
        filled_in
    }

    /// The secret of a tunnel in the template: the first one, or the second one if there are two.
    fn secret(&self, tunnel: usize) -> String {
        let template = self.template();
        let secrets: Vec<&str> =
            template.lines().filter_map(|line| line.trim().strip_prefix("secret = ")).collect();
        secrets.get(tunnel).or(secrets.first()).unwrap().to_string()
    }

    /// The gateway of the provider as a `swanctl.conf` of charon: a route-based tunnel for each address.
    fn gateway(&self) -> String {
        let [ike_life, child_life] = self.lifetimes;
        let mut conf = String::new();
        for (tunnel, own) in GATEWAYS.iter().enumerate() {
            let (customer, secret) = (self.customers[tunnel], self.secret(tunnel));
            conf += &format!(
                "connections {{\n tunnel{tunnel} {{\n local_addrs = {own}\n remote_addrs = %any\n version = 2\n proposals = {}\n \
                 rekey_time = {ike_life}s\n dpd_delay = {}s\n mobike = no\n \
                 local {{\n auth = psk\n id = {own}\n }}\n remote {{\n auth = psk\n id = {customer}\n }}\n \
                 children {{\n vpc{tunnel} {{\n local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0\n esp_proposals = {}\n \
                 life_time = {child_life}s\n dpd_action = clear\n }}\n }}\n }}\n}}\n\
                 secrets {{\n ike-{tunnel} {{\n id-1 = {own}\n id-2 = {customer}\n secret = {secret}\n }}\n}}\n",
                self.ike, self.dpd_delay, self.esp,
            );
        }
        conf
    }
}

fn templates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/cloud")
}

/// Both hosts, the right one with a second address. Its inner address is in the network of the cloud.
fn net(test: &str) -> Option<TestNet> {
    let net = TestNet::build(test)?;
    let second: IpAddr = GATEWAYS[1].parse().unwrap();
    net.right
        .run(|| {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(WIRE)?.index;
            netlink.add_address(wire, second, 24)
        })
        .unwrap();
    Some(net)
}

/// The established IKE SAs that have an installed Child SA.
fn tunnels(status: &Value) -> Vec<&Value> {
    let has_child =
        |sa: &&Value| sa["children"].as_array().unwrap().iter().any(|c| c["state"] == "installed");
    let sas = status["ike_sas"].as_array().unwrap().iter();
    sas.filter(|sa| sa["state"] == "established").filter(has_child).collect()
}

fn wait_for_tunnels(host: &Host, count: usize) -> Value {
    host.wait_until(|status| tunnels(status).len() == count);
    host.status()
}

/// SPIs of the IKE SAs with tunnels, and of their Child SAs for the network of the cloud.
fn spis(status: &Value) -> Vec<String> {
    let has_network = |child: &&Value| child["state"] == "installed" && child["local_ts"][0] == "10.1.0.0/16";
    let of = |sa: &Value| {
        let children = sa["children"].as_array().unwrap().iter().filter(has_network);
        let spis = children.map(|child| child["spi_in"].as_str().unwrap().to_owned());
        spis.chain([sa["spi_i"].as_str().unwrap().to_owned()]).collect::<Vec<_>>()
    };
    tunnels(status).into_iter().flat_map(of).collect()
}

/// Both tunnels of a provider come up with the intended algorithms, carry packets, and are rekeyed by either
/// side.
fn negotiates(provider: &Provider) {
    negotiates_with(provider, &provider.filled_in());
}

fn negotiates_with(provider: &Provider, conf: &str) {
    let Some(net) = net(&format!("cloud_{}", provider.name)) else { return };
    let Some(gateway) = Charon::start(&net.right, &provider.gateway()) else { return };
    let running = net.left.run_config(conf, None);
    let status = wait_for_tunnels(&net.left, 2);
    for sa in tunnels(&status) {
        let child = &sa["children"][0];
        assert_eq!([&sa["proposal"], &child["proposal"]], provider.negotiated.map(Value::from).each_ref());
        assert_eq!(child["esn"], false);
        assert_eq!(child["local_ts"][0], "10.1.0.0/16", "{status:#}");
    }
    let cloud = Side::Right.inner(true);
    assert!(net.left.pings(cloud, 1_300), "{}\n{}", running.log(), gateway.log());
    assert!(net.right.pings(Side::Left.inner(true), 8), "{}\n{}", running.log(), gateway.log());
    for tunnel in 0..2 {
        gateway.swanctl.output(&["--rekey", "--child", &format!("vpc{tunnel}")]);
        gateway.swanctl.output(&["--rekey", "--ike", &format!("tunnel{tunnel}")]);
    }
    let before = spis(&status);
    net.left.wait_until(|status| {
        let now = spis(status);
        now.len() == before.len() && now.iter().all(|spi| !before.contains(spi))
    });
    let status = wait_for_tunnels(&net.left, 2);
    assert!(net.left.pings(cloud, 8), "{status:#}\n{}\n{}", running.log(), gateway.log());
}

#[test]
fn aws() {
    negotiates(&AWS);
}

#[test]
fn azure() {
    negotiates(&AZURE);
}

/// The two lines that the manual names for a connection without a custom policy.
#[test]
fn azure_with_the_default_policy() {
    let conf = AZURE.filled_in();
    let conf = conf.replace("proposals = aes256-sha384-ecp384", "proposals = aes256-sha256-modp1024");
    let conf = conf.replace("esp_proposals = aes256gcm16-ecp384", "esp_proposals = aes256gcm16");
    negotiates_with(&AZURE_DEFAULT, &conf);
}

#[test]
fn google() {
    negotiates(&GOOGLE);
}

#[test]
fn cloudflare() {
    negotiates(&CLOUDFLARE);
}

/// The address for health checks must not become that of all packets of the gateway.
#[test]
fn packets_of_the_gateway_have_an_address_of_the_site() {
    let Some(net) = net("cloud_source") else { return };
    net.left.stdout_of("ip", &["address", "add", "172.64.240.252/32", "dev", "lo"]);
    let _running = net.left.run_config(&CLOUDFLARE.filled_in(), None);
    let route = net.left.stdout_of("ip", &["route", "get", "203.0.113.9"]);
    assert!(route.contains("src 10.1.0.1 "), "{route}");
}

/// The provider ends one tunnel, as for maintenance: packets take the remaining tunnel, and the
/// ended one is set up again.
#[test]
fn traffic_takes_the_other_tunnel() {
    let Some(net) = net("cloud_failover") else { return };
    let Some(gateway) = Charon::start(&net.right, &AWS.gateway()) else { return };
    let running = net.left.run_config(&AWS.filled_in(), None);
    wait_for_tunnels(&net.left, 2);
    let cloud = Side::Right.inner(true);
    for tunnel in ["tunnel0", "tunnel1"] {
        gateway.swanctl.output(&["--terminate", "--ike", tunnel]);
        assert!(net.left.pings(cloud, 8), "after {tunnel}: {}\n{}", running.log(), gateway.log());
        wait_for_tunnels(&net.left, 2);
        assert!(net.left.pings(cloud, 8), "{tunnel} is back: {}\n{}", running.log(), gateway.log());
    }
}

#[test]
fn templates_load_without_a_warning() {
    let scratch = TempDir::new("cloud-templates").unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(templates()).unwrap() {
        let from = entry.unwrap().path();
        // The template in the tree is readable for everyone, a file with a secret must not be.
        let path = scratch.path().join(from.file_name().unwrap());
        fs::copy(&from, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--dry-run", "--config"]);
        let output = program.arg(&path).output();
        let errors = casemate_test_support::warnings_of_example(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{}: {errors}", from.display());
        names.push(from.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert!(PROVIDERS.iter().all(|provider| names.iter().any(|name| name == provider.name)), "{names:?}");
}
