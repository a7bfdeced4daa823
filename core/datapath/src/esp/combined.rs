//! ESP with a combined-mode cipher (RFC 4106, RFC 4309, RFC 7634), also with an implicit IV (RFC 8750).

use super::work::{EspPacket, MAX_BATCH, SPARE, SuccessMask, WHOLE_REGION};
use super::{AeadIv, EspSizes};
use arrayvec::ArrayVec;
use casemate_crypto::{AeadJob, JobStatus, Salt};
use casemate_wire::invariant::OrBroken;

/// AAD with an extended sequence number: SPI, upper half, lower half (RFC 4106 section 5).
#[inline]
fn extended_aad(region: &[u8], high: [u8; 4]) -> [u8; 12] {
    let header = region.get(SPARE..).and_then(|esp| esp.first_chunk()).copied();
    let [s, p, i, x, a, b, c, d] = header.or_broken_default(WHOLE_REGION);
    let [h, j, k, l] = high;
    [s, p, i, x, h, j, k, l, a, b, c, d]
}

/// Makes the nonces of an SA.
#[derive(Clone, Copy)]
pub(super) struct Nonces {
    pub(super) salt: Salt,
    pub(super) iv: AeadIv,
}

/// Builds the jobs of a run and passes them to `transform`, the provider's seal or open.
#[inline]
pub(super) fn run<'p>(
    sizes: EspSizes,
    nonces: Nonces,
    esn: bool,
    run: impl Iterator<Item = EspPacket<'p>>,
    transform: impl FnOnce(&mut [AeadJob<'_>]),
) -> SuccessMask {
    if esn {
        return run_extended(sizes, nonces, run.collect(), transform);
    }
    // Without extended sequence numbers the AAD is the ESP header in the packet.
    let mut jobs: ArrayVec<AeadJob<'_>, MAX_BATCH> = ArrayVec::new();
    jobs.extend(run.map(|packet| {
        let parts = Parts::split(packet, sizes, nonces.iv).or_broken_default(WHOLE_REGION);
        let aad = parts.header;
        parts.job(nonces.salt, aad)
    }));
    finish(&mut jobs, transform)
}

/// Does the same with extended sequence numbers, whose upper half is in the AAD and not in the packet.
fn run_extended(
    sizes: EspSizes,
    nonces: Nonces,
    run: ArrayVec<EspPacket<'_>, MAX_BATCH>,
    transform: impl FnOnce(&mut [AeadJob<'_>]),
) -> SuccessMask {
    let mut aads: ArrayVec<[u8; 12], MAX_BATCH> = ArrayVec::new();
    aads.extend(run.iter().map(|packet| extended_aad(packet.region, packet.high())));
    let mut jobs: ArrayVec<AeadJob<'_>, MAX_BATCH> = ArrayVec::new();
    jobs.extend(run.into_iter().zip(&aads).map(|(packet, aad)| {
        let parts = Parts::split(packet, sizes, nonces.iv).or_broken_default(WHOLE_REGION);
        parts.job(nonces.salt, aad)
    }));
    finish(&mut jobs, transform)
}

#[inline]
fn finish(jobs: &mut [AeadJob<'_>], transform: impl FnOnce(&mut [AeadJob<'_>])) -> SuccessMask {
    transform(jobs);
    SuccessMask::collect(jobs.iter().map(|job| job.status == JobStatus::Done))
}

/// The parts of an ESP packet. By default all parts are empty; with an empty tag no provider succeeds.
#[derive(Default)]
struct Parts<'p> {
    /// SPI and sequence number.
    header: &'p [u8],
    iv: [u8; 8],
    text: &'p mut [u8],
    tag: &'p mut [u8],
}

impl<'p> Parts<'p> {
    #[inline]
    fn split(packet: EspPacket<'p>, sizes: EspSizes, iv: AeadIv) -> Option<Self> {
        let (_, esp) = packet.region.split_at_mut_checked(SPARE)?;
        let (header, rest) = esp.split_at_mut_checked(8)?;
        let (iv, rest) = match iv {
            AeadIv::Explicit => rest.split_first_chunk_mut().map(|(iv, rest)| (*iv, rest))?,
            AeadIv::Implicit => (packet.seq.to_be_bytes(), rest),
        };
        let text_len = rest.len().checked_sub(sizes.icv())?;
        let (text, tag) = rest.split_at_mut_checked(text_len)?;
        Some(Self { header, iv, text, tag })
    }

    #[inline]
    fn job(self, salt: Salt, aad: &'p [u8]) -> AeadJob<'p> {
        let Self { iv, text, tag, .. } = self;
        AeadJob { nonce: salt.nonce(iv), aad, text, tag, status: JobStatus::Pending }
    }
}
