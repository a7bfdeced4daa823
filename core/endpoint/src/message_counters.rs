//! Counters of IKE messages by exchange.
//!
//! Retransmitted and invalid messages count like others, so the counters of two peers may differ.

use casemate_wire::ike::{ExchangeType, Header};

/// Numbers of messages of one exchange, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCount {
    /// Requests.
    pub requests: u64,
    /// Responses.
    pub responses: u64,
}

/// Numbers of messages in one direction. Other exchanges are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExchangeCounters {
    /// IKE_SA_INIT.
    pub init: MessageCount,
    /// IKE_AUTH.
    pub auth: MessageCount,
    /// CREATE_CHILD_SA.
    pub create_child: MessageCount,
    /// INFORMATIONAL.
    pub informational: MessageCount,
}

/// Numbers of messages since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounters {
    /// Messages from peers.
    pub received: ExchangeCounters,
    /// Messages to peers.
    pub sent: ExchangeCounters,
}

impl MessageCount {
    /// The messages since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            responses: self.responses.saturating_sub(earlier.responses),
        }
    }
}

impl ExchangeCounters {
    /// The messages since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            init: self.init.since(earlier.init),
            auth: self.auth.since(earlier.auth),
            create_child: self.create_child.since(earlier.create_child),
            informational: self.informational.since(earlier.informational),
        }
    }

    /// Counts a message if it has a whole header.
    pub(crate) fn count(&mut self, message: &[u8]) {
        let Ok(header) = Header::parse(message) else { return };
        let count = match header.exchange {
            ExchangeType::IKE_SA_INIT => &mut self.init,
            ExchangeType::IKE_AUTH => &mut self.auth,
            ExchangeType::CREATE_CHILD_SA => &mut self.create_child,
            ExchangeType::INFORMATIONAL => &mut self.informational,
            _ => return,
        };
        let count = if header.flags.response { &mut count.responses } else { &mut count.requests };
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_exchange_and_flag() {
        let mut counters = ExchangeCounters::default();
        // RFC 7296 section 3.1: exchange type and flags are the bytes 18 and 19.
        for (exchange, flags) in
            [(34, 0x08), (34, 0x20), (34, 0x20), (35, 0x08), (36, 0x20), (37, 0), (99, 0)]
        {
            let mut message = [0; 28];
            (message[17], message[18], message[19]) = (0x20, exchange, flags);
            counters.count(&message);
        }
        counters.count(&[0; 27]);
        let count = |requests, responses| MessageCount { requests, responses };
        assert_eq!(counters.init, count(1, 2));
        assert_eq!((counters.auth, counters.create_child), (count(1, 0), count(0, 1)));
        assert_eq!(counters.informational, count(1, 0));
        let earlier = ExchangeCounters { init: count(1, 1), ..ExchangeCounters::default() };
        assert_eq!(counters.since(earlier), ExchangeCounters { init: count(0, 1), ..counters });
    }
}
