//! Client of a device's web server. For our page, compares each byte.

use crate::tcp::{connect, connect_from};
use casemate_interop::{Error, PAGE, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 80;
/// First local port for connections that the server closes. The server keeps each connection in TIME_WAIT
/// for minutes and rejects the same port; random ports of the kernel would sometimes repeat.
const FIRST_OF_OURS: u16 = 20_000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: device\r\n\r\n";
/// Connections for counting requests: so many that the device never waits for a request.
const CONNECTIONS: usize = 12;

/// Fetches the page `times` times over one connection.
pub(crate) fn fetch(from: IpAddr, to: IpAddr, times: usize) -> Result<String> {
    let start = Instant::now();
    let mut client = Client::connect(from, to)?;
    (0..times).try_for_each(|_| client.request())?;
    client.finish()?;
    let bytes = PAGE.len().saturating_mul(times);
    Ok(format!("{bytes} bytes in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}

/// Fetches the first page of lwIP's web server with one connection each time. All pages have to be equal.
pub(crate) fn visit(from: IpAddr, to: IpAddr, times: usize) -> Result<String> {
    let start = Instant::now();
    let mut pages =
        (FIRST_OF_OURS..).take(times).map(|port| visit_once((from, port).into(), (to, PORT).into()));
    let first = pages.next().unwrap_or_else(|| Err(Error::new("TIMES has to be greater than 0")))?;
    for page in pages {
        if page? != first {
            return Err(Error::new("the page differs from the first one"));
        }
    }
    let bytes = first.len().saturating_mul(times);
    Ok(format!("{bytes} bytes in {:.1} ms", start.elapsed().as_secs_f64() * 1e3))
}

fn visit_once(from: SocketAddr, to: SocketAddr) -> Result<Vec<u8>> {
    let mut stream = connect_from(from, to).map_err(Error::context("connection"))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").map_err(Error::context("request"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(Error::context("answer"))?;
    let is_whole =
        answer.starts_with(b"HTTP/1.0 200 OK\r\n") && answer.trim_ascii_end().ends_with(b"</html>");
    if is_whole { Ok(answer) } else { Err(Error::new("the response is not a complete page")) }
}

/// Fetches the page repeatedly over persistent connections. Returns the number of requests per second.
pub(crate) fn requests(from: IpAddr, to: IpAddr, seconds: &str) -> Result<String> {
    let length = Duration::from_secs_f64(seconds.parse().map_err(Error::context(seconds))?);
    let clients = (0..CONNECTIONS).map(|_| Client::connect(from, to)).collect::<Result<Vec<Client>>>()?;
    let start = Instant::now();
    let count: Result<u64> = thread::scope(|scope| {
        let askers: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || client.ask_until(start, length))).collect();
        askers
            .into_iter()
            .map(|asker| asker.join().unwrap_or_else(|_| Err(Error::new("a client panicked"))))
            .sum()
    });
    count.map(|count| format!("{}", count as f64 / start.elapsed().as_secs_f64()))
}

struct Client(TcpStream);

impl Client {
    fn connect(from: IpAddr, to: IpAddr) -> Result<Self> {
        let stream = connect(from, to, PORT).and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        stream.map(Self).map_err(Error::context("connection"))
    }

    /// Fetches pages until `length` has elapsed since `start`. Returns their number.
    fn ask_until(mut self, start: Instant, length: Duration) -> Result<u64> {
        let mut count = 0u64;
        while start.elapsed() < length {
            self.request()?;
            count = count.saturating_add(1);
        }
        Ok(count)
    }

    /// Waits until the device has closed its end too. The next step may close the SA, and the last
    /// acknowledgement must not leave after that.
    fn finish(mut self) -> Result<()> {
        self.0.shutdown(Shutdown::Write).map_err(Error::context("end"))?;
        match self.0.read(&mut [0]).map_err(Error::context("end"))? {
            0 => Ok(()),
            _ => Err(Error::new("the device sent more than the page")),
        }
    }

    fn request(&mut self) -> Result<()> {
        self.ask()?;
        self.take()
    }

    fn ask(&mut self) -> Result<()> {
        self.0.write_all(REQUEST).map_err(Error::context("request"))
    }

    fn take(&mut self) -> Result<()> {
        let mut answer = Vec::with_capacity(8_192);
        let mut part = [0; 8_192];
        loop {
            let len = self.0.read(&mut part).map_err(Error::context("answer"))?;
            if len == 0 {
                return Err(Error::new(format!("the connection ended after {} bytes", answer.len())));
            }
            answer.extend_from_slice(part.get(..len).unwrap_or_default());
            let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            let body = answer.get(head.saturating_add(4)..).unwrap_or_default();
            if body.len() >= PAGE.len() {
                let is_right = answer.starts_with(b"HTTP/1.1 200 OK\r\n") && body == PAGE;
                return if is_right { Ok(()) } else { Err(Error::new("the response is not the page")) };
            }
        }
    }
}
