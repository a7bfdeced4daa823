//! Where metrics are served: a Unix socket, or a TCP port of a loopback address.

use casemate_linux::{Error, unix_socket};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

/// The option that names the address.
const OPTION: &str = "--metrics";

/// The address at which metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A Unix socket, for root and the user of the instance.
    Unix(PathBuf),
    /// A port of a loopback address, for all users of the host.
    Loopback(SocketAddr),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        let expected = "unix:/PATH, 127.0.0.1:PORT or [::1]:PORT was expected";
        let address: SocketAddr = text.parse().map_err(|_| expected.to_owned())?;
        if !address.ip().is_loopback() {
            return Err("metrics have no authentication and no encryption, so they are not served to other \
                        hosts: --metrics unix:/PATH or --metrics 127.0.0.1:PORT was expected, with a reverse \
                        proxy with TLS for other hosts"
                .into());
        }
        if address.port() == 0 {
            return Err(expected.into());
        }
        Ok(Self::Loopback(address))
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

impl MetricsAddress {
    /// Opens the address. Fails if another program serves it.
    pub(crate) fn listen(&self) -> Result<MetricsListener, Error> {
        match self {
            Self::Unix(path) => unix_socket::listen_alone(path, OPTION).map(MetricsListener::Unix),
            Self::Loopback(address) => {
                let failed = |error| {
                    Error::other(
                        address.to_string(),
                        format!("{error}: another port was expected with {OPTION}"),
                    )
                };
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(MetricsListener::Tcp(listener))
            }
        }
    }
}

/// A listener that does not block.
pub(crate) enum MetricsListener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl MetricsListener {
    /// Accepts a client; `None` if it may not read the metrics.
    pub(super) fn accept(&self) -> io::Result<Option<MetricsStream>> {
        let stream = match self {
            Self::Unix(listener) => MetricsStream::Unix(listener.accept()?.0),
            Self::Tcp(listener) => MetricsStream::Tcp(listener.accept()?.0),
        };
        Ok(stream.prepare().is_ok().then_some(stream))
    }
}

impl AsFd for MetricsListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// A connection that does not block.
pub(super) enum MetricsStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl MetricsStream {
    fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => unix_socket::check_peer(stream).and_then(|()| stream.set_nonblocking(true)),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        }
    }
}

impl Read for MetricsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for MetricsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for MetricsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MetricsAddress, String> {
        text.parse()
    }

    #[test]
    fn only_local_addresses_are_accepted() {
        assert_eq!(parse("/run/m"), Ok(MetricsAddress::Unix("/run/m".into())));
        assert_eq!(parse("unix:/run/m"), parse("/run/m"));
        for loopback in ["127.0.0.1:9464", "127.8.0.1:1", "[::1]:9464"] {
            assert_eq!(parse(loopback).unwrap().to_string(), loopback);
        }
        for other in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "[2001:db8::1]:1"] {
            assert!(parse(other).unwrap_err().contains("reverse proxy with TLS"), "{other}");
        }
        for wrong in
            ["", "unix:", "unix:run/m", "run/m", "127.0.0.1", "127.0.0.1:0", "localhost:9464", ":9464"]
        {
            assert!(parse(wrong).unwrap_err().contains("was expected"), "{wrong}");
        }
    }
}
