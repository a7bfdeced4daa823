//! The half of an SA that never changes: its keys, with which any core may seal and open.
//!
//! What changes with each packet, and what moves with the peer, stays with the data path (`sa_out`, `sa_in`).

use crate::ah::AhKey;
use crate::esp::EspKey;
use crate::nat::OriginalAddrs;
use casemate_crypto::{KeyError, Providers};
use casemate_sa::{Mode, SaParams, Transform};

/// Keys and mode. Whoever works on packets of the SA holds it, so that the SA may be removed meanwhile.
///
/// Aligned, so that counting its holders does not take what is in it out of the other cores' caches.
#[repr(align(64))]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) mode: Mode,
    pub(crate) esn: bool,
    /// The addresses in the checksums of what it opens, if a NAT changed them. Transport mode only.
    pub(crate) original_addrs: Option<OriginalAddrs>,
}

/// The protocol's half.
pub(crate) enum Engine {
    Esp(EspKey),
    Ah(AhKey),
}

impl Shared {
    pub(crate) fn new(params: &SaParams, providers: &Providers<'_>) -> Result<Self, KeyError> {
        let engine = match &params.transform {
            Transform::Esp { suite, encr, integ } => {
                Engine::Esp(EspKey::new(*suite, encr, integ, providers)?)
            }
            Transform::Ah { suite, integ } => Engine::Ah(AhKey::new(*suite, integ, providers)?),
        };
        let original = params.original_addrs.filter(|_| params.mode == Mode::Transport);
        let original_addrs = original.map(OriginalAddrs::new);
        Ok(Self { engine, mode: params.mode, esn: params.esn, original_addrs })
    }
}
