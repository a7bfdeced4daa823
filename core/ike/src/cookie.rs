//! Cookies against floods from forged addresses (RFC 7296 section 2.6).

use crate::Path;
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes};
use casemate_sa::Instant;
use casemate_wire::ike::IkeSpi;
use core::net::IpAddr;
use core::time::Duration;
use subtle::ConstantTimeEq as _;

/// Time for which a secret creates cookies. Its cookies are accepted for as long again.
const LIFETIME: Duration = Duration::from_secs(60);
const SECRET_LEN: usize = 32;

/// Creates and verifies cookies without storing them.
#[derive(Debug, Default)]
pub(crate) struct CookieSecrets {
    current: Option<Secret>,
    previous: Option<Secret>,
    version: u8,
}

#[derive(Debug)]
struct Secret {
    version: u8,
    key: SecretBytes,
    since: Instant,
}

/// Parts of an IKE_SA_INIT request that its cookie depends on.
pub(crate) struct CookieRequest<'r> {
    /// SPI of the initiator.
    pub(crate) spi: IkeSpi,
    /// Nonce of the initiator.
    pub(crate) nonce: &'r [u8],
    pub(crate) path: Path,
}

impl CookieSecrets {
    /// Cookie = version | PRF(secret, Ni | IPi | port | SPIi)
    pub(crate) fn make(
        &mut self,
        request: &CookieRequest<'_>,
        now: Instant,
        rng: &mut dyn Rng,
        providers: &Providers<'_>,
    ) -> Option<Vec<u8>> {
        if self.current.as_ref().is_none_or(|secret| now.since(secret.since) >= LIFETIME) {
            let mut key = [0; SECRET_LEN];
            rng.secret(&mut key);
            self.version = self.version.wrapping_add(1);
            let fresh = Secret { version: self.version, key: SecretBytes::new(&key), since: now };
            self.previous = self.current.replace(fresh);
        }
        self.current.as_ref()?.cookie(request, providers)
    }

    /// Whether a cookie is valid and not too old.
    pub(crate) fn verify(
        &self,
        cookie: &[u8],
        request: &CookieRequest<'_>,
        now: Instant,
        providers: &Providers<'_>,
    ) -> bool {
        let secrets = self.current.iter().chain(&self.previous);
        let valid = secrets.filter(|secret| now.since(secret.since) < LIFETIME.saturating_mul(2));
        let known = valid.filter(|secret| cookie.first() == Some(&secret.version));
        known
            .filter_map(|secret| secret.cookie(request, providers))
            .any(|expected| bool::from(expected.as_slice().ct_eq(cookie)))
    }
}

impl Secret {
    fn cookie(&self, request: &CookieRequest<'_>, providers: &Providers<'_>) -> Option<Vec<u8>> {
        let CookieRequest { spi, nonce, path } = *request;
        let prf = providers.prf(PrfAlg::HmacSha256, self.key.expose()).ok()?;
        let (spi, port) = (spi.0.to_be_bytes(), path.remote.port().to_be_bytes());
        let mac = match path.remote.ip() {
            IpAddr::V4(ip) => prf.prf(&[nonce, &ip.octets(), &port, &spi]).ok()?,
            IpAddr::V6(ip) => prf.prf(&[nonce, &ip.octets(), &port, &spi]).ok()?,
        };
        Some([&[self.version], mac.expose()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use casemate_crypto::Provider;
    use casemate_test_support::FixedRng;

    const SPI: IkeSpi = IkeSpi(0x0102_0304_0506_0708);

    struct Fixture {
        secrets: CookieSecrets,
        /// Each secret consists of another byte.
        rng: FixedRng,
    }

    impl Fixture {
        fn new() -> Self {
            Self { secrets: CookieSecrets::default(), rng: FixedRng::increasing(0x11) }
        }

        fn make(&mut self, request: &CookieRequest<'_>, secs: u64) -> Vec<u8> {
            let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
            let providers = Providers(&[provider]);
            let now = Instant::from_secs(secs);
            let cookie = self.secrets.make(request, now, &mut self.rng, &providers).unwrap();
            assert_eq!(self.rng.public_draws(), 0, "cookies use secret random bytes only");
            cookie
        }

        fn verify(&self, cookie: &[u8], request: &CookieRequest<'_>, secs: u64) -> bool {
            let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
            self.secrets.verify(cookie, request, Instant::from_secs(secs), &Providers(&[provider]))
        }
    }

    fn from(remote: &str) -> Path {
        Path { local: "192.0.2.9:500".parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn nonce() -> Vec<u8> {
        (0..32).collect()
    }

    /// Expected values computed with Python's hmac and hashlib.
    #[test]
    fn a_cookie_consists_of_a_version_and_a_mac() {
        for (remote, expected) in [
            ("192.0.2.1:500", "01984b44195d2eb40224138355ac1ec6ee236948ffdc540da99b77d596585acfad"),
            ("[2001:db8::1]:4500", "010e6a75e77908dd8ff6adcb97001b35f9b4a14555c6872fc86d44bc94284d4018"),
        ] {
            let cookie =
                Fixture::new().make(&CookieRequest { spi: SPI, nonce: &nonce(), path: from(remote) }, 0);
            assert_eq!(cookie.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
            // RFC 7296 section 2.6: between 1 and 64 octets.
            assert!(cookie.len() <= 64);
        }
    }

    #[test]
    fn a_cookie_is_bound_to_peer_and_request() {
        let (mut secrets, nonce) = (Fixture::new(), nonce());
        let path = from("192.0.2.1:500");
        let cookie = secrets.make(&CookieRequest { spi: SPI, nonce: &nonce, path }, 0);
        assert!(secrets.verify(&cookie, &CookieRequest { spi: SPI, nonce: &nonce, path }, 0));
        assert!(!secrets.verify(&cookie, &CookieRequest { spi: IkeSpi(1), nonce: &nonce, path }, 0));
        assert!(!secrets.verify(&cookie, &CookieRequest { spi: SPI, nonce: &nonce[1..], path }, 0));
        for other in ["192.0.2.2:500", "192.0.2.1:501", "[2001:db8::1]:500"] {
            assert!(
                !secrets.verify(&cookie, &CookieRequest { spi: SPI, nonce: &nonce, path: from(other) }, 0),
                "{other}"
            );
        }
        for at in 0..cookie.len() {
            let mut forged = cookie.clone();
            forged[at] ^= 1;
            assert!(
                !secrets.verify(&forged, &CookieRequest { spi: SPI, nonce: &nonce, path }, 0),
                "byte {at}"
            );
            assert!(
                !secrets.verify(&cookie[..at], &CookieRequest { spi: SPI, nonce: &nonce, path }, 0),
                "{at} bytes"
            );
        }
        assert!(
            !Fixture::new().verify(&cookie, &CookieRequest { spi: SPI, nonce: &nonce, path }, 0),
            "a cookie of another host"
        );
    }

    #[test]
    fn a_secret_creates_cookies_for_one_minute_and_accepts_them_for_two() {
        let (mut secrets, nonce) = (Fixture::new(), nonce());
        let request = &CookieRequest { spi: SPI, nonce: &nonce, path: from("192.0.2.1:500") };
        let first = secrets.make(request, 100);
        assert_eq!(secrets.make(request, 159), first);
        let second = secrets.make(request, 160);
        assert_ne!(second, first);
        assert!(secrets.verify(&first, request, 219) && secrets.verify(&second, request, 219));
        assert!(!secrets.verify(&first, request, 220) && secrets.verify(&second, request, 279));
        assert!(!secrets.verify(&second, request, 280));
        // The third secret replaces the first, however young the first is.
        let third = secrets.make(request, 230);
        assert!(!secrets.verify(&first, request, 215) && secrets.verify(&second, request, 230));
        assert!(secrets.verify(&third, request, 230));
    }
}
