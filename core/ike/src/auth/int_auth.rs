//! Authentication of IKE_INTERMEDIATE exchanges (RFC 9242 section 3.3.2): AUTH covers a chain of hashes over
//! all their messages, before encryption and fragmentation.

use alloc::vec::Vec;

/// IntAuth: IntAuth_iN | IntAuth_rN | IKE_AUTH_MID. Empty without IKE_INTERMEDIATE exchanges.
#[derive(Debug, Default)]
pub(crate) struct IntAuth(Vec<u8>);

impl IntAuth {
    /// What AUTH covers.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(feature = "multiple-kex")]
pub(crate) use chain::{AuthenticatedExchange, authenticated_octets};

#[cfg(feature = "multiple-kex")]
mod chain {
    use super::IntAuth;
    use crate::StateFault;
    use crate::transport::{MessageKind, header};
    use crate::{IkeSpis, Role};
    use alloc::vec::Vec;
    use casemate_crypto::{PrfAlg, PrfOutput, Providers, SecretBytes};
    use casemate_wire::ike::{HEADER_LEN, PayloadType};

    /// Length of the generic header of the Encrypted payload, in bytes.
    const GENERIC_HEADER_LEN: usize = 4;

    /// One IKE_INTERMEDIATE exchange, with the keys before it.
    pub(crate) struct AuthenticatedExchange<'a> {
        /// Octets of the request and the response, as [`authenticated_octets`] gives them.
        pub(crate) request: &'a [u8],
        pub(crate) response: &'a [u8],
        /// Message ID of the exchange.
        pub(crate) message_id: u32,
        pub(crate) sk_pi: &'a SecretBytes,
        pub(crate) sk_pr: &'a SecretBytes,
    }

    impl IntAuth {
        /// Adds an exchange.
        pub(crate) fn add(
            &mut self,
            exchange: &AuthenticatedExchange<'_>,
            prf: PrfAlg,
            providers: &Providers<'_>,
        ) -> Result<(), StateFault> {
            let (before_i, before_r) = self.hashes();
            let hash = |key: &SecretBytes, before: &[u8], message: &[u8]| -> Result<PrfOutput, StateFault> {
                let key = providers.prf(prf, key.expose()).map_err(|_| StateFault::Provider)?;
                key.prf(&[before, message]).map_err(|_| StateFault::Provider)
            };
            let initiator = hash(exchange.sk_pi, before_i, exchange.request)?;
            let responder = hash(exchange.sk_pr, before_r, exchange.response)?;
            // IKE_AUTH follows, or another exchange that sets this again.
            let auth_id = exchange.message_id.saturating_add(1).to_be_bytes();
            self.0 = [initiator.expose(), responder.expose(), &auth_id].concat();
            Ok(())
        }

        /// IntAuth_i and IntAuth_r so far.
        fn hashes(&self) -> (&[u8], &[u8]) {
            let hashes = self.0.split_last_chunk::<4>().map_or(&[][..], |(hashes, _)| hashes);
            hashes.split_at(hashes.len() / 2)
        }
    }

    /// What the chain covers of a message: its header, the generic header of the Encrypted payload, and its
    /// inner payloads, of which `first` is the type of the first one. The lengths are those without
    /// encryption.
    pub(crate) fn authenticated_octets(
        spis: IkeSpis,
        sender: Role,
        kind: MessageKind,
        first: PayloadType,
        payloads: &[u8],
    ) -> Result<Vec<u8>, StateFault> {
        let payload_len = payloads.len().saturating_add(GENERIC_HEADER_LEN);
        let len = payload_len.saturating_add(HEADER_LEN);
        let mut header = header(spis, sender, kind);
        header.next_payload = PayloadType::SK;
        header.length = u32::try_from(len).map_err(|_| StateFault::Provider)?;
        let [high, low] = u16::try_from(payload_len).map_err(|_| StateFault::Provider)?.to_be_bytes();
        let mut start = [0; HEADER_LEN];
        header.emit(&mut start);
        Ok([&start[..], &[first.0, 0, high, low], payloads].concat())
    }
}
