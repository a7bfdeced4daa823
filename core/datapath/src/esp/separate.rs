//! ESP with a cipher and a MAC (RFC 4303 sections 3.3.2.1 and 3.4.4.1), AES-GMAC included (RFC 4543).
//!
//! The upper half of an extended sequence number is covered by the ICV but never sent. An HMAC has it behind the text
//! (RFC 4303 section 2.2.1), where the ICV is about to be; GMAC has it between SPI and sequence number (RFC 4543 section
//! 3.3), so the SPI moves into the spare bytes for the time of the computation. Either way the provider sees one
//! contiguous run of bytes and nothing is copied.

use super::EspSizes;
use super::key::IvUse;
use super::work::{Done, RUN, SPARE, Work};
use arrayvec::ArrayVec;
use casemate_crypto::{EtmJob, EtmKey, Outcome, Tag};
use core::mem;
use core::ops::Range;

type Run<'p> = ArrayVec<Work<'p>, RUN>;

/// Encrypts, then signs.
pub(super) fn seal<'p>(
    sizes: EspSizes,
    key: &dyn EtmKey,
    iv: IvUse,
    esn: bool,
    run: impl Iterator<Item = Work<'p>>,
) -> Done {
    let mut run: Run<'_> = run.collect();
    let mut tags: ArrayVec<Tag, RUN> = ArrayVec::new();
    let done = transform(sizes, iv, esn, &mut run, |jobs| {
        key.seal(jobs);
        tags.extend(jobs.iter().map(|job| job.tag));
    });
    for (work, tag) in run.iter_mut().zip(&tags) {
        let icv_at = work.region.len().saturating_sub(sizes.icv());
        copy(work.region.get_mut(icv_at..).unwrap_or_default(), tag.as_slice());
    }
    done
}

/// Verifies, then decrypts.
pub(super) fn open<'p>(
    sizes: EspSizes,
    key: &dyn EtmKey,
    iv: IvUse,
    esn: bool,
    run: impl Iterator<Item = Work<'p>>,
) -> Done {
    let mut run: Run<'_> = run.collect();
    transform(sizes, iv, esn, &mut run, |jobs| key.open(jobs))
}

/// Runs the provider over the works.
fn transform(
    sizes: EspSizes,
    iv: IvUse,
    esn: bool,
    run: &mut Run<'_>,
    provider: impl FnOnce(&mut [EtmJob<'_>]),
) -> Done {
    let in_front = esn && matches!(iv, IvUse::Gmac(_));
    let mut displaced: ArrayVec<[u8; SPARE], RUN> = ArrayVec::new();
    let mut jobs: ArrayVec<EtmJob<'_>, RUN> = ArrayVec::new();
    for work in run.iter_mut() {
        let (high, tag) = (work.high(), received_tag(work.region, sizes));
        if in_front {
            displaced.push(put_high_in_front(work.region, high));
        } else if esn {
            put_high_behind(work.region, sizes, high);
        }
        jobs.push(job(work.region, sizes, iv, esn, tag));
    }
    provider(&mut jobs);
    let done = Done::collect(jobs.iter().map(|job| job.outcome == Outcome::Done));
    drop(jobs);
    for (work, spare) in run.iter_mut().zip(displaced) {
        take_high_from_front(work.region, spare);
    }
    done
}

/// Copies as far as both reach.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Where the cipher's text lies in a region.
#[inline]
fn text(region: &[u8], sizes: EspSizes) -> Range<usize> {
    let end = region.len().saturating_sub(sizes.icv());
    SPARE.saturating_add(sizes.front()).min(end)..end
}

#[inline]
fn received_tag(region: &[u8], sizes: EspSizes) -> Tag {
    Tag::from_slice(region.get(text(region, sizes).end..).unwrap_or_default())
}

/// SPI into the spare bytes, upper half into the SPI's place; answers the spare bytes.
fn put_high_in_front(region: &mut [u8], high: [u8; 4]) -> [u8; SPARE] {
    match region.split_first_chunk_mut::<SPARE>() {
        Some((spare, rest)) => match rest.first_chunk_mut::<4>() {
            Some(spi) => mem::replace(spare, mem::replace(spi, high)),
            None => *spare,
        },
        None => [0; SPARE],
    }
}

/// Undoes [`put_high_in_front`].
fn take_high_from_front(region: &mut [u8], saved: [u8; SPARE]) {
    if let Some((spare, rest)) = region.split_first_chunk_mut::<SPARE>()
        && let Some(spi) = rest.first_chunk_mut::<4>()
    {
        *spi = mem::replace(spare, saved);
    }
}

/// Upper half into the first bytes of the ICV, which is written, or was read, apart.
fn put_high_behind(region: &mut [u8], sizes: EspSizes, high: [u8; 4]) {
    let end = text(region, sizes).end;
    copy(region.get_mut(end..).unwrap_or_default(), &high);
}

/// The provider's job for a region whose upper half is in place.
#[inline]
fn job(region: &mut [u8], sizes: EspSizes, iv_use: IvUse, esn: bool, tag: Tag) -> EtmJob<'_> {
    let text = text(region, sizes);
    let covered = match (esn, iv_use) {
        (false, _) => SPARE..text.end,
        (true, IvUse::Gmac(_)) => 0..text.end,
        (true, _) => SPARE..text.end.saturating_add(4),
    };
    let (mut iv, mut mac_nonce) = ([0; 16], [0; 12]);
    let in_packet = region.get(SPARE.saturating_add(8)..text.start).unwrap_or_default();
    let counter = in_packet.first_chunk().copied().unwrap_or_default();
    match iv_use {
        IvUse::None => {}
        IvUse::Random => copy(&mut iv, in_packet),
        IvUse::Ctr(nonce) => iv = nonce.counter_block(counter),
        IvUse::Gmac(salt) => mac_nonce = salt.nonce(counter),
    }
    let relative = |at: usize| at.saturating_sub(covered.start);
    let text = relative(text.start)..relative(text.end);
    let data = region.get_mut(covered).unwrap_or_default();
    EtmJob { iv, mac_nonce, data, text, tag, outcome: Outcome::Pending }
}
