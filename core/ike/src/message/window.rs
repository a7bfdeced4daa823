//! Message IDs, repetition and remembered answers (RFC 7296 sections 2.1 to 2.3), with windows of one message each way.

use super::Reassembly;
use crate::settings::Retransmission;
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::time::Duration;

/// After so long, an answer is forgotten: RFC 7296 section 2.1 allows it after several minutes.
const REMEMBERED: Duration = Duration::from_secs(180);

/// The messages of one IKE SA.
#[derive(Debug)]
pub(crate) struct Window {
    /// Message ID of our next request.
    next: u32,
    outstanding: Option<Outstanding>,
    /// Message ID that the peer's next request must have.
    expected: u32,
    answered: Option<Answered>,
    pub(crate) requests: Reassembly,
    pub(crate) responses: Reassembly,
}

/// A request of ours that has no response yet.
#[derive(Debug)]
pub(crate) struct Outstanding {
    id: u32,
    datagrams: Vec<Vec<u8>>,
    tries: u32,
    due: Instant,
}

#[derive(Debug)]
struct Answered {
    datagrams: Vec<Vec<u8>>,
    until: Instant,
}

/// What a message is by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The next request.
    Request,
    /// The request answered last, once more.
    Repeated,
    /// The response that is waited for.
    Response,
    /// A response to nothing.
    Stray,
    /// Any other number.
    Outside,
}

impl Window {
    /// For an IKE SA whose next messages have these numbers: ours, the peer's.
    pub(crate) const fn new(next: u32, expected: u32) -> Self {
        Self {
            next,
            outstanding: None,
            expected,
            answered: None,
            requests: Reassembly::new(),
            responses: Reassembly::new(),
        }
    }

    /// What a message with this number is.
    pub(crate) fn classify(&self, message_id: u32, response: bool) -> Incoming {
        match response {
            true if self.outstanding.as_ref().is_some_and(|request| request.id == message_id) => {
                Incoming::Response
            }
            true => Incoming::Stray,
            false if message_id == self.expected => Incoming::Request,
            false if message_id.checked_add(1) == Some(self.expected) => Incoming::Repeated,
            false => Incoming::Outside,
        }
    }

    /// The number of our next request; `None` while one is outstanding, or when the numbers are used up.
    pub(crate) fn next_request(&self) -> Option<u32> {
        // RFC 7296 section 2.2: an IKE SA ends before its numbers begin again.
        self.outstanding.is_none().then_some(self.next).filter(|next| *next < u32::MAX)
    }

    /// The number that the request being answered has.
    pub(crate) const fn expected(&self) -> u32 {
        self.expected
    }

    /// Whether a request is on its way.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Notes that the request with the next number was sent.
    pub(crate) fn sent(&mut self, datagrams: Vec<Vec<u8>>, now: Instant, how: &Retransmission) {
        let due = now.after(how.wait(0));
        self.outstanding = Some(Outstanding { id: self.next, datagrams, tries: 0, due });
        self.next = self.next.saturating_add(1);
        self.responses.clear();
    }

    /// The response has come.
    pub(crate) fn settled(&mut self) {
        self.outstanding = None;
        self.responses.clear();
    }

    /// Notes the answer to the peer's request with the expected number.
    pub(crate) fn answered(&mut self, datagrams: Vec<Vec<u8>>, now: Instant) {
        self.expected = self.expected.saturating_add(1);
        self.requests.clear();
        self.answered = Some(Answered { datagrams, until: now.after(REMEMBERED) });
    }

    /// The answer given last, while it is remembered.
    pub(crate) fn last_answer(&self) -> &[Vec<u8>] {
        self.answered.as_ref().map_or(&[], |answered| &answered.datagrams)
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let repeat = self.outstanding.as_ref().map(|request| request.due);
        repeat.into_iter().chain(self.answered.as_ref().map(|answered| answered.until)).min()
    }

    /// Does what is due: the request to be repeated, or `Err` if it was repeated often enough.
    pub(crate) fn expire(&mut self, now: Instant, how: &Retransmission) -> Result<&[Vec<u8>], NoAnswer> {
        self.answered = self.answered.take().filter(|answered| now < answered.until);
        let Some(request) = self.outstanding.as_mut().filter(|request| request.due <= now) else {
            return Ok(&[]);
        };
        request.tries = request.tries.saturating_add(1);
        if request.tries > how.tries {
            return Err(NoAnswer);
        }
        request.due = now.after(how.wait(request.tries));
        Ok(&request.datagrams)
    }
}

/// The peer did not answer, however often it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const HOW: Retransmission = Retransmission {
        first: Duration::from_secs(1),
        factor: 2,
        longest: Duration::from_secs(60),
        tries: 2,
    };

    #[test]
    fn one_request_at_a_time() {
        let mut window = Window::new(2, 5);
        assert_eq!(window.next_request(), Some(2));
        window.sent(vec![vec![1]], Instant::ZERO, &HOW);
        assert_eq!((window.next_request(), window.is_waiting()), (None, true));
        assert_eq!(window.classify(2, true), Incoming::Response);
        assert_eq!([window.classify(1, true), window.classify(3, true)], [Incoming::Stray; 2]);
        window.settled();
        assert_eq!((window.classify(2, true), window.next_request()), (Incoming::Stray, Some(3)));
    }

    #[test]
    fn the_last_answer_is_remembered_for_a_while() {
        let mut window = Window::new(0, 5);
        assert_eq!(window.classify(5, false), Incoming::Request);
        assert_eq!(window.classify(4, false), Incoming::Repeated);
        assert_eq!([window.classify(3, false), window.classify(6, false)], [Incoming::Outside; 2]);
        window.answered(vec![vec![7]], Instant::ZERO);
        assert_eq!(window.classify(5, false), Incoming::Repeated);
        assert_eq!(window.last_answer(), [vec![7]]);
        window.expire(Instant::from_secs(179), &HOW).unwrap();
        assert_eq!(window.last_answer().len(), 1);
        window.expire(Instant::from_secs(180), &HOW).unwrap();
        assert!(window.last_answer().is_empty());
        assert_eq!(Window::new(0, 0).classify(u32::MAX, false), Incoming::Outside);
    }

    #[test]
    fn a_request_is_repeated_more_and_more_seldom() {
        let mut window = Window::new(0, 0);
        window.sent(vec![vec![1]], Instant::ZERO, &HOW);
        let sent: vec::Vec<_> = (0..20)
            .map_while(|second| {
                let datagrams = window.expire(Instant::from_secs(second), &HOW).ok()?;
                Some((second, !datagrams.is_empty()))
            })
            .collect();
        let repeated: vec::Vec<_> =
            sent.iter().filter(|(_, sent)| *sent).map(|(second, _)| *second).collect();
        assert_eq!((repeated, sent.len()), (vec![1, 3], 7));
    }
}
