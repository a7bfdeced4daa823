use super::*;
use crate::eventually::eventually;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

/// Where tests may not make namespaces, there is nothing to test.
fn netns() -> Option<Netns> {
    match Netns::new() {
        Ok(netns) => Some(netns),
        Err(error) => {
            casemate_left_out::note(error);
            None
        }
    }
}

#[test]
fn sockets_stay_where_they_were_opened() {
    let Some(netns) = netns() else { return };
    let listener = netns.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 7)).unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    assert!(TcpStream::connect(addr).is_err(), "the namespace is not the one outside");
    assert!(netns.run(|| TcpStream::connect(addr)).unwrap().is_ok());
    let links = netns.run(|| Netlink::open().unwrap().links().unwrap()).unwrap();
    assert!(links.iter().any(|link| link.name == "lo"), "{links:?}");
}

#[test]
fn an_echo_comes_back_whole_and_is_heard() {
    let Some(netns) = netns() else { return };
    let heard = netns.run(|| {
        let capture = Capture::open(Netlink::open().unwrap().link("lo").unwrap().index).unwrap();
        for dst in ["127.0.0.1", "::1"] {
            let mut echo = Echo::open(dst.parse().unwrap()).unwrap();
            for payload in [&b"is anybody there"[..], &[7; 3000]] {
                let (_, reply) = echo.ask(payload, Duration::from_secs(20)).unwrap();
                assert_eq!(reply, payload, "{dst}");
            }
        }
        assert_eq!(capture.lost().unwrap(), 0);
        let (mut frames, mut buffer) = (Vec::new(), vec![0; 70_000]);
        while let Some(len) = capture.next(&mut buffer, Duration::from_millis(10)).unwrap() {
            frames.push(buffer[..len].to_vec());
        }
        frames
    });
    let heard = heard.unwrap();
    let words = |frame: &&Vec<u8>| frame.windows(16).any(|window| window == b"is anybody there");
    // Request and reply of both versions, each of them sent and received.
    assert_eq!(heard.iter().filter(words).count(), 8);
}

#[test]
fn no_echo_is_an_error_in_time() {
    let Some(netns) = netns() else { return };
    let error = netns.run(|| {
        // Nobody there, but no error either: the loopback interface takes every packet.
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap();
        netlink.add_address(lo.index, [10, 0, 0, 1].into(), 24).unwrap();
        std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
        Echo::open([10, 0, 0, 1].into()).unwrap().ask(b"hello", Duration::from_millis(50)).unwrap_err()
    });
    assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn programs_run_inside_and_end_when_asked() {
    let Some(netns) = netns() else { return };
    let outside = fs::metadata("/proc/self/ns/net").unwrap().ino();
    let mut child = netns.spawn(Command::new("sleep").arg("60")).unwrap();
    let inside = fs::metadata(format!("/proc/{}/ns/net", child.id())).unwrap().ino();
    assert_ne!(inside, outside);
    assert_eq!(inside, netns.0.metadata().unwrap().ino());
    let status = terminate(&mut child, Duration::from_secs(20)).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    let mut deaf = Command::new("sh");
    deaf.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]).stdout(Stdio::piped());
    let mut child = netns.spawn(&mut deaf).unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
    assert_eq!(terminate(&mut child, Duration::from_millis(50)).unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn programs_end_with_the_thread_that_started_them() {
    let Some(netns) = netns() else { return };
    let start = || netns.spawn(Command::new("sleep").arg("60"));
    let mut child = in_thread(start).unwrap().unwrap();
    eventually("it ends", || child.try_wait().unwrap());
}
