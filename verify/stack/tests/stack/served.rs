//! Applications are served.

use crate::lab::{Lab, PEER, STACK};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

/// A page, an echo service and one for datagrams, each in a process of its own, all at once and through IPsec.
#[test]
fn several_applications_behind_ipsec() {
    let Some(mut lab) = Lab::protected("several", &[]) else { return };
    let _applications =
        [lab.ready("echo", "7000"), lab.ready("page", "8080"), lab.ready("datagrams", "5000")];
    // The first packet sets up the tunnel.
    lab.echoes(7_000, 10);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| lab.echoes(7_000, 300_000));
        }
        scope.spawn(|| (0..10).for_each(|_| assert!(page(&lab).ends_with("another process\n"))));
        scope.spawn(|| datagrams(&lab));
    });
    // An application that calls others.
    let listener = lab.at_peer(|| TcpListener::bind(SocketAddr::new(PEER, 9_000))).unwrap();
    let fetch = lab.application("fetch", &format!("{PEER}:9000"));
    let (mut stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), STACK);
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    stream.write_all(b"and an answer\n").unwrap();
    drop(stream);
    assert_eq!((line.as_str(), fetch.line().as_str()), ("a line\n", "and an answer"));
    assert!(lab.server.stop());
    let summary = lab.server.await_line("casemate:");
    assert!(summary.starts_with("casemate: 4 applications, 0 turned away, 0 broke the rules"), "{summary}");
}

fn page(lab: &Lab) -> String {
    let mut stream = lab.connect(8_080);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.0 200 OK\r\n"), "{page}");
    page
}

fn datagrams(lab: &Lab) {
    let socket = lab.at_peer(|| UdpSocket::bind(SocketAddr::new(PEER, 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for len in [0, 1, 500, 1_400, 1_900] {
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        socket.send_to(&data, SocketAddr::new(STACK, 5_000)).unwrap();
        let mut back = [0; 2_000];
        let (count, from) = loop {
            match socket.recv_from(&mut back) {
                // A signal ends a call with a time limit early (signal(7)).
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        assert!(back[..count] == data && from == SocketAddr::new(STACK, 5_000), "{len}");
    }
}

/// What policy wants protected is not taken in clear.
#[test]
fn clear_text_is_not_served() {
    let Some(mut lab) = Lab::protected("clear-text", &[]) else { return };
    let _echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 1_000);
    assert!(lab.peer.take().unwrap().stop());
    let connect = || {
        let to = SocketAddr::new(STACK, 7_000);
        std::net::TcpStream::connect_timeout(&to, Duration::from_millis(700))
    };
    assert!(lab.at_peer(connect).is_err());
}

/// Two processes may not have one port, and both know it.
#[test]
fn ports_and_grants() {
    let Some(lab) = Lab::clear("ports", &["--grant", "4000000000=1-1023"]) else { return };
    let _first = lab.ready("echo", "7000");
    assert_eq!(lab.application("echo", "7000").line(), "echo: the port is in use");
    let refusal = lab.application("echo", "80").line();
    assert!(refusal.starts_with("echo: the port is not for this application"), "{refusal}");
    let granted = Lab::clear("granted", &["--grant", "0=80"]).unwrap();
    granted.ready("echo", "80");
}
