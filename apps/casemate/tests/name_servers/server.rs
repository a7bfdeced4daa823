//! A name server behind the gateway. It returns one address for every name.

use crate::testnet::{Host, SetOnDrop};
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The address of every name.
pub(crate) const ANSWER: [u8; 4] = [10, 2, 0, 99];

/// Runs `work` while the server of `host` responds at `addr`. `work` gets the names of the queries so far.
pub(crate) fn with_server<T>(host: &Host, addr: &str, work: impl FnOnce(&Mutex<Vec<String>>) -> T) -> T {
    let socket = host.run(|| UdpSocket::bind((addr, 53))).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (is_over, names) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| {
            let mut query = [0; 1_500];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((len, peer)) = socket.recv_from(&mut query) else { continue };
                let Some((name, response)) = respond(&query[..len]) else { continue };
                names.lock().unwrap().push(name);
                let _ = socket.send_to(&response, peer);
            }
        });
        work(&names)
    })
}

/// The name of a query, and the response (RFC 1035 section 4.1).
fn respond(query: &[u8]) -> Option<(String, Vec<u8>)> {
    let (mut at, mut name) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        let label = query.get(at + 1..at + 1 + len)?;
        at += 1 + len;
        if len == 0 {
            break;
        }
        name.push(String::from_utf8_lossy(label).into_owned());
    }
    let question = query.get(12..at + 4)?;
    let is_a = question.ends_with(&[0, 1, 0, 1]);
    let mut response =
        [query.get(..2)?, &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0], question].concat();
    if is_a {
        response.extend([&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4][..], &ANSWER].concat());
    }
    Some((name.join("."), response))
}
