//! Virtual addresses on hosts of a LAN: network namespaces at a bridge.

mod conflicts;
mod leftovers;
mod lifetimes;
mod sandboxed;
mod takeover;

use super::{AddressEvent, MacAddress, VirtualAddress, VirtualAddresses};
use crate::netlink::Netlink;
use crate::netns::{FrameCapture, FrameInjector, Netns};
use casemate_sa::Instant;
use casemate_test_support::eventually;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

/// The virtual addresses of the tests.
const VIRTUAL: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// A lifetime that does not end during a test.
const LONG: Duration = Duration::from_secs(300);

/// Hosts whose interface `wire` is a port of one bridge. Each has addresses of its own: 192.0.2.10 and
/// 2001:db8::10 plus its number.
struct Lan {
    hosts: Vec<Netns>,
    /// The bridge is in this namespace.
    switch: Netns,
}

/// `None` where tests may not make namespaces.
fn lan(count: u32) -> Option<Lan> {
    let netns = || Netns::new().map_err(casemate_test_support::skip).ok();
    let switch = netns()?;
    switch.run(|| ip("link add hub type bridge && ip link set hub up")).unwrap();
    let mut hosts = Vec::new();
    for number in 0..count {
        let host = netns()?;
        connect(&host, &switch, "wire", &format!("port{number}"));
        host.run(|| {
            ip(&format!("addr add 192.0.2.{}/24 dev wire", 10 + number));
            ip(&format!("addr add 2001:db8::{}/64 dev wire nodad", 10 + number));
        })
        .unwrap();
        hosts.push(host);
    }
    Some(Lan { hosts, switch })
}

/// Adds an interface of a host, and its port at the bridge.
fn connect(host: &Netns, switch: &Netns, interface: &str, port: &str) {
    host.run(|| {
        Netlink::open().unwrap().add_veth(interface, port, switch.as_fd()).unwrap();
        ip(&format!("link set {interface} up"));
    })
    .unwrap();
    switch
        .run(|| {
            ip(&format!("link set {port} master hub && ip link set {port} up"));
            eventually("the port forwards", || {
                ip(&format!("-d link show {port}")).contains("state forwarding").then_some(())
            });
        })
        .unwrap();
    eventually("the link is up", || {
        host.run(|| ip(&format!("link show {interface}")).contains("state UP").then_some(())).unwrap()
    });
}

/// Runs `ip` in the namespace of this thread, and returns its output.
fn ip(args: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("ip {args}")]).output().unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn virtual_address(addr: &str, interface: &str) -> VirtualAddress {
    let addr: IpAddr = addr.parse().unwrap();
    let prefix_len = if addr.is_ipv4() { 24 } else { 64 };
    VirtualAddress { addr, prefix_len, interface: interface.into() }
}

/// Both virtual addresses on `wire`.
fn both() -> Vec<VirtualAddress> {
    VIRTUAL.map(|addr| virtual_address(addr, "wire")).to_vec()
}

/// Opens both virtual addresses in the namespace of this thread.
fn open(lifetime: Duration) -> VirtualAddresses {
    VirtualAddresses::open(both(), lifetime).unwrap()
}

/// The virtual addresses that the kernel has, in the namespace of this thread.
fn present() -> Vec<IpAddr> {
    let virtual_addrs = VIRTUAL.map(|addr| addr.parse::<IpAddr>().unwrap());
    let all = Netlink::open().unwrap().addresses().unwrap();
    virtual_addrs.into_iter().filter(|addr| all.contains(addr)).collect()
}

/// The Ethernet address of `wire`, in the namespace of this thread.
fn own_mac() -> MacAddress {
    MacAddress(Netlink::open().unwrap().ethernet_link("wire").unwrap().mac)
}

fn capture() -> FrameCapture {
    FrameCapture::open(Netlink::open().unwrap().link("wire").unwrap().index).unwrap()
}

fn injector() -> FrameInjector {
    FrameInjector::open(Netlink::open().unwrap().link("wire").unwrap().index).unwrap()
}

/// The captured frames in which another host says that it has a virtual address.
fn announcements(capture: &FrameCapture) -> Vec<Vec<u8>> {
    let (mut frames, mut buffer) = (Vec::new(), vec![0; 2_000]);
    while let Some(len) = capture.next(&mut buffer, Duration::from_millis(100)).unwrap() {
        let virtual_addr = super::frames::address_use(&buffer[..len]).map(|used| used.addr.to_string());
        if virtual_addr.is_some_and(|addr| VIRTUAL.contains(&&addr[..])) {
            frames.push(buffer[..len].to_vec());
        }
    }
    frames
}

fn at(millis: u64) -> Instant {
    Instant::from_secs(5).after(Duration::from_millis(millis))
}

/// The conflicts among events; panics if there are others.
fn conflicts(events: Vec<AddressEvent>) -> Vec<(String, MacAddress)> {
    let conflict = |event| match event {
        AddressEvent::Conflict { address, mac } => (address.to_string(), mac),
        other => panic!("{other:?}"),
    };
    events.into_iter().map(conflict).collect()
}
