//! Cryptobinding: keys of the TLS session and of the method inside ([MS-PEAP] sections 3.1.5.5 and 3.1.5.7).

use crate::{Authenticated, EapContext, EapFault, Method};
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, SecretBytes};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Length of a Cryptobinding TLV with its header, in bytes.
pub(super) const BINDING_LEN: usize = 60;
/// Length of the compound MAC at its end: HMAC-SHA1-160.
const MAC_LEN: usize = 20;
/// Length of the nonce in front of it.
const NONCE_LEN: usize = 32;
/// Length of the inner session key ISK.
const ISK_LEN: usize = 32;
/// Length of the intermediate key IPMK, and of the part of the tunnel key that is used.
const IPMK_LEN: usize = 40;
/// Length of a master session key.
const MSK_LEN: usize = 64;

/// A Cryptobinding TLV.
pub(super) type Binding = [u8; BINDING_LEN];

/// Who has sent a Cryptobinding TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Keys after the method inside.
pub(super) struct Keys {
    /// CMK, the key of the compound MAC.
    cmk: SecretBytes,
    /// First part of CSK.
    pub(super) msk: SecretBytes,
}

impl Keys {
    /// Derives the keys from those of the tunnel and of the method inside.
    pub(super) fn new(
        tunnel: &SecretBytes,
        inner: &Authenticated,
        context: &EapContext<'_>,
    ) -> Result<Self, EapFault> {
        let tunnel = tunnel.expose().first_chunk::<IPMK_LEN>().ok_or(EapFault::MissingKey)?;
        let isk = inner_session_key(inner);
        let keys =
            prf_plus(tunnel, &[b"Inner Methods Compound Keys", &isk[..]], IPMK_LEN + MAC_LEN, context)?;
        let (ipmk, cmk) = keys.expose().split_at_checked(IPMK_LEN).ok_or(EapFault::MissingKey)?;
        let msk = prf_plus(ipmk, &[b"Session Key Generating Function\0"], MSK_LEN, context)?;
        Ok(Self { cmk: SecretBytes::new(cmk), msk })
    }

    /// The compound MAC of a TLV.
    fn mac(&self, binding: &Binding, context: &EapContext<'_>) -> Result<[u8; MAC_LEN], EapFault> {
        let front = binding.get(..BINDING_LEN.saturating_sub(MAC_LEN)).unwrap_or_default();
        let prf = context.providers.prf(PrfAlg::HmacSha1, self.cmk.expose());
        let prf = prf.map_err(|_| EapFault::Unsupported)?;
        let mac =
            prf.prf(&[front, &[0; MAC_LEN], &[Method::Peap.id()]]).map_err(|_| EapFault::Unsupported)?;
        mac.expose().first_chunk().copied().ok_or(EapFault::Unsupported)
    }

    /// Creates a TLV.
    pub(super) fn binding(
        &self,
        direction: Direction,
        context: &mut EapContext<'_>,
    ) -> Result<Binding, EapFault> {
        let mut nonce = [0; NONCE_LEN];
        context.rng.public(&mut nonce);
        let mut binding = [0; BINDING_LEN];
        let parts = direction.header().into_iter().chain(nonce);
        binding.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        let mac = self.mac(&binding, context)?;
        if let Some(place) = binding.last_chunk_mut::<MAC_LEN>() {
            *place = mac;
        }
        Ok(binding)
    }

    /// Verifies a TLV of the other side.
    pub(super) fn verify(
        &self,
        binding: &Binding,
        direction: Direction,
        context: &EapContext<'_>,
    ) -> Result<(), EapFault> {
        /// The fields with the version that the sender has received, and the direction.
        const FIELDS: usize = 8;
        let mac = binding.last_chunk::<MAC_LEN>().ok_or(EapFault::Malformed)?;
        let is_equal = bool::from(self.mac(binding, context)?.ct_eq(mac));
        let [.., version, received, subtype] = direction.header();
        let fields = binding.first_chunk::<FIELDS>().ok_or(EapFault::Malformed)?;
        let is_expected = fields.ends_with(&[version, received, subtype]);
        if is_equal && is_expected { Ok(()) } else { Err(EapFault::WrongPassword) }
    }
}

impl Direction {
    /// Type and length, a reserved byte, version 0, received version 0, and the direction.
    const fn header(self) -> [u8; 8] {
        const VALUE_LEN: u8 = BINDING_LEN as u8 - 4;
        let direction = match self {
            Self::Request => 0,
            Self::Response => 1,
        };
        [0, 12, 0, VALUE_LEN, 0, 0, 0, direction]
    }
}

/// ISK: the first bytes of the key of the method inside, or zeros.
fn inner_session_key(inner: &Authenticated) -> Zeroizing<[u8; ISK_LEN]> {
    let key = inner.msk.as_ref().and_then(|msk| msk.expose().first_chunk());
    Zeroizing::new(key.copied().unwrap_or_default())
}

/// PRF+ of PEAP ([MS-PEAP] section 3.1.5.5.2.2): that of IKEv2 with SHA-1 and two zeros behind the counter.
fn prf_plus(
    key: &[u8],
    seed: &[&[u8]],
    len: usize,
    context: &EapContext<'_>,
) -> Result<SecretBytes, EapFault> {
    let prf = context.providers.prf(PrfAlg::HmacSha1, key).map_err(|_| EapFault::Unsupported)?;
    let mut stream = Zeroizing::new(Vec::with_capacity(len.saturating_add(MAC_LEN)));
    let mut last = None;
    for counter in 1..=u8::MAX {
        if stream.len() >= len {
            break;
        }
        let before: &[u8] = last.as_ref().map_or(&[], casemate_crypto::PrfOutput::expose);
        let end = [counter, 0, 0];
        let parts: Vec<&[u8]> = [before].into_iter().chain(seed.iter().copied()).chain([&end[..]]).collect();
        let next = prf.prf(&parts).map_err(|_| EapFault::Unsupported)?;
        stream.extend_from_slice(next.expose());
        last = Some(next);
    }
    stream.get(..len).map(SecretBytes::new).ok_or(EapFault::MissingKey)
}
