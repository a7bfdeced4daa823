//! What a request says, whichever server gets it.

use super::Answer;
use crate::access::AccessRequest;
use crate::accounting::AccountingRequest;
use crate::packet::{Code, Packet};
use crate::server::{Server, Service};
use crate::writer::Writer;
use crate::{Algorithms, RadiusFault};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
