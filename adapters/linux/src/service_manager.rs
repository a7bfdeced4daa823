//! Reports to the service manager that started this program, as sd_notify(3) describes: ready, reloading,
//! stopping, and alive.
//!
//! The watchdog reports come from the event loop alone. If it hangs, they end, and the service manager starts
//! the program again. Without a service manager, all calls do nothing.

use crate::Error;
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Variable with the address of the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Variable with the time in microseconds after which a silent program is killed.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// Variable with the process that the watchdog expects reports of.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

/// When the manager expects reports.
#[derive(Debug, Clone, Copy)]
struct Watchdog {
    interval: Duration,
    last: Instant,
}

impl ServiceManager {
    /// Connects to the service manager that the environment names.
    pub fn from_environment() -> Result<Self, Error> {
        let Some(address) = env::var_os(SOCKET).filter(|address| !address.is_empty()) else {
            return Ok(Self { socket: None, watchdog: None });
        };
        let socket = connect(address.as_bytes()).map_err(|error| Error::new(SOCKET, error))?;
        let own = std::process::id().to_string();
        let is_meant = env::var(WATCHDOG_PROCESS).map_or(true, |process| process == own);
        let time = env::var(WATCHDOG).ok().filter(|_| is_meant).and_then(|time| time.parse().ok());
        // Twice as often as necessary, as sd_watchdog_enabled(3) recommends.
        let watchdog = time
            .filter(|time| *time > 0)
            .map(|time: u64| Watchdog { interval: Duration::from_micros(time / 2), last: Instant::now() });
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// The program is ready, for the first time or after a reload. `status` is a line for the administrator.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.send(&format!("READY=1\nSTATUS={status}"))
    }

    /// The configuration is being read again. [`ready`](Self::ready) follows.
    pub fn reloading(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"))
    }

    /// The program is ending.
    pub fn stopping(&self) -> io::Result<()> {
        self.send("STOPPING=1")
    }

    /// The event loop is alive. Sends a report if one is due.
    pub fn keep_alive(&mut self) -> io::Result<()> {
        match &mut self.watchdog {
            Some(Watchdog { interval, last }) if last.elapsed() >= *interval => *last = Instant::now(),
            _ => return Ok(()),
        }
        self.send("WATCHDOG=1")
    }

    fn send(&self, state: &str) -> io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), |socket| socket.send(state.as_bytes()).map(drop))
    }
}

/// Connects to a path, or to an abstract address that begins with `@`. Sending never blocks.
fn connect(address: &[u8]) -> io::Result<UnixDatagram> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn reports_arrive_at_paths_and_abstract_addresses() {
        let scratch = TempDir::new("notify").unwrap();
        let path = scratch.file("socket");
        let name = format!("casemate-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().as_bytes().to_vec()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into_bytes()),
        ] {
            let service = ServiceManager { socket: Some(connect(&address).unwrap()), watchdog: None };
            service.ready("1 connection").unwrap();
            assert_eq!(received(&manager), "READY=1\nSTATUS=1 connection");
            service.reloading().unwrap();
            let report = received(&manager);
            let (state, time) = report.split_once("\nMONOTONIC_USEC=").unwrap();
            assert_eq!(state, "RELOADING=1");
            assert!(time.parse::<u64>().unwrap() > 0);
            service.stopping().unwrap();
            assert_eq!(received(&manager), "STOPPING=1");
        }
    }

    #[test]
    fn watchdog_reports_are_sent_at_the_interval() {
        let (manager, socket) = UnixDatagram::pair().unwrap();
        manager.set_nonblocking(true).unwrap();
        let watchdog = |interval| Some(Watchdog { interval, last: Instant::now() });
        let mut service = ServiceManager { socket: Some(socket), watchdog: watchdog(Duration::ZERO) };
        service.keep_alive().unwrap();
        assert_eq!(received(&manager), "WATCHDOG=1");
        service.watchdog = watchdog(Duration::from_secs(3_600));
        service.keep_alive().unwrap();
        service.watchdog = None;
        service.keep_alive().unwrap();
        assert_eq!(manager.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
