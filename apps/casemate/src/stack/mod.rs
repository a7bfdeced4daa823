//! `casemate stack`: a TCP/IP stack behind IPsec as a server of other processes.
//!
//! `station` is the stack, `nic` the interface below it; the sessions of applications are those of `casemate_stack`, over memory
//! and doorbells of `casemate_shm`. One thread does everything and waits for nobody.

mod grants;
pub(crate) mod ike;
pub(crate) mod nic;
mod station;

use crate::cli::StackArgs;
use crate::failure::Failure;
use crate::printable;
use crate::run::budget::{Budgets, Kind};
use crate::run::config::{Loaded, Source};
use casemate_linux::clock::Clock;
use casemate_linux::netlink::Netlink;
use casemate_linux::signal::Signals;
use casemate_linux::tap::Tap;
use casemate_rings::Geometry;
use casemate_shm::{Door, Rung, Visitor, confine, wait};
use casemate_smoltcp::to_smoltcp;
use casemate_stack::{Limits, SessionId};
pub use grants::GrantRule;
use smoltcp::time::{Duration, Instant};
use station::Station;
use std::fmt::Display;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Each ring of a session has 2^15 words: 256 KiB.
const RING_BITS: u8 = 15;
/// Datagrams that a socket's buffer holds.
const DATAGRAMS: usize = 64;
/// Calls of one application that may wait, and that are served in one turn.
const CALLS: usize = 256;
const TURN: usize = 32;

/// The longest sleep. Nothing needs it; it bounds what a mistake in a computed time could do.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long nobody is let in after that has failed.
const DOOR_PAUSE: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn stack(args: &StackArgs) -> Result<(), Failure> {
    confine::hide().map_err(|error| failed("hide", &error))?;
    let source = args.config.as_ref().map(|path| Source::new(Some(path))).transpose()?;
    let loaded = source.as_ref().map(Source::load).transpose()?;
    if let Some(loaded) = &loaded {
        loaded.warnings.iter().for_each(|warning| eprintln!("casemate: warning: {warning}"));
        refuse_virtual_addresses(loaded)?;
    }
    // Before any thread is started, so that signals reach the loop and nothing else.
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let tap = Tap::open(&args.tap, &mut netlink).map_err(Failure::failed)?;
    drop(netlink);
    let nic = tap.as_fd().try_clone_to_owned().map_err(|error| failed(&args.tap, &error))?;
    let clock = Clock::start();
    let now = to_smoltcp(clock.now());
    let mut station = Station::new(tap, args, limits(args)?, now)?;
    let door = Door::open(&args.socket, args.mode)
        .map_err(|error| failed(&args.socket.display().to_string(), &error))?;
    if let Some(uid) = args.user {
        confine::become_user(uid).map_err(|error| failed(&format!("user {uid}"), &error))?;
    }
    confine::drop_privileges().map_err(|error| failed("privileges", &error))?;
    if let (Some(source), Some(loaded)) = (&source, loaded) {
        station.configure(source, loaded, now)?;
    }
    println!("ready");
    Service {
        args,
        clock,
        door,
        signals,
        station,
        nic,
        door_paused_until: Instant::ZERO,
        log: Log::default(),
    }
    .run();
    Ok(())
}

fn failed(what: &str, error: &dyn Display) -> Failure {
    Failure::failed(format!("{what}: {error}"))
}

/// The stack's addresses are those of the command line.
fn refuse_virtual_addresses(loaded: &Loaded) -> Result<(), Failure> {
    match loaded.connections.iter().find(|connection| !connection.vips.is_empty()) {
        None => Ok(()),
        Some(connection) => Err(Failure::bad_input(format!(
            "connection {}: `casemate stack` asks for no virtual addresses: none in `vips` was expected",
            connection.name
        ))),
    }
}

fn limits(args: &StackArgs) -> Result<Limits, Failure> {
    Ok(Limits {
        applications: args.applications.into(),
        sockets: args.sockets,
        buffer: usize::from(args.buffer) << 10,
        datagrams: DATAGRAMS,
        calls: CALLS,
        turn: TURN,
        geometry: Geometry::new(RING_BITS, RING_BITS).ok_or_else(|| Failure::failed("the rings' size"))?,
    })
}

/// Everything that the loop needs.
struct Service<'a> {
    args: &'a StackArgs,
    clock: Clock,
    door: Door,
    signals: Signals,
    station: Station,
    /// The interface once more, to wait for it while the stack has it.
    nic: OwnedFd,
    door_paused_until: Instant,
    log: Log,
}

/// Standard output, with a budget for each kind of message.
#[derive(Default)]
struct Log(Budgets);

impl Log {
    fn note(&mut self, kind: Kind, line: &str) {
        if self.0.admit(kind, std::time::Instant::now()) {
            Self::write(line);
        }
    }

    /// Reports what was left out, where it is time.
    fn report(&mut self) {
        self.0.reports(std::time::Instant::now()).iter().for_each(|(_, line)| Self::write(line));
    }

    fn write(line: &str) {
        // A server whose output nobody reads any more goes on.
        let _ = writeln!(std::io::stdout(), "{}", printable::line(line));
    }
}

/// What is to be done after a wait.
#[derive(Default)]
struct News {
    signal: bool,
    door: bool,
    rung: Vec<SessionId>,
}

impl Service<'_> {
    fn run(mut self) {
        loop {
            let now = to_smoltcp(self.clock.now());
            let idle = self.station.round(now, |kind, line| self.log.note(kind, &line));
            self.log.report();
            let news = self.wait(now, idle.min(PATIENCE));
            if news.signal {
                break;
            }
            self.hear(&news.rung, now);
            if news.door {
                self.admit(now);
            }
        }
        self.station.close(to_smoltcp(self.clock.now()));
        println!("casemate: {}", self.station.summary());
    }

    fn wait(&mut self, now: Instant, limit: Duration) -> News {
        let mut ids = Vec::new();
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        // A device or a door that failed is ready all the time, maybe: it is left alone for a while.
        let (door, nic) = (now >= self.door_paused_until, self.station.nic().is_awake(now));
        if door {
            descriptors.push(self.door.as_fd());
        }
        for (id, link) in self.station.server.sessions() {
            ids.push(id);
            descriptors.push(link.as_fd());
        }
        descriptors.extend(nic.then(|| self.nic.as_fd()));
        let mut ready = wait(&descriptors, limit.into()).into_iter();
        let signal = ready.next().unwrap_or(false);
        let door = door && ready.next().unwrap_or(false);
        News {
            signal,
            door,
            rung: ids.into_iter().zip(ready).filter_map(|(id, rung)| rung.then_some(id)).collect(),
        }
    }

    /// Silences doorbells, and ends the sessions of those who have gone.
    fn hear(&mut self, rung: &[SessionId], now: Instant) {
        let sessions = self.station.server.sessions().filter(|(id, _)| rung.contains(id));
        let gone: Vec<SessionId> =
            sessions.filter(|(_, link)| link.hush() == Rung::Ended).map(|(id, _)| id).collect();
        for id in gone {
            self.station.end(id, now);
            self.log.note(Kind::Application, &format!("application {id}: has ended"));
        }
    }

    /// Lets one application in, or sends it away.
    fn admit(&mut self, now: Instant) {
        match self.door.next() {
            Ok(Some(visitor)) => {
                if let Err(error) = self.welcome(visitor) {
                    self.station.server.note_turned_away();
                    self.log.note(Kind::Application, &format!("an application was turned away: {error}"));
                }
            }
            Ok(None) => {}
            Err(error) => {
                self.door_paused_until = now + DOOR_PAUSE;
                let line = format!("{}: {error}", self.args.socket.display());
                self.log.note(Kind::Application, &line);
            }
        }
    }

    fn welcome(&mut self, visitor: Visitor) -> std::io::Result<()> {
        let server = &mut self.station.server;
        let (geometry, uid, pid) = (server.limits().geometry, visitor.uid, visitor.pid);
        if server.is_full() {
            visitor.send_away(geometry);
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        let link = visitor.welcome(geometry)?;
        let id = server.admit(link, grants::grant(&self.args.grants, uid)).map_err(std::io::Error::other)?;
        self.log.note(Kind::Application, &format!("application {id}: process {pid} of user {uid}"));
        Ok(())
    }
}
