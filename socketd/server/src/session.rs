//! The session of one application: its request queue, its sockets, and its waiting requests.

use crate::server::{Counters, Limits, PortGrant};
use crate::socket_table::SocketTable;
use crate::sockets::{self, EphemeralPorts};
use crate::transfer::{self, Outcome};
use alloc::vec::Vec;
use casemate_socketd_protocol::{
    Error, PushError, Request, RequestId, Response, ServerChannel, Transport, Violation,
};
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;

/// Context of a request: everything outside of the session.
pub(crate) struct RequestContext<'a> {
    pub(crate) now: Instant,
    pub(crate) interface: &'a mut Interface,
    pub(crate) sockets: &'a mut SocketSet<'static>,
    pub(crate) ports: &'a mut EphemeralPorts,
    pub(crate) limits: &'a Limits,
    pub(crate) grant: &'a PortGrant,
}

/// A request whose condition is not met yet.
#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    id: RequestId,
    request: Request,
}

/// One application with its rings, its sockets and its waiting requests.
pub(crate) struct ClientSession<T> {
    channel: ServerChannel<T>,
    pub(crate) grant: PortGrant,
    pub(crate) table: SocketTable,
    waiting: Vec<WaitingRequest>,
}

impl<T: Transport> ClientSession<T> {
    pub(crate) fn new(transport: T, grant: PortGrant, limits: &Limits) -> Result<Self, Violation> {
        let channel = ServerChannel::new(transport, limits.rings)?;
        Ok(Self { channel, grant, table: SocketTable::default(), waiting: Vec::new() })
    }

    pub(crate) const fn transport(&self) -> &T {
        self.channel.transport()
    }

    /// Retries waiting requests, then processes new ones, at most `limits.requests_per_round`. Returns
    /// true if more requests may be available.
    pub(crate) fn serve(
        &mut self,
        context: &mut RequestContext<'_>,
        counters: &mut Counters,
    ) -> Result<bool, Violation> {
        sockets::remove_closed(&mut self.table, context);
        self.retry_waiting(context)?;
        let mut more = true;
        for _ in 0..context.limits.requests_per_round {
            // No room for a response: the application does not read its ring. Process nothing.
            if self.channel.response_room(0)?.is_none() || !self.process_next(context, counters)? {
                more = false;
                break;
            }
        }
        self.channel.notify_client();
        Ok(more)
    }

    fn retry_waiting(&mut self, context: &mut RequestContext<'_>) -> Result<(), Violation> {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index).copied() {
            if self.channel.response_room(0)?.is_none() {
                return Ok(());
            }
            match self.process(waiting.id, waiting.request, 0, context)? {
                Outcome::Response(Err(Error::WouldBlock)) => index = index.saturating_add(1),
                Outcome::Response(response) => {
                    send_response(&mut self.channel, waiting.id, response, &[])?;
                    self.waiting.remove(index);
                }
                Outcome::Sent => drop(self.waiting.remove(index)),
            }
        }
        Ok(())
    }

    /// Processes the next request. Returns false if there is none.
    fn process_next(
        &mut self,
        context: &mut RequestContext<'_>,
        counters: &mut Counters,
    ) -> Result<bool, Violation> {
        let Some(received) = self.channel.peek_request()? else { return Ok(false) };
        counters.requests = counters.requests.saturating_add(1);
        let id = received.id;
        let response = match received.request {
            Ok(request) => match self.process(id, request, received.len, context)? {
                Outcome::Response(Err(Error::WouldBlock)) if may_wait(&request) => {
                    self.wait(id, request, context.limits)
                }
                Outcome::Response(response) => Some(response),
                Outcome::Sent => None,
            },
            Err(error) => Some(Err(error)),
        };
        self.channel.pop_request()?;
        if let Some(response) = response {
            if response.is_err_and(|error| error != Error::WouldBlock) {
                counters.failed = counters.failed.saturating_add(1);
            }
            send_response(&mut self.channel, id, response, &[])?;
        }
        Ok(true)
    }

    /// Queues a request until its condition is met. Returns the response if the queue is full.
    fn wait(&mut self, id: RequestId, request: Request, limits: &Limits) -> Option<Result<Response, Error>> {
        if self.waiting.len() >= limits.waiting_requests || self.waiting.try_reserve(1).is_err() {
            return Some(Err(Error::TooManyRequests));
        }
        self.waiting.push(WaitingRequest { id, request });
        None
    }

    fn process(
        &mut self,
        id: RequestId,
        request: Request,
        len: usize,
        context: &mut RequestContext<'_>,
    ) -> Result<Outcome, Violation> {
        let Self { channel, table, .. } = self;
        Ok(match request {
            Request::Listen { local, port, backlog } => sockets::listen(table, context, local, port, backlog),
            Request::Connect { remote } => sockets::connect(table, context, remote),
            Request::Bind { local, port } => sockets::bind(table, context, local, port),
            Request::Accept { socket, .. } => transfer::accept(table, context, socket),
            Request::Send { socket } => transfer::send(table, context, channel, socket, len),
            Request::SendTo { socket, to } => transfer::send_to(table, context, channel, (socket, to), len),
            Request::Receive { socket, max_len: most, .. } => {
                return transfer::receive(table, context, channel, (id, socket, most as usize));
            }
            Request::ShutdownWrite { socket } => transfer::shutdown_write(table, context, socket),
            Request::Close { socket } => sockets::close(table, context, socket),
            Request::Poll { socket, interest, .. } => transfer::poll(table, context, socket, interest),
            Request::Cancel { request } => {
                self.cancel(request)?;
                Ok(Response::Done)
            }
        }
        .into())
    }

    fn cancel(&mut self, request: RequestId) -> Result<(), Violation> {
        let Some(index) = self.waiting.iter().position(|waiting| waiting.id == request) else {
            return Ok(());
        };
        self.waiting.remove(index);
        send_response(&mut self.channel, request, Err(Error::Cancelled), &[])
    }
}

const fn may_wait(request: &Request) -> bool {
    matches!(
        request,
        Request::Accept { wait: true, .. }
            | Request::Receive { wait: true, .. }
            | Request::Poll { wait: true, .. }
    )
}

/// Sends a response. The caller has checked for room. If there is none now, the application has moved its
/// read position back.
pub(crate) fn send_response<T: Transport>(
    channel: &mut ServerChannel<T>,
    id: RequestId,
    response: Result<Response, Error>,
    data: &[u8],
) -> Result<(), Violation> {
    channel.send_response(id, response, data).map_err(|error| match error {
        PushError::Violation(violation) => violation,
        PushError::Full | PushError::TooLong => Violation::Position,
    })
}
