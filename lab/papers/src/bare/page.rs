//! The paper's page over HTTP, 3.5 KB, as the firmware serves it: a server for Linux, and the client that takes the times of all servers.

use casemate_stage::{Error, Result};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Length of the page in bytes.
pub(super) const LEN: usize = 3_500;
/// The port of all servers.
const PORT: u16 = 80;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server\r\n\r\n";
const END: &[u8] = b"\r\n\r\n";
/// The longest head of a message.
const HEAD: usize = 2_048;

/// What one connection took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    /// Until TCP was connected.
    pub(super) connection: Duration,
    /// From the request to the last byte of the page.
    pub(super) response: Duration,
}

/// Fetches the page over a connection of its own.
pub(super) fn visit(server: Ipv4Addr) -> Result<Visit> {
    let to = SocketAddr::new(server.into(), PORT);
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(Error::in_front(to))?;
    let connection = begun.elapsed();
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .map_err(Error::in_front(to))?;
    let begun = Instant::now();
    stream.write_all(REQUEST).map_err(Error::in_front(to))?;
    take(&mut stream).map_err(Error::in_front(to))?;
    Ok(Visit { connection, response: begun.elapsed() })
}

fn take(stream: &mut TcpStream) -> io::Result<()> {
    let (mut answer, mut piece) = (Vec::with_capacity(HEAD + LEN), [0; 4_096]);
    while answer.len() < HEAD + LEN {
        let len = stream.read(&mut piece)?;
        answer.extend_from_slice(piece.get(..len).unwrap_or_default());
        let body =
            answer.windows(END.len()).position(|end| end == END).map(|at| answer.len() - at - END.len());
        match body {
            Some(LEN) if answer.starts_with(b"HTTP/1.1 200 ") => return Ok(()),
            _ if len == 0 => break,
            _ => {}
        }
    }
    Err(io::Error::other(format!("{} bytes came, which are not the page", answer.len())))
}

/// Serves the page, one connection after the other, until the process ends.
pub(super) fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(Error::in_front("port 80"))?;
    let mut page = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {LEN}\r\nConnection: keep-alive\r\n\r\n"
    );
    page.extend(std::iter::repeat_n('.', LEN));
    for stream in listener.incoming() {
        // A client that goes away, or says nothing, is no reason to end.
        let _ = stream.and_then(|stream| answer(stream, page.as_bytes()));
    }
    Ok(())
}

/// Answers every request of a connection, until the client closes it.
fn answer(mut stream: TcpStream, page: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut head, mut piece) = (Vec::with_capacity(HEAD), [0; HEAD]);
    while head.len() < HEAD {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        head.extend_from_slice(piece.get(..len).unwrap_or_default());
        if head.ends_with(END) {
            stream.write_all(page)?;
            head.clear();
        }
    }
    Ok(())
}
