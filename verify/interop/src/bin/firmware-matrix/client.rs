//! The part that runs inside the namespace: a client of the web server, every byte of the page compared.

use casemate_interop::{Error, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What the firmware serves.
pub(crate) const PAGE: &[u8] = include_bytes!("../../../../../apps/firmware/src/page.html");

const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(3);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: firmware\r\n\r\n";
/// Connections at once when requests are counted.
const CONNECTIONS: usize = 4;

/// Fetches the page once.
pub(crate) fn fetch(address: &str) -> Result<String> {
    let start = Instant::now();
    Client::connect(address)?.request()?;
    Ok(format!("{} bytes in {:.1} ms", PAGE.len(), start.elapsed().as_secs_f64() * 1e3))
}

/// Fetches the page again and again over connections that stay; says how often in a second.
pub(crate) fn requests(address: &str, seconds: &str) -> Result<String> {
    let seconds: f64 = seconds.parse().map_err(Error::in_front(seconds))?;
    let mut clients = (0..CONNECTIONS).map(|_| Client::connect(address)).collect::<Result<Vec<Client>>>()?;
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed().as_secs_f64() < seconds {
        // All are asked before the first answer is awaited.
        clients.iter_mut().try_for_each(Client::ask)?;
        clients.iter_mut().try_for_each(Client::take)?;
        count = count.saturating_add(CONNECTIONS as u32);
    }
    Ok(format!("{}", f64::from(count) / start.elapsed().as_secs_f64()))
}

struct Client(TcpStream);

impl Client {
    fn connect(address: &str) -> Result<Self> {
        let address: IpAddr = address.parse().map_err(Error::in_front(address))?;
        let stream = TcpStream::connect_timeout(&SocketAddr::from((address, PORT)), PATIENCE)
            .and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .map_err(Error::in_front("connection"))?;
        Ok(Self(stream))
    }

    fn request(&mut self) -> Result<()> {
        self.ask()?;
        self.take()
    }

    fn ask(&mut self) -> Result<()> {
        self.0.write_all(REQUEST).map_err(Error::in_front("request"))
    }

    fn take(&mut self) -> Result<()> {
        let mut answer = Vec::with_capacity(8_192);
        let mut part = [0; 8_192];
        loop {
            let len = self.0.read(&mut part).map_err(Error::in_front("answer"))?;
            if len == 0 {
                return Err(Error::new(format!("the connection ended after {} bytes", answer.len())));
            }
            answer.extend_from_slice(part.get(..len).unwrap_or_default());
            let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            let body = answer.get(head.saturating_add(4)..).unwrap_or_default();
            if body.len() >= PAGE.len() {
                let is_right = answer.starts_with(b"HTTP/1.1 200 OK\r\n") && body == PAGE;
                return if is_right { Ok(()) } else { Err(Error::new("what came is not the page")) };
            }
        }
    }
}
