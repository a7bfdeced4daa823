//! Other builds of lwIP with Casemate: its web server and iperf server, lwIP with its own threads (one for
//! the driver, one for the stack, and more for applications with sockets), and options that the other tests
//! do not use.

use crate::pair::{PairAddrs, StaticCase, StaticPair, with_each, with_each_of};
use casemate_lwip_tests::program::{self, Build, Sanitizer};
use casemate_sa::Mode;
use casemate_test_support::hosts::Ends;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use smoltcp::wire::IpAddress;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of lwIP's web server and of its iperf server.
pub(crate) const WEB: u16 = 80;
const IPERF: u16 = 5_001;

/// Returns a few test cases.
pub(crate) fn few() -> Vec<StaticCase> {
    vec![
        StaticCase::esp(Ends::transport(4), Mode::Transport),
        StaticCase::esp(Ends::tunnel(6, 6), Mode::Tunnel),
        StaticCase::ah(Ends::transport(6), Mode::Transport),
    ]
}

/// Connects from the peer to a port of lwIP. Each connection uses another source port, because lwIP
/// remembers connections that it closed first.
fn connect(pair: &mut StaticPair, port: u16) -> SocketHandle {
    static NEXT: AtomicU16 = AtomicU16::new(4_000);
    let from = NEXT.fetch_add(1, Ordering::Relaxed);
    let PairAddrs { peer: own, lwip: other } = pair.inner;
    let handle = pair.peer.tcp();
    let context = pair.peer.interface.context();
    let socket = pair.peer.sockets.get_mut::<tcp::Socket>(handle);
    socket.connect(context, (IpAddress::from(other), port), (IpAddress::from(own), from)).unwrap();
    handle
}

/// Returns the response of a server to an HTTP request.
pub(crate) fn fetch(pair: &mut StaticPair, port: u16) -> String {
    let handle = connect(pair, port);
    let (mut asked, mut page) = (false, Vec::new());
    pair.run("a page", |peer| {
        let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
        if socket.can_send() && !asked {
            socket.send_slice(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            asked = true;
        }
        if socket.can_recv() {
            socket.recv(|part| (part.len(), page.extend_from_slice(part))).unwrap();
        }
        asked && !page.is_empty() && !socket.may_recv()
    });
    pair.peer.sockets.get_mut::<tcp::Socket>(handle).close();
    String::from_utf8(page).unwrap()
}

#[test]
fn the_web_server_serves_its_page() {
    with_each(few(), |case, pair| {
        for _ in 0..3 {
            let page = fetch(pair, WEB);
            assert!(page.starts_with("HTTP/1.0 200 OK\r\n"), "{}: {page}", case.name());
            assert!(page.contains("lwIP - A Lightweight TCP/IP Stack") && page.contains("</html>"), "{page}");
        }
        assert_eq!(pair.seen.protocols(), [case.protocol]);
    });
}

/// Two megabytes in iperf's format: a header of 24 bytes that requests one direction, then the data.
#[test]
fn the_iperf_server_receives_data() {
    const BYTES: usize = 2_000_000;
    with_each(few(), |case, pair| {
        let handle = connect(pair, IPERF);
        let data: Vec<u8> = (0..BYTES).map(|at| if at < 24 { 0 } else { b'0' + (at % 10) as u8 }).collect();
        let mut sent = 0;
        pair.run(&case.name(), |peer| {
            let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
            if socket.can_send() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            sent == BYTES && socket.send_queue() == 0
        });
        pair.peer.sockets.get_mut::<tcp::Socket>(handle).close();
        pair.run("the end", |peer| !peer.sockets.get_mut::<tcp::Socket>(handle).is_active());
        assert_eq!(pair.lwip_drops(), "nothing dropped");
        assert_eq!(pair.seen.protocols(), [case.protocol]);
    });
}

/// Port of the page that the example serves with lwIP's sockets.
const BY_SOCKETS: u16 = 8_080;
/// Length of the peer's page.
const PAGE: usize = 20_000;

pub(crate) const BUILDS: [Build; 2] = [
    Build { version: "2.2.1", is_threaded: true, sanitizer: Sanitizer::Address },
    Build { version: "2.2.1", is_threaded: true, sanitizer: Sanitizer::Thread },
];

/// Lets lwIP fetch a page of the peer with its sockets.
fn get_from_peer(pair: &mut StaticPair) {
    let own = pair.inner.peer;
    let handle = pair.peer.tcp();
    pair.peer.sockets.get_mut::<tcp::Socket>(handle).listen(WEB).unwrap();
    let (page, mut asked, mut sent) = (vec![b'y'; PAGE], Vec::new(), 0);
    pair.job(&format!("get {own}"), |peer| {
        let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
        if socket.can_recv() {
            socket.recv(|part| (part.len(), asked.extend_from_slice(part))).unwrap();
        }
        if asked.ends_with(b"\r\n\r\n") && socket.can_send() {
            sent += socket.send_slice(&page[sent..]).unwrap();
            if sent == PAGE {
                socket.close();
            }
        }
    });
    assert_eq!((asked.as_slice(), sent), (&b"GET / HTTP/1.0\r\n\r\n"[..], PAGE));
}

#[test]
fn sockets_and_callbacks_work_with_threads() {
    with_each_of(&BUILDS, few(), |case, pair| {
        let page = fetch(pair, BY_SOCKETS);
        assert!(page.starts_with("HTTP/1.0 200 OK\r\n") && page.ends_with(&"x".repeat(3_500)), "{page}");
        assert!(fetch(pair, WEB).contains("lwIP - A Lightweight TCP/IP Stack"));
        get_from_peer(pair);
        let PairAddrs { peer: own, lwip: other } = pair.inner;
        pair.job(&format!("ping {other} {own} 0 1 100 1400-1500 9000"), |_| ());
        assert_eq!(pair.lwip_drops(), "nothing dropped", "{}", case.name());
        assert_eq!(pair.seen.protocols(), [case.protocol]);
    });
}

/// Compiles the C part with each version of lwIP and checks the outcome: success, or the compiler's messages.
fn check(options: &[&str], is_right: impl Fn(Result<(), String>) -> bool) {
    for version in program::VERSIONS {
        match program::check_glue(version, options) {
            Ok(outcome) => assert!(is_right(outcome.clone()), "lwIP {version} {options:?}: {outcome:?}"),
            Err(error) => casemate_test_support::skip(format!("lwIP {version}: {error}")),
        }
    }
}

#[test]
fn builds_with_threads_and_with_a_single_ip_version_compile() {
    for options in [&["NO_SYS=0"][..], &["LWIP_IPV6=0"], &["LWIP_IPV4=0"], &["NO_SYS=0", "LWIP_IPV6=0"]] {
        check(options, |outcome| outcome.is_ok());
    }
}

#[test]
fn options_that_bypass_ipsec_do_not_compile() {
    for option in ["LWIP_RAW=0", "IP_FORWARD=1", "LWIP_ND6_ALLOW_RA_UPDATES=1"] {
        check(&[option], |outcome| outcome.is_err_and(|message| message.contains("#error \"casemate: ")));
    }
}
