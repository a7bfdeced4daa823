//! `casemate stack`: a TCP/IP stack behind IPsec that serves other processes.
//!
//! `runtime` is the stack, `tap_device` the interface below it. The sessions of applications are those of
//! `casemate_stack`, over shared memory and doorbells of `casemate_shm`. One thread does everything except
//! writing the log, and blocks neither on an application nor on the reader of the log.

pub mod args;
pub mod runtime;
pub mod tap_device;

use args::StackArgs;

use crate::config_source::{ConfigSource, LoadedConfig};
use crate::failure::Failure;
use crate::log::rate_limit::{LogCategory, RateLimits};
use crate::output::{self, Output};
use crate::printable;
use crate::swanctl;
use casemate_ike::config::AddrPattern;
use casemate_linux::netlink::Netlink;
use casemate_linux::process::{Clock, Signals};
use casemate_linux::tap::Tap;
use casemate_sa::AddrRange;
use casemate_smoltcp::to_smoltcp;
use casemate_socketd::{Limits, SessionId};
use casemate_socketd_client::{PeerState, PendingSession, SessionListener, poll_readable, privileges};
use casemate_socketd_protocol::RingSizes;
use casemate_wire::invariant::OrBroken;
use runtime::StackRuntime;
use smoltcp::time::{Duration, Instant};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Size of each ring of a session: 2^15 words, which are 256 KiB.
const RING_BITS: u8 = 15;
/// Capacity of a socket's buffer, in datagrams.
const MAX_DATAGRAMS: usize = 64;
/// Limits of one application: queued calls, and calls served in one round.
const MAX_CALLS: usize = 256;
const CALLS_PER_ROUND: usize = 32;

/// Maximum time to sleep, which limits the effect of an error in a computed deadline.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn stack(args: &StackArgs) -> Result<(), Failure> {
    privileges::deny_memory_access().map_err(|error| failed("hide", &error))?;
    let source = args.config.as_ref().map(|path| ConfigSource::new(Some(path))).transpose()?;
    let mut loaded = source.as_ref().map(ConfigSource::load).transpose()?;
    if let Some(loaded) = &mut loaded {
        loaded.warnings.iter().for_each(|warning| output::warn(warning));
        refuse_virtual_addresses(loaded)?;
        look_up_hosts(loaded)?;
    }
    // Before any thread is started, so that signals reach only the main loop.
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let tap = Tap::open(&args.tap, &mut netlink).map_err(Failure::failed)?;
    drop(netlink);
    let nic = tap.as_fd().try_clone_to_owned().map_err(|error| failed(&args.tap, &error))?;
    let clock = Clock::start();
    let now = to_smoltcp(clock.now());
    let mut runtime = StackRuntime::new(tap, args, limits(args)?, now)?;
    let listener = SessionListener::bind(&args.socket, args.mode)
        .map_err(|error| failed(&args.socket.display().to_string(), &error))?;
    if let Some(uid) = args.user {
        privileges::switch_user(uid).map_err(|error| failed(&format!("user {uid}"), &error))?;
    }
    privileges::drop_privileges().map_err(|error| failed("privileges", &error))?;
    if let (Some(source), Some(loaded)) = (&source, loaded) {
        runtime.configure(source, loaded, now)?;
    }
    // The kernel stores privileges per thread, so this thread starts after they were dropped.
    let mut output = Output::standard_output().map_err(|error| failed("standard output", &error))?;
    output.write("ready");
    Service {
        args,
        clock,
        listener,
        signals,
        runtime,
        nic,
        accept_paused_until: Instant::ZERO,
        log: StackLog { limits: RateLimits::default(), output },
    }
    .run();
    Ok(())
}

fn failed(what: &str, error: &dyn Display) -> Failure {
    Failure::failed(format!("{what}: {error}"))
}

/// Refuses virtual addresses: the addresses of the stack are those of the command line.
fn refuse_virtual_addresses(loaded: &LoadedConfig) -> Result<(), Failure> {
    match loaded.connections.iter().find(|connection| !connection.vips.is_empty()) {
        None => Ok(()),
        Some(connection) => Err(Failure::bad_input(format!(
            "connection {}: `casemate stack` does not request virtual addresses: no `vips` was expected",
            connection.name
        ))),
    }
}

/// Replaces the names of hosts by their addresses: a stack with one thread cannot look them up while it runs.
fn look_up_hosts(loaded: &mut LoadedConfig) -> Result<(), Failure> {
    for connection in &mut loaded.connections {
        let connection = Arc::make_mut(connection);
        let name = &connection.name;
        let replaced = |patterns: &[AddrPattern]| {
            let mut all = Vec::new();
            for pattern in patterns {
                let AddrPattern::Host(host) = pattern else {
                    all.push(pattern.clone());
                    continue;
                };
                let addrs = swanctl::look_up(host)
                    .map_err(|error| Failure::failed(format!("connection {name}: {host}: {error}")))?;
                all.extend(addrs.into_iter().map(|addr| AddrPattern::Range(AddrRange::single(addr))));
            }
            Ok::<_, Failure>(all)
        };
        let (local, remote) = (replaced(&connection.local_addrs)?, replaced(&connection.remote_addrs)?);
        (connection.local_addrs, connection.remote_addrs) = (local, remote);
    }
    Ok(())
}

fn limits(args: &StackArgs) -> Result<Limits, Failure> {
    Ok(Limits {
        applications: args.applications.into(),
        sockets: args.sockets,
        buffer_bytes: usize::from(args.buffer) << 10,
        buffer_datagrams: MAX_DATAGRAMS,
        waiting_requests: MAX_CALLS,
        requests_per_round: CALLS_PER_ROUND,
        rings: RingSizes::new(RING_BITS, RING_BITS)
            .ok_or_else(|| Failure::failed("the ring size is invalid"))?,
    })
}

/// State of the main loop.
struct Service<'a> {
    args: &'a StackArgs,
    clock: Clock,
    listener: SessionListener,
    signals: Signals,
    runtime: StackRuntime,
    /// A duplicate of the TAP descriptor for polling, because the stack owns the interface.
    nic: OwnedFd,
    accept_paused_until: Instant,
    log: StackLog,
}

/// The log on standard output, rate-limited by category. Lines are lost, and counted, if nothing reads them.
struct StackLog {
    limits: RateLimits,
    output: Output,
}

impl StackLog {
    fn record(&mut self, kind: LogCategory, line: &str) {
        if self.limits.admit(kind, std::time::Instant::now()) {
            self.write(line);
        }
    }

    /// Writes due reports about suppressed messages.
    fn report(&mut self) {
        for (_, line) in self.limits.reports(std::time::Instant::now()) {
            self.write(&line);
        }
        self.output.report_lost();
    }

    fn write(&mut self, line: &str) {
        self.output.write(&printable::line(line));
    }
}

/// The events of one wait.
#[derive(Default)]
struct StackEvents {
    signal: bool,
    listener: bool,
    doorbells: Vec<SessionId>,
}

impl Service<'_> {
    fn run(mut self) {
        loop {
            let now = to_smoltcp(self.clock.now());
            let idle = self.runtime.round(now, |kind, line| self.log.record(kind, &line));
            self.log.report();
            let events = self.wait(now, idle.min(TIMEOUT));
            if events.signal {
                break;
            }
            self.handle_doorbells(&events.doorbells, now);
            if events.listener {
                self.admit(now);
            }
        }
        self.runtime.close(to_smoltcp(self.clock.now()));
        let summary = self.runtime.summary();
        self.log.write(&format!("casemate: {summary}"));
    }

    fn wait(&mut self, now: Instant, limit: Duration) -> StackEvents {
        let mut ids = Vec::new();
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        // A failed device or listener may stay ready, so it is not polled for a while.
        let (listener, nic) = (now >= self.accept_paused_until, self.runtime.nic().can_poll(now));
        if listener {
            descriptors.push(self.listener.as_fd());
        }
        for (id, link) in self.runtime.server.sessions() {
            ids.push(id);
            descriptors.push(link.as_fd());
        }
        descriptors.extend(nic.then(|| self.nic.as_fd()));
        let mut ready = poll_readable(&descriptors, limit.into()).into_iter();
        let mut next = || ready.next().or_broken("each descriptor has a result", false);
        let signal = next();
        let listener = listener && next();
        StackEvents {
            signal,
            listener,
            doorbells: ids
                .into_iter()
                .zip(ready)
                .filter_map(|(id, doorbells)| doorbells.then_some(id))
                .collect(),
        }
    }

    /// Clears doorbells and closes the sessions of applications that have ended.
    fn handle_doorbells(&mut self, doorbells: &[SessionId], now: Instant) {
        let sessions = self.runtime.server.sessions().filter(|(id, _)| doorbells.contains(id));
        let gone: Vec<SessionId> = sessions
            .filter(|(_, link)| link.clear_notifications() == PeerState::Closed)
            .map(|(id, _)| id)
            .collect();
        for id in gone {
            self.runtime.end(id, now);
            self.log.record(LogCategory::Application, &format!("application {id}: ended"));
        }
    }

    /// Accepts or refuses one application.
    fn admit(&mut self, now: Instant) {
        match self.listener.accept() {
            Ok(Some(visitor)) => {
                if let Err(error) = self.open_session(visitor) {
                    self.runtime.server.count_rejected();
                    self.log
                        .record(LogCategory::Application, &format!("an application was refused: {error}"));
                }
            }
            Ok(None) => {}
            Err(error) => {
                self.accept_paused_until = now + ACCEPT_PAUSE;
                let line = format!("{}: {error}", self.args.socket.display());
                self.log.record(LogCategory::Application, &line);
            }
        }
    }

    fn open_session(&mut self, visitor: PendingSession) -> std::io::Result<()> {
        let server = &mut self.runtime.server;
        let (geometry, uid, pid) = (server.limits().rings, visitor.uid, visitor.pid);
        if server.is_full() {
            visitor.reject(geometry);
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        let link = visitor.accept(geometry)?;
        let id = server.admit(link, args::grant(&self.args.grants, uid)).map_err(std::io::Error::other)?;
        self.log.record(LogCategory::Application, &format!("application {id}: process {pid} of user {uid}"));
        Ok(())
    }
}
