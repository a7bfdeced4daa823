//! Cookies against floods from forged addresses (RFC 7296 section 2.6).

use crate::Path;
use alloc::vec::Vec;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes};
use casemate_sa::Instant;
use casemate_wire::ike::IkeSpi;
use core::net::IpAddr;
use core::time::Duration;
use subtle::ConstantTimeEq as _;

/// How long a secret makes cookies. It judges them for as long again.
const LIFETIME: Duration = Duration::from_secs(60);
const SECRET_LEN: usize = 32;

/// Makes and judges cookies, without memory of whom they went to.
#[derive(Debug, Default)]
pub(crate) struct CookieJar {
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

impl CookieJar {
    /// Cookie = version | PRF(secret, Ni | IPi | port | SPIi)
    pub(crate) fn make(
        &mut self,
        (spi, nonce, path): (IkeSpi, &[u8], Path),
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
        self.current.as_ref()?.cookie(spi, nonce, path, providers)
    }

    /// Whether a cookie is one of ours, and not too old.
    pub(crate) fn accepts(
        &self,
        cookie: &[u8],
        (spi, nonce, path): (IkeSpi, &[u8], Path),
        now: Instant,
        providers: &Providers<'_>,
    ) -> bool {
        let secrets = self.current.iter().chain(&self.previous);
        let young = secrets.filter(|secret| now.since(secret.since) < LIFETIME.saturating_mul(2));
        let known = young.filter(|secret| cookie.first() == Some(&secret.version));
        known
            .filter_map(|secret| secret.cookie(spi, nonce, path, providers))
            .any(|expected| bool::from(expected.as_slice().ct_eq(cookie)))
    }
}

impl Secret {
    fn cookie(&self, spi: IkeSpi, nonce: &[u8], path: Path, providers: &Providers<'_>) -> Option<Vec<u8>> {
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

    const SPI: IkeSpi = IkeSpi(0x0102_0304_0506_0708);

    /// Each secret is of bytes one higher than those of the secret before.
    struct Steps(u8);

    impl Rng for Steps {
        fn public(&mut self, _: &mut [u8]) {
            panic!("nothing here may be seen");
        }

        fn secret(&mut self, out: &mut [u8]) {
            out.fill(self.0);
            self.0 += 1;
        }
    }

    struct Jar {
        jar: CookieJar,
        rng: Steps,
    }

    impl Jar {
        fn new() -> Self {
            Self { jar: CookieJar::default(), rng: Steps(0x11) }
        }

        fn make(&mut self, bound: (IkeSpi, &[u8], Path), secs: u64) -> Vec<u8> {
            let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
            let providers = Providers(&[provider]);
            self.jar.make(bound, Instant::from_secs(secs), &mut self.rng, &providers).unwrap()
        }

        fn accepts(&self, cookie: &[u8], bound: (IkeSpi, &[u8], Path), secs: u64) -> bool {
            let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
            self.jar.accepts(cookie, bound, Instant::from_secs(secs), &Providers(&[provider]))
        }
    }

    fn from(remote: &str) -> Path {
        Path { local: "192.0.2.9:500".parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn nonce() -> Vec<u8> {
        (0..32).collect()
    }

    /// Expected values by Python's hmac and hashlib.
    #[test]
    fn a_cookie_is_a_version_and_a_mac() {
        for (remote, expected) in [
            ("192.0.2.1:500", "01984b44195d2eb40224138355ac1ec6ee236948ffdc540da99b77d596585acfad"),
            ("[2001:db8::1]:4500", "010e6a75e77908dd8ff6adcb97001b35f9b4a14555c6872fc86d44bc94284d4018"),
        ] {
            let cookie = Jar::new().make((SPI, &nonce(), from(remote)), 0);
            assert_eq!(cookie.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
            // RFC 7296 section 2.6: between 1 and 64 octets.
            assert!(cookie.len() <= 64);
        }
    }

    #[test]
    fn a_cookie_is_bound_to_whom_it_was_given() {
        let (mut jar, nonce) = (Jar::new(), nonce());
        let path = from("192.0.2.1:500");
        let cookie = jar.make((SPI, &nonce, path), 0);
        assert!(jar.accepts(&cookie, (SPI, &nonce, path), 0));
        assert!(!jar.accepts(&cookie, (IkeSpi(1), &nonce, path), 0));
        assert!(!jar.accepts(&cookie, (SPI, &nonce[1..], path), 0));
        for other in ["192.0.2.2:500", "192.0.2.1:501", "[2001:db8::1]:500"] {
            assert!(!jar.accepts(&cookie, (SPI, &nonce, from(other)), 0), "{other}");
        }
        for at in 0..cookie.len() {
            let mut forged = cookie.clone();
            forged[at] ^= 1;
            assert!(!jar.accepts(&forged, (SPI, &nonce, path), 0), "byte {at}");
            assert!(!jar.accepts(&cookie[..at], (SPI, &nonce, path), 0), "{at} bytes");
        }
        assert!(!Jar::new().accepts(&cookie, (SPI, &nonce, path), 0), "another host's");
    }

    #[test]
    fn a_secret_makes_cookies_for_a_minute_and_judges_them_for_two() {
        let (mut jar, nonce) = (Jar::new(), nonce());
        let bound = (SPI, &*nonce, from("192.0.2.1:500"));
        let first = jar.make(bound, 100);
        assert_eq!(jar.make(bound, 159), first);
        let second = jar.make(bound, 160);
        assert_ne!(second, first);
        assert!(jar.accepts(&first, bound, 219) && jar.accepts(&second, bound, 219));
        assert!(!jar.accepts(&first, bound, 220) && jar.accepts(&second, bound, 279));
        assert!(!jar.accepts(&second, bound, 280));
        // The third drives the first out, however young.
        let third = jar.make(bound, 230);
        assert!(!jar.accepts(&first, bound, 215) && jar.accepts(&second, bound, 230));
        assert!(jar.accepts(&third, bound, 230));
    }
}
