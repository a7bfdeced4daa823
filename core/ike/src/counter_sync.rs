//! Notifications that synchronize the counters of an IKE SA and its Child SAs after one of the peers, a
//! cluster, has continued them on another host (RFC 6311).

use crate::transport::Content;
use crate::{PeerFault, StateFault};
use casemate_wire::ike::{
    Body, Fault, Notify, NotifyType, PayloadType, Payloads, ProtocolId, WriteError, Writer,
};

/// What both peers support (RFC 6311 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SyncSupport {
    /// Exchanges with message ID 0 that set the next message IDs.
    pub(crate) message_ids: bool,
    /// Requests to leave out sequence numbers of Child SAs.
    pub(crate) numbers: bool,
}

impl SyncSupport {
    /// What this host supports.
    const OWN: Self = Self { message_ids: true, numbers: true };

    /// What the peer has announced in IKE_AUTH. This host supports both.
    pub(crate) fn announced(content: &Content<'_>) -> Self {
        Self {
            message_ids: content.has_notify(NotifyType::IKEV2_MESSAGE_ID_SYNC_SUPPORTED),
            numbers: content.has_notify(NotifyType::IPSEC_REPLAY_COUNTER_SYNC_SUPPORTED),
        }
    }

    /// Announces what this host supports, in the first request of IKE_AUTH.
    pub(crate) fn write_own(out: &mut Writer<'_>) -> Result<(), WriteError> {
        Self::OWN.write(out)
    }

    /// Announces what both peers support. A responder announces nothing else (RFC 6311 section 5).
    pub(crate) fn write(self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        let kinds = [
            (self.message_ids, NotifyType::IKEV2_MESSAGE_ID_SYNC_SUPPORTED),
            (self.numbers, NotifyType::IPSEC_REPLAY_COUNTER_SYNC_SUPPORTED),
        ];
        let supported = kinds.into_iter().filter(|(is_supported, _)| *is_supported);
        supported.into_iter().try_for_each(|(_, kind)| out.notify(&Notify::new(kind, &[])))
    }
}

/// What an IKE SA knows of synchronization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SyncState {
    pub(crate) support: SyncSupport,
    /// The peer's next message ID in its last request to synchronize message IDs. An earlier or equal one is
    /// a repetition.
    pub(crate) last_request: Option<u32>,
    /// Sum of the numbers that the peer has asked to leave out. It makes the record of the IKE SA a
    /// different one, so that the record is written before the response leaves.
    pub(crate) skipped: u64,
}

impl SyncState {
    /// The state of an IKE SA for which the peer has announced this.
    pub(crate) const fn new(support: SyncSupport) -> Self {
        Self { support, last_request: None, skipped: 0 }
    }
}

/// Data of IKEV2_MESSAGE_ID_SYNC (RFC 6311 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageIds {
    pub(crate) nonce: [u8; 4],
    /// Message ID of the sender's next request: M1 in a request, P2 in a response.
    pub(crate) send: u32,
    /// Message ID that the sender expects next: P1 in a request, M2 in a response.
    pub(crate) receive: u32,
}

impl MessageIds {
    fn parse(notify: &Notify<'_>) -> Result<Self, Fault> {
        let wrong = Fault::NotifyData { notify: notify.kind, len: notify.data.len() };
        let (words, rest) = notify.data.as_chunks::<4>();
        match (words, rest) {
            ([nonce, send, receive], []) => Ok(Self {
                nonce: *nonce,
                send: u32::from_be_bytes(*send),
                receive: u32::from_be_bytes(*receive),
            }),
            _ => Err(wrong),
        }
    }

    /// Writes the notification.
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        let words = [self.nonce, self.send.to_be_bytes(), self.receive.to_be_bytes()];
        out.notify(&Notify::new(NotifyType::IKEV2_MESSAGE_ID_SYNC, words.as_flattened()))
    }
}

/// A request with message ID 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncRequest {
    pub(crate) ids: MessageIds,
    /// How many sequence numbers of each Child SA are to be left out.
    pub(crate) skip: Option<u64>,
}

impl SyncRequest {
    /// Parses the payloads of a request; `None` if it does not synchronize message IDs.
    ///
    /// # Errors
    ///
    /// The request has other payloads as well (RFC 6311 section 5.1), or is malformed.
    pub(crate) fn parse(first: PayloadType, payloads: &[u8]) -> Option<Result<Self, PeerFault>> {
        let all = || Payloads::from_plaintext(first, payloads).map(|payload| Body::parse(&payload?));
        let is_sync = |body: Result<Body<'_>, Fault>| matches!(body, Ok(Body::Notify(notify)) if notify.kind == NotifyType::IKEV2_MESSAGE_ID_SYNC);
        all().any(is_sync).then(|| Self::parse_all(all()))
    }

    fn parse_all<'a>(bodies: impl Iterator<Item = Result<Body<'a>, Fault>>) -> Result<Self, PeerFault> {
        let (mut ids, mut skip) = (None, None);
        for body in bodies {
            let is_second = match body? {
                Body::Notify(notify) if notify.kind == NotifyType::IKEV2_MESSAGE_ID_SYNC => {
                    ids.replace(MessageIds::parse(&notify)?).is_some()
                }
                Body::Notify(notify) if notify.kind == NotifyType::IPSEC_REPLAY_COUNTER_SYNC => {
                    skip.replace(parse_skip(&notify)?).is_some()
                }
                _ => return Err(StateFault::WrongExchange.into()),
            };
            if is_second {
                return Err(StateFault::PayloadTwice.into());
            }
        }
        let ids = ids.ok_or(StateFault::PayloadMissing)?;
        Ok(Self { ids, skip })
    }
}

/// How many sequence numbers of each Child SA a message asks to leave out.
///
/// # Errors
///
/// The notification is malformed or occurs twice.
pub(crate) fn requested_skip(content: &Content<'_>) -> Result<Option<u64>, PeerFault> {
    let is_skip = |notify: &&Notify<'_>| notify.kind == NotifyType::IPSEC_REPLAY_COUNTER_SYNC;
    let mut notifies = content.notifies.iter().filter(is_skip);
    match (notifies.next(), notifies.next()) {
        (None, _) => Ok(None),
        (Some(notify), None) => Ok(Some(parse_skip(notify)?)),
        (Some(_), Some(_)) => Err(StateFault::PayloadTwice.into()),
    }
}

/// Data of IPSEC_REPLAY_COUNTER_SYNC (RFC 6311 section 6.4): 4 bytes, or 8 for extended sequence numbers.
/// Either length is a number, and an SA whose numbers are too short for it sends no more packets.
fn parse_skip(notify: &Notify<'_>) -> Result<u64, Fault> {
    let short = notify.data.as_array::<4>().map(|count| u32::from_be_bytes(*count).into());
    let long = notify.data.as_array::<8>().map(|count| u64::from_be_bytes(*count));
    short.or(long).ok_or(Fault::NotifyData { notify: notify.kind, len: notify.data.len() })
}

/// Writes the request to leave out `count` sequence numbers.
///
/// # Errors
///
/// Fails if the message has no room, or if numbers without extension are too short for `count`.
pub(crate) fn write_skip(count: u64, esn: bool, out: &mut Writer<'_>) -> Result<(), WriteError> {
    let long = count.to_be_bytes();
    let short = u32::try_from(count).map(u32::to_be_bytes);
    let data = match (esn, &short) {
        (true, _) => &long[..],
        (false, Ok(short)) => &short[..],
        (false, Err(_)) => return Err(WriteError::TooLong),
    };
    let (protocol, kind) = (ProtocolId::NONE, NotifyType::IPSEC_REPLAY_COUNTER_SYNC);
    out.notify(&Notify { protocol, kind, spi: &[], data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Payloads as the figures of RFC 6311 section 6 show them.
    fn plaintext(notifies: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, (kind, data)) in notifies.iter().enumerate() {
            let next = if at + 1 == notifies.len() { 0 } else { 41 };
            let [hi, lo] = u16::try_from(8 + data.len()).unwrap().to_be_bytes();
            let [kind_hi, kind_lo] = kind.to_be_bytes();
            bytes.extend([next, 0, hi, lo, 0, 0, kind_hi, kind_lo]);
            bytes.extend(*data);
        }
        bytes
    }

    fn parse(notifies: &[(u16, &[u8])]) -> Option<Result<SyncRequest, PeerFault>> {
        SyncRequest::parse(PayloadType::NOTIFY, &plaintext(notifies))
    }

    /// Nonce 0a0b0c0d, M1 = 2, P1 = 5.
    const IDS: &[u8] = &[10, 11, 12, 13, 0, 0, 0, 2, 0, 0, 0, 5];

    #[test]
    fn section_6_3_and_6_4_requests_are_parsed() {
        let ids = MessageIds { nonce: [10, 11, 12, 13], send: 2, receive: 5 };
        assert_eq!(parse(&[(16422, IDS)]), Some(Ok(SyncRequest { ids, skip: None })));
        for (data, count) in [(&[1, 0, 0, 2][..], 0x100_0002), (&[0, 0, 0, 1, 0, 0, 0, 2], (1 << 32) + 2)] {
            let expected = Some(Ok(SyncRequest { ids, skip: Some(count) }));
            assert_eq!(parse(&[(16422, IDS), (16423, data)]), expected);
            assert_eq!(parse(&[(16423, data), (16422, IDS)]), expected);
        }
    }

    #[test]
    fn section_5_1_other_payloads_are_refused() {
        assert_eq!(parse(&[(16423, &[0; 4])]), None);
        assert_eq!(parse(&[(16400, &[])]), None);
        for more in [&(16400, &[][..]), &(16422, IDS), &(16421, &[])] {
            assert!(parse(&[(16422, IDS), *more]).unwrap().is_err());
            assert!(parse(&[*more, (16422, IDS)]).unwrap().is_err());
        }
        assert!(parse(&[(16422, IDS), (16423, &[0; 4]), (16423, &[0; 4])]).unwrap().is_err());
        // A Delete payload for the IKE SA.
        let mut bytes = plaintext(&[(16422, IDS)]);
        bytes[0] = 42;
        bytes.extend([0, 0, 0, 8, 1, 0, 0, 0]);
        assert!(SyncRequest::parse(PayloadType::NOTIFY, &bytes).unwrap().is_err());
        // A Vendor ID.
        bytes[0] = 43;
        assert!(SyncRequest::parse(PayloadType::NOTIFY, &bytes).unwrap().is_err());
    }

    #[test]
    fn data_of_another_length_is_malformed() {
        let bytes = [1; 20];
        for len in (0..=20).filter(|len| *len != 12) {
            let fault = Fault::NotifyData { notify: NotifyType::IKEV2_MESSAGE_ID_SYNC, len };
            assert_eq!(parse(&[(16422, &bytes[..len])]), Some(Err(fault.into())), "{len}");
        }
        for len in (0..=20).filter(|len| ![4, 8].contains(len)) {
            let fault = Fault::NotifyData { notify: NotifyType::IPSEC_REPLAY_COUNTER_SYNC, len };
            assert_eq!(parse(&[(16422, IDS), (16423, &bytes[..len])]), Some(Err(fault.into())), "{len}");
        }
    }

    #[test]
    fn what_is_written_is_what_the_figures_show() {
        let written = |build: &dyn Fn(&mut Writer<'_>) -> Result<(), WriteError>| {
            let mut room = [0; 200];
            let spis = crate::IkeSpis {
                initiator: casemate_wire::ike::IkeSpi(1),
                responder: casemate_wire::ike::IkeSpi(2),
            };
            let kind = crate::transport::MessageKind {
                exchange: casemate_wire::ike::ExchangeType::INFORMATIONAL,
                message_id: 0,
                response: true,
            };
            let header = crate::transport::header(spis, crate::Role::Initiator, kind);
            let bytes = crate::transport::write_plain(&header, &mut room, &|out| build(out));
            bytes.map(|bytes| bytes[28..].to_vec())
        };
        let ids = MessageIds { nonce: [10, 11, 12, 13], send: 2, receive: 5 };
        assert_eq!(written(&|out| ids.write(out)), Ok(plaintext(&[(16422, IDS)])));
        assert_eq!(written(&|out| write_skip(7, false, out)), Ok(plaintext(&[(16423, &[0, 0, 0, 7])])));
        let long = &[0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(written(&|out| write_skip(7, true, out)), Ok(plaintext(&[(16423, long)])));
        assert!(written(&|out| write_skip(1 << 32, false, out)).is_err());
        let both = plaintext(&[(16420, &[]), (16421, &[])]);
        assert_eq!(written(&|out| SyncSupport::write_own(out)), Ok(both));
        let numbers = SyncSupport { message_ids: false, numbers: true };
        assert_eq!(written(&|out| numbers.write(out)), Ok(plaintext(&[(16421, &[])])));
    }
}
