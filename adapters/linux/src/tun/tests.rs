use super::*;
use crate::netns::Netns;
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_sched::{DscpTable, Rule};
use socket2::SockRef;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

/// Where tests may not make namespaces, or may not load programs, there is nothing to test.
fn sorted(classifier: &Classifier) -> Option<(Netns, Tun)> {
    let netns = Netns::new().map_err(casemate_left_out::note).ok()?;
    let open = || {
        let mut netlink = Netlink::open()?;
        let tun = Tun::create_sorted("sorted", 1_400, classifier, &mut netlink)?;
        netlink.add_address(tun.index(), Ipv4Addr::new(10, 9, 0, 1).into(), 24)?;
        netlink.add_address(tun.index(), "fd09::1".parse::<Ipv6Addr>().unwrap().into(), 64)?;
        Ok::<_, Error>(tun)
    };
    let tun = netns.run(open).unwrap();
    match tun {
        Ok(tun) => Some((netns, tun)),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            casemate_left_out::note(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// In which queue each packet waits that is there; by the last byte of its payload.
fn waiting(tun: &Tun) -> Vec<(Class, u8)> {
    let mut space = vec![0; 70_000];
    let mut found = Vec::new();
    for (class, queue) in Class::ALL.into_iter().zip(tun.queues()) {
        while let Some(len) = queue.take(&mut space).unwrap() {
            // Not what the kernel says by itself, such as router solicitations.
            if matches!(space[HEADER_LEN..len], [0x45, ..] | [0x60..=0x6f, _, _, _, _, _, 17, ..]) {
                found.push((class, space[len - 1]));
            }
        }
    }
    found
}

#[test]
fn packets_of_the_host_wait_with_their_class() {
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
fn bulk_that_nobody_reads_takes_no_place_from_voice() {
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
