//! The last answers of IKE SAs that are no more.
//!
//! RFC 7296 section 2.1: a responder remembers its response until it may forget it. When a request ends its IKE SA, the keys go, and
//! without this a peer that has not heard the answer would repeat the request until it takes us for dead. So what was answered is kept
//! for a while, as it was sent, and given again to whoever sends the same request once more. No key is needed for that.

use crate::Transmit;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::Header;
use core::time::Duration;

/// How many are kept; then the oldest goes.
const MOST: usize = 64;
/// How long: as long as most peers repeat a request.
const KEPT: Duration = Duration::from_secs(180);
/// Bytes at the end of a request by which it is known again: of its ICV, which is never shorter.
const TAIL: usize = 8;

/// What names a request: the SPIs, the message ID and the end of its ICV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    spis: (u64, u64),
    message_id: u32,
    tail: [u8; TAIL],
}

impl Request {
    /// A request, as it came; nothing if it is none.
    pub(crate) fn of(header: &Header, datagram: &[u8]) -> Option<Self> {
        let spis = (header.spi_i.0, header.spi_r.0);
        let tail = *datagram.last_chunk()?;
        (!header.flags.response).then_some(Self { spis, message_id: header.message_id, tail })
    }

    /// Whether a message is an answer to it.
    fn is_answered_by(&self, message: &[u8]) -> bool {
        Header::parse(message).is_ok_and(|header| {
            header.flags.response
                && (header.spi_i.0, header.spi_r.0) == self.spis
                && header.message_id == self.message_id
        })
    }
}

/// What was answered to a request that ended its IKE SA.
#[derive(Debug)]
struct Farewell {
    request: Request,
    until: Instant,
    answer: Box<[Vec<u8>]>,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Farewells(VecDeque<Farewell>);

impl Farewells {
    /// Keeps what, of these messages, answers the request. `most` are kept, or fewer.
    pub(crate) fn keep<'t>(
        &mut self,
        request: Request,
        sent: impl Iterator<Item = &'t Transmit>,
        (now, most): (Instant, usize),
    ) {
        let is_it = |transmit: &&Transmit| request.is_answered_by(&transmit.message);
        let answer: Box<[_]> = sent.filter(is_it).map(|transmit| transmit.message.clone()).collect();
        if answer.is_empty() {
            return;
        }
        if self.0.len() >= most.min(MOST) {
            self.0.pop_front();
        }
        self.0.push_back(Farewell { request, until: now.after(KEPT), answer });
    }

    /// The answer to a request that has come again.
    pub(crate) fn to(&mut self, request: &Request, now: Instant) -> &[Vec<u8>] {
        while self.0.front().is_some_and(|oldest| oldest.until <= now) {
            self.0.pop_front();
        }
        let found = self.0.iter().find(|known| known.request == *request);
        found.map_or(&[], |known| &known.answer)
    }
}
