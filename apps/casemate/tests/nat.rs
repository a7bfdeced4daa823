//! `casemate run` on two hosts with a NAT between them: transport mode (RFC 7296 section 2.23.1, RFC 3948
//! section 3.1.2), in which the receiving kernels verify checksums that the NAT invalidated.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;
use testnet::{Host, Running, TestNet, WIRE, retry_interrupted};

/// The cable between the hidden host and the NAT.
const INSIDE: &str = "wire1";
const HIDDEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2));
const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));
/// The public address of the hidden host, and the host without a NAT.
const SHOWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const OPEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const TIMEOUT: Duration = Duration::from_secs(10);
const TCP_BYTES: usize = 300_000;
/// Lengths of datagrams: empty, usual, and longer than a packet.
const UDP_BYTES: [usize; 5] = [0, 1, 333, 1_300, 5_000];

/// A client and a server; the server has an own address, and one that the client sees.
struct Flow<'l> {
    client: &'l Host,
    server: &'l Host,
    own: IpAddr,
    seen: IpAddr,
}

impl Flow<'_> {
    /// Exchanges bytes over TCP in both directions.
    fn tcp(&self) {
        let listener = self.server.run(|| TcpListener::bind((self.own, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let echo = thread::spawn(move || {
            let mut stream = listener.accept()?.0;
            std::io::copy(&mut stream.try_clone()?, &mut stream)
        });
        let connect = || TcpStream::connect_timeout(&(self.seen, port).into(), TIMEOUT);
        let mut stream = self.client.run(connect).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let sent: Vec<u8> = (0..TCP_BYTES).map(|n| (n / 7) as u8).collect();
        let (mut sender, copy) = (stream.try_clone().unwrap(), sent.clone());
        let writer = thread::spawn(move || {
            sender.write_all(&copy)?;
            sender.shutdown(std::net::Shutdown::Write)
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(echo.join().unwrap().unwrap(), TCP_BYTES as u64);
        assert!(back == sent, "{} bytes came back", back.len());
    }

    /// Exchanges datagrams in both directions.
    fn udp(&self) {
        let server = self.server.run(|| UdpSocket::bind((self.own, 0))).unwrap();
        let port = server.local_addr().unwrap().port();
        let client = self.client.run(|| {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect((self.seen, port)).map(|()| socket)
        });
        let client = client.unwrap();
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        }
        let mut buffer = vec![0; 65_535];
        for len in UDP_BYTES {
            let sent: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            client.send(&sent).unwrap();
            let (count, from) = retry_interrupted(|| server.recv_from(&mut buffer))
                .unwrap_or_else(|e| panic!("{len} bytes: {e}"));
            assert_eq!(buffer[..count], sent);
            server.send_to(&sent, from).unwrap();
            let count = retry_interrupted(|| client.recv(&mut buffer))
                .unwrap_or_else(|e| panic!("{len} bytes back: {e}"));
            assert_eq!(buffer[..count], sent);
        }
    }
}

/// Makes the left host a NAT with a third host behind it: masquerading with other ports, and IKE
/// forwarded to the hidden host.
fn hidden_host(net: &TestNet) -> Host {
    let hidden = net.add_host();
    net.left.run(|| Netlink::open()?.add_veth(INSIDE, INSIDE, hidden.netns.as_fd())).unwrap();
    let number = |addr| {
        move || {
            let mut netlink = Netlink::open()?;
            let wire = netlink.link(INSIDE)?.index;
            netlink.set_up(wire, 1_500)?;
            netlink.add_address(wire, addr, 24)?;
            Ok::<(), Error>(())
        }
    };
    net.left.run(number(ROUTER)).unwrap();
    hidden.run(number(HIDDEN)).unwrap();
    hidden.stdout_of("ip", &["route", "add", "default", "via", &ROUTER.to_string()]);
    net.left.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    let rules = format!(
        "table ip nat {{ chain out {{ type nat hook postrouting priority 100; \
         oifname {WIRE} ip protocol udp masquerade to :20000-20099; }}; \
         chain in {{ type nat hook prerouting priority -100; \
         iifname {WIRE} udp dport {{ 500, 4500 }} dnat to {HIDDEN}; }}; }}"
    );
    net.left.stdout_of("nft", &[&rules]);
    hidden
}

/// A connection in transport mode; `hidden` and `open` are the names of the hosts.
fn conf(own: &str, peer: &str, addr: IpAddr, remote: &str, action: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {addr}\n remote_addrs = {remote}\n\
         local {{ auth = psk\n id = {own} }}\n remote {{ auth = psk\n id = {peer} }}\n\
         children {{ c {{ mode = transport\n start_action = {action} }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n"
    )
}

/// Waits until both hosts have the SAs of one Child SA in transport mode with UDP encapsulation, and use
/// them.
fn wait_until_up(hosts: [(&Host, IpAddr); 2]) {
    for (host, peer) in hosts {
        // Until the routes are installed, the guard blocks packets that would bypass the SAs.
        host.wait_until(|status| {
            status["sas"].as_array().is_some_and(|sas| sas.len() == 2) && host.pings_at_once(peer, 8)
        });
        let status = host.status();
        for sa in status["sas"].as_array().unwrap() {
            assert!(sa["mode"] == "transport" && sa["udp_encapsulated"] == true, "{sa:#}");
        }
    }
}

/// Number of packets that the kernel dropped because of a wrong checksum.
fn wrong_checksums(host: &Host) -> u64 {
    let snmp = host.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
    let mut errors = 0;
    for protocol in ["Tcp:", "Udp:", "Icmp:"] {
        let mut lines = snmp.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let count = names.zip(values).find(|(name, _)| *name == "InCsumErrors").unwrap().1;
        errors += count.parse::<u64>().unwrap();
    }
    errors
}

/// Sends traffic of all kinds in both directions and checks that all of it is protected.
fn talk(net: &TestNet, hidden: &Host, running: &[&Running]) {
    wait_until_up([(hidden, OPEN), (&net.right, SHOWN)]);
    let out = Flow { client: hidden, server: &net.right, own: OPEN, seen: OPEN };
    let inward = Flow { client: &net.right, server: hidden, own: HIDDEN, seen: SHOWN };
    for way in [out, inward] {
        way.udp();
        way.tcp();
    }
    assert!(hidden.pings(OPEN, 2_000) && net.right.pings(SHOWN, 2_000));
    for host in [hidden, &net.right] {
        assert_eq!(wrong_checksums(host), 0, "the kernel received wrong checksums");
        let status = host.status();
        for sa in status["sas"].as_array().unwrap() {
            assert!(sa["bytes"].as_u64().unwrap() > 2 * TCP_BYTES as u64, "traffic bypassed the SA: {sa:#}");
        }
        let drops = status["drops"].as_object().unwrap();
        let unexpected = drops.iter().find(|(name, count)| *name != "too-big" && count.as_u64() != Some(0));
        let log: Vec<String> = running.iter().map(|running| running.log()).collect();
        assert!(unexpected.is_none(), "{unexpected:?}: {log:#?}");
    }
}

/// The client is behind a NAT.
#[test]
fn transport_mode_works_from_behind_a_nat() {
    let Some(net) = TestNet::build("transport_mode_works_from_behind_a_nat") else { return };
    let hidden = hidden_host(&net);
    let right = net.right.run_config(&conf("open", "hidden", OPEN, "%any", "none"), None);
    let conf = conf("hidden", "open", HIDDEN, &OPEN.to_string(), "start");
    let left = hidden.run_config(&conf, None);
    talk(&net, &hidden, &[&left, &right]);
    assert!(left.stop().success() && right.stop().success());
}

/// The server is behind a NAT, which forwards its ports.
#[test]
fn transport_mode_works_to_a_host_behind_a_nat() {
    let Some(net) = TestNet::build("transport_mode_works_to_a_host_behind_a_nat") else { return };
    let hidden = hidden_host(&net);
    let left = hidden.run_config(&conf("hidden", "open", HIDDEN, "%any", "none"), None);
    let conf = conf("open", "hidden", OPEN, &SHOWN.to_string(), "start");
    let right = net.right.run_config(&conf, None);
    talk(&net, &hidden, &[&left, &right]);
    assert!(left.stop().success() && right.stop().success());
}
