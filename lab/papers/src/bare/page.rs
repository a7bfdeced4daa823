//! The paper's web page of 3.5 KB, as served by the firmware: a server for Linux, and the client that
//! measures all servers.

use casemate_testbed::{Error, Result};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Length of the page in bytes.
pub(super) const LEN: usize = 3_500;
/// Port of all servers.
const PORT: u16 = 80;
/// Time limit of both sides.
const TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server\r\n\r\n";
const END: &[u8] = b"\r\n\r\n";
/// Maximum length of an HTTP header section.
const MAX_HEAD_LEN: usize = 2_048;

/// Times of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageLoad {
    /// Time until TCP was connected.
    pub(super) connection: Duration,
    /// Time from the request to the last byte of the page.
    pub(super) response: Duration,
}

/// Fetches the page over a new connection.
pub(super) fn fetch(server: Ipv4Addr) -> Result<PageLoad> {
    let to = SocketAddr::new(server.into(), PORT);
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).map_err(Error::context(to))?;
    let connection = start.elapsed();
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(TIMEOUT)))
        .map_err(Error::context(to))?;
    let start = Instant::now();
    stream.write_all(REQUEST).map_err(Error::context(to))?;
    read_page(&mut stream).map_err(Error::context(to))?;
    Ok(PageLoad { connection, response: start.elapsed() })
}

fn read_page(stream: &mut TcpStream) -> io::Result<()> {
    let (mut answer, mut piece) = (Vec::with_capacity(MAX_HEAD_LEN + LEN), [0; 4_096]);
    while answer.len() < MAX_HEAD_LEN + LEN {
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

/// Serves the page, one connection at a time, until the process ends.
pub(super) fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(Error::context("port 80"))?;
    let mut page = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {LEN}\r\nConnection: keep-alive\r\n\r\n"
    );
    page.extend(std::iter::repeat_n('.', LEN));
    for stream in listener.incoming() {
        // The server continues if a client disconnects or is silent.
        let _ = stream.and_then(|stream| serve_connection(stream, page.as_bytes()));
    }
    Ok(())
}

/// Answers every request of a connection until the client closes it.
fn serve_connection(mut stream: TcpStream, page: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (mut head, mut piece) = (Vec::with_capacity(MAX_HEAD_LEN), [0; MAX_HEAD_LEN]);
    while head.len() < MAX_HEAD_LEN {
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
