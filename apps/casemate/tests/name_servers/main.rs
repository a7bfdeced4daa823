//! `casemate run` as a client that gets name servers: systemd-resolved, openresolv and /etc/resolv.conf use
//! them while the tunnel is up, and afterwards the former state is back, however the program ends.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../charon/mod.rs"]
mod charon;
mod client;
mod server;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../swanctl/mod.rs"]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;

use charon::Charon;
use client::{Client, Manager};
use server::with_server;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use testnet::{TestNet, eventually};

/// The name server, behind the gateway.
const SERVER: &str = "10.2.0.1";
const ORIGINAL: &str = "nameserver 192.0.2.53\n";

const SECRET: &str = "secrets { ike { secret = \"a secret of the two\" } }\n";

/// A gateway that assigns addresses and name servers, with more keys of its pool.
fn gateway(pool: &str, local_ts: &str) -> String {
    format!(
        "connections {{ t {{ local_addrs = 192.0.2.2\n pools = users\n\
         local {{ auth = psk\n id = gateway }}\n remote {{ auth = psk }}\n\
         children {{ c {{ local_ts = {local_ts} }} }} }} }}\n\
         pools {{ users {{ addrs = 10.9.0.0/24\n {pool} }} }}\n{SECRET}"
    )
}

/// The connection `name` of a client, with more keys.
fn connection(name: &str, remote_ts: &str, more: &str) -> String {
    format!(
        "connections {{ {name} {{ remote_addrs = 192.0.2.2\n vips = 0.0.0.0\n {more}\n\
         local {{ auth = psk\n id = {name} }}\n remote {{ auth = psk\n id = gateway }}\n\
         children {{ {name} {{ remote_ts = {remote_ts}\n start_action = start }} }} }} }}\n"
    )
}

fn client(more: &str) -> String {
    connection("c", "10.2.0.0/16", more) + SECRET
}

const SPLIT: &str = "dns = 10.2.0.1\n dns_domains = corp.example";

#[test]
fn systemd_resolved_asks_the_tunnel_for_its_domains_and_forgets_it_after_a_kill() {
    let Some(net) = TestNet::build("name-servers") else { return };
    let Some(host) = Client::new(&net.left, Manager::SystemdResolved) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let domains = || host.stdout("resolvectl", &["domain", "casemate0"]);
    let servers = || host.stdout("resolvectl", &["dns", "casemate0"]);
    with_server(&net.right, SERVER, |queries| {
        let running = host.run(&client(""));
        host.wait_for(&[SERVER], &["corp.example"]);
        assert_eq!(domains().trim_end(), "Link 3 (casemate0): ~corp.example");
        assert!(servers().trim_end().ends_with("(casemate0): 10.2.0.1"), "{}", servers());
        let found = host.stdout("resolvectl", &["query", "host.corp.example"]);
        assert!(found.contains("10.2.0.99") && found.contains("link: casemate0"), "{found}");
        assert!(!host.output("resolvectl", &["query", "bank.example"]).status.success());
        let names = queries.lock().unwrap().clone();
        assert!(names.iter().all(|name| name == "host.corp.example"), "{names:?}");

        running.crash();
        eventually("the settings end with the process", || servers().is_empty());
        assert_eq!(host.stdout("resolvectl", &["domain"]).matches("example").count(), 0);

        let running = host.run(&client(""));
        host.wait_for(&[SERVER], &["corp.example"]);
        assert!(domains().contains("~corp.example"));
        let log = running.log();
        assert!(log.contains("in use: 10.2.0.1 for corp.example (systemd-resolved)"), "{log}");
        assert!(host.casemate(&["terminate", "c"]).status.success());
        host.wait_for(&[], &[]);
        assert!(!domains().contains("example"), "the interface has none: {}", domains());
        assert!(running.stop().success());
    });
}

/// Otherwise the name servers of the tunnel would outlive it.
#[test]
fn the_end_of_the_process_that_changes_name_servers_ends_the_run() {
    let Some(net) = TestNet::build("dns-runner") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let contents = || fs::read_to_string(host.resolv_conf()).unwrap();
    let mut running = host.run(&client(""));
    host.wait_for(&[SERVER], &["corp.example"]);
    let is_runner = |pid: &u32| {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        file("cmdline").contains("internal-dns-runner")
            && file("status").contains(&format!("\nPPid:\t{}\n", running.pid()))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runner = pids.find(is_runner).unwrap();
    net.left.stdout_of("kill", &["-KILL", &runner.to_string()]);
    assert_eq!(running.wait().code(), Some(1), "{}", running.log());
    assert!(running.log().contains("it has ended"), "{}", running.log());
    assert!(contents().contains(SERVER), "{}", contents());
    let running = host.run(&client("").replace("= start", "= none"));
    assert_eq!(contents(), ORIGINAL, "the next start restores it");
    assert!(running.stop().success());
}

#[test]
fn the_file_comes_back_however_the_program_ends() {
    let Some(net) = TestNet::build("resolv-conf") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let path = host.resolv_conf();
    let contents = || fs::read_to_string(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let before = fs::metadata(&path).unwrap();
    with_server(&net.right, SERVER, |_| {
        let running = host.run(&client(""));
        host.wait_for(&[SERVER], &["corp.example"]);
        assert!(contents().ends_with("\nnameserver 10.2.0.1\nsearch corp.example\n"), "{}", contents());
        let found = host.stdout("getent", &["ahostsv4", "host.corp.example"]);
        assert!(found.starts_with("10.2.0.99"), "{found}");
        running.crash();
        assert!(contents().contains(SERVER), "a killed program restores nothing");
        let running = host.run(&client("").replace("= start", "= none"));
        assert_eq!(contents(), ORIGINAL, "the next start does");
        assert!(host.casemate(&["initiate", "c"]).status.success());
        host.wait_for(&[SERVER], &["corp.example"]);
        assert!(running.stop().success());
        let after = fs::metadata(&path).unwrap();
        assert_eq!(contents(), ORIGINAL);
        assert_eq!((after.ino(), after.mode(), after.uid()), (before.ino(), before.mode(), before.uid()));

        let running = host.run(&client(""));
        host.wait_for(&[SERVER], &["corp.example"]);
        assert!(running.end_for_restart().success());
        assert_eq!(contents(), ORIGINAL, "another run follows");

        fs::remove_file(&path).unwrap();
        symlink("../run/elsewhere", &path).unwrap();
        let running = host.run(&client(""));
        host.wait_for(&[SERVER], &["corp.example"]);
        running.crash();
        let output = host.casemate(&["cleanup"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("../run/elsewhere"), "`cleanup` restores a link");
    });
}

/// After a reboot, /run is empty, and the file is as the killed run left it.
#[test]
fn the_file_comes_back_after_a_reboot() {
    let Some(net) = TestNet::build("reboot") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let running = host.run(&client(""));
    host.wait_for(&[SERVER], &["corp.example"]);
    running.crash();
    let emptied = host.output("sh", &["-c", "rm /run/casemate/*"]);
    assert!(emptied.status.success());
    assert!(net.left.output("nft", &["flush", "ruleset"]).status.success());
    let contents = || fs::read_to_string(host.resolv_conf()).unwrap();
    assert!(contents().contains(SERVER));
    let _running = host.run(&client("").replace("= start", "= none"));
    assert_eq!(contents(), ORIGINAL);
}

#[test]
fn a_file_that_another_program_changes_stays_and_the_log_says_so() {
    let Some(net) = TestNet::build("foreign-change") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let running = host.run(&client(""));
    host.wait_for(&[SERVER], &["corp.example"]);
    let other = "nameserver 198.51.100.1\n";
    fs::write(host.resolv_conf(), other).unwrap();
    host.wait_for(&[], &[]);
    let unused = host.name_servers()["unused"].to_string();
    assert!(unused.contains("another program has changed /etc/resolv.conf"), "{unused}");
    assert!(running.log().contains("another program has changed /etc/resolv.conf"), "{}", running.log());
    let log = net.left.file("log");
    assert!(running.stop().success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("resolv.conf.before-casemate"), "{log}");
    assert_eq!(fs::read_to_string(host.resolv_conf()).unwrap(), other);
}

#[test]
fn openresolv_gets_a_record_and_loses_it() {
    let Some(net) = TestNet::build("openresolv") else { return };
    let Some(host) = Client::new(&net.left, Manager::Openresolv) else { return };
    let _gateway = net.right.run_config(&gateway("dns = 10.2.0.1", "10.2.0.0/16"), None);
    let contents = || fs::read_to_string(host.resolv_conf()).unwrap();
    assert!(contents().contains("nameserver 192.0.2.53"), "{}", contents());
    let running = host.run(&client(""));
    host.wait_for(&[SERVER], &["*"]);
    assert!(
        contents().contains("nameserver 10.2.0.1") && !contents().contains("192.0.2.53"),
        "{}",
        contents()
    );
    running.crash();
    let running = host.run(&client("").replace("= start", "= none"));
    assert!(contents().contains("nameserver 192.0.2.53") && !contents().contains(SERVER), "{}", contents());
    assert!(host.casemate(&["initiate", "c"]).status.success());
    host.wait_for(&[SERVER], &["*"]);
    assert!(running.stop().success());
    assert!(contents().contains("nameserver 192.0.2.53") && !contents().contains(SERVER), "{}", contents());
}

/// Without the rights or the program, nothing is left to undo, and the run ends well.
#[test]
fn a_method_that_fails_is_reported_and_leaves_nothing() {
    let Some(net) = TestNet::build("failed-method") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    for (method, program) in [("systemd-resolved", "resolvectl"), ("resolvconf", "resolvconf")] {
        // On a host that has the program, it would work.
        if ["/usr/sbin", "/usr/bin"].iter().any(|directory| Path::new(directory).join(program).exists()) {
            continue;
        }
        let conf = format!("charon {{ plugins {{ resolve {{ method = {method} }} }} }}\n");
        let running = host.run(&(client("") + &conf));
        let unused = || host.name_servers()["unused"].to_string();
        eventually("the status says why not", || unused().contains("are not used: resolv"));
        assert!(running.log().contains("not installed"), "{}", running.log());
        assert!(running.stop().success());
        assert_eq!(fs::read_to_string(host.resolv_conf()).unwrap(), ORIGINAL);
    }
}

#[test]
fn nothing_is_changed_without_vips_or_if_the_configuration_says_so() {
    let Some(net) = TestNet::build("unused") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let _gateway = net.right.run_config(&gateway("dns = 10.2.0.1, 8.8.8.8", "10.2.0.0/16"), None);
    let off = client("") + "charon { plugins { resolve { load = no } } }\n";
    let running = host.run(&off);
    let unused = || host.name_servers()["unused"].to_string();
    eventually("the status says why not", || unused().contains("the configuration says so"));
    assert_eq!(fs::read_to_string(host.resolv_conf()).unwrap(), ORIGINAL);
    assert!(running.stop().success());
    // A server that the tunnel does not reach is not used.
    let running = host.run(&client(""));
    host.wait_for(&[SERVER], &["*"]);
    assert!(unused().contains("no Child SA leads to the name server 8.8.8.8"), "{}", unused());
    let why = host.stdout(env!("CARGO_BIN_EXE_casemate"), &["why", "c"]);
    assert!(why.contains("name servers in use: 10.2.0.1 for all names (set by file)"), "{why}");
    assert!(why.contains("no Child SA leads to the name server 8.8.8.8"), "{why}");
    assert!(running.stop().success());
}

/// Connections of one instance share its name servers, and may end in any order.
#[test]
fn several_tunnels_have_name_servers_at_once() {
    let Some(net) = TestNet::build("several") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let pool = |name: &str, n: u8, server: &str| {
        format!("{name} {{ addrs = 10.9.{n}.0/24\n dns = {server}\n dns_domains = {name}.example }}\n")
    };
    let of = |name: &str| {
        format!(
            "{name} {{ local_addrs = 192.0.2.2\n pools = {name}\n local {{ auth = psk\n id = gateway }}\n\
             remote {{ auth = psk\n id = {name} }}\n children {{ c {{ local_ts = 10.2.0.0/16 }} }} }}\n"
        )
    };
    let conf = format!(
        "connections {{ {} {} }}\npools {{ {} {} }}\n{SECRET}",
        of("a"),
        of("b"),
        pool("a", 1, "10.2.0.1"),
        pool("b", 2, "10.2.0.2")
    );
    let _gateway = net.right.run_config(&conf, None);
    let both = connection("a", "10.2.0.0/16", "") + &connection("b", "10.2.0.0/16", "") + SECRET;
    let running = host.run(&both.replace("= start", "= none"));
    let up = |name: &str| assert!(host.casemate(&["initiate", name]).status.success());
    let down = |name: &str| assert!(host.casemate(&["terminate", name]).status.success());
    for (first, left) in [("a", ("10.2.0.2", "b.example")), ("b", ("10.2.0.1", "a.example"))] {
        up("a");
        host.wait_for(&["10.2.0.1"], &["a.example"]);
        up("b");
        host.wait_for(&["10.2.0.2", "10.2.0.1"], &["b.example", "a.example"]);
        down(first);
        host.wait_for(&[left.0], &[left.1]);
        down(if first == "a" { "b" } else { "a" });
        host.wait_for(&[], &[]);
        assert_eq!(fs::read_to_string(host.resolv_conf()).unwrap(), ORIGINAL);
    }
    assert!(running.stop().success());
}

/// charon as the gateway, with the domain in its own notation.
#[test]
fn charon_assigns_name_servers_and_domains() {
    let Some(net) = TestNet::build("charon-assigns") else { return };
    let Some(host) = Client::new(&net.left, Manager::None) else { return };
    let pool = "dns = 10.2.0.1\n 25 = corp.example";
    let Some(charon) = Charon::start(&net.right, &gateway(pool, "10.2.0.0/16")) else { return };
    let running = host.run(&client(""));
    host.wait_for(&[SERVER], &["corp.example"]);
    let text = fs::read_to_string(host.resolv_conf()).unwrap();
    assert!(text.ends_with("nameserver 10.2.0.1\nsearch corp.example\n"), "{text}\n{}", charon.log());
    assert!(running.stop().success());
    assert_eq!(fs::read_to_string(host.resolv_conf()).unwrap(), ORIGINAL);
}

/// charon as the client, with its plugin `resolve`.
#[test]
fn charon_uses_the_name_servers_of_a_pool() {
    let Some(net) = TestNet::build("charon-uses") else { return };
    let _gateway = net.right.run_config(&gateway(SPLIT, "10.2.0.0/16"), None);
    let file = net.left.file("resolv.conf");
    let settings = format!("resolve {{\n file = {}\n }}\n", file.display());
    let conf = client("").replace("start_action = start", "start_action = none");
    let Some(charon) = Charon::start_with(&net.left, &conf, "resolve", &settings) else { return };
    charon.swanctl.output(&["--initiate", "--child", "c"]);
    let text = fs::read_to_string(&file).unwrap_or_default();
    assert!(text.contains("nameserver 10.2.0.1"), "{text}\n{}", charon.log());
}

/// The routes of a client without a route to the network of the link: the default route leads to the gateway.
const DEFAULT_ROUTE: &str = "ip route del 192.0.2.0/24; ip route add default dev wire0 src 192.0.2.1";

/// Counters of the gateway.
const COUNTERS: &str = "table inet count { counter tunnel { }; counter clear { }; chain input { \
                        type filter hook input priority 10; \
                        ip saddr 10.9.0.0/24 icmp type echo-request counter name tunnel; \
                        ip saddr 192.0.2.1 icmp type echo-request counter name clear; }; }";

#[test]
fn all_traffic_goes_through_the_tunnel_with_exceptions() {
    let Some(net) = TestNet::build("all-traffic") else { return };
    let Some(host) = Client::new(&net.left, Manager::SystemdResolved) else { return };
    let shell = |script: &str| {
        let output = net.left.output("sh", &["-c", script]);
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    shell(DEFAULT_ROUTE);
    net.right.stdout_of("ip", &["address", "add", "198.51.100.2/32", "dev", "lo"]);
    net.right.stdout_of("ip", &["address", "add", "203.0.113.2/32", "dev", "lo"]);
    let _gateway = net.right.run_config(&gateway(SPLIT, "0.0.0.0/0"), None);
    let lan = "lan {\n mode = pass\n remote_ts = 198.51.100.0/24\n start_action = trap\n }";
    let conf =
        connection("c", "0.0.0.0/0", "").replace("children {", &format!("children {{\n {lan}\n")) + SECRET;
    let pings = |addr: &str| net.left.pings(addr.parse().unwrap(), 8);
    // The gateway counts echo requests that arrive through the tunnel, and others.
    net.right.stdout_of("nft", &[COUNTERS]);
    let count = |name: &str| {
        let text = net.right.stdout_of("nft", &["list", "counter", "inet", "count", name]);
        let number = text.split_once("packets ").unwrap().1.split(' ').next().unwrap().to_owned();
        number.parse::<u32>().unwrap()
    };
    let counts = || (count("tunnel"), count("clear"));
    // The name server of the local network must not be asked.
    with_server(&net.right, "192.0.2.2", |local_queries| {
        with_server(&net.right, SERVER, |queries| {
            host.stdout("resolvectl", &["dns", "wire0", "192.0.2.2"]);
            let running = host.run(&conf);
            host.wait_for(&[SERVER], &["*"]);
            assert!(running.log().contains("leaves in clear. If this host has"), "{}", running.log());
            assert!(host.stdout("resolvectl", &["domain", "casemate0"]).trim_end().ends_with("~."));
            let found = host.stdout("resolvectl", &["query", "bank.example"]);
            assert!(found.contains("10.2.0.99"), "{found}");
            assert!(queries.lock().unwrap().iter().any(|name| name == "bank.example"));
            assert!(local_queries.lock().unwrap().is_empty(), "{local_queries:?}");

            // An exception passes in clear. Other programs reach the gateway through the tunnel, Casemate
            // does not.
            assert!(pings("198.51.100.2"), "{}", running.log());
            assert_eq!(counts(), (0, 1));
            assert!(pings("203.0.113.2") && pings("192.0.2.2"), "{}", running.log());
            assert_eq!(counts(), (2, 1));
            shell("ip route replace default dev wire0 src 192.0.2.1 mtu 1400");
            assert!(host.casemate(&["rekey", "--ike", "c"]).status.success());
            eventually("the IKE SA is replaced", || running.log().contains("was replaced by"));
            host.wait_for(&[SERVER], &["*"]);
            assert!(pings("203.0.113.2"), "{}", running.log());
            assert_eq!(counts(), (3, 1));
            assert!(running.stop().success());
        });
    });
}

/// IPv6 beside an IPv4 tunnel leaves in clear, unless a policy blocks it.
#[test]
fn the_other_ip_version_can_be_blocked() {
    let Some(net) = TestNet::build("other-version") else { return };
    let _gateway = net.right.run_config(&gateway("", "0.0.0.0/0"), None);
    let (v4, v6) = (net.right.side.inner(true), net.right.side.outer(false));
    let open = connection("c", "0.0.0.0/0", "") + SECRET;
    let drop = "drop6 {\n mode = drop\n local_ts = ::/0\n remote_ts = ::/0\n start_action = trap\n }";
    let blocked = open.replace("children {", &format!("children {{\n {drop}\n"));
    for (conf, passes) in [(open, true), (blocked, false)] {
        let running = net.left.run_config(&conf, None);
        eventually("the tunnel is up", || net.left.pings_at_once(v4, 8));
        let log = running.log();
        assert_eq!(log.contains("leaves in clear. If this host has"), passes, "{log}");
        let reaches = if passes { net.left.pings(v6, 8) } else { net.left.pings_at_once(v6, 8) };
        assert_eq!(reaches, passes, "{log}");
        assert!(running.stop().success());
        assert!(net.left.pings(v6, 8), "free after the end");
    }
}
