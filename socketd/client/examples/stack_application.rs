//! A test application of `casemate stack`, with one of several roles. It prints `ready` when it has started.
//!
//! ```text
//!     stack_application SOCKET echo PORT               TCP echo service (RFC 862)
//!     stack_application SOCKET page PORT               HTTP server with one page
//!     stack_application SOCKET datagrams PORT          UDP echo service
//!     stack_application SOCKET fetch ADDRESS:PORT      connects, sends a line, prints the response
//!     stack_application SOCKET pour ADDRESS:PORT       connects and sends until it is killed
//!     stack_application SOCKET half PORT               listens, then writes an incomplete request to its
//!     ring
//!     stack_application SOCKET scribble SEED           writes random words to its shared memory until it
//!     is killed
//!     stack_application SOCKET idle                    does nothing, without root's capabilities
//!     stack_application SOCKET hoard                   opens sockets until the server refuses, and
//!     prints the error
//!     stack_application SOCKET look PID                tries to open the memory of that process
//! ```
#![allow(clippy::print_stdout, reason = "the output is the result")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_socketd_client::{Session, TcpListener, TcpStream, UdpSocket};
use casemate_test_support::TestRng;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, role, rest @ ..] = &arguments[..] else {
        panic!("usage: stack_application SOCKET ROLE [ARGUMENT]")
    };
    if let Err(error) = play(socket, role, rest.first().map_or("", String::as_str)) {
        println!("{role}: {error}");
        std::process::exit(1);
    }
}

fn play(socket: &str, role: &str, argument: &str) -> io::Result<()> {
    let stack = Session::connect(socket)?;
    match role {
        "echo" => serve(&stack, argument, |stream| io::copy(&mut &*stream, &mut &*stream).map(drop)),
        "page" => serve(&stack, argument, page),
        "datagrams" => datagrams(&stack, argument),
        "fetch" => fetch(&stack, argument),
        "pour" => pour(&stack, argument),
        "half" => half(&stack, socket, argument),
        "scribble" => scribble(&stack, argument.parse().unwrap()),
        "idle" => casemate_socketd_client::privileges::drop_privileges().and_then(|()| idle()),
        "hoard" => hoard(&stack),
        "look" => look(argument),
        other => panic!("unknown role `{other}`"),
    }
}

fn any(port: &str) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port.parse().unwrap()).into()
}

fn ready() {
    println!("ready");
    io::stdout().flush().unwrap();
}

/// Starts a thread per connection.
fn serve(stack: &Session, port: &str, talk: fn(&TcpStream) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind(stack, any(port))?;
    ready();
    loop {
        let (stream, _) = listener.accept()?;
        // A reset connection is not an error of the service.
        thread::spawn(move || talk(&stream));
    }
}

fn page(stream: &TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let body = "a page, served from another process\n".repeat(100);
    let mut out = stream;
    write!(out, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    stream.shutdown_write()
}

fn datagrams(stack: &Session, port: &str) -> io::Result<()> {
    let socket = UdpSocket::bind(stack, any(port))?;
    ready();
    let mut data = [0; 2_000];
    loop {
        let (len, from) = socket.recv_from(&mut data)?;
        socket.send_to(&data[..len], from)?;
    }
}

fn fetch(stack: &Session, from: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(stack, from.parse().unwrap(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)));
    stream.write_all(b"a line\n")?;
    stream.shutdown_write()?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    println!("{}", text.trim_end());
    Ok(())
}

fn pour(stack: &Session, to: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(stack, to.parse().unwrap())?;
    ready();
    loop {
        stream.write_all(&[7; 10_000])?;
    }
}

/// Simulates an application that is killed between two writes to its ring.
fn half(stack: &Session, socket: &str, port: &str) -> io::Result<()> {
    let _listener = TcpListener::bind(stack, any(port))?;
    let other = Session::connect(socket)?;
    // The start of a request header, without an update of the write position.
    other.with_memory(|words| {
        for (at, word) in words.iter().enumerate().skip(48).take(3) {
            word.store(at as u64, std::sync::atomic::Ordering::SeqCst);
        }
    });
    ready();
    idle()
}

fn scribble(stack: &Session, seed: u64) -> io::Result<()> {
    ready();
    let mut rng = TestRng::new(seed);
    loop {
        stack.with_memory(|words| {
            for _ in 0..64 {
                // Often the first word of one of the first six cache lines.
                let at = if rng.below(4) == 0 { rng.below(6) * 8 } else { rng.below(words.len()) };
                words[at].store(rng.next_u64() >> 40, std::sync::atomic::Ordering::Relaxed);
            }
        });
        stack.notify();
        thread::sleep(Duration::from_micros(200));
    }
}

fn idle() -> io::Result<()> {
    ready();
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

fn hoard(stack: &Session) -> io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..100_000 {
        match UdpSocket::bind(stack, any("0")) {
            Ok(socket) => all.push(socket),
            Err(error) => {
                println!("{} sockets, then {:?}", all.len(), error.kind());
                return Ok(());
            }
        }
    }
    println!("no limit");
    Ok(())
}

/// Drops root's capabilities first, which would permit access to any process.
fn look(process: &str) -> io::Result<()> {
    casemate_socketd_client::privileges::drop_privileges()?;
    let own = std::fs::File::open("/proc/self/mem").is_ok();
    let other = std::fs::File::open(format!("/proc/{process}/mem"));
    println!("own {own}, other {:?}", other.err().map(|error| error.kind()));
    Ok(())
}
