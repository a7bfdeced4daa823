//! Writer for IKE messages, payload by payload (RFC 7296 sections 3.1 and 3.2).
//!
//! The writer fills in next payload fields and lengths. It also parses each payload that it has written and
//! rejects invalid ones, so that callers need not know all rules of all payloads.

use core::fmt;

use super::{
    Auth, Body, Cert, CertReq, CfgType, CpAttribute, Delete, DigitalSignature, Eap, Fault, Fragment,
    HEADER_LEN, Header, Id, Ke, MAX_PAYLOADS, Nonce, Notify, Parts, Payload, PayloadType, ProposalRepr,
    Selector, SkLayout, Vendor, cp,
    header::{LENGTH_AT, NEXT_PAYLOAD_AT},
    payload::CRITICAL,
    payload::PAYLOAD_HEADER_LEN,
    proposal_repr::emit_proposals,
    sk, ts,
};

/// Why data was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The buffer is too small.
    NoRoom,
    /// A length, count or number exceeds the range of its field.
    TooLong,
    /// The parser would reject the data.
    Invalid(Fault),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => f.write_str("the buffer is too small"),
            Self::TooLong => f.write_str("a value exceeds the range of its field"),
            Self::Invalid(fault) => write!(f, "the peer would reject the message: {fault}"),
        }
    }
}

impl core::error::Error for WriteError {}

/// Writer for a message. A failed write of a payload leaves the message unchanged.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
    // Offset of the field for the type of the next payload.
    next_at: usize,
    payloads: usize,
}

impl<'b> Writer<'b> {
    /// Starts a message in `buf`. The writer fills in length and next payload of the `header`.
    pub fn new(buf: &'b mut [u8], header: &Header) -> Result<Self, WriteError> {
        let start = buf.first_chunk_mut::<HEADER_LEN>().ok_or(WriteError::NoRoom)?;
        Header { next_payload: PayloadType::NONE, ..*header }.emit(start);
        Ok(Self { buf, len: HEADER_LEN, next_at: NEXT_PAYLOAD_AT, payloads: 0 })
    }

    /// Writes a Security Association payload.
    pub fn sa(&mut self, proposals: &[ProposalRepr<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::SA, &|out| emit_proposals(proposals, out))
    }

    /// Writes a Key Exchange payload.
    pub fn ke(&mut self, ke: &Ke<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::KE, &|out| ke.emit(out))
    }

    /// Writes the Identification payload of the initiator.
    pub fn id_i(&mut self, id: &Id<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::ID_I, &|out| id.emit(out))
    }

    /// Writes the Identification payload of the responder.
    pub fn id_r(&mut self, id: &Id<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::ID_R, &|out| id.emit(out))
    }

    /// Writes a Certificate payload.
    pub fn cert(&mut self, cert: &Cert<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::CERT, &|out| cert.emit(out))
    }

    /// Writes a Certificate Request payload.
    pub fn certreq(&mut self, request: &CertReq<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::CERTREQ, &|out| request.emit(out))
    }

    /// Writes an Authentication payload.
    pub fn auth(&mut self, auth: &Auth<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::AUTH, &|out| auth.emit(out))
    }

    /// Writes an Authentication payload with a digital signature.
    pub fn auth_signature(&mut self, signature: &DigitalSignature<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::AUTH, &|out| signature.emit(out))
    }

    /// Writes a Nonce payload.
    pub fn nonce(&mut self, nonce: &Nonce<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::NONCE, &|out| out.bytes(nonce.data()))
    }

    /// Writes a Notify payload.
    pub fn notify(&mut self, notify: &Notify<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::NOTIFY, &|out| notify.emit(out))
    }

    /// Writes a Delete payload.
    pub fn delete(&mut self, delete: &Delete<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::DELETE, &|out| delete.emit(out))
    }

    /// Writes a Vendor ID payload.
    pub fn vendor(&mut self, vendor: &Vendor<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::VENDOR, &|out| out.bytes(vendor.0))
    }

    /// Writes the Traffic Selectors of the initiator.
    pub fn ts_i(&mut self, selectors: &[Selector<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::TS_I, &|out| ts::emit(selectors, out))
    }

    /// Writes the Traffic Selectors of the responder.
    pub fn ts_r(&mut self, selectors: &[Selector<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::TS_R, &|out| ts::emit(selectors, out))
    }

    /// Writes a Configuration payload.
    pub fn cp(&mut self, kind: CfgType, attributes: &[CpAttribute<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::CP, &|out| cp::emit(kind, attributes, out))
    }

    /// Writes an EAP payload.
    pub fn eap(&mut self, eap: &Eap<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::EAP, &|out| eap.emit(out))
    }

    /// Writes a payload of any type except the encrypted ones, which must be the last.
    pub fn other(&mut self, kind: PayloadType, critical: bool, body: &[u8]) -> Result<(), WriteError> {
        let at = self.len;
        self.payload(kind, &|out| out.bytes(body))?;
        if critical {
            self.set(at.saturating_add(1), &[CRITICAL])?;
        }
        Ok(())
    }

    /// Finishes the message and returns it.
    pub fn finish(mut self) -> Result<&'b mut [u8], WriteError> {
        self.fill_length()?;
        self.buf.get_mut(..self.len).ok_or(WriteError::NoRoom)
    }

    /// Starts the encrypted payload, which is the last. Following payloads are written inside it.
    pub fn encrypted(mut self, layout: SkLayout) -> Result<EncryptedWriter<'b>, WriteError> {
        let at = self.begin(PayloadType::SK)?;
        let content = self.len;
        self.zeros(layout.iv)?;
        self.payloads = 0;
        Ok(EncryptedWriter { plaintext: self.len, writer: self, layout, at, content })
    }

    /// Finishes the message with a fragment of an encrypted message. `chunk` is a part of the payloads, and
    /// `first` the type of the first payload. The result contains the chunk with its padding in clear text,
    /// ready to be sealed.
    pub fn fragment(
        mut self,
        layout: SkLayout,
        fragment: Fragment,
        first: PayloadType,
        chunk: &[u8],
    ) -> Result<Sealable<'b>, WriteError> {
        let at = self.begin(PayloadType::SKF)?;
        // RFC 7383 section 2.5: only the first fragment contains the type.
        let next = if fragment.number() == 1 { first } else { PayloadType::NONE };
        self.set(at, &[next.0])?;
        self.u16(fragment.number())?;
        self.u16(fragment.total())?;
        let content = self.len;
        self.zeros(layout.iv)?;
        let plaintext = self.len;
        self.bytes(chunk)?;
        EncryptedWriter { writer: self, layout, at, content, plaintext }.finish()
    }

    /// Writes a payload whose body `emit` writes. Not generic, to avoid a copy of the code for each payload
    /// type.
    fn payload(
        &mut self,
        kind: PayloadType,
        emit: &dyn Fn(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let before = (self.len, self.next_at, self.payloads);
        let written = self.try_payload(kind, emit);
        if written.is_err() {
            (self.len, self.next_at, self.payloads) = before;
            self.set(self.next_at, &[PayloadType::NONE.0])?;
        }
        written
    }

    fn try_payload(
        &mut self,
        kind: PayloadType,
        emit: &dyn Fn(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let at = self.len;
        if kind.is_encrypted() {
            return Err(WriteError::Invalid(Fault::EncryptedNested { at, payload: kind }));
        }
        if kind == PayloadType::NONE {
            return Err(WriteError::Invalid(Fault::BytesBehindPayloads { at, len: PAYLOAD_HEADER_LEN }));
        }
        self.begin(kind)?;
        let start = self.len;
        emit(self)?;
        self.end(at)?;
        let body = self.buf.get(start..self.len).ok_or(WriteError::NoRoom)?;
        let payload = Payload { kind, critical: false, next: PayloadType::NONE, body, at };
        Body::parse(&payload).map(|_| ()).map_err(WriteError::Invalid)
    }

    /// Writes a generic payload header without its length, and links it from the previous payload. Returns
    /// its offset.
    fn begin(&mut self, kind: PayloadType) -> Result<usize, WriteError> {
        if self.payloads == MAX_PAYLOADS {
            return Err(WriteError::Invalid(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
        }
        let at = self.len;
        self.zeros(PAYLOAD_HEADER_LEN)?;
        self.set(self.next_at, &[kind.0])?;
        self.next_at = at;
        self.payloads = self.payloads.saturating_add(1);
        Ok(at)
    }

    /// Fills in the length of the payload or substructure that starts at `at` and ends here.
    fn end(&mut self, at: usize) -> Result<(), WriteError> {
        let len = u16::try_from(self.len.saturating_sub(at)).map_err(|_| WriteError::TooLong)?;
        self.set(at.saturating_add(2), &len.to_be_bytes())
    }

    fn fill_length(&mut self) -> Result<(), WriteError> {
        let len = u32::try_from(self.len).map_err(|_| WriteError::TooLong)?;
        self.set(LENGTH_AT, &len.to_be_bytes())
    }

    /// Writes a proposal or transform: `marker`, a zero byte, the length, and the bytes that `emit` writes.
    pub(super) fn substructure(
        &mut self,
        marker: u8,
        emit: &dyn Fn(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let at = self.len;
        self.bytes(&[marker, 0, 0, 0])?;
        emit(self)?;
        self.end(at)
    }

    pub(super) fn u8(&mut self, value: u8) -> Result<(), WriteError> {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> Result<(), WriteError> {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes a length or count of one byte.
    pub(super) fn count_u8(&mut self, count: usize) -> Result<(), WriteError> {
        self.u8(u8::try_from(count).map_err(|_| WriteError::TooLong)?)
    }

    /// Writes a length or count of two bytes.
    pub(super) fn count_u16(&mut self, count: usize) -> Result<(), WriteError> {
        self.u16(u16::try_from(count).map_err(|_| WriteError::TooLong)?)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.append(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn zeros(&mut self, len: usize) -> Result<(), WriteError> {
        self.append(len)?.fill(0);
        Ok(())
    }

    /// Appends `len` bytes with undefined content and returns them.
    fn append(&mut self, len: usize) -> Result<&mut [u8], WriteError> {
        let end = self.len.checked_add(len).ok_or(WriteError::NoRoom)?;
        let room = self.buf.get_mut(self.len..end).ok_or(WriteError::NoRoom)?;
        self.len = end;
        Ok(room)
    }

    /// Overwrites the bytes at `at`.
    fn set(&mut self, at: usize, bytes: &[u8]) -> Result<(), WriteError> {
        let end = at.checked_add(bytes.len()).ok_or(WriteError::NoRoom)?;
        self.buf.get_mut(at..end).ok_or(WriteError::NoRoom)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Writer for the encrypted payload of a message.
#[derive(Debug)]
pub struct EncryptedWriter<'b> {
    writer: Writer<'b>,
    layout: SkLayout,
    // Offsets of the generic payload header, of the data after it, and of the data after the IV.
    at: usize,
    content: usize,
    plaintext: usize,
}

impl<'b> EncryptedWriter<'b> {
    /// Writer for the payloads inside the encrypted payload.
    pub fn payloads(&mut self) -> &mut Writer<'b> {
        &mut self.writer
    }

    /// Finishes the message: adds the minimum padding, as zeros, and space for the ICV.
    pub fn finish(mut self) -> Result<Sealable<'b>, WriteError> {
        let payloads = self.plaintext..self.writer.len;
        let pad = sk::pad_len(payloads.len(), self.layout.block).ok_or(WriteError::TooLong)?;
        self.writer.zeros(pad.into())?;
        self.writer.u8(pad)?;
        let inside = self.writer.len.saturating_sub(self.plaintext);
        self.writer.zeros(self.layout.icv)?;
        self.writer.end(self.at)?;
        self.writer.fill_length()?;
        let parts = Parts::new(self.content, &self.layout, inside);
        let message = self.writer.buf.get_mut(..self.writer.len).ok_or(WriteError::NoRoom)?;
        Ok(Sealable { message, parts, payloads })
    }
}

/// A message with an encrypted payload in clear text, ready to be sealed: IV and ICV are zeros.
#[derive(Debug)]
pub struct Sealable<'b> {
    /// The complete message, with all lengths.
    pub message: &'b mut [u8],
    /// Positions of the IV, of the text to encrypt in place, and of the ICV. Combined-mode ciphers
    /// authenticate all bytes before the IV as associated data.
    pub parts: Parts,
    /// Payloads inside, without padding. They are split into fragments if the message is too long.
    pub payloads: core::ops::Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::tests::header;
    use crate::ike::{ExchangeType, IdType, KeMethod, Message, NotifyType, ProtocolId, TransformRepr};
    use std::vec;

    fn writer(buf: &mut [u8]) -> Writer<'_> {
        Writer::new(buf, &header(ExchangeType::IKE_AUTH)).unwrap()
    }

    #[test]
    fn every_buffer_that_is_too_small_is_an_error() {
        let write = |buf: &mut [u8]| -> Result<usize, WriteError> {
            let mut writer = Writer::new(buf, &header(ExchangeType::IKE_AUTH))?;
            writer.ke(&Ke { method: KeMethod::CURVE25519, data: &[1; 32] })?;
            writer.notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[]))?;
            let mut encrypted = writer.encrypted(SkLayout { iv: 8, block: 4, icv: 16 })?;
            encrypted.payloads().vendor(&Vendor(b"abc"))?;
            encrypted.payloads().delete(&Delete::IKE_SA)?;
            encrypted.finish().map(|sealable| sealable.message.len())
        };
        let mut buf = [0; 200];
        let len = write(&mut buf).unwrap();
        for room in 0..200 {
            let expected = if room < len { Err(WriteError::NoRoom) } else { Ok(len) };
            assert_eq!(write(&mut buf[..room]), expected);
        }
    }

    #[test]
    fn a_rejected_payload_leaves_the_message_unchanged() {
        let mut buf = vec![0xee; 70_000];
        let mut writer = writer(&mut buf);
        let short = Ke { method: KeMethod::CURVE25519, data: &[1; 31] };
        let fault = Fault::KeLength { method: KeMethod::CURVE25519, len: 31 };
        assert_eq!(writer.ke(&short), Err(WriteError::Invalid(fault)));
        writer.vendor(&Vendor(b"kept")).unwrap();
        assert_eq!(writer.vendor(&Vendor(&[0; 65_532])), Err(WriteError::TooLong));
        assert_eq!(writer.vendor(&Vendor(&[0; 70_000])), Err(WriteError::NoRoom));
        let fqdn = Id { kind: IdType::FQDN, data: b"a\0b" };
        assert_eq!(writer.id_i(&fqdn), Err(WriteError::Invalid(Fault::IdText { id: IdType::FQDN, at: 1 })));
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes[28..], *b"\0\0\0\x08kept");
        let message = Message::parse(bytes).unwrap();
        assert_eq!(
            message.payloads().map(|payload| payload.unwrap().kind).collect::<vec::Vec<_>>(),
            [PayloadType::VENDOR]
        );
    }

    #[test]
    fn invalid_payloads_are_not_written() {
        let mut buf = [0; 2_000];
        let mut writer = writer(&mut buf);
        assert_eq!(writer.sa(&[]), Err(WriteError::Invalid(Fault::NoProposal {})));
        let none = ProposalRepr { number: 1, protocol: ProtocolId::ESP, spi: &[1; 4], transforms: &[] };
        let count = Fault::TransformCount { at: 0, claimed: 0, found: 0 };
        assert_eq!(writer.sa(&[none]), Err(WriteError::Invalid(count)));
        let transforms = [TransformRepr::ke(KeMethod::CURVE25519)];
        let first = ProposalRepr { transforms: &transforms, ..none };
        let number = Fault::ProposalNumber { at: 20, found: 1, expected: 2 };
        assert_eq!(writer.sa(&[first, first]), Err(WriteError::Invalid(number)));
        assert_eq!(writer.sa(&[ProposalRepr { spi: &[1; 256], ..first }]), Err(WriteError::TooLong));
        assert_eq!(writer.ts_i(&[]), Err(WriteError::Invalid(Fault::SelectorCount { claimed: 0, found: 0 })));
        let rekey = Notify::new(NotifyType::REKEY_SA, &[]);
        assert!(matches!(writer.notify(&rekey), Err(WriteError::Invalid(Fault::NotifySpi { .. }))));
        assert_eq!(writer.finish().unwrap().len(), HEADER_LEN);
    }

    #[test]
    fn only_the_encrypted_writer_ends_a_message_with_an_encrypted_payload() {
        let mut buf = [0; 200];
        let mut writer = writer(&mut buf);
        for kind in [PayloadType::SK, PayloadType::SKF] {
            let nested = Fault::EncryptedNested { at: 28, payload: kind };
            assert_eq!(writer.other(kind, false, &[0; 40]), Err(WriteError::Invalid(nested)));
        }
        let behind = Fault::BytesBehindPayloads { at: 28, len: 4 };
        assert_eq!(writer.other(PayloadType::NONE, false, &[]), Err(WriteError::Invalid(behind)));
    }

    #[test]
    fn the_number_of_written_payloads_is_limited() {
        let mut buf = [0; 2_000];
        let mut writer = writer(&mut buf);
        for _ in 0..MAX_PAYLOADS {
            writer.other(PayloadType(200), true, &[]).unwrap();
        }
        let many = Err(WriteError::Invalid(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
        assert_eq!(writer.other(PayloadType(200), true, &[]), many);
        let message = writer.finish().unwrap();
        assert_eq!(message.len(), HEADER_LEN + 4 * MAX_PAYLOADS);
        assert_eq!(
            Message::parse(message).unwrap().payloads().filter(|payload| payload.unwrap().critical).count(),
            128
        );
    }

    #[test]
    fn a_block_length_beyond_the_padding_is_rejected() {
        let mut buf = [0; 2_000];
        let encrypted = writer(&mut buf).encrypted(SkLayout { iv: 0, block: 600, icv: 0 }).unwrap();
        assert_eq!(encrypted.finish().map(|_| ()).unwrap_err(), WriteError::TooLong);
        let huge = SkLayout { iv: usize::MAX, block: 1, icv: usize::MAX };
        assert_eq!(writer(&mut buf).encrypted(huge).map(|_| ()).unwrap_err(), WriteError::NoRoom);
    }
}
