//! ESP with a combined-mode cipher (RFC 4106, RFC 4309, RFC 7634).

use super::EspSizes;
use super::key::Salt;
use super::work::{RUN, SPARE, Work};
use arrayvec::ArrayVec;
use casemate_crypto::{AeadJob, Outcome};

/// SPI, the upper half of an extended sequence number, the sequence number (RFC 4106 section 5).
#[inline]
fn extended_aad(region: &[u8], high: [u8; 4]) -> [u8; 12] {
    let header = region.get(SPARE..).and_then(|esp| esp.first_chunk()).copied();
    let [s, p, i, x, a, b, c, d] = header.unwrap_or_default();
    let [h, j, k, l] = high;
    [s, p, i, x, h, j, k, l, a, b, c, d]
}

/// Hands the run to `transform`, the provider's seal or open.
#[inline]
pub(super) fn run<D>(
    sizes: EspSizes,
    salt: Salt,
    esn: bool,
    run: &mut [Work<'_, D>],
    transform: impl FnOnce(&mut [AeadJob<'_>]),
) {
    let mut aads: ArrayVec<[u8; 12], RUN> = ArrayVec::new();
    if esn {
        aads.extend(run.iter().take(RUN).map(|work| extended_aad(work.region, work.high())));
    }
    let mut extended = aads.iter();
    let mut jobs: ArrayVec<AeadJob<'_>, RUN> = ArrayVec::new();
    for work in run.iter_mut().take(RUN) {
        // Too short a region gives an empty tag, with which no provider succeeds.
        let Parts { header, iv, text, tag } = Parts::split(work.region, sizes).unwrap_or_default();
        // Without extended numbers SPI and sequence number are the AAD as they stand in the packet.
        let aad = extended.next().map_or(header, |aad| aad);
        jobs.push(AeadJob { nonce: salt.nonce(iv), aad, text, tag, outcome: Outcome::Pending });
    }
    transform(&mut jobs);
    // One bit for each job: the jobs borrow the works, and must be gone before these are written to.
    let done = jobs.iter().rev().fold(0u32, |bits, job| bits << 1 | u32::from(job.outcome == Outcome::Done));
    drop(jobs);
    for (n, work) in (0..32).zip(run) {
        work.done = done >> n & 1 == 1;
    }
}

/// One ESP packet taken apart.
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
    fn split(region: &'p mut [u8], sizes: EspSizes) -> Option<Self> {
        let (_, esp) = region.split_at_mut_checked(SPARE)?;
        let (header, rest) = esp.split_at_mut_checked(8)?;
        let (iv, rest) = rest.split_first_chunk_mut::<8>()?;
        let text_len = rest.len().checked_sub(sizes.icv())?;
        let (text, tag) = rest.split_at_mut_checked(text_len)?;
        Some(Self { header, iv: *iv, text, tag })
    }
}
