//! The thread of the RADIUS client. Orders and reports go through channels, datagrams through sockets.

use super::{AccessAnswer, Order, RadiusLink, Report};
use crate::control::{Waker, signal};
use crate::swanctl::{DynamicAuthorization, RadiusConfig};
use casemate_ike::IkeSaId;
use casemate_legacy::LEGACY;
use casemate_linux::process::SystemRng;
use casemate_linux::sandbox;
use casemate_linux::unix_socket::{self, PollFd};
use casemate_radius::{
    Algorithms, Answer, Client, Dynamic, Event, MAX_PACKET, RadiusFault, RequestId, Silence, Transmit,
};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest wait without an event.
const IDLE: Duration = Duration::from_secs(60);
/// Time for which the end of the service waits for answers to accounting.
const GRACE: Duration = Duration::from_secs(2);
/// Datagrams that are read from one socket before orders are looked at.
const BURST: usize = 64;
/// Pause between two reports of discarded packets. Any host can cause them.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A running client.
pub(crate) struct RadiusService {
    link: RadiusLink,
    config: RadiusConfig,
    /// A copy of the socket for requests of servers.
    dae: Option<UdpSocket>,
    thread: JoinHandle<()>,
}

impl RadiusService {
    /// Opens the sockets and starts the thread, which wakes the event loop with `waker` after each report.
    /// `former` is the service before, which may have the same socket for requests of servers.
    pub(crate) fn start(
        config: &RadiusConfig,
        waker: Waker,
        reports: Sender<Report>,
        former: Option<&Self>,
    ) -> Result<Self, String> {
        let failed = |error| format!("RADIUS: {error}");
        let (wake, wakes_thread) = crate::control::pair().map_err(failed)?;
        let (orders, from_loop) = channel();
        let link = RadiusLink::new(orders, wakes_thread, reports.clone(), config);
        let dae = config.dae.clone().map(|settings| DaeSocket::open(settings, former)).transpose()?;
        let copy = dae.as_ref().map(|dae| dae.socket.try_clone()).transpose().map_err(failed)?;
        let state = ServiceThread {
            client: Client::new(config.servers.clone(), config.retransmission),
            sockets: open_sockets(config)?,
            dae,
            rng: SystemRng::new().map_err(|error| format!("RADIUS: {error}"))?,
            orders: from_loop,
            wake,
            reports,
            waker,
            awaited: HashMap::new(),
            started: Instant::now(),
            last_report: None,
            ends_at: None,
        };
        let work = move || {
            // Packets of servers are parsed here, so the thread has no capabilities.
            if sandbox::drop_capabilities().is_ok() {
                state.run();
            }
        };
        let thread = thread::Builder::new().name("radius".into()).spawn(work);
        let thread = thread.map_err(|error| format!("RADIUS: {error}"))?;
        if let Some(former) = former {
            former.link.order(Order::Retire);
        }
        Ok(Self { link, config: config.clone(), dae: copy, thread })
    }

    pub(crate) const fn config(&self) -> &RadiusConfig {
        &self.config
    }

    pub(crate) const fn link(&self) -> &RadiusLink {
        &self.link
    }

    /// Ends the thread. Waits until the last records have arrived, for two seconds at most.
    pub(crate) fn finish(self) {
        self.link.order(Order::End);
        let _ = self.thread.join();
    }
}

fn open_sockets(config: &RadiusConfig) -> Result<Vec<UdpSocket>, String> {
    let mut sockets = Vec::new();
    for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        if config.servers.iter().any(|server| server.auth.is_ipv4() == any.is_ipv4()) {
            sockets.push(open(SocketAddr::new(any, 0))?);
        }
    }
    Ok(sockets)
}

fn open(addr: SocketAddr) -> Result<UdpSocket, String> {
    let opened = UdpSocket::bind(addr).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    opened.map_err(|error| format!("RADIUS socket at {addr}: {error}"))
}

/// Where servers request the end of sessions.
struct DaeSocket {
    socket: UdpSocket,
    settings: DynamicAuthorization,
}

impl DaeSocket {
    /// Opens the socket, or takes that of the service before.
    fn open(settings: DynamicAuthorization, former: Option<&RadiusService>) -> Result<Self, String> {
        let known = former.and_then(|former| former.dae.as_ref());
        let same = known.filter(|socket| socket.local_addr().is_ok_and(|addr| addr == settings.listen));
        let socket = match same {
            Some(socket) => socket.try_clone().map_err(|error| format!("RADIUS: {error}"))?,
            None => open(settings.listen)?,
        };
        Ok(Self { socket, settings })
    }
}

struct Awaited {
    ike: IkeSaId,
    reply: Sender<AccessAnswer>,
}

/// State of the thread.
struct ServiceThread {
    client: Client,
    sockets: Vec<UdpSocket>,
    dae: Option<DaeSocket>,
    rng: SystemRng,
    orders: Receiver<Order>,
    wake: UnixStream,
    reports: Sender<Report>,
    waker: Waker,
    awaited: HashMap<RequestId, Awaited>,
    started: Instant,
    last_report: Option<Instant>,
    /// When the thread ends at the latest, once no order can follow.
    ends_at: Option<Instant>,
}

impl ServiceThread {
    fn run(mut self) {
        loop {
            self.take_orders();
            self.receive();
            let now = self.started.elapsed();
            let mut algorithms = Algorithms { md5: &LEGACY, rng: &mut self.rng };
            self.client.handle_timeouts(now, &mut algorithms);
            self.send();
            self.deliver();
            if self.ends_at.is_some_and(|end| Instant::now() >= end || !self.client.has_outstanding()) {
                return;
            }
            self.wait();
        }
    }

    /// Waits for an order, a datagram or a deadline.
    fn wait(&self) {
        let now = self.started.elapsed();
        let timeout = self.client.next_timeout().map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        let dae = self.dae.iter().map(|dae| dae.socket.as_fd());
        let mut descriptors: Vec<_> = self.sockets.iter().map(AsFd::as_fd).chain(dae).collect();
        let timeout = match self.ends_at {
            // The other end is closed, so that it would always be readable.
            Some(end) => timeout.min(end.saturating_duration_since(Instant::now())),
            None => {
                descriptors.push(self.wake.as_fd());
                timeout
            }
        };
        let mut polled: Vec<_> = descriptors.into_iter().map(|fd| PollFd::new(fd, true, false)).collect();
        // An error is no reason to end: the next look at the channels and sockets shows what there is.
        let _ = unix_socket::poll(&mut polled, timeout);
    }

    fn take_orders(&mut self) {
        crate::control::clear(&self.wake);
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.execute(order),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.end(),
            }
        }
    }

    fn end(&mut self) {
        self.ends_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    fn execute(&mut self, order: Order) {
        let now = self.started.elapsed();
        let mut algorithms = Algorithms { md5: &LEGACY, rng: &mut self.rng };
        match order {
            Order::Access { request, server, ike, reply } => {
                match self.client.authenticate(*request, server, now, &mut algorithms) {
                    Ok(id) => drop(self.awaited.insert(id, Awaited { ike, reply })),
                    Err(fault) => {
                        self.problem(&format!("Access-Request not sent: {fault}"));
                        self.answer(&Awaited { ike, reply }, AccessAnswer::NoServer);
                    }
                }
            }
            Order::Retire => self.dae = None,
            Order::End => self.end(),
            Order::Record(request) => {
                if let Err(fault) = self.client.account(*request, now, &mut algorithms) {
                    self.problem(&format!("Accounting-Request not sent: {fault}"));
                }
            }
            Order::Respond { to, request, result } => {
                let Some(dae) = &self.dae else { return };
                let response = request.respond(result, &LEGACY, &dae.settings.secret);
                let sent = response.map(|response| dae.socket.send_to(&response, to));
                if let Ok(Err(error)) = sent {
                    self.problem(&format!("response to {to}: {error}"));
                }
            }
        }
    }

    /// Reads datagrams. What no server has sent is discarded.
    fn receive(&mut self) {
        let mut buffer = [0; MAX_PACKET];
        let mut discarded = Vec::new();
        for socket in &self.sockets {
            for (from, datagram) in datagrams(socket, &mut buffer) {
                let algorithms = Algorithms { md5: &LEGACY, rng: &mut self.rng };
                if let Err(fault) = self.client.receive(from, &datagram, &algorithms) {
                    discarded.push((from, fault));
                }
            }
        }
        if let Some(dae) = &self.dae {
            for (from, datagram) in datagrams(&dae.socket, &mut buffer) {
                match Dynamic::parse(&datagram, &LEGACY, &dae.settings.secret) {
                    Ok(request) => {
                        let _ = self.reports.send(Report::Dynamic(from, Box::new(request)));
                        signal(&self.waker.0);
                    }
                    Err(fault) => discarded.push((from, fault)),
                }
            }
        }
        for (from, fault) in discarded {
            // An answer to a request that was repeated is no problem.
            if fault != RadiusFault::Unexpected {
                self.problem(&format!("packet from {from} discarded: {fault}"));
            }
        }
    }

    fn send(&mut self) {
        while let Some(Transmit { to, packet }) = self.client.next_transmit() {
            let of_version =
                |socket: &&UdpSocket| socket.local_addr().is_ok_and(|addr| addr.is_ipv4() == to.is_ipv4());
            let Some(socket) = self.sockets.iter().find(of_version) else { continue };
            if let Err(error) = socket.send_to(&packet, to) {
                self.problem(&format!("packet to {to}: {error}"));
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(Event { request, answer }) = self.client.next_event() {
            let awaited = self.awaited.remove(&request);
            match (awaited, answer) {
                (Some(awaited), Answer::Access(server, response)) => {
                    self.answer(&awaited, AccessAnswer::Response(server, response));
                }
                (Some(awaited), Answer::NoServer | Answer::Accounted) => {
                    self.answer(&awaited, AccessAnswer::NoServer);
                }
                (None, _) => {}
            }
        }
        while let Some(Silence { server, addr, after }) = self.client.next_silence() {
            let client = source_for(addr).map(|client| format!(" ({client})")).unwrap_or_default();
            self.problem(&format!(
                "{addr} ({server}) has not answered in {} s: check that it runs, that it knows this \
                 client{client}, and that the secret is the same on both; servers drop requests of unknown \
                 clients, and those with another secret",
                after.as_secs_f32().round()
            ));
        }
    }

    fn answer(&self, to: &Awaited, answer: AccessAnswer) {
        // The IKE SA may have ended.
        if to.reply.send(answer).is_ok() {
            let _ = self.reports.send(Report::Answered(to.ike));
            signal(&self.waker.0);
        }
    }

    fn problem(&mut self, text: &str) {
        let now = Instant::now();
        if self.last_report.is_some_and(|last| now.duration_since(last) < REPORT_EVERY) {
            return;
        }
        self.last_report = Some(now);
        let _ = self.reports.send(Report::Problem(format!("RADIUS: {text}")));
        signal(&self.waker.0);
    }
}

/// The address from which this host sends to a server, if there is a route.
fn source_for(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The datagrams that wait, at most a burst of them.
fn datagrams(socket: &UdpSocket, buffer: &mut [u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut received = Vec::new();
    while received.len() < BURST {
        match socket.recv_from(buffer) {
            Ok((len, from)) => received.extend(buffer.get(..len).map(|datagram| (from, datagram.to_vec()))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    received
}
