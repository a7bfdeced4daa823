//! Messages of one IKE SA once there are keys: in and out, whole or in fragments, once or again.

use super::{Cx, Head, Role};
use crate::config::Fragmentation;
use crate::keymat::SaKeys;
use crate::message::{
    self, Build, Content, Incoming as Number, Kind, NoAnswer, NotBuilt, Piece, Reassembled, Secured, Window,
};
use crate::negotiate::IkeSuite;
use crate::{Event, IkeKeys, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{Answer, ExchangeType, Header, Notify, NotifyType, PayloadType};

/// The secured half of an IKE SA.
pub(crate) struct Link {
    pub(crate) secured: Secured,
    pub(crate) window: Window,
    pub(crate) suite: IkeSuite,
    /// SK_d.
    pub(crate) d: SecretBytes,
    pub(crate) fragments: Fragments,
    /// Where the request being answered came from. RFC 7296 section 2.11: the response goes there, even if the peer has
    /// another address or port for our requests.
    asked_on: Path,
}

/// Who has announced fragments (RFC 7383 section 2.3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragments {
    pub(crate) ours: bool,
    pub(crate) theirs: bool,
}

/// What came of a datagram that is authentic.
pub(crate) enum Arrived {
    /// A message, whole: type of its first payload, and its payloads.
    Whole { first: PayloadType, payloads: Vec<u8> },
    /// Nothing yet, or a request that was answered again.
    Nothing,
}

impl Link {
    pub(crate) fn new(
        head: &Head,
        suite: IkeSuite,
        keys: &SaKeys,
        window: Window,
        fragments: Fragments,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        let secured = Secured::new(head.spis(), head.role, suite, keys, cx.env.providers);
        let secured = secured.map_err(|_| StateFault::Provider)?;
        if cx.shared.tell_keys {
            cx.event(Event::Keys(Box::new(IkeKeys {
                spis: head.spis(),
                suite,
                encr: (keys.ei.clone(), keys.er.clone()),
                integ: (keys.ai.clone(), keys.ar.clone()),
            })));
        }
        Ok(Self { secured, window, suite, d: keys.d.clone(), fragments, asked_on: head.path })
    }

    /// Which end of the IKE SA this is.
    pub(crate) const fn role(&self) -> Role {
        self.secured.role()
    }

    /// Takes a datagram apart. `limit` is what fragments may hold together, in bytes.
    pub(crate) fn take(
        &mut self,
        header: &Header,
        (datagram, path, limit): (&mut [u8], Path, usize),
        cx: &mut Cx<'_, '_>,
    ) -> Result<Arrived, PeerFault> {
        let response = header.flags.response;
        let number = self.window.classify(header.message_id, response);
        match number {
            Number::Stray => return Err(StateFault::StrayResponse.into()),
            Number::Outside => return Err(StateFault::MessageId.into()),
            Number::Request | Number::Repeated | Number::Response => {}
        }
        let opened = self.secured.open(datagram, cx.env.providers)?;
        if number == Number::Repeated {
            // RFC 7383 section 2.6.1: of the fragments of a repeated request, only the first is answered.
            if opened.fragment.is_none_or(|fragment| fragment.number() == 1) {
                cx.send(path, self.window.last_answer());
            }
            return Ok(Arrived::Nothing);
        }
        if number == Number::Request {
            self.asked_on = path;
        }
        let (first, payloads) = (opened.first, datagram.get(opened.payloads).unwrap_or_default());
        let Some(fragment) = opened.fragment else {
            return Ok(Arrived::Whole { first, payloads: payloads.into() });
        };
        if !self.fragments.ours {
            return Err(StateFault::FragmentUnexpected.into());
        }
        let reassembly = if response { &mut self.window.responses } else { &mut self.window.requests };
        let piece = Piece { message_id: header.message_id, fragment, first, data: payloads };
        let whole = reassembly.push(&piece, limit)?;
        Ok(whole
            .map_or(Arrived::Nothing, |Reassembled { first, payloads }| Arrived::Whole { first, payloads }))
    }

    /// Longest message that is sent whole on this path.
    fn limit(&self, head: &Head, path: Path, cx: &Cx<'_, '_>) -> Option<usize> {
        let Fragments { ours, theirs } = self.fragments;
        let cuts = ours && theirs && head.connection.fragmentation == Fragmentation::Yes;
        // IP and UDP headers, and the marker.
        let around = if path.remote.is_ipv4() { 20 + 8 + 4 } else { 40 + 8 + 4 };
        cuts.then(|| cx.shared.settings.fragment_bytes.saturating_sub(around))
    }

    /// Sends a request. There must be none outstanding.
    pub(crate) fn request(
        &mut self,
        head: &Head,
        exchange: ExchangeType,
        cx: &mut Cx<'_, '_>,
        build: Build<'_>,
    ) -> Result<(), NotBuilt> {
        let message_id = self.window.next_request().ok_or(NotBuilt)?;
        let kind = Kind { exchange, message_id, response: false };
        let limit = self.limit(head, head.path, cx);
        let datagrams =
            self.secured.seal(kind, limit, &mut cx.shared.scratch, (cx.env.rng, cx.env.providers), build)?;
        cx.send(head.path, &datagrams);
        self.window.sent(datagrams, cx.env.now, &cx.shared.settings.retransmission);
        Ok(())
    }

    /// Answers the request that came last.
    pub(crate) fn answer(
        &mut self,
        head: &Head,
        exchange: ExchangeType,
        cx: &mut Cx<'_, '_>,
        build: Build<'_>,
    ) -> Result<(), NotBuilt> {
        let kind = Kind { exchange, message_id: self.window.expected(), response: true };
        let limit = self.limit(head, self.asked_on, cx);
        let datagrams =
            self.secured.seal(kind, limit, &mut cx.shared.scratch, (cx.env.rng, cx.env.providers), build)?;
        cx.send(self.asked_on, &datagrams);
        self.window.answered(datagrams, cx.env.now);
        Ok(())
    }

    /// Answers with what a fault leads to: a notification, or an empty answer, for a request that authenticated is always
    /// answered (RFC 7296 section 2.1).
    pub(crate) fn refuse(
        &mut self,
        head: &Head,
        exchange: ExchangeType,
        fault: PeerFault,
        cx: &mut Cx<'_, '_>,
    ) {
        let critical = message::critical(fault);
        let data: &[u8] = critical.as_slice();
        let notify = match fault.answer() {
            Answer::Notify(kind) => Some(kind),
            Answer::Silence => None,
        };
        // What does not fit into a message of this size does not exist.
        let _ = self.answer(head, exchange, cx, &|out| match notify {
            Some(kind) => out.notify(&Notify::new(kind, data)),
            None => Ok(()),
        });
    }

    /// Answers with one notification.
    pub(crate) fn notify(
        &mut self,
        head: &Head,
        exchange: ExchangeType,
        (kind, data): (NotifyType, &[u8]),
        cx: &mut Cx<'_, '_>,
    ) {
        let _ = self.answer(head, exchange, cx, &|out| out.notify(&Notify::new(kind, data)));
    }

    /// Repeats what is due.
    pub(crate) fn repeat(&mut self, head: &Head, cx: &mut Cx<'_, '_>) -> Result<(), NoAnswer> {
        let how = cx.shared.settings.retransmission;
        let datagrams = self.window.expire(cx.env.now, &how)?.to_vec();
        cx.send(head.path, &datagrams);
        Ok(())
    }
}

/// Reads the payloads of an opened message.
pub(crate) fn read(first: PayloadType, payloads: &[u8]) -> Result<Content<'_>, PeerFault> {
    Content::parse(casemate_wire::ike::Payloads::of_plaintext(first, payloads))
}
