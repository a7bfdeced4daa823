//! The traffic between the hosts: a letter over HTTP, echo requests, and bulk data.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Text in every line of the letter and in every echo request, which must not be visible on the wire.
pub(super) const SECRET: &str = "Meet me at the postern gate at midnight";
const REQUEST: &str = "GET /letter HTTP/1.1\r\nHost: right\r\nConnection: close\r\n\r\n";
const HTTP: u16 = 80;
const BULK: u16 = 5001;
const LINES: usize = 400;
/// Timeout on an established connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The letter, which takes many packets.
pub(super) fn letter() -> String {
    (1..=LINES).map(|n| format!("{n:03} {SECRET}.\r\n")).collect()
}

/// The whole HTTP response.
fn response() -> String {
    let letter = letter();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{letter}",
        letter.len()
    )
}

/// The servers of one host, which run until the process ends.
pub(super) struct Servers {
    requests: Arc<AtomicU32>,
}

impl Servers {
    /// Starts the servers in the current network namespace.
    pub(super) fn start() -> io::Result<Self> {
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        serve(HTTP, move |stream| {
            count.fetch_add(1, Ordering::SeqCst);
            answer_request(stream)
        })?;
        serve(BULK, count_bytes)?;
        Ok(Self { requests })
    }

    /// Number of HTTP connections so far.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Serves connections one after the other, over both IP versions.
fn serve(port: u16, work: impl Fn(TcpStream) -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    thread::Builder::new().spawn(move || {
        for stream in listener.incoming() {
            // The client notices and reports an error on its connection.
            let _ = stream.and_then(&work);
        }
    })?;
    Ok(())
}

fn answer_request(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(&stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let answer = match first.as_str() {
        "GET /letter HTTP/1.1" => response(),
        _ => "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n".into(),
    };
    stream.write_all(answer.as_bytes())
}

/// Reads to the end of the stream, then sends back the number of bytes.
fn count_bytes(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (mut buffer, mut total) = (vec![0; 1 << 18], 0u64);
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return stream.write_all(&total.to_be_bytes());
        }
        total = total.saturating_add(len as u64);
    }
}

/// Fetches the letter from the server at `host`. Any difference in the response is an error.
pub(super) fn fetch_letter(host: IpAddr, timeout: Duration) -> io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(host, HTTP), timeout)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(REQUEST.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let expected = response();
    if answer == expected.as_bytes() {
        return Ok(answer.len());
    }
    let same = answer.iter().zip(expected.as_bytes()).take_while(|(a, b)| a == b).count();
    let (got, wanted) = (answer.len(), expected.len());
    Err(io::Error::other(format!(
        "a response of {got} bytes, wrong from byte {same} on: {wanted} bytes were expected"
    )))
}

/// Sends for `time`; returns the bytes per second that arrived.
pub(super) fn bulk(host: IpAddr, time: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(host, BULK), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let chunk = vec![0x5a; 1 << 17];
    let (start, mut sent) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        stream.write_all(&chunk)?;
        sent = sent.saturating_add(chunk.len() as u64);
    }
    stream.shutdown(Shutdown::Write)?;
    let mut arrived = [0; 8];
    stream.read_exact(&mut arrived)?;
    let seconds = start.elapsed().as_secs_f64();
    let arrived = u64::from_be_bytes(arrived);
    if arrived != sent {
        return Err(io::Error::other(format!("{sent} bytes sent, but {arrived} arrived")));
    }
    Ok(arrived as f64 / seconds)
}

/// Short text of an error.
pub(super) fn short_error(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer".into(),
        _ => error.to_string(),
    }
}
