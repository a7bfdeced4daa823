//! AH packets (RFC 4302): the AH header, its ICV, and the check of a received header (sections 3.3 and 3.4).
//!
//! AH covers the IP header in front of it, so unlike ESP it works on the whole packet. `mutable` masks the
//! fields that routers may change. AH is not optimized for speed: it processes one packet at a time, but also
//! in place.

mod mutable;

/// IP protocol number.
pub(crate) const PROTOCOL: u8 = casemate_wire::ip::proto::AH;
use crate::DropReason;
use crate::replay::Authenticated;
use crate::seq::Reserved;
use alloc::boxed::Box;
use casemate_crypto::{AhSuite, JobStatus, KeyError, MacJob, MacKey, Providers, Salt, SecretBytes, Tag};
use casemate_wire::ah::{AhHeader, AhPacket, Align, FIXED_LEN, header_len_aligned};
use casemate_wire::packet::{NoRoom, Packet};
use mutable::{MaskError, mask};

/// Key and sizes of an AH SA. Immutable; shared by all cores.
pub(crate) struct AhKey {
    pub(crate) suite: AhSuite,
    mac: Box<dyn MacKey>,
    salt: Salt,
}

impl AhKey {
    /// Sets up the suite. Key material is the key, then the salt.
    pub(crate) fn new(
        suite: AhSuite,
        integ: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let (key, salt) = Salt::split(integ, suite.0.key_len(), suite.0.salt_len())?;
        Ok(Self { suite, mac: providers.mac(suite.0, key)?, salt })
    }

    /// Length of the ICV field: the ICV, and before it the IV of a MAC that needs one (RFC 4543 section 4).
    fn icv_field(&self) -> usize {
        self.suite.0.iv_len().saturating_add(self.suite.0.tag_len())
    }

    /// Length of the whole header.
    pub(crate) fn header_len(&self, align: Align) -> usize {
        header_len_aligned(self.icv_field(), align)
    }

    fn tag(&self, covered: &[u8], iv: [u8; 8]) -> Option<Tag> {
        let nonce = self.salt.nonce(iv);
        let tag = Tag::zeroed(self.suite.0.tag_len());
        let mut jobs = [MacJob { nonce, data: covered, tag, status: JobStatus::Pending }];
        self.mac.sign(&mut jobs);
        let [job] = jobs;
        (job.status == JobStatus::Done).then_some(job.tag)
    }
}

/// Adds an AH header with an empty ICV in front of the payload in `packet`.
pub(crate) fn insert(
    packet: &mut Packet<'_>,
    key: &AhKey,
    align: Align,
    spi: u32,
    seq: &Reserved,
    iv_mask: u64,
    next_header: u8,
) -> Result<(), NoRoom> {
    let len = key.header_len(align);
    packet.grow_front(len)?;
    let header = packet.data_mut().get_mut(..len).ok_or(NoRoom)?;
    header.fill(0);
    let (fixed, icv) = header.split_first_chunk_mut().ok_or(NoRoom)?;
    AhHeader { next_header, len, spi, seq: seq.low() }.emit(fixed).map_err(|_| NoRoom)?;
    if key.suite.0.takes_nonce() {
        *icv.first_chunk_mut().ok_or(NoRoom)? = (seq.number() ^ iv_mask).to_be_bytes();
    }
    Ok(())
}

/// Writes the ICV of the AH header at `ah_at`. The headers before it must be final. Consumes the sequence
/// number.
pub(crate) fn sign(
    packet: &mut Packet<'_>,
    ah_at: usize,
    key: &AhKey,
    seq: Reserved,
    esn: bool,
) -> Result<(), DropReason> {
    let tag = compute_icv(packet, ah_at, key, esn.then(|| seq.high()))?;
    let icv = icv_mut(packet.data_mut(), ah_at, key).ok_or(DropReason::NoRoom)?;
    icv.copy_from_slice(tag.as_slice());
    Ok(())
}

/// Parses the AH header at `ah_at` and checks its length against the SA's algorithm. Both alignments are
/// accepted, because peers differ for IPv4 (see [`Align`]).
pub(crate) fn receive(packet: &[u8], ah_at: usize, key: &AhKey) -> Result<AhHeader, DropReason> {
    let bytes = packet.get(ah_at..).ok_or(DropReason::Truncated)?;
    let header = AhPacket::parse(bytes).map_err(|_| DropReason::Truncated)?.header;
    let expected = [key.header_len(Align::Four), key.header_len(Align::Eight)];
    if expected.contains(&header.len) { Ok(header) } else { Err(DropReason::AhLength) }
}

/// Verifies the ICV of the AH header at `ah_at`. The packet stays unchanged.
pub(crate) fn verify(
    packet: &mut Packet<'_>,
    ah_at: usize,
    key: &AhKey,
    seq: u64,
    esn: bool,
) -> Result<Authenticated, DropReason> {
    let icv = icv_mut(packet.data_mut(), ah_at, key).ok_or(DropReason::Truncated)?;
    let received = Tag::from_slice(icv);
    // RFC 4302 section 3.3.3: the ICV field counts as zero. Explicit padding is covered as received.
    icv.fill(0);
    let computed = compute_icv(packet, ah_at, key, esn.then_some((seq >> 32) as u32))?;
    let icv = icv_mut(packet.data_mut(), ah_at, key).ok_or(DropReason::Truncated)?;
    icv.copy_from_slice(received.as_slice());
    if computed.matches(&received) { Ok(Authenticated::new(seq)) } else { Err(DropReason::IcvMismatch) }
}

/// The ICV of the whole packet with masked mutable fields. With extended sequence numbers, the upper half of
/// the number follows the packet (RFC 4302 section 2.5.1). The ICV field must be zero.
fn compute_icv(
    packet: &mut Packet<'_>,
    ah_at: usize,
    key: &AhKey,
    high: Option<u32>,
) -> Result<Tag, DropReason> {
    let iv = read_iv(packet.data(), ah_at, key).ok_or(DropReason::Truncated)?;
    let len = packet.len();
    if let Some(high) = high {
        packet.grow_back(4).map_err(|NoRoom| DropReason::NoRoom)?;
        if let Some(tail) = packet.data_mut().last_chunk_mut() {
            *tail = high.to_be_bytes();
        }
    }
    let outcome = mask(packet.data_mut(), ah_at).map(|saved_headers| {
        let tag = key.tag(packet.data(), iv);
        saved_headers.restore(packet.data_mut());
        tag
    });
    packet.set_len(len).map_err(|NoRoom| DropReason::NoRoom)?;
    match outcome {
        Ok(tag) => tag.ok_or(DropReason::CryptoFailed),
        Err(MaskError::TooLong) => Err(DropReason::AhHeadersTooLong),
        Err(MaskError::Malformed | MaskError::UnknownRouting) => Err(DropReason::MalformedHeader),
    }
}

fn read_iv(packet: &[u8], ah_at: usize, key: &AhKey) -> Option<[u8; 8]> {
    if key.suite.0.takes_nonce() {
        packet.get(ah_at.checked_add(FIXED_LEN)?..)?.first_chunk().copied()
    } else {
        Some([0; 8])
    }
}

fn icv_mut<'p>(packet: &'p mut [u8], ah_at: usize, key: &AhKey) -> Option<&'p mut [u8]> {
    let start = ah_at.checked_add(FIXED_LEN)?.checked_add(key.suite.0.iv_len())?;
    let end = start.checked_add(key.suite.0.tag_len())?;
    packet.get_mut(start..end)
}
