//! RADIUS: peers are authenticated and sessions recorded by AAA servers.
//!
//! [`service`] runs the client of casemate-radius on a thread of its own, because packets of servers are
//! parsed there; [`RadiusLink`] leads to it. [`relay`] is the authenticator of an IKE SA that passes EAP
//! packets on, [`sessions`] has the sessions that servers have accepted, each a [`session`].

mod relay;
mod service;
mod session;
mod sessions;
mod sockets;

pub(crate) use relay::RelayAuthenticator;
pub(crate) use service::RadiusService;
pub(crate) use sessions::Sessions;

use crate::control::signal;
use crate::swanctl::{GroupSources, RadiusConfig};
use casemate_ike::{IkeSaId, Path};
use casemate_radius::{AccessRequest, AccessResponse, AccountingRequest, Dynamic, ErrorCause, ServerId};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Name of a host for Called-Station-Id and Calling-Station-Id, in the notation of strongSwan.
pub(crate) fn host_id(addr: SocketAddr, with_port: bool) -> String {
    if with_port { format!("{}[{}]", addr.ip(), addr.port()) } else { addr.ip().to_string() }
}

/// What the event loop asks the thread to do.
enum Order {
    Access {
        request: Box<AccessRequest>,
        server: Option<ServerId>,
        ike: IkeSaId,
        reply: Sender<AccessAnswer>,
    },
    /// The IKE SA has ended, and its Access-Request needs no answer.
    Forget(IkeSaId),
    Record(Box<AccountingRequest>),
    Respond {
        to: SocketAddr,
        request: Box<Dynamic>,
        result: Result<(), ErrorCause>,
    },
    /// Another thread follows, which alone gets requests of servers.
    Retire,
    /// Ends the thread once accounting is answered.
    End,
}

/// Answer to an Access-Request.
pub(crate) enum AccessAnswer {
    Response(ServerId, Box<AccessResponse>),
    NoServer,
}

/// What the event loop has to do.
pub(crate) enum Report {
    /// A server has answered for this half-open IKE SA, or none will.
    Answered(IkeSaId),
    /// The peer of this IKE SA is accepted. Its name is that of the server, or else that of the request.
    Accepted { ike: IkeSaId, user_name: Vec<u8>, path: Path, response: Box<AccessResponse> },
    /// A server requests the end of sessions.
    Dynamic(SocketAddr, Box<Dynamic>),
    /// A line for the log.
    Problem(String),
}

/// Class attributes of this length in bytes, or longer, name no group, as in strongSwan.
const MAX_GROUP: usize = 44;

/// Access to the thread for authenticators and sessions. The thread ends when there is none any more.
#[derive(Clone)]
pub(crate) struct RadiusLink {
    orders: Sender<Order>,
    waker: Arc<UnixStream>,
    reports: Sender<Report>,
    ids_have_port: bool,
    groups: GroupSources,
    trusts_user_name: bool,
}

impl RadiusLink {
    /// `waker` wakes the thread, `reports` leads to the event loop.
    fn new(orders: Sender<Order>, waker: UnixStream, reports: Sender<Report>, config: &RadiusConfig) -> Self {
        let RadiusConfig { ids_have_port, groups, trusts_user_name, .. } = *config;
        Self { orders, waker: Arc::new(waker), reports, ids_have_port, groups, trusts_user_name }
    }

    /// The groups of a peer that a server has accepted. Long Class attributes name none: some servers, such
    /// as NPS, mark their sessions with them.
    fn groups_of(&self, response: &AccessResponse) -> Vec<Vec<u8>> {
        let classes = response.classes.iter().filter(|class| self.groups.class && class.len() < MAX_GROUP);
        let filter = response.filter_id.iter().filter(|_| self.groups.filter_id);
        classes.chain(filter).cloned().collect()
    }

    /// Sends an Access-Request. The answer arrives on the returned channel, and a report says when.
    fn authenticate(
        &self,
        request: AccessRequest,
        server: Option<ServerId>,
        ike: IkeSaId,
    ) -> Receiver<AccessAnswer> {
        let (reply, answer) = channel();
        // A thread that has panicked drops the channel, which counts as no answer.
        self.order(Order::Access { request: Box::new(request), server, ike, reply });
        answer
    }

    /// Forgets the Access-Request of an IKE SA that has ended.
    fn forget(&self, ike: IkeSaId) {
        self.order(Order::Forget(ike));
    }

    /// Sends an Accounting-Request.
    fn account(&self, request: AccountingRequest) {
        self.order(Order::Record(Box::new(request)));
    }

    /// Responds to a request of a server.
    fn respond(&self, to: SocketAddr, request: Box<Dynamic>, result: Result<(), ErrorCause>) {
        self.order(Order::Respond { to, request, result });
    }

    /// Tells the event loop what it has to note.
    fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        signal(&self.waker);
    }
}
