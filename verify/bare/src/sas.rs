//! SAs with manual keys: suites and parameters.

use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_sa::{AddrRange, Mode, SaParams, Selector, Spi, Transform};
use core::hint::black_box;
use core::net::IpAddr;

/// ESP with AES-128-GCM.
pub(crate) fn gcm() -> Transform {
    let suite = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    Transform::Esp { suite, encr: key(20), integ: key(0) }
}

/// ESP with AES-128-CBC and HMAC-SHA2-256.
pub(crate) fn cbc() -> Transform {
    let mac = MacAlg::standard(MacKind::HmacSha256);
    Transform::Esp {
        suite: EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac),
        encr: key(16),
        integ: key(32),
    }
}

/// AH with HMAC-SHA2-256.
pub(crate) fn ah() -> Transform {
    Transform::Ah { suite: AhSuite(MacAlg::standard(MacKind::HmacSha256)), integ: key(32) }
}

const KEY: [u8; 40] = *b"What these keys protect is worth nothing";

/// Returns a fixed key of at most 40 bytes.
pub(crate) fn key(len: usize) -> SecretBytes {
    SecretBytes::new(black_box(KEY).get(..len).unwrap_or_default())
}

/// Returns the parameters of an SA in transport mode between two addresses.
pub(crate) fn params(number: u32, ends: (IpAddr, IpAddr), transform: &Transform) -> Option<SaParams> {
    let spi = Spi::new(number.saturating_add(0x1000))?;
    Some(SaParams::new(spi, ends, Mode::Transport, transform.clone()))
}

/// Returns the policy that protects all traffic from one address to the other.
pub(crate) fn policy((src, dst): (IpAddr, IpAddr), transform: &Transform) -> Option<Policy> {
    let protocol = transform.protocol();
    let template = Template { protocol, mode: Mode::Transport, src: Some(src), dst: Some(dst), reqid: 0 };
    Some(Policy {
        selector: Selector::between(AddrRange::single(src), AddrRange::single(dst)),
        action: Action::Protect(Bundle::new(&[template]).ok()?),
        priority: 0,
    })
}
