//! A request: what it says, whichever server gets it, and what distinguishes it while it is outstanding.

use super::Answer;
use crate::access::AccessRequest;
use crate::accounting::AccountingRequest;
use crate::packet::{Code, Packet};
use crate::server::{Server, Service};
use crate::writer::Writer;
use crate::{Algorithms, RadiusFault};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of source ports from which Access-Requests are sent (RFC 2865 section 2.5). With 256 identifiers
/// each, a gateway's maximum of 4,096 half-open IKE SAs can await answers at the same time. A source that
/// floods the gateway is limited there, and takes no identifiers from others.
pub const SOURCE_PORTS: u16 = 16;
/// Number of source ports from which Accounting-Requests are sent. Further ones wait, because a server that
/// gets thousands at once loses most of them.
const ACCOUNTING_PORTS: u16 = 1;
/// Number of identifiers of one source port.
const IDENTIFIERS: u16 = 256;

/// What is sent again, perhaps to another server.
#[derive(Debug)]
pub(super) enum Body {
    Access(Box<AccessRequest>),
    Accounting(Box<AccountingRequest>),
}

impl Body {
    pub(super) const fn service(&self) -> Service {
        match self {
            Self::Access(_) => Service::Authentication,
            Self::Accounting(_) => Service::Accounting,
        }
    }

    /// The answer if no server has answered.
    pub(super) const fn unanswered(&self) -> Answer {
        match self {
            Self::Access(_) => Answer::NoServer,
            Self::Accounting(_) => Answer::NotAccounted,
        }
    }

    /// Encodes the request. Returns it with its authenticator.
    pub(super) fn encode(
        &self,
        identifier: u8,
        server: &Server,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<(Vec<u8>, [u8; 16]), RadiusFault> {
        let packet = match self {
            Self::Access(request) => {
                let mut out = Writer::new(Code::ACCESS_REQUEST, identifier);
                request.write(&server.nas_identifier, &mut out);
                let mut authenticator = [0; 16];
                algorithms.rng.public(&mut authenticator);
                out.finish_access(authenticator, algorithms.md5, &server.secret)?
            }
            Self::Accounting(request) => {
                let mut out = Writer::new(Code::ACCOUNTING_REQUEST, identifier);
                request.write(&server.nas_identifier, &mut out);
                out.finish_digest(&[0; 16], algorithms.md5, &server.secret)?
            }
        };
        let authenticator = Packet::parse(&packet)?.authenticator;
        Ok((packet, authenticator))
    }
}

/// What distinguishes an outstanding request from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    /// The server that was asked last.
    pub(super) server: usize,
    pub(super) service: Service,
    pub(super) source_port: u16,
    pub(super) identifier: u8,
}

impl Slot {
    /// All slots of a service of a server, from the one with this number on.
    pub(super) fn all(server: usize, service: Service, first: u16) -> impl Iterator<Item = Self> {
        let ports = match service {
            Service::Authentication => SOURCE_PORTS,
            Service::Accounting => ACCOUNTING_PORTS,
        };
        (0..ports.saturating_mul(IDENTIFIERS)).map(move |step| {
            let [port, identifier] = first.wrapping_add(step).to_be_bytes();
            // The number of ports is a power of two, so that 65,536 is a multiple of the number of slots.
            let source_port = u16::from(port).checked_rem(ports).unwrap_or_default();
            Self { server, service, source_port, identifier }
        })
    }

    /// Source port and identifier as one number.
    pub(super) const fn number(self) -> u16 {
        let [_, port] = self.source_port.to_be_bytes();
        u16::from_be_bytes([port, self.identifier])
    }
}
