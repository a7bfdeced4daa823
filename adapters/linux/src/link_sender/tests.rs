//! The link sender between two network namespaces, with the raw socket beside it.

use super::host_rules::{HostRules, LinkSending, Permission};
use super::{LinkSender, Outgoing, SentPackets};
use crate::engine::tests::encapsulated_sa;
use crate::netlink::Netlink;
use crate::netns::{FrameCapture, Netns};
use crate::nft::Nft;
use crate::raw_socket::{AddressedPacket, EspAhSinks, RawSender};
use casemate_datapath::{Direction, SaId};
use casemate_sa::Instant;
use casemate_test_support::eventually;
use casemate_wire::ip::v4::{self, Ipv4Header};
use casemate_wire::ip::v6::{self, Ipv6Header};
use casemate_wire::ip::{Ipv4, proto};
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const MARK: u32 = 50_511;
const LEFT: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
pub(crate) const RIGHT: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
/// Another address of the right host.
const BEHIND: &str = "198.51.100.2";

/// Two hosts, connected by the interface `wire`.
pub(crate) struct Pair {
    pub(crate) left: Netns,
    pub(crate) right: Netns,
}

/// `None` where tests may not make namespaces.
pub(crate) fn pair() -> Option<Pair> {
    let netns = || Netns::new().map_err(casemate_test_support::skip).ok();
    let (left, right) = (netns()?, netns()?);
    left.run(|| Netlink::open().unwrap().add_veth("wire", "wire", std::os::fd::AsFd::as_fd(&right)).unwrap())
        .unwrap();
    for (host, addrs) in [(&left, LEFT), (&right, RIGHT)] {
        host.run(|| {
            let mut netlink = Netlink::open().unwrap();
            let wire = netlink.link("wire").unwrap();
            netlink.set_up(wire.index, 1_500).unwrap();
            let [v4, v6] = addrs.map(|addr| addr.parse().unwrap());
            netlink.add_address(wire.index, v4, 24).unwrap();
            netlink.add_address(wire.index, v6, 64).unwrap();
        })
        .unwrap();
    }
    Some(Pair { left, right })
}

/// Runs `ip` in the namespace of this thread.
fn ip(args: &str) -> String {
    let output = Command::new("ip").args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A packet with this protocol and payload from the left host.
pub(crate) fn packet(dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let mut bytes = match dst {
        IpAddr::V4(dst) => {
            let (src, mut out) = (LEFT[0].parse().unwrap(), [0; v4::HEADER_LEN]);
            let header = Ipv4Header { tos: 0, ident: 7, df: true, ttl: 64, protocol, src, dst, payload_len };
            header.emit(&mut out).unwrap();
            out.to_vec()
        }
        IpAddr::V6(dst) => {
            let (src, mut out) = (LEFT[1].parse().unwrap(), [0; v6::HEADER_LEN]);
            let (next_header, traffic_class, flow_label, hop_limit) = (protocol, 0, 0, 64);
            Ipv6Header { traffic_class, flow_label, payload_len, next_header, hop_limit, src, dst }
                .emit(&mut out);
            out.to_vec()
        }
    };
    bytes.extend(payload);
    bytes
}

fn esp(dst: &str, len: usize) -> Vec<u8> {
    packet(dst.parse().unwrap(), proto::ESP, &vec![0xe5; len])
}

/// The sending side of an engine on the left host.
struct Sender {
    links: LinkSender,
    raw: RawSender,
    sa: SaId,
}

impl Sender {
    fn open() -> Self {
        Self::with_permission(Arc::new(Permission::all()))
    }

    fn with_permission(permission: Arc<Permission>) -> Self {
        let links = LinkSender::open(MARK, permission).unwrap();
        let sa = encapsulated_sa(4_500, Direction::Outbound).id;
        Self { links, raw: RawSender::open(MARK).unwrap(), sa }
    }

    /// Sends packets as the engine does. Returns which ones left through the packet socket.
    fn send(&mut self, now: Instant, packets: &[Vec<u8>]) -> SentPackets {
        let outgoing = |bytes| Outgoing { packet: addressed(bytes), sa: Some(self.sa) };
        let run: Vec<Outgoing<'_>> = packets.iter().map(outgoing).collect();
        let sent = self.links.send(now, &run, |dst| self.raw.is_isolated(now, dst));
        for (index, outgoing) in run.iter().enumerate() {
            if !sent.contains(index) {
                // Without a route or an interface the kernel refuses the packet.
                let _ = self.raw.send(now, &[outgoing.packet]);
            }
        }
        sent
    }

    /// Sends copies of a packet until one leaves through the packet socket.
    fn until_used(&mut self, now: Instant, packet: &[u8]) {
        eventually("the next hop is known", || {
            // The neighbour may not be known yet: a second later it is looked up again.
            self.links.destinations.remove(addressed(&packet.to_vec()).dst);
            self.send(now, &vec![packet.to_vec(); 40]);
            (!self.send(now, &[packet.to_vec()]).is_empty()).then_some(())
        });
    }

    fn uses_link(&mut self, now: Instant, packet: &[u8]) -> bool {
        !self.send(now, &[packet.to_vec()]).is_empty()
    }
}

fn addressed(bytes: &Vec<u8>) -> AddressedPacket<'_> {
    AddressedPacket { bytes, dst: casemate_wire::ip::destination(bytes).unwrap() }
}

fn at(millis: u64) -> Instant {
    Instant::from_secs(5).after(Duration::from_millis(millis))
}

/// Runs a test on the left host.
fn on_left(test: impl FnOnce(&Pair) + Send) {
    let Some(pair) = pair() else { return };
    pair.left.run(|| test(&pair)).unwrap();
}

fn capture(host: &Netns) -> FrameCapture {
    let open = || FrameCapture::open(Netlink::open().unwrap().link("wire").unwrap().index).unwrap();
    host.run(open).unwrap()
}

/// The captured frames with these EtherTypes and one of the given protocols.
fn frames(capture: &FrameCapture) -> Vec<Vec<u8>> {
    let (mut frames, mut buffer) = (Vec::new(), vec![0; 2_000]);
    while let Some(len) = capture.next(&mut buffer, Duration::from_millis(200)).unwrap() {
        let frame = buffer[..len].to_vec();
        let protocol = match frame[12..14] {
            [0x08, 0x00] => frame[14 + 9],
            [0x86, 0xdd] => frame[14 + 6],
            _ => continue,
        };
        if [proto::ESP, proto::AH, proto::UDP].contains(&protocol) {
            frames.push(frame);
        }
    }
    frames
}

#[test]
fn frames_are_those_of_the_raw_socket() {
    on_left(|pair| {
        let mut sender = Sender::open();
        for dst in RIGHT {
            sender.until_used(at(0), &esp(dst, 100));
        }
        let capture = capture(&pair.right);
        let payloads = |protocol| move |len| (protocol, vec![protocol; len]);
        let kinds = [proto::ESP, proto::AH, proto::UDP]
            .into_iter()
            .flat_map(|protocol| [8, 57, 1_400].into_iter().map(payloads(protocol)));
        for (protocol, payload) in kinds {
            for dst in RIGHT {
                let packet = packet(dst.parse().unwrap(), protocol, &payload);
                assert!(sender.uses_link(at(10), &packet), "{dst}, protocol {protocol}");
                assert_eq!(sender.raw.send(at(10), &[addressed(&packet)]).unwrap(), 1);
                let both = frames(&capture);
                let [link, raw] = &both[..] else { panic!("{} frames", both.len()) };
                assert_eq!(link, raw, "{dst}, protocol {protocol}");
                assert_eq!(link[14..], packet);
            }
        }
        // The raw socket chooses another identification than 0; nothing else differs.
        let mut anonymous = esp(RIGHT[0], 100);
        let mut header = Ipv4::parse_quoted(&mut anonymous[..]).unwrap();
        header.set_ident(0);
        header.fill_checksum();
        assert!(sender.uses_link(at(10), &anonymous));
        sender.raw.send(at(10), &[addressed(&anonymous)]).unwrap();
        let both = frames(&capture);
        let mut unidentified = both.iter().map(|frame| {
            assert!(Ipv4::parse(&frame[14..]).unwrap().verify_checksum());
            let mut frame = frame.clone();
            frame[18..20].fill(0);
            frame[24..26].fill(0);
            frame
        });
        assert_eq!(unidentified.next(), unidentified.next());
        assert_eq!(both.len(), 2);
    });
}

#[test]
fn packets_that_the_kernel_might_send_in_another_way_are_left() {
    on_left(|_| {
        let mut sender = Sender::open();
        let good = esp(RIGHT[0], 100);
        RIGHT.iter().for_each(|dst| sender.until_used(at(0), &esp(dst, 100)));
        assert!(sender.uses_link(at(1), &esp(RIGHT[0], 1_480)), "as long as the MTU");
        let mut fragment = good.clone();
        fragment[6] = 0x20;
        let mut later_fragment = good.clone();
        later_fragment[7] = 9;
        let options = {
            let mut packet = good.clone();
            packet[0] = 0x46;
            packet
        };
        let to_right_v6 = |protocol| packet(RIGHT[1].parse().unwrap(), protocol, &[0; 64]);
        let left = [
            ("longer than the MTU", esp(RIGHT[0], 1_481)),
            ("first fragment", fragment),
            ("later fragment", later_fragment),
            ("options", options),
            ("another protocol", packet(RIGHT[0].parse().unwrap(), proto::ICMP, &[0; 64])),
            ("IPv6 fragment", to_right_v6(44)),
            ("IPv6 destination options", to_right_v6(proto::DEST_OPTS)),
        ];
        for (what, packet) in left {
            assert!(!sender.uses_link(at(1), &packet), "{what}");
        }
        let in_clear = [Outgoing { packet: addressed(&good), sa: None }];
        assert!(sender.links.send(at(1), &in_clear, |_| false).is_empty(), "in clear");
        let run = [Outgoing { packet: addressed(&good), sa: Some(sender.sa) }];
        assert!(sender.links.send(at(1), &run, |_| true).is_empty(), "a peer with its own raw socket");
        assert!(!sender.links.send(at(1), &run, |_| false).is_empty());
    });
}

#[test]
fn later_packets_do_not_overtake_one_that_needs_the_raw_socket() {
    on_left(|_| {
        let mut sender = Sender::open();
        RIGHT.iter().for_each(|dst| sender.until_used(at(0), &esp(dst, 100)));
        ip("addr add 192.0.2.9/24 dev wire");
        sender.until_used(at(0), &esp(RIGHT[0], 100));
        let [short, long] = [esp(RIGHT[0], 100), esp(RIGHT[0], 2_000)];
        let other = esp("192.0.2.77", 100);
        let run = [&short, &other, &short, &long, &short, &other, &short].map(Clone::clone);
        let sent = sender.send(at(1), &run);
        let expected = [true, false, true, false, false, false, false];
        assert_eq!(std::array::from_fn(|index| sent.contains(index)), expected);
        assert!(sender.uses_link(at(1), &short), "the next run");
    });
}

#[test]
fn a_next_hop_is_used_for_a_second_and_then_after_32_raw_packets() {
    on_left(|_| {
        let mut sender = Sender::open();
        let packet = esp(RIGHT[0], 100);
        sender.until_used(at(0), &packet);
        assert!(sender.uses_link(at(999), &packet));
        assert!((0..31).all(|_| !sender.uses_link(at(1_000), &packet)));
        assert_eq!(sender.links.destinations.with_next_hop(at(1_000)), 0);
        assert!(!sender.uses_link(at(1_000), &packet), "this packet is the 32nd");
        assert!(sender.uses_link(at(1_000), &packet));
        // 31 packets in each second are too few.
        for second in 3..6 {
            assert!((0..31).all(|_| !sender.uses_link(at(second * 1_000), &packet)));
        }
    });
}

#[test]
fn destinations_beyond_the_limit_use_the_raw_socket() {
    on_left(|_| {
        let mut sender = Sender::open();
        let busy = esp(RIGHT[0], 100);
        ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev wire nud permanent");
        for second in 0..3 {
            for number in 0..400u16 {
                let [a, b] = number.to_be_bytes();
                let dst = IpAddr::from([198, 18, a, b]);
                assert!(!sender.uses_link(at(second * 1_000), &packet(dst, proto::ESP, &[0; 64])));
            }
        }
        sender.send(at(2_500), &vec![busy.clone(); 40]);
        assert!(!sender.uses_link(at(2_500), &busy), "no room");
        sender.send(at(3_500), &vec![busy.clone(); 40]);
        assert!(sender.uses_link(at(3_500), &busy), "room after a second");
    });
}

#[test]
fn destinations_of_packets_in_clear_take_no_room() {
    on_left(|_| {
        let mut sender = Sender::open();
        let packets: Vec<Vec<u8>> = (0..300u16)
            .map(|number| {
                let [a, b] = number.to_be_bytes();
                packet(IpAddr::from([198, 18, a, b]), proto::TCP, &[0; 64])
            })
            .collect();
        for packet in &packets {
            let in_clear = [Outgoing { packet: addressed(packet), sa: None }];
            assert!(sender.links.send(at(0), &in_clear, |_| false).is_empty());
        }
        sender.until_used(at(0), &esp(RIGHT[0], 100));
        // A packet in clear to the same destination is not overtaken.
        let packet = esp(RIGHT[0], 100);
        let outgoing = |sa| Outgoing { packet: addressed(&packet), sa };
        let other = esp(RIGHT[1], 100);
        let between = Outgoing { packet: addressed(&other), sa: Some(sender.sa) };
        let run = [outgoing(None), between, outgoing(Some(sender.sa))];
        assert!(sender.links.send(at(1), &run, |_| false).is_empty());
    });
}

/// Checks that `change` ends the use of a next hop at once, and that no packet is lost if `is_reachable`.
fn check_change(change: impl FnOnce(&Pair) + Send, still_reachable: bool) {
    on_left(|pair| {
        let mut sender = Sender::open();
        let packet = esp(RIGHT[0], 100);
        sender.until_used(at(0), &packet);
        assert!(sender.uses_link(at(1), &packet));
        let capture = capture(&pair.right);
        change(pair);
        assert!(!sender.uses_link(at(2), &packet), "the next hop is not used any more");
        if still_reachable {
            let received = frames(&capture);
            assert_eq!(received.len(), 1, "the raw socket has sent the packet");
            sender.until_used(at(3), &packet);
        }
    });
}

#[test]
fn a_route_that_changes_is_followed() {
    check_change(|_| drop(ip("route add 192.0.2.2/32 via 192.0.2.2 dev wire onlink")), true);
    check_change(|_| drop(ip("rule add fwmark 50511 table 77 pref 5")), true);
    check_change(|_| drop(ip("route add unreachable 192.0.2.2/32")), false);
    check_change(|_| drop(ip("addr add 203.0.113.1/24 dev wire")), true);
}

#[test]
fn an_interface_that_goes_down_is_not_used() {
    check_change(|_| drop(ip("link set wire down")), false);
    check_change(|pair| drop(pair.right.run(|| ip("link set wire down")).unwrap()), false);
    check_change(|_| drop(ip("link del wire")), false);
}

#[test]
fn a_neighbour_that_changes_or_vanishes_is_followed() {
    check_change(|_| drop(ip("neigh del 192.0.2.2 dev wire")), true);
    check_change(|_| drop(ip("neigh flush dev wire")), true);
    let replaced = |pair: &Pair| {
        pair.right.run(|| ip("link set wire address 02:00:00:00:00:99")).unwrap();
        ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev wire nud reachable");
    };
    check_change(replaced, true);
    let failed = |_: &Pair| {
        ip("neigh replace 192.0.2.2 dev wire nud failed");
    };
    check_change(failed, true);
}

#[test]
fn a_change_of_another_neighbour_ends_nothing() {
    on_left(|_| {
        let mut sender = Sender::open();
        let packet = esp(RIGHT[0], 100);
        sender.until_used(at(0), &packet);
        ip("neigh replace 192.0.2.200 lladdr 02:00:00:00:00:77 dev wire nud reachable");
        assert!(sender.uses_link(at(1), &packet));
    });
}

#[test]
fn lost_messages_end_the_use_of_all_next_hops() {
    on_left(|_| {
        let mut sender = Sender::open();
        let packet = esp(RIGHT[0], 100);
        sender.until_used(at(0), &packet);
        // More messages about other neighbours than the socket has room for.
        let batch = std::env::temp_dir().join(format!("casemate-neighbours-{}", std::process::id()));
        let line = |number: u32| {
            let [.., a, b] = number.to_be_bytes();
            format!(
                "neigh replace 192.0.2.{} lladdr 02:00:00:00:{a:02x}:{b:02x} dev wire nud stale\n",
                9 + number % 200
            )
        };
        std::fs::write(&batch, (0..2_000).map(line).collect::<String>()).unwrap();
        ip(&format!("-batch {}", batch.display()));
        std::fs::remove_file(batch).unwrap();
        assert!(!sender.uses_link(at(1), &packet));
        sender.until_used(at(2), &packet);
    });
}

#[test]
fn the_mtu_is_the_smallest_of_interface_route_and_path() {
    on_left(|pair| {
        pair.right.run(|| ip(&format!("addr add {BEHIND}/32 dev lo"))).unwrap();
        ip(&format!("route add {BEHIND}/32 via {} mtu 1300", RIGHT[0]));
        let mut sender = Sender::open();
        let packet = esp(BEHIND, 100);
        sender.until_used(at(0), &packet);
        assert!(sender.uses_link(at(1), &esp(BEHIND, 1_280)));
        assert!(!sender.uses_link(at(1), &esp(BEHIND, 1_281)));
        let direct = esp(RIGHT[0], 100);
        sender.until_used(at(0), &direct);
        assert!(sender.uses_link(at(1), &esp(RIGHT[0], 1_480)));
        ip("link set wire mtu 1400");
        sender.until_used(at(2), &direct);
        assert!(sender.uses_link(at(2), &esp(RIGHT[0], 1_380)));
        assert!(!sender.uses_link(at(2), &esp(RIGHT[0], 1_381)));
        // A router that announces a smaller MTU for IPv6.
        std::fs::write("/proc/sys/net/ipv6/conf/wire/mtu", "1280").unwrap();
        sender.until_used(at(3), &esp(RIGHT[1], 100));
        assert!(sender.uses_link(at(3), &esp(RIGHT[1], 1_240)));
        assert!(!sender.uses_link(at(3), &esp(RIGHT[1], 1_241)));
    });
}

#[test]
fn routes_that_need_more_than_a_next_hop_are_left() {
    on_left(|_| {
        ip("link add other type veth peer name otherpeer");
        ip("link set other up arp off");
        ip("link set otherpeer up");
        ip("addr add 203.0.113.1/24 dev other");
        ip("neigh add 203.0.113.7 lladdr 02:00:00:00:00:07 dev other nud permanent");
        ip("route add 198.51.100.0/24 encap ip id 9 dst 192.0.2.2 via 192.0.2.2 dev wire");
        ip("route add 198.51.101.0/24 via inet6 2001:db8::2 dev wire");
        let mut sender = Sender::open();
        sender.until_used(at(0), &esp(RIGHT[0], 100));
        for dst in
            ["203.0.113.7", "198.51.100.7", "198.51.101.7", "127.0.0.1", LEFT[0], "192.0.2.255", "fe80::7"]
        {
            for second in 0..3 {
                sender.send(at(1 + second * 1_001), &vec![esp(dst, 100); 40]);
                assert!(!sender.uses_link(at(2 + second * 1_001), &esp(dst, 100)), "{dst}");
            }
        }
    });
}

#[test]
fn a_full_socket_hands_its_packets_to_the_raw_socket() {
    on_left(|pair| {
        let mut sender = Sender::open();
        let packet = esp(RIGHT[0], 1_000);
        sender.until_used(at(0), &packet);
        sender.links.socket.set_send_buffer_size(1).unwrap();
        // A slow link: 8 kbit/s.
        ip("link set wire txqueuelen 1000");
        let tc = Command::new("tc")
            .args("qdisc add dev wire root tbf rate 8kbit burst 2000 limit 1000000".split(' '))
            .output();
        if !tc.is_ok_and(|output| output.status.success()) {
            return casemate_test_support::skip("a slow link: no tc with tbf");
        }
        sender.until_used(at(1), &packet);
        let capture = capture(&pair.left);
        let sent = sender.send(at(2), &vec![packet.clone(); 20]);
        assert!(!sent.contains(19), "the socket is full");
        assert_eq!(sender.links.destinations.with_next_hop(at(3)), 0, "not used for a while");
        drop(capture);
    });
}

/// State of the rules, and whether packets leave through the packet socket.
fn state(rules: &mut HostRules) -> LinkSending {
    rules.check(at(0));
    rules.state().clone()
}

#[test]
fn rules_for_sent_packets_switch_the_link_sender_off() {
    on_left(|_| {
        let mut rules = HostRules::open("tun5").unwrap();
        assert_eq!(*rules.state(), LinkSending::InUse);
        let mut sender = Sender::with_permission(rules.permission());
        let [esp, udp] = [esp(RIGHT[0], 100), packet(RIGHT[0].parse().unwrap(), proto::UDP, &[0; 64])];
        sender.until_used(at(0), &esp);
        assert!(sender.uses_link(at(1), &udp));
        let chain = |family: &str, table: &str, hook: &str| {
            let base = format!("type filter hook {hook} priority 0;");
            Nft::direct().run(&format!("table {family} {table} {{\nchain c {{ {base} }}\n}}\n")).unwrap();
        };
        let remove = |family: &str, table: &str| {
            Nft::direct().run(&format!("delete table {family} {table}\n")).unwrap()
        };
        // Our own table, and families and hooks that the packets pass in any case.
        chain("inet", "casemate_tun5", "postrouting");
        chain("arp", "other", "output");
        chain("bridge", "other", "postrouting");
        assert_eq!(state(&mut rules), LinkSending::InUse);
        assert!(sender.uses_link(at(1), &udp));
        // Connection tracking may decide about UDP packets that arrive.
        chain("inet", "arriving", "input");
        assert_eq!(state(&mut rules), LinkSending::InUse);
        assert!(sender.uses_link(at(1), &esp) && !sender.uses_link(at(1), &udp));
        remove("inet", "arriving");
        for (family, hook) in [
            ("ip", "output"),
            ("ip6", "output"),
            ("inet", "output"),
            ("inet", "postrouting"),
            ("ip", "postrouting"),
        ] {
            chain(family, "other", hook);
            let reason = "the chain `c` of the nftables table `other` sees sent packets".to_owned();
            assert_eq!(state(&mut rules), LinkSending::Off(reason), "{family} {hook}");
            assert!(!sender.uses_link(at(1), &esp));
            remove(family, "other");
            assert_eq!(state(&mut rules), LinkSending::InUse);
            assert!(sender.uses_link(at(1), &esp));
        }
        // The guard of another instance.
        chain("inet", "casemate_tun6", "postrouting");
        assert!(matches!(state(&mut rules), LinkSending::Off(_)));
    });
}

#[test]
fn changes_of_nftables_are_checked_at_a_bounded_rate() {
    on_left(|_| {
        let mut rules = HostRules::open("tun5").unwrap();
        let rule = "table ip other {\nchain c { type filter hook output priority 0; }\n}\n";
        Nft::direct().run(rule).unwrap();
        rules.check_after_change(at(0));
        assert!(matches!(rules.state(), LinkSending::Off(_)));
        Nft::direct().run("delete table ip other\n").unwrap();
        rules.check_after_change(at(50));
        assert!(matches!(rules.state(), LinkSending::Off(_)));
        rules.check_after_change(at(100));
        assert_eq!(*rules.state(), LinkSending::InUse);
    });
}

#[test]
fn policies_of_the_kernel_switch_the_link_sender_off() {
    on_left(|_| {
        let mut rules = HostRules::open("tun5").unwrap();
        let add = "xfrm policy add src 192.0.2.0/24 dst 192.0.2.0/24 dir";
        if !Command::new("ip").args(format!("{add} in").split(' ')).status().unwrap().success() {
            return casemate_test_support::skip("policies of the kernel's IPsec: it has none");
        }
        assert_eq!(state(&mut rules), LinkSending::InUse, "an inbound policy");
        ip(&format!("{add} out"));
        let LinkSending::Off(reason) = state(&mut rules) else { panic!("an outbound policy") };
        assert!(reason.contains("IPsec"), "{reason}");
        ip("xfrm policy flush");
        assert_eq!(state(&mut rules), LinkSending::InUse);
    });
}

#[test]
fn received_packets_that_others_need_are_not_ours() {
    on_left(|_| {
        let sinks = EspAhSinks::open().unwrap();
        let mut rules = HostRules::open("tun5").unwrap();
        assert!(rules.received_are_ours());
        // An SA without keys needs no algorithms of the kernel.
        let add = "xfrm state allocspi src 192.0.2.2 dst 192.0.2.1 proto esp min 0x1000 max 0x1fff";
        if Command::new("ip").args(add.split(' ')).output().unwrap().status.success() {
            assert!(!rules.received_are_ours() && rules.others_receive(), "SAs of the kernel");
            ip("xfrm state flush");
            assert!(rules.received_are_ours() && !rules.others_receive());
        } else {
            casemate_test_support::skip("SAs of the kernel's IPsec: it has none");
        }
        let other = EspAhSinks::open().unwrap();
        assert!(!rules.received_are_ours() && rules.others_receive(), "raw sockets of another program");
        drop(other);
        assert!(rules.received_are_ours());
        for (hook, kind, ours) in
            [("prerouting", "nat", false), ("postrouting", "nat", true), ("input", "filter", true)]
        {
            let chain = format!("table ip other {{\nchain c {{ type {kind} hook {hook} priority 0; }}\n}}\n");
            Nft::direct().run(&chain).unwrap();
            assert_eq!(rules.received_are_ours(), ours, "{kind} {hook}");
            assert!(!rules.others_receive(), "{kind} {hook}");
            Nft::direct().run("delete table ip other\n").unwrap();
        }
        drop(sinks);
    });
}

#[test]
fn a_switched_off_sender_says_so() {
    on_left(|_| {
        let mut rules = HostRules::open("tun5").unwrap();
        rules.switch_off("it is switched off".into());
        let mut unknown = HostRules::unknown("it is switched off".into());
        for rules in [&mut rules, &mut unknown] {
            assert_eq!(state(rules), LinkSending::Off("it is switched off".into()));
            assert!(!rules.permission().allows_esp_and_ah());
        }
        assert!(rules.received_are_ours() && !unknown.received_are_ours());
        assert!(!rules.others_receive() && unknown.others_receive());
    });
}
