//! ESP with a cipher and a MAC (RFC 4303 sections 3.3.2.1 and 3.4.4.1), including AES-GMAC (RFC 4543).
//!
//! The ICV covers the upper half of an extended sequence number, which is never sent. With HMAC it follows
//! the text (RFC 4303 section 2.2.1), in the place of the ICV. With GMAC it is between SPI and sequence
//! number (RFC 4543 section 3.3), so the SPI moves into the spare bytes during the computation. In both cases
//! the provider gets one contiguous range of bytes, and nothing is copied.

use super::EspSizes;
use super::IvUse;
use super::work::{EspPacket, MAX_BATCH, SPARE, SuccessMask, WHOLE_REGION};
use arrayvec::ArrayVec;
use casemate_crypto::{EtmJob, EtmKey, JobStatus, Tag};
use casemate_wire::invariant::OrBroken;
use core::mem;
use core::ops::Range;

type Run<'p> = ArrayVec<EspPacket<'p>, MAX_BATCH>;

/// Encrypts, then signs.
pub(super) fn seal<'p>(
    sizes: EspSizes,
    key: &dyn EtmKey,
    iv: IvUse,
    esn: bool,
    run: impl Iterator<Item = EspPacket<'p>>,
) -> SuccessMask {
    let mut run: Run<'_> = run.collect();
    let mut tags: ArrayVec<Tag, MAX_BATCH> = ArrayVec::new();
    let done = transform(sizes, iv, esn, &mut run, |jobs| {
        key.seal(jobs);
        tags.extend(jobs.iter().map(|job| job.tag));
    });
    for (packet, tag) in run.iter_mut().zip(&tags) {
        let icv_at = packet.region.len().saturating_sub(sizes.icv());
        copy(packet.region.get_mut(icv_at..).or_broken_default(WHOLE_REGION), tag.as_slice());
    }
    done
}

/// Verifies, then decrypts.
pub(super) fn open<'p>(
    sizes: EspSizes,
    key: &dyn EtmKey,
    iv: IvUse,
    esn: bool,
    run: impl Iterator<Item = EspPacket<'p>>,
) -> SuccessMask {
    let mut run: Run<'_> = run.collect();
    transform(sizes, iv, esn, &mut run, |jobs| key.open(jobs))
}

/// Builds the jobs, calls the provider and collects the results.
fn transform(
    sizes: EspSizes,
    iv: IvUse,
    esn: bool,
    run: &mut Run<'_>,
    provider: impl FnOnce(&mut [EtmJob<'_>]),
) -> SuccessMask {
    let is_gmac_esn = esn && matches!(iv, IvUse::Gmac(_));
    let mut displaced: ArrayVec<[u8; SPARE], MAX_BATCH> = ArrayVec::new();
    let mut jobs: ArrayVec<EtmJob<'_>, MAX_BATCH> = ArrayVec::new();
    for packet in run.iter_mut() {
        let (high, tag) = (packet.high(), received_tag(packet.region, sizes));
        if is_gmac_esn {
            displaced.push(insert_esn_high(packet.region, high));
        } else if esn {
            append_esn_high(packet.region, sizes, high);
        }
        jobs.push(job(packet.region, sizes, iv, esn, tag));
    }
    provider(&mut jobs);
    let done = SuccessMask::collect(jobs.iter().map(|job| job.status == JobStatus::Done));
    drop(jobs);
    for (packet, spare) in run.iter_mut().zip(displaced) {
        remove_esn_high(packet.region, spare);
    }
    done
}

/// Copies as many bytes as both slices have.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Position of the cipher's text in a region.
#[inline]
fn text(region: &[u8], sizes: EspSizes) -> Range<usize> {
    let end = region.len().saturating_sub(sizes.icv());
    SPARE.saturating_add(sizes.front()).min(end)..end
}

#[inline]
fn received_tag(region: &[u8], sizes: EspSizes) -> Tag {
    Tag::from_slice(region.get(text(region, sizes).end..).or_broken_default(WHOLE_REGION))
}

/// Moves the SPI into the spare bytes and writes the upper half of the sequence number in its place. Returns
/// the former spare bytes.
fn insert_esn_high(region: &mut [u8], high: [u8; 4]) -> [u8; SPARE] {
    match region.split_first_chunk_mut::<SPARE>() {
        Some((spare, rest)) => match rest.first_chunk_mut::<4>() {
            Some(spi) => mem::replace(spare, mem::replace(spi, high)),
            None => *spare,
        },
        None => [0; SPARE],
    }
}

/// Undoes [`insert_esn_high`].
fn remove_esn_high(region: &mut [u8], saved: [u8; SPARE]) {
    if let Some((spare, rest)) = region.split_first_chunk_mut::<SPARE>()
        && let Some(spi) = rest.first_chunk_mut::<4>()
    {
        *spi = mem::replace(spare, saved);
    }
}

/// Writes the upper half of the sequence number over the first bytes of the ICV field. The ICV itself is read
/// before, or written afterwards.
fn append_esn_high(region: &mut [u8], sizes: EspSizes, high: [u8; 4]) {
    let end = text(region, sizes).end;
    copy(region.get_mut(end..).or_broken_default(WHOLE_REGION), &high);
}

/// The provider's job for a region that contains the upper half of the sequence number.
#[inline]
fn job(region: &mut [u8], sizes: EspSizes, iv_use: IvUse, esn: bool, tag: Tag) -> EtmJob<'_> {
    let text = text(region, sizes);
    let covered = match (esn, iv_use) {
        (false, _) => SPARE..text.end,
        (true, IvUse::Gmac(_)) => 0..text.end,
        (true, _) => SPARE..text.end.saturating_add(4),
    };
    let (mut iv, mut mac_nonce) = ([0; 16], [0; 12]);
    let in_packet = region.get(SPARE.saturating_add(8)..text.start).or_broken_default(WHOLE_REGION);
    let counter = in_packet.first_chunk().copied().unwrap_or_default();
    match iv_use {
        IvUse::None => {}
        IvUse::Random => copy(&mut iv, in_packet),
        IvUse::Ctr(nonce) => iv = nonce.counter_block(counter),
        IvUse::Gmac(salt) => mac_nonce = salt.nonce(counter),
    }
    let relative = |at: usize| at.saturating_sub(covered.start);
    let text = relative(text.start)..relative(text.end);
    let data = region.get_mut(covered).or_broken_default(WHOLE_REGION);
    EtmJob { iv, mac_nonce, data, text, tag, status: JobStatus::Pending }
}
