//! Encrypted messages of an IKE SA: sending, receiving, fragments and retransmission.

use crate::config::Fragmentation;
use crate::context::{Retransmitted, Step};
#[cfg(feature = "records")]
use crate::counter_sync::{MessageIds, SyncRequest, SyncState};
use crate::crash_token::PeerToken;
use crate::keymat::SaKeys;
use crate::negotiate::IkeSuite;
use crate::state::SaCommon;
use crate::transport::{
    Build, BuildError, Content, MessageCipher, MessageIdClass, MessageKind, NoResponse, Reassembled,
    ReceivedFragment, Window, unsupported_critical,
};
use crate::{Event, IkeKeys, KeyPair, Path, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
#[cfg(feature = "multiple-kex")]
use casemate_crypto::KexMethod;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{ExchangeType, FaultResponse, Header, Notify, NotifyType, PayloadType};
use casemate_wire::invariant::OrBroken;

const OPENED_IN_DATAGRAM: &str = "the opened payloads lie within their datagram";

/// Channel for encrypted messages of an IKE SA.
pub(crate) struct SecureChannel {
    pub(crate) cipher: MessageCipher,
    pub(crate) window: Window,
    pub(crate) suite: IkeSuite,
    /// SK_d.
    pub(crate) sk_d: SecretBytes,
    pub(crate) fragments: FragmentSupport,
    /// With this token the peer proves that it has forgotten the IKE SA (RFC 6290).
    pub(crate) peer_token: Option<PeerToken>,
    /// Synchronization with a peer that is a cluster (RFC 6311).
    #[cfg(feature = "records")]
    pub(crate) sync: SyncState,
    /// Source of the request that is being answered. RFC 7296 section 2.11: the response goes there, even if
    /// the peer has another address or port for our requests.
    request_path: Path,
}

/// Which side has announced fragmentation (RFC 7383 section 2.3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct FragmentSupport {
    pub(crate) local: bool,
    pub(crate) remote: bool,
}

/// Result of an authentic datagram.
pub(crate) enum Received {
    /// A complete message: type of its first payload, and its payloads.
    Message { first: PayloadType, payloads: Vec<u8> },
    /// A repeated response to the request that path MTU probes repeat.
    RepeatedResponse,
    /// A request to synchronize message IDs, which may be a repetition.
    #[cfg(feature = "records")]
    Synchronization(SyncRequest),
    /// An incomplete message, or a repeated request that was answered again.
    Nothing,
}

impl SecureChannel {
    pub(crate) fn new(
        common: &SaCommon,
        suite: IkeSuite,
        keys: &SaKeys,
        window: Window,
        fragments: FragmentSupport,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let cipher = MessageCipher::new(common.spis(), common.role, suite, keys, step.context.providers);
        let cipher = cipher.map_err(|_| StateFault::Provider)?;
        report_keys(common, suite, keys, step);
        let (sk_d, request_path) = (keys.d.clone(), common.path);
        Ok(Self {
            cipher,
            window,
            suite,
            sk_d,
            fragments,
            peer_token: None,
            #[cfg(feature = "records")]
            sync: SyncState::default(),
            request_path,
        })
    }

    /// The channel of a record.
    #[cfg(feature = "records")]
    pub(crate) fn restored(
        cipher: MessageCipher,
        window: Window,
        suite: IkeSuite,
        sk_d: SecretBytes,
        fragments: FragmentSupport,
        path: Path,
    ) -> Self {
        let sync = SyncState::default();
        Self { cipher, window, suite, sk_d, fragments, peer_token: None, sync, request_path: path }
    }

    /// The channel with this token of the peer.
    #[cfg(feature = "records")]
    pub(crate) fn with_peer_token(self, peer_token: Option<PeerToken>) -> Self {
        Self { peer_token, ..self }
    }

    /// The channel with this state of synchronization.
    #[cfg(feature = "records")]
    pub(crate) fn with_sync(self, sync: SyncState) -> Self {
        Self { sync, ..self }
    }

    /// Replaces all keys after an additional key exchange. The request that is being answered, if it is
    /// repeated, still has the keys before.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn update_keys(&mut self, common: &SaCommon, keys: &SaKeys, step: &mut Step<'_, '_>) {
        report_keys(common, self.suite, keys, step);
        self.cipher.replace_keys(keys);
        self.sk_d = keys.d.clone();
    }

    /// Role of this host in the IKE SA.
    pub(crate) const fn role(&self) -> Role {
        self.cipher.role()
    }

    /// Decrypts a datagram and reassembles fragments. `limit` is the maximum length of the reassembled
    /// fragments, in bytes.
    pub(crate) fn receive(
        &mut self,
        header: &Header,
        datagram: &mut [u8],
        path: Path,
        limit: usize,
        step: &mut Step<'_, '_>,
    ) -> Result<Received, PeerFault> {
        let response = header.flags.response;
        let number = self.window.classify(header.message_id, response);
        let may_synchronize = self.may_synchronize(header);
        match number {
            MessageIdClass::UnexpectedResponse => return Err(StateFault::StrayResponse.into()),
            MessageIdClass::OutOfWindow if may_synchronize => {}
            MessageIdClass::OutOfWindow => return Err(StateFault::MessageId.into()),
            MessageIdClass::Request
            | MessageIdClass::RepeatedRequest
            | MessageIdClass::Response
            | MessageIdClass::RepeatedResponse => {}
        }
        let repeats = number == MessageIdClass::RepeatedRequest;
        let opened = self.cipher.open(datagram, repeats, step.context.providers)?;
        #[cfg(feature = "records")]
        if may_synchronize && opened.fragment.is_none() {
            let payloads = datagram.get(opened.payloads.clone()).or_broken_default(OPENED_IN_DATAGRAM);
            if let Some(request) = SyncRequest::parse(opened.first, payloads) {
                return request.map(Received::Synchronization);
            }
        }
        if number == MessageIdClass::OutOfWindow {
            return Err(StateFault::MessageId.into());
        }
        if repeats {
            // RFC 7383 section 2.6.1: only the first fragment of a repeated request is answered.
            if opened.fragment.is_none_or(|fragment| fragment.number() == 1) {
                step.send(path, self.window.last_response());
            }
            return Ok(Received::Nothing);
        }
        if number == MessageIdClass::RepeatedResponse {
            return Ok(Received::RepeatedResponse);
        }
        if number == MessageIdClass::Request {
            self.request_path = path;
            #[cfg(feature = "records")]
            self.window.request_received(header.message_id);
        }
        let (first, payloads) =
            (opened.first, datagram.get(opened.payloads).or_broken_default(OPENED_IN_DATAGRAM));
        let Some(fragment) = opened.fragment else {
            return Ok(Received::Message { first, payloads: payloads.into() });
        };
        if !self.fragments.local {
            return Err(StateFault::FragmentUnexpected.into());
        }
        let reassembly = if response { &mut self.window.responses } else { &mut self.window.requests };
        let piece =
            ReceivedFragment { message_id: header.message_id, position: fragment, first, data: payloads };
        let whole = reassembly.push(&piece, limit)?;
        Ok(whole.map_or(Received::Nothing, |Reassembled { first, payloads }| Received::Message {
            first,
            payloads,
        }))
    }

    /// Whether a message may be a request to synchronize message IDs, which has the message ID 0 whatever the
    /// window expects (RFC 6311 section 5.1).
    #[cfg(feature = "records")]
    fn may_synchronize(&self, header: &Header) -> bool {
        let is_informational = header.exchange == ExchangeType::INFORMATIONAL;
        self.sync.support.message_ids && is_informational && !header.flags.response && header.message_id == 0
    }

    #[cfg(not(feature = "records"))]
    const fn may_synchronize(&self, _: &Header) -> bool {
        false
    }

    /// Sends the response to a request to synchronize message IDs. It is not repeated: a repeated request is
    /// ignored (RFC 6311 section 5.1).
    #[cfg(feature = "records")]
    pub(crate) fn send_message_ids(
        &mut self,
        ids: MessageIds,
        path: Path,
        step: &mut Step<'_, '_>,
    ) -> Result<(), BuildError> {
        let kind = MessageKind { exchange: ExchangeType::INFORMATIONAL, message_id: 0, response: true };
        let (scratch, context) = (&mut step.shared.scratch, &mut *step.context);
        let datagrams =
            self.cipher.seal(kind, None, scratch, context.rng, context.providers, &|out| ids.write(out))?;
        step.send(path, &datagrams);
        Ok(())
    }

    /// Maximum length of a message that is sent without fragmentation on this path, in bytes; `None` without
    /// limit.
    fn fragment_limit(&self, common: &SaCommon, path: Path, step: &Step<'_, '_>) -> Option<usize> {
        let FragmentSupport { local: ours, remote: theirs } = self.fragments;
        let cuts = ours && theirs && common.connection.fragmentation == Fragmentation::Yes;
        // IP and UDP headers, and the non-ESP marker.
        let overhead = if path.remote.is_ipv4() { 20 + 8 + 4 } else { 40 + 8 + 4 };
        cuts.then(|| step.shared.settings.max_fragment_bytes.saturating_sub(overhead))
    }

    /// Sends a request. No other request may be outstanding.
    pub(crate) fn send_request(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        step: &mut Step<'_, '_>,
        build: Build<'_>,
    ) -> Result<(), BuildError> {
        let message_id = self.window.next_request_id().ok_or(BuildError)?;
        let kind = MessageKind { exchange, message_id, response: false };
        let limit = self.fragment_limit(common, common.path, step);
        let datagrams = self.cipher.seal(
            kind,
            limit,
            &mut step.shared.scratch,
            step.context.rng,
            step.context.providers,
            build,
        )?;
        step.send(common.path, &datagrams);
        let (now, retransmission) = (step.context.now, &step.shared.settings.retransmission);
        self.window.request_sent(datagrams, now, retransmission, step.context.rng);
        Ok(())
    }

    /// Sends the response to the last request.
    pub(crate) fn send_response(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        step: &mut Step<'_, '_>,
        build: Build<'_>,
    ) -> Result<(), BuildError> {
        #[cfg(feature = "multiple-kex")]
        self.cipher.forget_replaced_keys();
        let kind = MessageKind { exchange, message_id: self.window.expected_id(), response: true };
        let limit = self.fragment_limit(common, self.request_path, step);
        let datagrams = self.cipher.seal(
            kind,
            limit,
            &mut step.shared.scratch,
            step.context.rng,
            step.context.providers,
            build,
        )?;
        step.send(self.request_path, &datagrams);
        self.window.response_sent(datagrams, step.context.now);
        Ok(())
    }

    /// Sends the response for a fault: a notification, or an empty response, because every authentic request
    /// is answered (RFC 7296 section 2.1).
    pub(crate) fn send_error(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        fault: PeerFault,
        step: &mut Step<'_, '_>,
    ) {
        let critical = unsupported_critical(fault);
        let data: &[u8] = critical.as_slice();
        let notify = match fault.response() {
            FaultResponse::Notify(kind) => Some(kind),
            FaultResponse::Silence => None,
        };
        // A response of this size always fits.
        let _ = self.send_response(common, exchange, step, &|out| match notify {
            Some(kind) => out.notify(&Notify::new(kind, data)),
            None => Ok(()),
        });
    }

    /// Refuses a public value of another method than the agreed one, which the notification names (RFC 7296
    /// section 3.10.1).
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn send_invalid_ke(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        agreed: KexMethod,
        step: &mut Step<'_, '_>,
    ) {
        self.send_notify(common, exchange, NotifyType::INVALID_KE_PAYLOAD, &agreed.id().to_be_bytes(), step);
    }

    /// Sends a response with one notification.
    pub(crate) fn send_notify(
        &mut self,
        common: &SaCommon,
        exchange: ExchangeType,
        kind: NotifyType,
        data: &[u8],
        step: &mut Step<'_, '_>,
    ) {
        let _ = self.send_response(common, exchange, step, &|out| out.notify(&Notify::new(kind, data)));
    }

    /// Sends the outstanding request, if there is one, on the new path of the IKE SA at once. The number of
    /// retransmissions and the time until the next one stay.
    #[cfg(any(feature = "mobike", feature = "records"))]
    pub(crate) fn resend(&self, common: &SaCommon, step: &mut Step<'_, '_>) {
        step.send(common.path, self.window.outstanding_datagrams());
    }

    /// Retransmits the outstanding request if that is due.
    pub(crate) fn retransmit(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<(), NoResponse> {
        let retransmission = step.shared.settings.retransmission;
        let datagrams = self.window.retransmit(step.context.now, &retransmission, step.context.rng)?.to_vec();
        step.send(common.path, &datagrams);
        // Every fragment has the same header.
        let header = datagrams.first().map(|datagram| Header::parse(datagram));
        if let Some(Ok(Header { exchange, message_id, .. })) = header {
            let attempt = self.window.retransmissions();
            let wait = self.window.request_due().unwrap_or(step.context.now).since(step.context.now);
            let tries = retransmission.tries;
            step.retransmitted(common, Retransmitted { exchange, message_id, attempt, tries, wait });
        }
        Ok(())
    }
}

/// Reports the keys to the host, if it has asked for them.
fn report_keys(common: &SaCommon, suite: IkeSuite, keys: &SaKeys, step: &mut Step<'_, '_>) {
    if step.shared.report_keys {
        step.event(Event::Keys(Box::new(IkeKeys {
            spis: common.spis(),
            suite,
            encr: KeyPair { initiator: keys.ei.clone(), responder: keys.er.clone() },
            integ: KeyPair { initiator: keys.ai.clone(), responder: keys.ar.clone() },
        })));
    }
}

/// Parses the payloads of a decrypted message.
pub(crate) fn parse_payloads(first: PayloadType, payloads: &[u8]) -> Result<Content<'_>, PeerFault> {
    Content::parse(casemate_wire::ike::Payloads::from_plaintext(first, payloads))
}
