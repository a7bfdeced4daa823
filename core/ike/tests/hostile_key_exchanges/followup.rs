//! IKE_FOLLOWUP_KE with hostile contents, by an authenticated peer.

use crate::forge::{Attack, MessageForger, Raw, altered, give_left, give_right, notifies};
use crate::pair::Pair;
use crate::values::{CHANGES, Change, UNREDUCED_KEY, with_other_value, with_value_of};
use crate::{check_honest, faults};
use casemate_ike::{DownReason, Event, Path, StateFault, Transmit};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use std::time::Duration;

const FOLLOWUP: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;

/// What the left side begins.
#[derive(Debug, Clone, Copy)]
enum Begun {
    Child,
    RekeyChild,
    Rekey,
}

const BEGUN: [Begun; 2] = [Begun::Child, Begun::Rekey];

/// An established pair whose left side has sent its first IKE_FOLLOWUP_KE request.
struct Series {
    pair: Pair,
    /// Acts as the left side.
    left: MessageForger,
    /// Acts as the right side.
    right: MessageForger,
    id: u32,
    /// Payloads of the request, which was not delivered.
    request: Vec<Raw>,
}

impl Series {
    fn begin(what: Begun) -> Self {
        let mut pair = crate::pair();
        pair.left.initiate(pair.now);
        pair.run();
        let (left, right) = (MessageForger::against(&pair.right), MessageForger::against(&pair.left));
        match what {
            Begun::Child => pair.left.initiate(pair.now),
            Begun::RekeyChild => {
                let id = pair.left.children()[0].id;
                pair.left.with_context(pair.now, |ike, host, context| ike.rekey_child(id, host, context));
            }
            Begun::Rekey => {
                let id = pair.left.ike.status().next().unwrap().id;
                pair.left.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context));
            }
        }
        pair.deliver_to_right();
        pair.deliver_to_left();
        let mut series = Self { pair, left, right, id: 0, request: vec![] };
        series.take_request();
        series
    }

    fn take_request(&mut self) {
        let sent = self.pair.left.sent.pop_front().unwrap().message;
        let (header, payloads) = self.left.open(&sent);
        assert_eq!(header.exchange, FOLLOWUP);
        (self.id, self.request) = (header.message_id, payloads);
    }

    /// Sends a request as the left side. Returns the payloads of the response.
    fn ask(&mut self, id: u32, payloads: &[Raw]) -> Vec<Raw> {
        let message = self.left.seal(&self.left.header(FOLLOWUP, id, false), payloads);
        let answers = give_right(&mut self.pair, &message);
        self.left.open(&answers[0]).1
    }

    /// Sends a response as the right side.
    fn answer(&mut self, payloads: &[Raw]) {
        let message = self.right.seal(&self.right.header(FOLLOWUP, self.id, true), payloads);
        let sent = give_left(&mut self.pair, &message);
        let (left, right) = (&self.pair.left.addr, &self.pair.right.addr);
        let path = Path { local: (*left, 500).into(), remote: (*right, 500).into() };
        let transmit = |message| Transmit { path, non_esp_marker: false, probe_len: None, message };
        self.pair.left.sent.extend(sent.into_iter().map(transmit));
    }

    /// The second round: its request is taken, and the payloads of the first one are returned.
    fn second_round(&mut self) -> Vec<Raw> {
        let first = self.request.clone();
        let response = self.ask(self.id, &first);
        self.answer(&response);
        self.take_request();
        first
    }

    fn check_refused(mut self, payloads: &[Raw], change: &Change, what: Begun) {
        let name = format!("{what:?}: {}", change.name);
        let response = self.ask(self.id, payloads);
        assert_eq!(
            notifies(&response).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [change.notify()],
            "{name}"
        );
        assert_eq!(faults(&self.pair.right, change.fault), 1, "{name}");
        assert!(self.pair.right.leaked_spis().is_empty(), "{name}");
        // RFC 7296 section 2.21.3: a syntax error ends the IKE SA.
        let remaining = usize::from(change.fault == StateFault::KeMethod);
        assert_eq!(self.pair.right.ike.status().count(), remaining, "{name}");
        if remaining == 1 {
            // The series has ended, and nothing was made.
            let again = self.ask(self.id + 1, &self.request.clone());
            assert_eq!(notifies(&again)[0].0, NotifyType::STATE_NOT_FOUND, "{name}");
            assert_eq!(self.pair.right.children().len(), 1, "{name}");
        }
        check_honest(&mut self.pair, &name);
    }
}

#[test]
fn a_changed_request_makes_nothing() {
    for what in BEGUN {
        for change in CHANGES.iter().chain([&UNREDUCED_KEY]) {
            let series = Series::begin(what);
            let payloads = change.apply(&series.request);
            series.check_refused(&payloads, change, what);
            let mut series = Series::begin(what);
            series.second_round();
            let payloads = change.apply(&series.request);
            series.check_refused(&payloads, change, what);
        }
    }
}

#[test]
fn a_value_of_the_other_round_is_refused() {
    for what in BEGUN {
        let mut series = Series::begin(what);
        let first = series.second_round();
        let swapped = with_value_of(&series.request, &first);
        series.check_refused(&swapped, &Change { name: "the first value", ..UNREDUCED_KEY }, what);
    }
}

/// The link between the exchanges is missing, of another length, or of another exchange (RFC 9370 section
/// 2.2.4).
#[test]
fn a_request_with_another_link_does_not_continue_the_series() {
    let link = |data: &[u8]| Raw::notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, data);
    for what in BEGUN {
        for data in [&[][..], &[0; 3], &[0; 4], &[9; 64]] {
            let mut series = Series::begin(what);
            let mut changed = crate::forge::without(&series.request, PayloadType::NOTIFY);
            changed.push(link(data));
            let response = series.ask(series.id, &changed);
            assert_eq!(notifies(&response)[0].0, NotifyType::STATE_NOT_FOUND, "{what:?} {data:?}");
            // The series still waits for the right one.
            let next = series.ask(series.id + 1, &series.request.clone());
            assert_eq!(next[0].kind, PayloadType::KE, "{what:?} {data:?}");
        }
        let mut series = Series::begin(what);
        let without = crate::forge::without(&series.request, PayloadType::NOTIFY);
        let response = series.ask(series.id, &without);
        assert_eq!(notifies(&response)[0].0, NotifyType::INVALID_SYNTAX, "{what:?}");
    }
}

/// The first request once more: as a retransmission it gets the stored response, and with the next message ID
/// its link is old.
#[test]
fn repeated_requests_do_not_advance_the_series() {
    for what in BEGUN {
        let mut series = Series::begin(what);
        let first = series.request.clone();
        let message = series.left.seal(&series.left.header(FOLLOWUP, series.id, false), &first);
        let answers = give_right(&mut series.pair, &message);
        assert_eq!(give_right(&mut series.pair, &message), answers, "{what:?}");
        let response = series.ask(series.id + 1, &first);
        assert_eq!(notifies(&response)[0].0, NotifyType::STATE_NOT_FOUND, "{what:?}");
        assert_eq!(series.pair.right.children().len(), 1, "{what:?}");
    }
}

#[test]
fn exchanges_without_a_series_are_refused() {
    let (_, request) = {
        let series = Series::begin(Begun::Child);
        (series.id, series.request)
    };
    let mut attack = Attack::on(crate::pair());
    attack.next = 4;
    let response = attack.ask(FOLLOWUP, &request);
    assert_eq!(notifies(&response)[0].0, NotifyType::STATE_NOT_FOUND);
    attack.check_alive();
    // After the last round as well.
    let mut series = Series::begin(Begun::Child);
    series.second_round();
    let last = series.request.clone();
    assert_eq!(series.ask(series.id, &last)[0].kind, PayloadType::KE);
    assert_eq!(series.pair.right.children().len(), 2);
    let response = series.ask(series.id + 1, &last);
    assert_eq!(notifies(&response)[0].0, NotifyType::STATE_NOT_FOUND);
}

/// The peer begins one series after the other and ends none: one is kept, and its SPI is released.
#[test]
fn unfinished_series_do_not_add_up() {
    let mut series = Series::begin(Begun::Child);
    for _ in 0..10 {
        // The left side forgets its request and begins again.
        let (pair, left) = (&mut series.pair, &mut series.left);
        let header = left.header(ExchangeType::CREATE_CHILD_SA, series.id, false);
        let message = left.seal(&header, &create_child_sa());
        let answers = give_right(pair, &message);
        assert_eq!(answers.len(), 1);
        series.id += 1;
        // One SPI for the first Child SA, and one for the awaited series.
        assert_eq!(series.pair.right.host.reserved.len(), 2);
    }
    series.pair.advance(Duration::from_secs(21));
    assert!(series.pair.right.leaked_spis().is_empty());
}

/// The requests of the other host wait no longer than the key exchanges may take, however often the peer
/// begins anew.
#[test]
fn a_peer_that_begins_anew_does_not_delay_requests_for_ever() {
    let mut series = Series::begin(Begun::Child);
    let ike = series.pair.right.ike.status().next().unwrap().id;
    let now = series.pair.now;
    series.pair.right.with_context(now, |engine, host, context| engine.rekey(ike, host, context));
    let mut sent = Vec::new();
    for second in 0..90 {
        if second % 8 == 0 {
            let header = series.left.header(ExchangeType::CREATE_CHILD_SA, series.id, false);
            let message = series.left.seal(&header, &create_child_sa());
            give_right(&mut series.pair, &message);
            series.id += 1;
        }
        series.pair.now = series.pair.now.after(Duration::from_secs(1));
        let now = series.pair.now;
        series.pair.right.handle_timeouts(now);
        sent.extend(series.pair.right.sent.drain(..).map(|_| second));
    }
    // Two additional key exchanges may take 40 seconds.
    assert!(sent.first().is_some_and(|second| (38..=41).contains(second)), "{sent:?}");
}

/// A command closes the Child SA that the peer is replacing, and the peer closes it, too, before the last key
/// exchange.
#[test]
fn a_command_also_closes_the_replacement() {
    let mut series = Series::begin(Begun::RekeyChild);
    let (old, now) = (series.pair.right.children()[0].clone(), series.pair.now);
    series.pair.right.with_context(now, |ike, host, context| {
        ike.terminate_child(old.id, DownReason::Local, host, context)
    });
    let spi = old.outbound.spi.get().to_be_bytes();
    let delete = Raw::new(PayloadType::DELETE, &[&[3, 4, 0, 1][..], &spi].concat());
    let header = series.left.header(ExchangeType::INFORMATIONAL, series.id, false);
    let message = series.left.seal(&header, &[delete]);
    assert_eq!(give_right(&mut series.pair, &message).len(), 1);
    assert!(series.pair.right.children().is_empty());
    // The request with the Delete payload has shifted the message IDs.
    let response = series.ask(series.id + 1, &series.request.clone());
    series.answer(&response);
    series.take_request();
    let response = series.ask(series.id + 1, &series.request.clone());
    series.answer(&response);
    let installed = |event: &&Event| matches!(event, Event::ChildUp(_));
    assert_eq!(series.pair.right.events.iter().filter(installed).count(), 2);
    series.pair.run();
    series.pair.advance(Duration::from_secs(10));
    assert!(series.pair.right.children().is_empty());
}

/// Payloads of a CREATE_CHILD_SA request for a Child SA with additional key exchanges.
fn create_child_sa() -> Vec<Raw> {
    let mut pair = crate::pair();
    pair.left.initiate(pair.now);
    pair.run();
    let forger = MessageForger::against(&pair.right);
    pair.left.initiate(pair.now);
    forger.open(&pair.left.sent.pop_front().unwrap().message).1
}

/// A changed response makes nothing at the initiator, which closes the IKE SA, because both sides may have
/// different keys.
#[test]
fn a_changed_response_makes_nothing() {
    for what in BEGUN {
        for change in &CHANGES {
            let mut series = Series::begin(what);
            let response = series.ask(series.id, &series.request.clone());
            series.answer(&change.apply(&response));
            let name = format!("{what:?}: {}", change.name);
            assert_eq!(faults(&series.pair.left, change.fault), 1, "{name}");
            assert!(series.pair.left.leaked_spis().is_empty(), "{name}");
            series.pair.run();
            // As after CREATE_CHILD_SA, the IKE SA stays if the payloads cannot be parsed.
            let remaining = usize::from(change.fault == StateFault::PayloadTwice);
            for side in [&series.pair.left, &series.pair.right] {
                let has = (side.ike.status().count(), side.children().len());
                assert_eq!(has, (remaining, remaining), "{name}");
            }
            series.pair.advance(Duration::from_secs(21));
            check_honest(&mut series.pair, &name);
        }
    }
}

/// A changed ciphertext gives the Child SA different keys at both sides, and its packets are dropped. A
/// successor with different keys authenticates no message.
#[test]
fn a_changed_ciphertext_makes_other_keys() {
    let mut series = Series::begin(Begun::Child);
    series.second_round();
    let response = series.ask(series.id, &series.request.clone());
    series.answer(&with_other_value(&response));
    let of_new = |side: &crate::pair::IkePeer| side.children().last().unwrap().clone();
    let (left, right) = (of_new(&series.pair.left), of_new(&series.pair.right));
    assert_eq!(left.inbound.spi, right.outbound.spi);
    assert_ne!(left.inbound.transform, right.outbound.transform);
}

/// The responder refuses every series: the initiator closes the IKE SA after a few (RFC 9370 section 2.2.4).
#[test]
fn a_peer_that_forgets_every_series_loses_the_ike_sa() {
    let mut series = Series::begin(Begun::Rekey);
    let mut refusals = 0;
    for _ in 0..600 {
        if series.pair.left.ike.status().next().is_none() {
            break;
        }
        if !series.request.is_empty() {
            refusals += 1;
            let request = std::mem::take(&mut series.request);
            series.ask(series.id, &request);
            series.answer(&[Raw::notify(NotifyType::STATE_NOT_FOUND, &[])]);
        }
        series.pair.now = series.pair.now.after(Duration::from_secs(1));
        let now = series.pair.now;
        series.pair.left.handle_timeouts(now);
        series.pair.right.handle_timeouts(now);
        while let Some(sent) = series.pair.left.sent.pop_front() {
            let (header, payloads) = series.left.open(&sent.message);
            if header.exchange == FOLLOWUP {
                (series.id, series.request) = (header.message_id, payloads);
                continue;
            }
            crate::pair::deliver(&mut series.pair.right, sent, now);
            series.pair.deliver_to_left();
        }
    }
    let closed = DownReason::Refused(NotifyType::STATE_NOT_FOUND);
    let is_down = |event: &Event| matches!(event, Event::IkeDown { reason, .. } if *reason == closed);
    assert!(series.pair.left.events.iter().any(is_down), "after {refusals} refusals");
    assert_eq!(refusals, 5);
}

/// The peer has a successor that does not exist here, and the draft of ML-KEM demands the end (section 2.2 of
/// draft-ietf-ipsecme-ikev2-mlkem).
#[test]
fn an_invalid_answer_to_a_rekeying_ends_the_ike_sa() {
    let mut pair = crate::pair();
    pair.left.initiate(pair.now);
    pair.run();
    let (left, mut right) = (MessageForger::against(&pair.right), MessageForger::against(&pair.left));
    let id = pair.left.ike.status().next().unwrap().id;
    pair.left.with_context(pair.now, |ike, host, context| ike.rekey(id, host, context));
    pair.deliver_to_right();
    let sent = pair.right.sent.pop_front().unwrap().message;
    let (header, payloads) = left.open(&sent);
    let zero = altered(&payloads, PayloadType::KE, |body| body[4..].fill(0));
    let response = right.seal(&right.header(ExchangeType::CREATE_CHILD_SA, header.message_id, true), &zero);
    let sent = give_left(&mut pair, &response);
    assert_eq!(left.open(&sent[0]).1.iter().map(|raw| raw.kind).collect::<Vec<_>>(), [PayloadType::DELETE]);
    assert_eq!(pair.left.children().len(), 0);
    assert_eq!(faults(&pair.left, StateFault::KeValue), 1);
}
