//! The section `cell`: its meaning, and its errors.

use super::super::{CellAddress, CellConfig, EtcdServers, LoginFile, MAX_CELL_ADDRESSES, TlsFiles};
use super::{ok, only, wrong};
use std::time::Duration;

/// A cell on loopback with further keys of the cell.
fn cell(inside: &str) -> String {
    format!("cell {{\nname = berlin\nnode = gw1\netcd {{\nservers = 127.0.0.1:2379\n}}\n{inside}\n}}")
}

/// A cell with these keys of `etcd`.
fn etcd(inside: &str) -> String {
    format!("cell {{\nname = berlin\nnode = gw1\netcd {{\n{inside}\n}}\n}}")
}

fn read(text: &str) -> CellConfig {
    let config = ok(text);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    config.cell.unwrap()
}

const WHOLE: &str = "\
cell {
   name = berlin
   node = gw1
   lease = 5s
   wrapping_key = /etc/casemate/cell.key
   wrapping_key_token = token-new
   second_wrapping_key = former.key
   second_wrapping_key_token = token
   etcd {
      servers = 10.0.0.11:2379, 10.0.0.12:2379, [2001:db8::1]:2379
      server_name = etcd.example.org
      ca = ca.pem
      cert = gw1.pem
      key = gw1.key
      user = gw1
      password = /etc/casemate/etcd.password
      deadline = 3s
   }
   addresses {
      outside {
         address = 192.0.2.1/24
         interface = eth0
      }
      inside {
         address = 2001:db8:1::1/64
         interface = eth1
      }
   }
   forward {
      address = 10.99.0.21
      port = 4511
   }
}";

#[test]
fn every_key_is_read() {
    let address = |name: &str, address: &str, prefix_len, interface: &str| CellAddress {
        name: name.into(),
        address: address.parse().unwrap(),
        prefix_len,
        interface: interface.into(),
    };
    let servers = ["10.0.0.11:2379", "10.0.0.12:2379", "[2001:db8::1]:2379"];
    let expected = CellConfig {
        name: "berlin".into(),
        node: "gw1".into(),
        lease: Duration::from_secs(5),
        wrapping_key: Some("/etc/casemate/cell.key".into()),
        wrapping_key_token: Some("token-new".into()),
        second_wrapping_key: Some("/etc/swanctl/former.key".into()),
        second_wrapping_key_token: Some("token".into()),
        etcd: EtcdServers {
            servers: servers.map(|server| server.parse().unwrap()).into(),
            server_name: Some("etcd.example.org".into()),
            tls: Some(TlsFiles {
                authorities: "/etc/swanctl/ca.pem".into(),
                own: Some(("/etc/swanctl/gw1.pem".into(), "/etc/swanctl/gw1.key".into())),
            }),
            login: Some(LoginFile { user: "gw1".into(), password: "/etc/casemate/etcd.password".into() }),
            deadline: Duration::from_secs(3),
        },
        addresses: vec![
            address("outside", "192.0.2.1", 24, "eth0"),
            address("inside", "2001:db8:1::1", 64, "eth1"),
        ],
        forward: Some("10.99.0.21:4511".parse().unwrap()),
    };
    assert_eq!(read(WHOLE), expected);
    assert_eq!(ok("").cell, None);
}

#[test]
fn missing_keys_have_defaults() {
    let config = read(&cell(""));
    assert_eq!((config.lease, config.etcd.deadline), (Duration::from_secs(2), Duration::from_secs(1)));
    assert_eq!((config.wrapping_key, config.second_wrapping_key), (None, None));
    assert_eq!((config.etcd.tls, config.etcd.login), (None, None));
    assert_eq!((config.etcd.server_name, config.addresses, config.forward), (None, vec![], None));
    let forward = |address: &str| read(&cell(&format!("forward {{\naddress = {address}\n}}"))).forward;
    assert_eq!(forward("10.99.0.21"), Some("10.99.0.21:4510".parse().unwrap()));
    assert_eq!(forward("2001:db8::21"), Some("[2001:db8::21]:4510".parse().unwrap()));
    assert_eq!(read(&cell("lease = 2s")).etcd.deadline, Duration::from_secs(1), "below the lease");
    assert_eq!(read(&cell("lease = 1m")).etcd.deadline, Duration::from_secs(2));
    let one_way = read(&etcd("servers = 10.0.0.11:2379\nca = ca.pem"));
    assert_eq!(one_way.etcd.tls.unwrap().own, None);
}

/// A single error names the line, the key, the value and what was expected.
#[test]
fn each_wrong_value_is_an_error() {
    let long = "x".repeat(65);
    for (text, line, part) in [
        (cell("wrapping_key_token = card"), 7, "cell.wrapping_key_token: `card`: the name of a section of"),
        (cell("second_wrapping_key_token = card"), 7, "that begins with `token` was expected"),
        (cell("name = a/b"), 7, "cell.name: `a/b`: 1 to 64 letters, digits, `-`, `_` and `.` were expected"),
        (cell(&format!("name = {long}")), 7, "1 to 64 letters"),
        (cell("node = gw 1"), 7, "cell.node: `gw 1`: 1 to 64 letters"),
        (cell("node = g\u{fc}"), 7, "cell.node: `g\u{fc}`: 1 to 64 letters"),
        (cell("lease = 1s"), 7, "cell.lease: `1s`: a time from 2s to 60s was expected, such as 3s"),
        (cell("lease = 61s"), 7, "cell.lease: `61s`: a time from 2s to 60s"),
        (cell("lease = 0"), 7, "cell.lease: `0`: a time from 2s to 60s"),
        (cell("lease = 2.5s"), 7, "cell.lease: `2.5s`: a time from 2s to 60s"),
        (cell("lese = 3s"), 7, "cell.lese: not a key of swanctl.conf; did you mean `lease`?"),
        (
            cell("servers = 127.0.0.1:1"),
            7,
            "cell.servers: not a key of this section; it belongs to `cell.etcd`",
        ),
        (cell("etc {\n}"), 7, "cell.etc: not a section of swanctl.conf; did you mean `etcd`?"),
        ("cell {\nnode = a\netcd {\nservers = 127.0.0.1:1\n}\n}".into(), 1, "cell: `name` was expected"),
        ("cell {\nname = a\nnode = a\n}".into(), 1, "cell: the section `etcd` was expected"),
        (etcd(""), 4, "cell.etcd.servers: the addresses of the servers with their ports were expected"),
        (etcd("servers = ,"), 5, "cell.etcd.servers: the addresses of the servers"),
        (etcd("servers = etcd1:2379"), 5, "cell.etcd.servers: `etcd1:2379`: the address of a server"),
        (etcd("servers = 127.0.0.1:1, 127.0.0.1"), 5, "servers: `127.0.0.1`: the address of a server"),
        (etcd("servers = 127.0.0.1:0"), 5, "servers: `127.0.0.1:0`: the address of a server"),
        (etcd("servers = 0.0.0.0:2379"), 5, "servers: `0.0.0.0:2379`: the address of a server"),
        (etcd("servers = 127.0.0.1:1, 127.0.0.1:1"), 5, "servers: 127.0.0.1:1 occurs twice"),
        (etcd("servers = 127.0.0.1:1\nserver_name = x/y"), 6, "server_name: `x/y`: the name of a host"),
        (
            etcd("servers = 127.0.0.1:1\nserver_name = x"),
            6,
            "server_name: it belongs to TLS: `ca` was expected",
        ),
        (etcd("servers = 127.0.0.1:1\nca = a\ncert = b"), 7, "cert: `key` was expected beside it"),
        (etcd("servers = 127.0.0.1:1\nca = a\nkey = b"), 7, "key: `cert` was expected beside it"),
        (etcd("servers = 127.0.0.1:1\nuser = b"), 6, "user: `password` was expected beside it"),
        (etcd("servers = 127.0.0.1:1\npassword = b"), 6, "password: `user` was expected beside it"),
        (etcd("servers = 127.0.0.1:1\ndeadline = 0"), 6, "deadline: `0`: a time of at least 1s was expected"),
        (etcd("servers = 127.0.0.1:1\ndeadline = 3s"), 6, "deadline: 3 s: less than the lease of 2 s"),
        (cell("addresses {\naddress = 192.0.2.1/24\n}"), 8, "cell.addresses.address: "),
        (cell("addresses {\na {\n interface = e\n}\n}"), 8, "cell.addresses.a: `address` was expected"),
        (cell("addresses {\na {\n address = 192.0.2.1/24\n}\n}"), 8, "a: `interface` was expected"),
        (
            cell("addresses {\na {\naddress = 192.0.2.0/24\ninterface = e\n}\n}"),
            9,
            "cell.addresses.a.address: `192.0.2.0/24`: the address of a host was expected, not that of the",
        ),
        (
            cell("addresses {\na {\naddress = 192.0.2.1/24\ninterface = a/b\n}\n}"),
            10,
            "cell.addresses.a.interface: `a/b`: the name of an interface was expected",
        ),
        (cell("forward {\n}"), 7, "cell.forward: `address` was expected, the address of this node"),
        (cell("forward {\nport = 1\n}"), 7, "cell.forward: `address` was expected"),
        (cell("forward {\naddress = gw1\n}"), 8, "cell.forward.address: `gw1`: an address of this node that"),
        (cell("forward {\naddress = 10.0.0.1:5\n}"), 8, "address: `10.0.0.1:5`: an address of this node"),
        (cell("forward {\naddress = 0.0.0.0\n}"), 8, "address: `0.0.0.0`: an address of this node"),
        (cell("forward {\naddress = fe80::1\n}"), 8, "address: `fe80::1`: an address of this node"),
        (
            cell("forward {\naddress = 10.0.0.1\nport = 0\n}"),
            9,
            "cell.forward.port: `0`: a number from 1 to 65535 was expected, other than 500 and 4500",
        ),
        (cell("forward {\naddress = 10.0.0.1\nport = 4500\n}"), 9, "port: `4500`: a number from 1 to 65535"),
        (cell("forward {\naddress = 10.0.0.1\nprot = 1\n}"), 9, "cell.forward.prot: not a key of"),
        (
            cell(
                "addresses {\na {\naddress = 192.0.2.1/24\ninterface = e\n}\n}\n\
                 forward {\naddress = 192.0.2.1\n}",
            ),
            1,
            "`forward` has the address 192.0.2.1, which moves between the nodes",
        ),
    ] {
        let problem = only(&text);
        assert!(problem.starts_with(&format!("swanctl.conf:{line}: cell")), "{text}: {problem}");
        assert!(problem.contains(part), "{text}: {problem}");
    }
    assert_eq!(
        wrong(&cell("lease = 1s\naddresses {\na { }\n}")).len(),
        1,
        "nothing follows from a wrong value"
    );
    let cert = wrong(&etcd("servers = 127.0.0.1:1\ncert = b"));
    assert_eq!(cert.len(), 2, "neither `key` nor `ca`: {cert:?}");
}

#[test]
fn an_address_belongs_to_one_section() {
    let section = |name: usize, last: usize| {
        format!("a{name} {{\naddress = 192.0.2.{last}/24\ninterface = eth{name}\n}}\n")
    };
    let sections = |count: usize| (1..=count).map(|n| section(n, n)).collect::<String>();
    let config = read(&cell(&format!("addresses {{\n{}}}", sections(MAX_CELL_ADDRESSES))));
    assert_eq!(config.addresses.len(), MAX_CELL_ADDRESSES);
    let many = only(&cell(&format!("addresses {{\n{}}}", sections(MAX_CELL_ADDRESSES + 1))));
    assert!(
        many.contains("swanctl.conf:7: cell.addresses: 17 addresses: at most 16 were expected"),
        "{many}"
    );
    let twice = only(&cell(&format!("addresses {{\n{}{}}}", section(1, 1), section(2, 1))));
    let expected = "swanctl.conf:13: cell.addresses.a2.address: 192.0.2.1 is that of `a1`, too";
    assert!(twice.starts_with(expected), "{twice}");
}

#[test]
fn the_number_of_servers_is_limited() {
    let servers =
        |count: u16| (1..=count).map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(", ");
    assert_eq!(read(&etcd(&format!("servers = {}", servers(9)))).etcd.servers.len(), 9);
    let many = only(&etcd(&format!("servers = {}", servers(10))));
    assert!(many.contains("cell.etcd.servers: 10 servers: at most 9 were expected"), "{many}");
}

#[test]
fn clear_text_to_another_host_gives_a_warning() {
    let warnings = |inside: &str| {
        let config = ok(&etcd(inside));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for far in ["servers = 10.0.0.11:2379", "servers = 127.0.0.1:2379, [2001:db8::1]:2379"] {
        let found = warnings(far);
        let [warning] = &found[..] else { panic!("{found:?}") };
        assert!(warning.contains("swanctl.conf:4: cell.etcd: without TLS, any host between"), "{warning}");
        assert_eq!(warnings(&format!("{far}\nca = ca.pem")), [""; 0]);
    }
    assert_eq!(warnings("servers = 127.0.0.2:2379, [::1]:2379"), [""; 0]);
}
