//! Making a message, payload by payload (RFC 7296 sections 3.1 and 3.2).
//!
//! The writer fills in next payload fields and lengths. Whatever it wrote it also reads, and refuses what a peer of ours
//! would refuse, so no caller has to know every rule of every payload.

use core::fmt;

use super::{
    Auth, Body, Cert, CertReq, CfgType, CpAttribute, Delete, DigitalSignature, Eap, Fault, Fragment,
    HEADER_LEN, Header, Id, Ke, Layout, MAX_PAYLOADS, Nonce, Notify, Parts, Payload, PayloadType,
    ProposalRepr, Selector, Vendor, cp,
    header::{LENGTH_AT, NEXT_PAYLOAD_AT},
    payload::CRITICAL,
    payload::PAYLOAD_HEADER_LEN,
    sa, sk, ts,
};

/// Why something was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The buffer is too small.
    NoRoom,
    /// A length, a count or a number is above what its field can say.
    TooLong,
    /// A reader would refuse it.
    Refused(Fault),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => f.write_str("the buffer is too small"),
            Self::TooLong => f.write_str("a value is above what its field can say"),
            Self::Refused(fault) => write!(f, "a reader would refuse it: {fault}"),
        }
    }
}

impl core::error::Error for WriteError {}

/// A message in the making. A payload that is not written leaves the message as it was.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
    // Offset of the field that names the next payload.
    next_at: usize,
    payloads: usize,
}

impl<'b> Writer<'b> {
    /// Begins a message in `buf` with `header`, whose length and next payload are filled in.
    pub fn new(buf: &'b mut [u8], header: &Header) -> Result<Self, WriteError> {
        let start = buf.first_chunk_mut::<HEADER_LEN>().ok_or(WriteError::NoRoom)?;
        Header { next_payload: PayloadType::NONE, ..*header }.emit(start);
        Ok(Self { buf, len: HEADER_LEN, next_at: NEXT_PAYLOAD_AT, payloads: 0 })
    }

    /// Security Association.
    pub fn sa(&mut self, proposals: &[ProposalRepr<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::SA, &|out| sa::emit::proposals(proposals, out))
    }

    /// Key Exchange.
    pub fn ke(&mut self, ke: &Ke<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::KE, &|out| ke.emit(out))
    }

    /// Identification of the initiator.
    pub fn id_i(&mut self, id: &Id<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::ID_I, &|out| id.emit(out))
    }

    /// Identification of the responder.
    pub fn id_r(&mut self, id: &Id<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::ID_R, &|out| id.emit(out))
    }

    /// Certificate.
    pub fn cert(&mut self, cert: &Cert<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::CERT, &|out| cert.emit(out))
    }

    /// Certificate Request.
    pub fn certreq(&mut self, request: &CertReq<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::CERTREQ, &|out| request.emit(out))
    }

    /// Authentication.
    pub fn auth(&mut self, auth: &Auth<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::AUTH, &|out| auth.emit(out))
    }

    /// Authentication by digital signature.
    pub fn auth_signature(&mut self, signature: &DigitalSignature<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::AUTH, &|out| signature.emit(out))
    }

    /// Nonce.
    pub fn nonce(&mut self, nonce: &Nonce<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::NONCE, &|out| out.bytes(nonce.data()))
    }

    /// Notify.
    pub fn notify(&mut self, notify: &Notify<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::NOTIFY, &|out| notify.emit(out))
    }

    /// Delete.
    pub fn delete(&mut self, delete: &Delete<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::DELETE, &|out| delete.emit(out))
    }

    /// Vendor ID.
    pub fn vendor(&mut self, vendor: &Vendor<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::VENDOR, &|out| out.bytes(vendor.0))
    }

    /// Traffic Selectors of the initiator's side.
    pub fn ts_i(&mut self, selectors: &[Selector<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::TS_I, &|out| ts::emit(selectors, out))
    }

    /// Traffic Selectors of the responder's side.
    pub fn ts_r(&mut self, selectors: &[Selector<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::TS_R, &|out| ts::emit(selectors, out))
    }

    /// Configuration.
    pub fn cp(&mut self, kind: CfgType, attributes: &[CpAttribute<'_>]) -> Result<(), WriteError> {
        self.payload(PayloadType::CP, &|out| cp::emit(kind, attributes, out))
    }

    /// EAP.
    pub fn eap(&mut self, eap: &Eap<'_>) -> Result<(), WriteError> {
        self.payload(PayloadType::EAP, &|out| eap.emit(out))
    }

    /// A payload of any type but the encrypted ones, which end a message.
    pub fn other(&mut self, kind: PayloadType, critical: bool, body: &[u8]) -> Result<(), WriteError> {
        let at = self.len;
        self.payload(kind, &|out| out.bytes(body))?;
        if critical {
            self.set(at.saturating_add(1), &[CRITICAL])?;
        }
        Ok(())
    }

    /// Ends the message.
    pub fn finish(mut self) -> Result<&'b mut [u8], WriteError> {
        self.fill_length()?;
        self.buf.get_mut(..self.len).ok_or(WriteError::NoRoom)
    }

    /// Begins the encrypted payload, which is the last: what is written next is inside.
    pub fn encrypted(mut self, layout: Layout) -> Result<EncryptedWriter<'b>, WriteError> {
        let at = self.begin(PayloadType::SK)?;
        let content = self.len;
        self.zeros(layout.iv)?;
        self.payloads = 0;
        Ok(EncryptedWriter { plaintext: self.len, writer: self, layout, at, content })
    }

    /// Ends the message with a fragment of the payloads of an encrypted one; `first` is the type of the first of them. The
    /// chunk stands there in clear text with its padding, to be sealed.
    pub fn fragment(
        mut self,
        layout: Layout,
        fragment: Fragment,
        first: PayloadType,
        chunk: &[u8],
    ) -> Result<Sealable<'b>, WriteError> {
        let at = self.begin(PayloadType::SKF)?;
        // RFC 7383 section 2.5: only the first fragment names it.
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

    /// Writes a payload with what `emit` writes as its body. Not generic, so that it is not there once for each kind.
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
            return Err(WriteError::Refused(Fault::EncryptedNested { at, payload: kind }));
        }
        if kind == PayloadType::NONE {
            return Err(WriteError::Refused(Fault::BytesBehindPayloads { at, len: PAYLOAD_HEADER_LEN }));
        }
        self.begin(kind)?;
        let start = self.len;
        emit(self)?;
        self.end(at)?;
        let body = self.buf.get(start..self.len).ok_or(WriteError::NoRoom)?;
        let payload = Payload { kind, critical: false, next: PayloadType::NONE, body, at };
        Body::parse(&payload).map(|_| ()).map_err(WriteError::Refused)
    }

    /// Writes a generic payload header without its length, and names the payload in the one before. Returns its offset.
    fn begin(&mut self, kind: PayloadType) -> Result<usize, WriteError> {
        if self.payloads == MAX_PAYLOADS {
            return Err(WriteError::Refused(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
        }
        let at = self.len;
        self.zeros(PAYLOAD_HEADER_LEN)?;
        self.set(self.next_at, &[kind.0])?;
        self.next_at = at;
        self.payloads = self.payloads.saturating_add(1);
        Ok(at)
    }

    /// Fills in the length of the payload or substructure at `at`, which ends here.
    fn end(&mut self, at: usize) -> Result<(), WriteError> {
        let len = u16::try_from(self.len.saturating_sub(at)).map_err(|_| WriteError::TooLong)?;
        self.set(at.saturating_add(2), &len.to_be_bytes())
    }

    fn fill_length(&mut self) -> Result<(), WriteError> {
        let len = u32::try_from(self.len).map_err(|_| WriteError::TooLong)?;
        self.set(LENGTH_AT, &len.to_be_bytes())
    }

    /// Writes a proposal or transform: `marker`, a zero, the length, and what `emit` writes.
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

    /// A length or count of one byte.
    pub(super) fn count_u8(&mut self, count: usize) -> Result<(), WriteError> {
        self.u8(u8::try_from(count).map_err(|_| WriteError::TooLong)?)
    }

    /// A length or count of two bytes.
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

    /// The next `len` bytes, as they are in the buffer.
    fn append(&mut self, len: usize) -> Result<&mut [u8], WriteError> {
        let end = self.len.checked_add(len).ok_or(WriteError::NoRoom)?;
        let room = self.buf.get_mut(self.len..end).ok_or(WriteError::NoRoom)?;
        self.len = end;
        Ok(room)
    }

    /// Overwrites what is at `at`.
    fn set(&mut self, at: usize, bytes: &[u8]) -> Result<(), WriteError> {
        let end = at.checked_add(bytes.len()).ok_or(WriteError::NoRoom)?;
        self.buf.get_mut(at..end).ok_or(WriteError::NoRoom)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// A message whose encrypted payload is in the making.
#[derive(Debug)]
pub struct EncryptedWriter<'b> {
    writer: Writer<'b>,
    layout: Layout,
    // Offsets of the generic payload header, of what follows it, and of what follows the IV.
    at: usize,
    content: usize,
    plaintext: usize,
}

impl<'b> EncryptedWriter<'b> {
    /// What writes the payloads inside.
    pub fn payloads(&mut self) -> &mut Writer<'b> {
        &mut self.writer
    }

    /// Ends the message: pads with zeros as little as the layout wants it, and leaves room for the ICV.
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

/// A message whose encrypted payload is still in clear text: IV and ICV are zeros.
#[derive(Debug)]
pub struct Sealable<'b> {
    /// The whole message, with all its lengths.
    pub message: &'b mut [u8],
    /// Where to put the IV, what to encrypt in place, and where to put the ICV. What is in front of the IV is the associated
    /// data of combined-mode ciphers.
    pub parts: Parts,
    /// The payloads inside without padding: what is cut into fragments if the message is too long.
    pub payloads: core::ops::Range<usize>,
}

#[cfg(test)]
mod tests;
