//! The thread of the RADIUS client. Orders and reports go through channels, datagrams through sockets.

use super::sockets::{ClientSocket, DaeSocket, datagrams, open_sockets, source_for};
use super::{AccessAnswer, Order, RadiusLink, Report};
use crate::control::{Waker, signal};
use crate::swanctl::RadiusConfig;
use casemate_ike::IkeSaId;
use casemate_legacy::LEGACY;
use casemate_linux::process::SystemRng;
use casemate_linux::sandbox;
use casemate_linux::unix_socket::{self, PollFd};
use casemate_radius::{
    Algorithms, Answer, Client, Dynamic, Event, MAX_PACKET, RadiusFault, RequestId, Silence, Transmit,
};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest wait without an event.
const IDLE: Duration = Duration::from_secs(60);
/// Time without an answer after which the end of the service waits for no more records: a lost datagram is
/// sent again after two seconds.
const QUIET_AT_END: Duration = Duration::from_secs(3);
/// Time for which the end of the service waits for records at most.
const LONGEST_END: Duration = Duration::from_secs(20);
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
        let former_dae = former.and_then(|former| former.dae.as_ref());
        let dae = config.dae.clone().map(|settings| DaeSocket::open(settings, former_dae)).transpose()?;
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
            lost_records: 0,
            end: None,
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

    /// Ends the thread. Waits until the last records have arrived, for 20 s at most, or 3 s without an
    /// answer. A report says how many are lost.
    pub(crate) fn finish(self) {
        self.link.order(Order::End);
        let _ = self.thread.join();
    }
}

struct Awaited {
    ike: IkeSaId,
    reply: Sender<AccessAnswer>,
}

/// State of the thread.
struct ServiceThread {
    client: Client,
    sockets: Vec<ClientSocket>,
    dae: Option<DaeSocket>,
    rng: SystemRng,
    orders: Receiver<Order>,
    wake: UnixStream,
    reports: Sender<Report>,
    waker: Waker,
    awaited: HashMap<RequestId, Awaited>,
    started: Instant,
    last_report: Option<Instant>,
    /// Records that were lost and are not reported.
    lost_records: usize,
    /// Set once no order can follow.
    end: Option<End>,
}

/// When the thread ends at the latest.
struct End {
    /// If no further record is answered.
    quiet: Instant,
    /// In any case.
    latest: Instant,
}

impl ServiceThread {
    fn run(mut self) {
        loop {
            self.proceed();
            if self.is_over() {
                self.lost_records = self.lost_records.saturating_add(self.client.records());
                self.report_lost();
                return;
            }
            self.wait();
        }
    }

    /// Handles orders, datagrams and deadlines.
    fn proceed(&mut self) {
        self.take_orders();
        // Read before the answers and reported after them, so that an answer that came first is known: the
        // request may name a user who was just accepted.
        let requests = self.receive_requests();
        self.receive();
        let now = self.started.elapsed();
        let mut algorithms = Algorithms { md5: &LEGACY, rng: &mut self.rng };
        self.client.handle_timeouts(now, &mut algorithms);
        self.send();
        self.deliver();
        self.report_requests(requests);
    }

    /// Whether the service ends, and no record is to be waited for.
    fn is_over(&self) -> bool {
        let is_late = |end: &End| Instant::now() >= end.quiet.min(end.latest);
        self.end.as_ref().is_some_and(|end| is_late(end) || self.client.records() == 0)
    }

    /// Reports records that were lost.
    fn report_lost(&mut self) {
        match std::mem::take(&mut self.lost_records) {
            0 => {}
            count => self.send_problem(&format!(
                "{count} records of accounting are lost: no server has answered in time"
            )),
        }
    }

    /// Waits for an order, a datagram or a deadline.
    fn wait(&self) {
        let now = self.started.elapsed();
        let timeout = self.client.next_timeout().map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        let dae = self.dae.iter().map(|dae| dae.socket.as_fd());
        let mut descriptors: Vec<_> = self.sockets.iter().map(|one| one.socket.as_fd()).chain(dae).collect();
        let timeout = match &self.end {
            // The other end is closed, so that it would always be readable.
            Some(end) => timeout.min(end.quiet.min(end.latest).saturating_duration_since(Instant::now())),
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
        let now = Instant::now();
        self.end.get_or_insert_with(|| End { quiet: now + QUIET_AT_END, latest: now + LONGEST_END });
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
            Order::Forget(ike) => {
                let of_ike = |(_, awaited): &(&RequestId, &Awaited)| awaited.ike == ike;
                if let Some(id) = self.awaited.iter().find(of_ike).map(|(id, _)| *id) {
                    self.awaited.remove(&id);
                    self.client.cancel(id);
                }
            }
            Order::Retire => self.dae = None,
            Order::End => self.end(),
            Order::Record(request) => {
                if let Err(fault) = self.client.account(*request, now, &mut algorithms) {
                    self.lost_records = self.lost_records.saturating_add(1);
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

    /// Reads answers of servers. What no server has sent is discarded.
    fn receive(&mut self) {
        let mut buffer = [0; MAX_PACKET];
        let mut discarded = Vec::new();
        for ClientSocket { source_port, socket, .. } in &self.sockets {
            for (from, datagram) in datagrams(socket, &mut buffer) {
                let algorithms = Algorithms { md5: &LEGACY, rng: &mut self.rng };
                if let Err(fault) = self.client.receive(*source_port, from, &datagram, &algorithms) {
                    discarded.push((from, fault));
                }
            }
        }
        self.report_discarded(&discarded);
    }

    /// Reads datagrams of servers that request the end of sessions.
    fn receive_requests(&mut self) -> Vec<(SocketAddr, Box<Dynamic>)> {
        let (mut requests, mut discarded) = (Vec::new(), Vec::new());
        if let Some(dae) = &self.dae {
            for (from, datagram) in datagrams(&dae.socket, &mut [0; MAX_PACKET]) {
                match Dynamic::parse(&datagram, &LEGACY, &dae.settings.secret) {
                    Ok(request) => requests.push((from, Box::new(request))),
                    Err(fault) => discarded.push((from, fault)),
                }
            }
        }
        self.report_discarded(&discarded);
        requests
    }

    fn report_requests(&self, requests: Vec<(SocketAddr, Box<Dynamic>)>) {
        for (from, request) in requests {
            let _ = self.reports.send(Report::Dynamic(from, request));
            signal(&self.waker.0);
        }
    }

    fn report_discarded(&mut self, discarded: &[(SocketAddr, RadiusFault)]) {
        for (from, fault) in discarded {
            // An answer to a request that was repeated is no problem.
            if *fault != RadiusFault::Unexpected {
                self.problem(&format!("packet from {from} discarded: {fault}"));
            }
        }
    }

    fn send(&mut self) {
        while let Some(Transmit { source_port, to, packet }) = self.client.next_transmit() {
            let is_wanted =
                |one: &&ClientSocket| one.source_port == source_port && one.is_ipv4 == to.is_ipv4();
            let Some(one) = self.sockets.iter().find(is_wanted) else { continue };
            if let Err(error) = one.socket.send_to(&packet, to) {
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
                (Some(awaited), Answer::NoServer) => self.answer(&awaited, AccessAnswer::NoServer),
                (_, Answer::NotAccounted) => self.lost_records = self.lost_records.saturating_add(1),
                (_, Answer::Accounted) => {
                    if let Some(end) = &mut self.end {
                        end.quiet = Instant::now() + QUIET_AT_END;
                    }
                }
                // The IKE SA has ended.
                (None, Answer::Access(..) | Answer::NoServer) => {}
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

    /// Reports a problem, unless another one was reported a moment ago.
    fn problem(&mut self, text: &str) {
        let now = Instant::now();
        if self.last_report.is_some_and(|last| now.duration_since(last) < REPORT_EVERY) {
            return;
        }
        self.last_report = Some(now);
        self.send_problem(text);
        self.report_lost();
    }

    fn send_problem(&self, text: &str) {
        let _ = self.reports.send(Report::Problem(format!("RADIUS: {text}")));
        signal(&self.waker.0);
    }
}

#[cfg(test)]
mod tests;
