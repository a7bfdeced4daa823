//! Session resumption (RFC 5723): the exchange IKE_SESSION_RESUME, the IKE_AUTH exchange after it, and
//! requests for tickets.

mod auth;
mod request;
mod response;
mod ticket;

pub(crate) use request::Attempt;
pub(crate) use response::respond_to_resumption;
pub(crate) use ticket::{TicketState, write_request};
