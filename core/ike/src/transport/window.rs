//! Message IDs, retransmission and stored responses (RFC 7296 sections 2.1 to 2.3), with a window of one
//! message in each direction.

#[cfg(feature = "records")]
use crate::counter_sync::{MessageIds, SyncState};
#[cfg(feature = "records")]
use crate::record::{MessageFields, Span, WindowFields};
use crate::settings::Retransmission;
use crate::transport::Reassembly;
use alloc::vec::Vec;
use casemate_crypto::Rng;
use casemate_sa::Instant;
#[cfg(feature = "records")]
use casemate_wire::ike::{ExchangeType, Header};
use core::time::Duration;

/// Time after which a stored response is dropped. RFC 7296 section 2.1 allows that after several minutes.
const RESPONSE_LIFETIME: Duration = Duration::from_secs(180);

/// Message window of an IKE SA.
#[derive(Debug)]
pub(crate) struct Window {
    /// Message ID of our next request.
    next_id: u32,
    outstanding: Option<Outstanding>,
    /// Message ID of the last request, if path MTU probes repeat it.
    repeated_id: Option<u32>,
    /// Message ID of the peer's next request.
    expected_id: u32,
    /// Whether the peer's next request may have a higher message ID: a former owner of the IKE SA may have
    /// answered some without recording that.
    #[cfg(feature = "records")]
    accepts_gaps: bool,
    last_response: Option<SentResponse>,
    pub(crate) requests: Reassembly,
    pub(crate) responses: Reassembly,
}

/// Our request that awaits its response.
#[derive(Debug)]
pub(crate) struct Outstanding {
    id: u32,
    datagrams: Vec<Vec<u8>>,
    tries: u32,
    due: Instant,
}

/// Our request that was answered.
#[derive(Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) id: u32,
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// Number of retransmissions.
    pub(crate) tries: u32,
}

#[derive(Debug)]
struct SentResponse {
    datagrams: Vec<Vec<u8>>,
    until: Instant,
}

/// Classification of a message by its message ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageIdClass {
    /// The next request.
    Request,
    /// A repetition of the last request.
    RepeatedRequest,
    /// The awaited response.
    Response,
    /// Another response to the last request, which path MTU probes repeat.
    RepeatedResponse,
    /// A response without an outstanding request.
    UnexpectedResponse,
    /// A request with any other message ID.
    OutOfWindow,
}

impl Window {
    /// Returns a window with the next message IDs: ours and the peer's.
    pub(crate) const fn new(next: u32, expected: u32) -> Self {
        Self {
            next_id: next,
            outstanding: None,
            repeated_id: None,
            expected_id: expected,
            #[cfg(feature = "records")]
            accepts_gaps: false,
            last_response: None,
            requests: Reassembly::new(),
            responses: Reassembly::new(),
        }
    }

    /// The message IDs, and the messages that may be repeated, for a record.
    #[cfg(feature = "records")]
    pub(crate) fn to_fields(&self, now: Instant) -> WindowFields {
        let response = self.last_response.as_ref().filter(|response| now < response.until);
        let request = self.outstanding.as_ref();
        WindowFields {
            next: self.next_id,
            expected: self.expected_id,
            response: response.map(|sent| MessageFields::new(&sent.datagrams, Span::until(sent.until, now))),
            request: request.map(|sent| MessageFields::new(&sent.datagrams, Span::until(sent.due, now))),
        }
    }

    /// The window of a record. An outstanding request is sent again at once.
    #[cfg(feature = "records")]
    pub(crate) fn from_fields(fields: WindowFields, now: Instant) -> Self {
        let WindowFields { next, expected, response, request } = fields;
        let response = response.map(|fields| {
            let until = fields.left.after(now);
            SentResponse { datagrams: fields.into_datagrams(), until }
        });
        let outstanding = request.map(|fields| Outstanding {
            // The next message ID follows that of the outstanding request.
            id: next.saturating_sub(1),
            datagrams: fields.into_datagrams(),
            tries: 0,
            due: now,
        });
        let accepts_gaps = true;
        Self { outstanding, last_response: response, accepts_gaps, ..Self::new(next, expected) }
    }

    /// Exchange type of the outstanding request.
    #[cfg(feature = "records")]
    pub(crate) fn outstanding_exchange(&self) -> Option<ExchangeType> {
        let first = self.outstanding.as_ref()?.datagrams.first()?;
        Header::parse(first).ok().map(|header| header.exchange)
    }

    /// Classifies a message ID.
    pub(crate) fn classify(&self, message_id: u32, response: bool) -> MessageIdClass {
        match response {
            true if self.outstanding.as_ref().is_some_and(|request| request.id == message_id) => {
                MessageIdClass::Response
            }
            true if self.repeated_id == Some(message_id) => MessageIdClass::RepeatedResponse,
            true => MessageIdClass::UnexpectedResponse,
            // RFC 7296 section 2.2: an IKE SA ends before its message IDs wrap.
            false if message_id == u32::MAX => MessageIdClass::OutOfWindow,
            false if message_id == self.expected_id => MessageIdClass::Request,
            #[cfg(feature = "records")]
            false if self.accepts_gaps && message_id > self.expected_id => MessageIdClass::Request,
            false if message_id.checked_add(1) == Some(self.expected_id) => MessageIdClass::RepeatedRequest,
            false => MessageIdClass::OutOfWindow,
        }
    }

    /// Message ID of our next request; `None` while a request is outstanding, or when the IDs are exhausted.
    pub(crate) fn next_request_id(&self) -> Option<u32> {
        self.outstanding.is_none().then_some(self.next_id).filter(|next| *next < u32::MAX)
    }

    /// Notes that an authentic request with this message ID has arrived: the next one, or one behind a gap.
    #[cfg(feature = "records")]
    pub(crate) fn request_received(&mut self, message_id: u32) {
        self.expected_id = self.expected_id.max(message_id);
    }

    /// Moves to the higher ones of our message IDs and those of an authentic request to synchronize them (RFC
    /// 6311 section 5.1). Neither responses to earlier requests nor earlier requests of the peer are awaited
    /// any more (section 9). Returns the message IDs for the response.
    ///
    /// `None` if the request is a repetition, or would leave no message IDs. Nothing has changed then.
    #[cfg(feature = "records")]
    pub(crate) fn synchronize(&mut self, request: MessageIds, sync: &mut SyncState) -> Option<MessageIds> {
        let highest_seen = self.expected_id.checked_sub(1).max(sync.last_request);
        if highest_seen.is_some_and(|seen| request.send <= seen) {
            return None;
        }
        let send = self.next_id.max(request.receive);
        let receive = self.expected_id.max(request.send);
        if send == u32::MAX || receive == u32::MAX {
            return None;
        }
        sync.last_request = Some(request.send);
        (self.next_id, self.expected_id) = (send, receive);
        (self.outstanding, self.last_response) = (None, None);
        (self.repeated_id, self.accepts_gaps) = (None, false);
        self.requests.clear();
        self.responses.clear();
        Some(MessageIds { nonce: request.nonce, send, receive })
    }

    /// Message ID of the request that is being answered.
    pub(crate) const fn expected_id(&self) -> u32 {
        self.expected_id
    }

    /// Message ID of the outstanding request.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn outstanding_id(&self) -> Option<u32> {
        self.outstanding.as_ref().map(|request| request.id)
    }

    /// Whether a request is outstanding.
    pub(crate) const fn has_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Number of retransmissions of the outstanding request; 0 if there is none.
    pub(crate) fn retransmissions(&self) -> u32 {
        self.outstanding.as_ref().map_or(0, |request| request.tries)
    }

    /// When the outstanding request is sent again, or has failed.
    pub(crate) fn request_due(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|request| request.due)
    }

    /// Notes that the next request was sent.
    pub(crate) fn request_sent(
        &mut self,
        datagrams: Vec<Vec<u8>>,
        now: Instant,
        retransmission: &Retransmission,
        rng: &mut dyn Rng,
    ) {
        let due = now.after(retransmission.wait(0, rng));
        self.outstanding = Some(Outstanding { id: self.next_id, datagrams, tries: 0, due });
        self.next_id = self.next_id.saturating_add(1);
        self.repeated_id = None;
        self.responses.clear();
    }

    /// The datagrams of the outstanding request.
    #[cfg(any(feature = "mobike", feature = "records"))]
    pub(crate) fn outstanding_datagrams(&self) -> &[Vec<u8>] {
        self.outstanding.as_ref().map_or(&[], |request| &request.datagrams)
    }

    /// Begins the retransmission of the outstanding request again. What the peer does must not lead here: it
    /// could keep the request outstanding for ever, and those after it waiting.
    #[cfg(feature = "mobike")]
    pub(crate) fn restart_retransmission(
        &mut self,
        now: Instant,
        retransmission: &Retransmission,
        rng: &mut dyn Rng,
    ) {
        if let Some(request) = &mut self.outstanding {
            (request.tries, request.due) = (0, now.after(retransmission.wait(0, rng)));
        }
    }

    /// Notes that the response has arrived. Returns the request.
    pub(crate) fn response_received(&mut self) -> Option<AnsweredRequest> {
        self.responses.clear();
        let Outstanding { id, datagrams, tries, .. } = self.outstanding.take()?;
        Some(AnsweredRequest { id, datagrams, tries })
    }

    /// Accepts repetitions of the response to this request, the last one, until the next request.
    pub(crate) const fn await_repetition(&mut self, id: u32) {
        self.repeated_id = Some(id);
    }

    /// Stores the response to the peer's request.
    pub(crate) fn response_sent(&mut self, datagrams: Vec<Vec<u8>>, now: Instant) {
        self.expected_id = self.expected_id.saturating_add(1);
        self.requests.clear();
        self.last_response = Some(SentResponse { datagrams, until: now.after(RESPONSE_LIFETIME) });
    }

    /// The last response, while it is stored.
    pub(crate) fn last_response(&self) -> &[Vec<u8>] {
        self.last_response.as_ref().map_or(&[], |response| &response.datagrams)
    }

    /// Bytes of the peer's incomplete request and of the last response.
    pub(crate) fn held_bytes(&self) -> usize {
        let response = self.last_response.iter().flat_map(|response| &response.datagrams);
        response.fold(self.requests.held_bytes(), |sum, datagram| sum.saturating_add(datagram.len()))
    }

    /// Time of the next timeout.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.request_due().into_iter().chain(self.last_response.as_ref().map(|response| response.until)).min()
    }

    /// Returns the datagrams to retransmit, or `Err` after the last retransmission. Drops an expired
    /// response.
    pub(crate) fn retransmit(
        &mut self,
        now: Instant,
        retransmission: &Retransmission,
        rng: &mut dyn Rng,
    ) -> Result<&[Vec<u8>], NoResponse> {
        self.last_response = self.last_response.take().filter(|response| now < response.until);
        let Some(request) = self.outstanding.as_mut().filter(|request| request.due <= now) else {
            return Ok(&[]);
        };
        request.tries = request.tries.saturating_add(1);
        if request.tries > retransmission.tries {
            return Err(NoResponse);
        }
        request.due = now.after(retransmission.wait(request.tries, rng));
        Ok(&request.datagrams)
    }
}

/// The peer did not respond to any transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoResponse;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use casemate_test_support::TestRng;

    const HOW: Retransmission = Retransmission {
        initial_timeout: Duration::from_secs(1),
        growth_permille: 2_000,
        max_timeout: Duration::from_secs(60),
        jitter_percent: 0,
        tries: 2,
    };

    #[test]
    fn only_one_request_is_outstanding() {
        let mut window = Window::new(2, 5);
        assert_eq!(window.next_request_id(), Some(2));
        window.request_sent(vec![vec![1]], Instant::ZERO, &HOW, &mut TestRng::new(1));
        assert_eq!((window.next_request_id(), window.has_outstanding()), (None, true));
        assert_eq!(window.classify(2, true), MessageIdClass::Response);
        assert_eq!(
            [window.classify(1, true), window.classify(3, true)],
            [MessageIdClass::UnexpectedResponse; 2]
        );
        window.response_received();
        assert_eq!(
            (window.classify(2, true), window.next_request_id()),
            (MessageIdClass::UnexpectedResponse, Some(3))
        );
    }

    #[test]
    fn the_last_response_is_stored_for_a_while() {
        let mut window = Window::new(0, 5);
        assert_eq!(window.classify(5, false), MessageIdClass::Request);
        assert_eq!(window.classify(4, false), MessageIdClass::RepeatedRequest);
        assert_eq!([window.classify(3, false), window.classify(6, false)], [MessageIdClass::OutOfWindow; 2]);
        window.response_sent(vec![vec![7]], Instant::ZERO);
        assert_eq!(window.classify(5, false), MessageIdClass::RepeatedRequest);
        assert_eq!(window.last_response(), [vec![7]]);
        window.retransmit(Instant::from_secs(179), &HOW, &mut TestRng::new(1)).unwrap();
        assert_eq!(window.last_response().len(), 1);
        window.retransmit(Instant::from_secs(180), &HOW, &mut TestRng::new(1)).unwrap();
        assert!(window.last_response().is_empty());
        assert_eq!(Window::new(0, 0).classify(u32::MAX, false), MessageIdClass::OutOfWindow);
    }

    #[test]
    fn the_last_message_id_is_not_used() {
        let mut window = Window::new(u32::MAX - 1, u32::MAX - 1);
        assert_eq!(window.next_request_id(), Some(u32::MAX - 1));
        window.request_sent(vec![vec![1]], Instant::ZERO, &HOW, &mut TestRng::new(1));
        window.response_received();
        assert_eq!(window.next_request_id(), None);
        assert_eq!(window.classify(u32::MAX - 1, false), MessageIdClass::Request);
        window.response_sent(vec![vec![1]], Instant::ZERO);
        assert_eq!(window.classify(u32::MAX - 1, false), MessageIdClass::RepeatedRequest);
        assert_eq!(window.classify(u32::MAX, false), MessageIdClass::OutOfWindow);
    }

    #[test]
    fn a_request_is_retransmitted_with_increasing_pauses() {
        let mut window = Window::new(0, 0);
        window.request_sent(vec![vec![1]], Instant::ZERO, &HOW, &mut TestRng::new(1));
        let sent: vec::Vec<_> = (0..20)
            .map_while(|second| {
                let datagrams =
                    window.retransmit(Instant::from_secs(second), &HOW, &mut TestRng::new(1)).ok()?;
                Some((second, !datagrams.is_empty()))
            })
            .collect();
        let repeated: vec::Vec<_> =
            sent.iter().filter(|(_, sent)| *sent).map(|(second, _)| *second).collect();
        assert_eq!((repeated, sent.len()), (vec![1, 3], 7));
    }
}
