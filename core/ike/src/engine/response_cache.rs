//! Cache of the final responses of closed IKE SAs.
//!
//! RFC 7296 section 2.1: a responder remembers its response until it may forget it. A request that closes its
//! IKE SA removes the keys. Without the cache a peer whose response was lost would repeat the request until
//! it considers this host dead. The cache keeps the encrypted response for a while and sends it again for the
//! same request. That needs no key.

use crate::{IkeSpis, Transmit};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::Header;
use core::time::Duration;

/// Maximum number of responses. The oldest is dropped first.
const MAX_RESPONSES: usize = 64;
/// Lifetime of a response: as long as most peers repeat a request.
const LIFETIME: Duration = Duration::from_secs(180);
/// Number of bytes at the end of a request that identify it. They are part of the ICV, which is never
/// shorter.
const TAIL_LEN: usize = 8;

/// Identifies a request by SPIs, message ID and the end of its ICV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestKey {
    spis: IkeSpis,
    message_id: u32,
    tail: [u8; TAIL_LEN],
}

impl RequestKey {
    /// Key of a request as received; `None` for a response.
    pub(crate) fn of(header: &Header, datagram: &[u8]) -> Option<Self> {
        let spis = spis_of(header);
        let tail = *datagram.last_chunk()?;
        (!header.flags.response).then_some(Self { spis, message_id: header.message_id, tail })
    }

    /// Whether a message is the response to this request.
    fn is_answered_by(&self, message: &[u8]) -> bool {
        Header::parse(message).is_ok_and(|header| {
            header.flags.response && spis_of(&header) == self.spis && header.message_id == self.message_id
        })
    }
}

const fn spis_of(header: &Header) -> IkeSpis {
    IkeSpis { initiator: header.spi_i, responder: header.spi_r }
}

/// Response to a request that closed its IKE SA.
#[derive(Debug)]
struct CachedResponse {
    request: RequestKey,
    expires_at: Instant,
    response: Box<[Vec<u8>]>,
}

/// The responses, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache(VecDeque<CachedResponse>);

impl ResponseCache {
    /// Stores those of the sent messages that answer the request. Keeps at most `limit` responses.
    pub(crate) fn store<'t>(
        &mut self,
        request: RequestKey,
        sent: impl Iterator<Item = &'t Transmit>,
        now: Instant,
        limit: usize,
    ) {
        let is_it = |transmit: &&Transmit| request.is_answered_by(&transmit.message);
        let response: Box<[_]> = sent.filter(is_it).map(|transmit| transmit.message.clone()).collect();
        if response.is_empty() {
            return;
        }
        if self.0.len() >= limit.min(MAX_RESPONSES) {
            self.0.pop_front();
        }
        self.0.push_back(CachedResponse { request, expires_at: now.after(LIFETIME), response });
    }

    /// Returns the response to a repeated request.
    pub(crate) fn lookup(&mut self, request: &RequestKey, now: Instant) -> &[Vec<u8>] {
        while self.0.front().is_some_and(|oldest| oldest.expires_at <= now) {
            self.0.pop_front();
        }
        let found = self.0.iter().find(|known| known.request == *request);
        found.map_or(&[], |known| &known.response)
    }
}
