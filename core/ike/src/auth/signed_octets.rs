//! Octets that an AUTH payload covers (RFC 7296 section 2.15), of one first message or of both
//! (draft-ietf-ipsecme-ikev2-downgrade-prevention).

use crate::StateFault;
use crate::negotiate::IkeSuite;
use alloc::vec::Vec;
use casemate_crypto::{PrfOutput, Providers, SecretBytes};

/// Octets that the AUTH payload of one side covers.
pub(crate) struct SignedOctets<'a> {
    /// First message of this side, complete.
    pub(crate) message: &'a [u8],
    /// First message of the other side, complete, if AUTH covers both.
    pub(crate) other_message: Option<&'a [u8]>,
    /// Nonce of the other side.
    pub(crate) nonce: &'a [u8],
    /// SK_pi or SK_pr.
    pub(crate) sk_p: &'a SecretBytes,
    /// Body of this side's ID payload.
    pub(crate) id: &'a [u8],
    /// IntAuth (RFC 9242 section 3.3.2); empty without IKE_INTERMEDIATE exchanges.
    pub(crate) int_auth: &'a [u8],
    pub(crate) suite: IkeSuite,
}

impl SignedOctets<'_> {
    /// prf(SK_p, ID payload)
    fn maced_id(&self, providers: &Providers<'_>) -> Result<PrfOutput, StateFault> {
        prf(self.suite, self.sk_p.expose(), &[self.id], providers)
    }

    /// The octets, in order. The eight zeros before two messages stand where a single message has the SPI of
    /// the initiator, which is never zero, so no octets have both meanings
    /// (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    fn parts<'b>(&'b self, maced_id: &'b PrfOutput) -> [&'b [u8]; 6] {
        const ZEROS: &[u8] = &[0; 8];
        let (zeros, other) = self.other_message.map_or((&[][..], &[][..]), |other| (ZEROS, other));
        [zeros, other, self.message, self.nonce, maced_id.expose(), self.int_auth]
    }

    /// Concatenated octets, for a signature.
    pub(super) fn concat(&self, providers: &Providers<'_>) -> Result<Vec<u8>, StateFault> {
        Ok(self.parts(&self.maced_id(providers)?).concat())
    }

    /// prf(key, octets)
    pub(super) fn with_key(&self, key: &[u8], providers: &Providers<'_>) -> Result<PrfOutput, StateFault> {
        prf(self.suite, key, &self.parts(&self.maced_id(providers)?), providers)
    }

    /// prf( prf(Shared Secret, "Key Pad for IKEv2"), octets)
    pub(super) fn with_shared_key(
        &self,
        secret: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<PrfOutput, StateFault> {
        const PAD: &[u8] = b"Key Pad for IKEv2";
        let key = prf(self.suite, secret.expose(), &[PAD], providers)?;
        self.with_key(key.expose(), providers)
    }
}

fn prf(
    suite: IkeSuite,
    key: &[u8],
    parts: &[&[u8]],
    providers: &Providers<'_>,
) -> Result<PrfOutput, StateFault> {
    let key = providers.prf(suite.prf, key).map_err(|_| StateFault::Provider)?;
    key.prf(parts).map_err(|_| StateFault::Provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SkSuite;
    use crate::config::AgreedKexes;
    use alloc::format;
    use alloc::string::String;
    use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg};

    const SUITE: fn() -> IkeSuite = || IkeSuite {
        sk: SkSuite::Combined(AeadAlg::aes_gcm(AesBits::B256, 16).unwrap()),
        prf: PrfAlg::HmacSha256,
        kex: KexMethod::X25519,
        additional: AgreedKexes::NONE,
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected values were computed with Python's hmac and hashlib:
    ///
    /// ```python
    /// def prf(key, data): return hmac.new(key, data, hashlib.sha256).digest()
    /// sk_p, nonce, name = bytes(range(32)), bytes(range(32, 64)), bytes([2, 0, 0, 0]) + b"left"
    /// sent, received, int_auth = b"sent message", b"received message", b"IntAuth"
    /// rest = nonce + prf(sk_p, name) + int_auth
    /// key = prf(b"secret", b"Key Pad for IKEv2")
    /// print(prf(key, sent + rest).hex())
    /// print(prf(key, bytes(8) + received + sent + rest).hex())
    /// ```
    #[test]
    fn the_octets_match_an_independent_computation() {
        let bytes = |from: u8| (from..from + 32).collect::<Vec<u8>>();
        let (sk_p, nonce) = (SecretBytes::new(&bytes(0)), bytes(32));
        let octets = |other_message| SignedOctets {
            message: b"sent message",
            other_message,
            nonce: &nonce,
            sk_p: &sk_p,
            id: b"\x02\0\0\0left",
            int_auth: b"IntAuth",
            suite: SUITE(),
        };
        let providers = Providers(&[&casemate_rustcrypto::RUSTCRYPTO]);
        let mac = |octets: &SignedOctets<'_>| {
            let mac = octets.with_shared_key(&SecretBytes::new(b"secret"), &providers).unwrap();
            hex(mac.expose())
        };
        let (one, both) = (octets(None), octets(Some(b"received message")));
        assert_eq!(mac(&one), "4e4ee594f4bfbf5d4b7ab42e91cc224ec43bf9e9165f68ffe4a402da8d5c0a46");
        assert_eq!(mac(&both), "ee7008b710f8e58128890063782a2e6b4a9f252ccbe633dfab058d99497a4d01");
        // A signature covers the same octets.
        let begins =
            |octets: &SignedOctets<'_>, with: &[u8]| octets.concat(&providers).unwrap().starts_with(with);
        assert!(begins(&one, b"sent message"));
        assert!(begins(&both, b"\0\0\0\0\0\0\0\0received messagesent message"));
    }
}
