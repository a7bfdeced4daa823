use super::*;
use crate::netns::Netns;
use crate::offload::SegmentSplitter;
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_sched::{DscpTable, Rule};
use casemate_wire::checksum::{Sum, pseudo_v4};
use socket2::SockRef;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// `None` where tests may not make namespaces, or may not load BPF programs.
fn sorted(classifier: &Classifier) -> Option<(Netns, Tun)> {
    let netns = Netns::new().map_err(casemate_test_support::skip).ok()?;
    let open = || {
        let mut netlink = Netlink::open()?;
        let tun = Tun::create_with_class_queues("sorted", classifier, &mut netlink)?;
        tun.set_up(1_400, &mut netlink)?;
        netlink.add_address(tun.index(), Ipv4Addr::new(10, 9, 0, 1).into(), 24)?;
        netlink.add_address(tun.index(), "fd09::1".parse::<Ipv6Addr>().unwrap().into(), 64)?;
        Ok::<_, Error>(tun)
    };
    let tun = netns.run(open).unwrap();
    match tun {
        Ok(tun) => Some((netns, tun)),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            casemate_test_support::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The waiting packets: their queue, and the last byte of their payload.
fn waiting(tun: &Tun) -> Vec<(Class, u8)> {
    let mut space = vec![0; 70_000];
    let mut found = Vec::new();
    for (class, queue) in Class::ALL.into_iter().zip(tun.queues()) {
        while let Some(len) = queue.read(&mut space).unwrap() {
            // Ignores packets of the kernel itself, such as router solicitations.
            if matches!(space[VNET_HEADER_LEN..len], [0x45, ..] | [0x60..=0x6f, _, _, _, _, _, 17, ..]) {
                found.push((class, space[len - 1]));
            }
        }
    }
    found
}

#[test]
fn packets_of_the_host_wait_in_the_queue_of_their_class() {
    let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
    let port = Selector { proto: Some(17), dst_port: PortRange::single(7_000), ..any };
    let rule = Rule { selector: port, class: Class::Least };
    let Some((netns, tun)) = sorted(&Classifier::new([rule], DscpTable::default())) else { return };
    netns
        .run(|| {
            let v4 = UdpSocket::bind("10.9.0.1:0").unwrap();
            let v6 = UdpSocket::bind("[fd09::1]:0").unwrap();
            for (at, tos) in [0xb8, 0x88, 0x28, 0x00, 0x20].into_iter().enumerate() {
                SockRef::from(&v4).set_tos_v4(tos).unwrap();
                v4.send_to(&[at as u8], "10.9.0.2:9").unwrap();
                sys::set_option(v6.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos as i32).unwrap();
                v6.send_to(&[at as u8], "[fd09::2]:9").unwrap();
            }
            SockRef::from(&v4).set_tos_v4(0xb8).unwrap();
            v4.send_to(&[9], "10.9.0.2:7000").unwrap();
        })
        .unwrap();
    let mut wanted: Vec<_> =
        Class::ALL.into_iter().enumerate().map(|(at, class)| (class, at as u8)).collect();
    wanted = wanted.into_iter().flat_map(|one| [one, one]).collect();
    wanted.push((Class::Least, 9));
    assert_eq!(waiting(&tun), wanted);
}

#[test]
fn bulk_traffic_does_not_fill_the_queue_of_voice() {
    let Some((netns, tun)) = sorted(&Classifier::default()) else { return };
    netns
        .run(|| {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            for _ in 0..2_000 {
                socket.send_to(&[1; 100], "10.9.0.2:9").unwrap();
            }
            SockRef::from(&socket).set_tos_v4(0xb8).unwrap();
            for _ in 0..200 {
                socket.send_to(&[2; 100], "10.9.0.2:9").unwrap();
            }
        })
        .unwrap();
    let found = waiting(&tun);
    let count = |wanted| found.iter().filter(|one| **one == wanted).count();
    assert_eq!(count((Class::LowLatency, 2)), 200);
    assert!((100..2_000).contains(&count((Class::Standard, 1))), "{}", count((Class::Standard, 1)));
}

/// A write that the kernel took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    is_coalesced: bool,
    /// Length without the header in front of the packet.
    len: usize,
}

/// What became of some packets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delivery {
    written: Vec<Written>,
    rejected: usize,
    lost: usize,
}

/// An IPv4 datagram with a valid checksum.
fn datagram(ident: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
    packet[4..6].copy_from_slice(&ident.to_be_bytes());
    packet.extend([0, 7, 0, 9, 0, 108, 0, 0]);
    packet.extend([5; 100]);
    let header = Sum::of(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let sum =
        pseudo_v4([10, 9, 0, 2].into(), [10, 9, 0, 1].into(), 17, 108).add_bytes(&packet[20..]).finish();
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Writes ten datagrams of a flow to a kernel that takes coalesced packets or does not.
fn ten_datagrams(has_udp_gso: bool, takes_coalesced: bool) -> Delivery {
    let (written, mut rejected, mut lost) = (RefCell::new(Vec::new()), 0, 0);
    let write = |parts: &[IoSlice<'_>]| {
        let is_coalesced = parts[0][1] != 0;
        if is_coalesced && !takes_coalesced {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let len = parts.iter().map(|part| part.len()).sum();
        written.borrow_mut().push(Written { is_coalesced, len: len - VNET_HEADER_LEN });
        Ok(len)
    };
    let packets: Vec<_> = (0..10).map(datagram).collect();
    let list: PacketList<'_> = packets.iter().map(Vec::as_slice).collect();
    coalesce(&list, has_udp_gso, |batch| {
        rejected += usize::from(write_gro_batch(&write, batch, |_| lost += 1) == GroWrite::Rejected);
    });
    Delivery { written: written.into_inner(), rejected, lost }
}

#[test]
fn a_kernel_before_6_2_receives_each_datagram_separately() {
    let coalesced =
        Delivery { written: vec![Written { is_coalesced: true, len: 28 + 1_000 }], ..Delivery::default() };
    assert_eq!(ten_datagrams(true, true), coalesced, "a kernel that takes coalesced packets");
    let single = vec![Written { is_coalesced: false, len: 128 }; 10];
    let separate = |rejected| Delivery { written: single.clone(), rejected, lost: 0 };
    assert_eq!(ten_datagrams(false, false), separate(0), "offload not enabled");
    assert_eq!(ten_datagrams(true, false), separate(1), "rejected although offload was enabled");
}

/// A namespace with a TUN interface that has one address of each IP version.
fn end(number: u8) -> Option<(Netns, Tun)> {
    let netns = Netns::new().map_err(casemate_test_support::skip).ok()?;
    let open = || {
        let mut netlink = Netlink::open()?;
        let tun = Tun::create("end", &mut netlink)?;
        tun.set_up(1_400, &mut netlink)?;
        netlink.add_address(tun.index(), Ipv4Addr::new(10, 9, 0, number).into(), 24)?;
        netlink.add_address(
            tun.index(),
            Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number.into()).into(),
            64,
        )?;
        Ok::<_, Error>(tun)
    };
    let tun = netns.run(open).unwrap().unwrap();
    Some((netns, tun))
}

/// Ends the forwarding threads, however the test ends.
struct EndOnDrop<'e>(&'e AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Forwards packets from one interface to the other, split and coalesced as the engine does it. Returns the
/// length of the longest packet that the kernel handed over.
fn forward(from: &Tun, to: &Tun, is_over: &AtomicBool) -> usize {
    let (mut splitter, mut buffers, mut longest) = (SegmentSplitter::new(), vec![vec![0; 70_000]; BATCH], 0);
    let writer = to.writer().unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let mut ready = [false];
        sys::poll_readable(&[from.first_queue().as_fd()], &mut ready, Duration::from_millis(5)).unwrap();
        let mut lens: ArrayVec<usize, BATCH> = ArrayVec::new();
        for buffer in &mut buffers {
            if let Some(len) = splitter.split_next(buffer) {
                lens.push(len);
                continue;
            }
            let Some(len) = from.first_queue().read(splitter.buffer_mut()).unwrap() else { break };
            longest = longest.max(len);
            lens.extend(splitter.split_first(len, buffer));
        }
        let list: PacketList<'_> = buffers.iter().zip(&lens).map(|(buffer, len)| &buffer[..*len]).collect();
        writer.deliver_batch(&list, |_| {});
    }
    longest
}

/// Sets options that the kernel puts into every packet of a socket: four times "no operation", or destination
/// options with padding.
fn add_options(socket: &TcpStream, v4: bool) {
    let (level, name, options) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_OPTIONS, &[1, 1, 1, 1][..]),
        false => (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, &[0, 0, 1, 4, 0, 0, 0, 0][..]),
    };
    sys::set_option_bytes(socket.as_fd(), level, name, options).unwrap();
}

/// Transfers much data in a short time, as without options.
#[test]
fn tcp_with_options_or_extension_headers_passes() {
    const LEN: usize = 4 << 20;
    let (Some((near, near_tun)), Some((far, far_tun))) = (end(1), end(2)) else { return };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let out = scope.spawn(|| forward(&near_tun, &far_tun, &is_over));
        scope.spawn(|| forward(&far_tun, &near_tun, &is_over));
        let end = EndOnDrop(&is_over);
        for there in [IpAddr::from([10, 9, 0, 2]), "fd09::2".parse().unwrap()] {
            let listener = far.run(|| TcpListener::bind((there, 0)).unwrap()).unwrap();
            let addr = listener.local_addr().unwrap();
            let receiver = scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let (mut total, mut space) = (0, vec![0; 1 << 20]);
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(20) {
                    match stream.read(&mut space) {
                        Ok(len) if len > 0 => total += len,
                        // A signal ends a call with a timeout early (signal(7)).
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        _ => break,
                    }
                }
                total
            });
            let connect = || TcpStream::connect_timeout(&addr, Duration::from_secs(20));
            let mut stream = near.run(connect).unwrap().unwrap();
            add_options(&stream, there.is_ipv4());
            stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            let written = stream.write_all(&vec![7; LEN]);
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let arrived = receiver.join().unwrap();
            assert_eq!((arrived, written.is_ok()), (LEN, true), "bytes to {there}");
        }
        drop(end);
        assert!(out.join().unwrap() > 1_500, "the kernel handed over large packets");
    });
}
