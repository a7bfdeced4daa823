//! lwIP with its own threads: one for the driver, one for the stack, and more for applications with sockets.

use crate::pair::{Pair, with_each_of};
use crate::web::{WEB, fetch, few};
use casemate_lwip_tests::program::{Build, Sanitizer};
use smoltcp::socket::tcp;

/// Port of the page that the example serves with lwIP's sockets.
const BY_SOCKETS: u16 = 8_080;
/// Length of the peer's page.
const PAGE: usize = 20_000;

pub(crate) const BUILDS: [Build; 2] = [
    Build { version: "2.2.1", is_threaded: true, sanitizer: Sanitizer::Address },
    Build { version: "2.2.1", is_threaded: true, sanitizer: Sanitizer::Thread },
];

/// Lets lwIP fetch a page of the peer with its sockets.
fn get_from_peer(pair: &mut Pair) {
    let (own, _) = pair.inner;
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
        let (own, other) = pair.inner;
        pair.job(&format!("ping {other} {own} 0 1 100 1400-1500 9000"), |_| ());
        assert_eq!(pair.lwip_drops(), "nothing dropped", "{}", case.name());
        assert_eq!(pair.seen.protocols(), [case.protocol]);
    });
}
