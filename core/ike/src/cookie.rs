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
