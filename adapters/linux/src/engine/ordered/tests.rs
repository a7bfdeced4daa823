use super::*;
use crate::netlink::Netlink;
use crate::netns::Netns;
use casemate_sched::Config;
use socket2::SockRef;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

const EF: u32 = 0xb8;
const BEST_EFFORT: u32 = 0;

/// A host with a TUN interface and what is put in order behind it.
struct Host {
    netns: Netns,
    tun: Tun,
    ordered: Ordered,
    buffers: Buffers,
    dropped: Vec<DropReason>,
}

impl Host {
    /// Where tests may not make namespaces, there is nothing to test; where they may not load programs, less.
    fn new(config: Config, has_queues: bool) -> Option<Self> {
        let netns = Netns::new().map_err(casemate_left_out::note).ok()?;
        let classifier = Classifier::default();
        let open = || {
            let mut netlink = Netlink::open()?;
            let tun = match has_queues {
                true => Tun::create_sorted("ordered", &classifier, &mut netlink)?,
                false => Tun::create("ordered", &mut netlink)?,
            };
            tun.set_up(1_400, &mut netlink)?;
            netlink.add_address(tun.index(), Ipv4Addr::new(10, 9, 0, 1).into(), 24)?;
            Ok::<_, Error>(tun)
        };
        let tun = match netns.run(open).unwrap() {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                casemate_left_out::note(error);
                return None;
            }
            tun => tun.unwrap(),
        };
        let scheduling = Scheduling { config, classifier };
        let ordered = Ordered::new(scheduling, tun.queues().count(), 7).unwrap();
        let mut host = Self { netns, tun, ordered, buffers: Buffers::new(), dropped: Vec::new() };
        // Router solicitations.
        while !host.batch(0).is_empty() {}
        Some(host)
    }

    /// Whether nothing waits and nothing was lost count of.
    fn has_all_places(&self) -> bool {
        self.ordered.lines.iter().all(|line| line.free.len() == PLACES && line.bytes == 0)
    }

    /// Sends datagrams of this length, each with the next number in its first byte.
    fn send(&self, tos: u32, len: usize, numbers: std::ops::Range<u8>) {
        let send = || {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            SockRef::from(&socket).set_tos_v4(tos).unwrap();
            for number in numbers {
                let mut payload = vec![0; len];
                payload[0] = number;
                socket.send_to(&payload, "10.9.0.2:9").unwrap();
            }
        };
        self.netns.run(send).unwrap();
    }

    /// Type of service, number and length of the datagrams of the next batch.
    fn batch(&mut self, millis: u64) -> Vec<(u32, u8, usize)> {
        let Self { tun, ordered, buffers, dropped, .. } = self;
        let mut note = |reason, packet: &[u8]| {
            assert_eq!(packet[0], 0x45);
            dropped.push(reason);
        };
        ordered.fill(tun, buffers, Instant::from_millis(millis), &mut note).unwrap();
        let packets = buffers.contents();
        let v4 = packets.iter().filter(|packet| packet[0] == 0x45);
        v4.map(|packet| (packet[1].into(), packet[28], packet.len() - 28)).collect()
    }

    /// Those of all batches that there are.
    fn all(&mut self, millis: u64) -> Vec<(u32, u8, usize)> {
        let mut all = self.batch(millis);
        while self.ordered.has_more() {
            all.extend(self.batch(millis));
        }
        all
    }
}

#[test]
fn voice_goes_before_what_came_earlier() {
    for has_queues in [true, false] {
        let Some(mut host) = Host::new(Config::SERVER, has_queues) else { continue };
        host.send(BEST_EFFORT, 1_300, 0..20);
        host.send(EF, 160, 20..23);
        let order: Vec<u8> = host.all(1).iter().map(|(_, number, _)| *number).collect();
        assert_eq!(order, (20..23).chain(0..20).collect::<Vec<_>>(), "with queues: {has_queues}");
        assert!(!host.ordered.has_more());
        let counters = host.ordered.counters();
        assert_eq!((counters.low_latency.taken, counters.standard.taken), (3, 20));
    }
}

#[test]
fn voice_waits_for_one_batch_however_much_there_is() {
    let Some(mut host) = Host::new(Config::SERVER, true) else { return };
    host.send(BEST_EFFORT, 1_300, 0..200);
    let first = host.batch(1);
    assert_eq!(first.len(), 2, "a batch is short before it is known how long it takes");
    assert!(host.ordered.has_more());
    host.send(EF, 160, 200..201);
    let second = host.batch(1);
    assert_eq!(second[0], (EF, 200, 160));
    // Nothing is lost meanwhile, nor in another order.
    let mut numbers: Vec<u8> = first.iter().chain(&second[1..]).map(|(_, number, _)| *number).collect();
    while host.ordered.has_more() {
        numbers.extend(host.batch(1).iter().map(|(_, number, _)| *number));
    }
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    assert_eq!(host.dropped, []);
}

#[test]
fn a_large_packet_is_cut_over_batches_and_voice_goes_between() {
    let Some(mut host) = Host::new(Config::SERVER, true) else { return };
    let send = || {
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        // UDP_SEGMENT (udp(7)).
        crate::sys::set_option(socket.as_fd(), libc::IPPROTO_UDP, 103, 400).unwrap();
        for number in 0..4 {
            let payload: Vec<u8> = (0..40u8).flat_map(|n| [[number * 40 + n; 1]; 400].concat()).collect();
            socket.send_to(&payload, "10.9.0.2:9").unwrap();
        }
    };
    host.netns.run(send).unwrap();
    let first = host.batch(1);
    assert!(first.len() < 10, "{first:?}");
    host.send(EF, 160, 200..202);
    let rest = host.all(1);
    assert_eq!(rest[..2], [(EF, 200, 160), (EF, 201, 160)]);
    let all: Vec<_> = first.iter().chain(&rest[2..]).copied().collect();
    assert_eq!(all, (0..160).map(|n| (BEST_EFFORT, n, 400)).collect::<Vec<_>>());
    assert!(host.has_all_places());
}

#[test]
fn what_one_flow_has_too_much_is_refused_and_counted() {
    let mut config = Config::SERVER;
    // A flow may hold half of it: 25 packets of 1,328 bytes.
    config.shares.standard.limit = 66_400;
    let Some(mut host) = Host::new(config, true) else { return };
    host.send(BEST_EFFORT, 1_300, 0..32);
    let batch = host.batch(1);
    let refused = host.dropped.len();
    assert!(refused > 0 && host.dropped.iter().all(|reason| *reason == DropReason::QueueFull));
    assert!(!batch.is_empty());
    let mut came = batch.len();
    while host.ordered.has_more() {
        came += host.batch(1).len();
    }
    assert_eq!(came + host.dropped.len(), 32);
    assert_eq!(host.ordered.counters().standard.full, host.dropped.len() as u64);
    assert!(host.has_all_places());
}

#[test]
fn what_waited_too_long_is_dropped_and_counted() {
    let Some(mut host) = Host::new(Config::SERVER, true) else { return };
    for round in 0..20u64 {
        host.send(BEST_EFFORT, 1_300, 0..60);
        host.batch(round * 100);
    }
    assert!(host.dropped.contains(&DropReason::QueueLate), "{:?}", host.ordered.counters().standard);
    assert_eq!(host.ordered.counters().standard.late, host.dropped.len() as u64);
    // The places are free again.
    while host.ordered.has_more() {
        host.batch(2_000);
    }
    assert!(host.has_all_places());
}
