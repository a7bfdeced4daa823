//! The rows of the paper's figures, and those of today: what is done to every packet between two hosts.

use crate::manual;
use alloc::boxed::Box;
use casemate::{Datapath, Endpoint};
use casemate_crypto::{AeadAlg, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, Providers};
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::Settings;
use casemate_legacy::LEGACY;
use casemate_rustcrypto::{AES_128_CBC, AES_128_GCM, CHACHA20_POLY1305, HMAC_SHA256};
use casemate_sa::{Instant, Limits, Transform};
use casemate_smoltcp::{Guarded, Setup};
use core::net::IpAddr;

use crate::peers::Dice;
use crate::wire::End;

/// A row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// smoltcp alone.
    Plain,
    /// With the guard, and without a policy.
    Unused,
    AhMd5,
    EspTripleDes,
    AhSha2,
    Gcm,
    ChaCha,
    CbcSha2,
}

/// All of them, with their names in orders and answers.
pub(super) const ROWS: [(&str, Row); 8] = [
    ("plain", Row::Plain),
    ("unused", Row::Unused),
    ("ah-md5", Row::AhMd5),
    ("esp-3des-md5", Row::EspTripleDes),
    ("ah-sha256", Row::AhSha2),
    ("esp-aes128gcm16", Row::Gcm),
    ("esp-chacha20poly1305", Row::ChaCha),
    ("esp-aes128-sha256", Row::CbcSha2),
];

/// What a host's SAs begin at: long ago.
const NOW: Instant = Instant::ZERO;

impl Row {
    fn transform(self) -> Option<Transform> {
        let md5 = MacAlg::standard(MacKind::HmacMd5);
        let transform = match self {
            Self::Plain | Self::Unused => return None,
            Self::AhMd5 => Transform::Ah { suite: AhSuite(md5), integ: manual::key(16) },
            Self::EspTripleDes => Transform::Esp {
                suite: EspSuite::Separate(CipherAlg::TripleDesCbc, md5),
                encr: manual::key(24),
                integ: manual::key(16),
            },
            Self::AhSha2 => manual::ah(),
            Self::Gcm => manual::gcm(),
            Self::ChaCha => Transform::Esp {
                suite: EspSuite::Combined(AeadAlg::ChaCha20Poly1305),
                encr: manual::key(36),
                integ: manual::key(0),
            },
            Self::CbcSha2 => manual::cbc(),
        };
        Some(transform)
    }

    /// IP's number of the protocol that a segment of TCP goes as.
    pub(super) const fn protocol(self) -> u8 {
        match self {
            Self::Plain | Self::Unused => 6,
            Self::AhMd5 | Self::AhSha2 => 51,
            Self::EspTripleDes | Self::Gcm | Self::ChaCha | Self::CbcSha2 => 50,
        }
    }

    /// A wire's end behind the guard of the host `own`, which speaks with `far`. `None` if the SAs are not taken.
    pub(super) fn guard(self, own: IpAddr, far: IpAddr) -> Option<Guarded<End>> {
        let limits = Limits::DEVICE;
        let unmatched = if self == Self::Unused { Unmatched::PassClear } else { Unmatched::Discard };
        let mut datapath = Datapath::new(Config { limits, unmatched, ..Config::server(1) });
        if let Some(transform) = self.transform() {
            let providers = Providers(&[&LEGACY, AES_128_GCM, CHACHA20_POLY1305, AES_128_CBC, HMAC_SHA256]);
            for (direction, way) in [(Direction::Outbound, (own, far)), (Direction::Inbound, (far, own))] {
                let params = manual::params(u32::from(way.0 < way.1), way, &transform)?;
                datapath.add_sa(&params, direction, &providers, NOW).ok()?;
                datapath.add_policy(direction, manual::policy(way, &transform)?).ok()?;
            }
        }
        let endpoint = Endpoint::new(datapath, Settings::DEVICE);
        Some(Guarded::new(End::default(), Setup { endpoint, rng: Box::new(Dice(1)), limits }))
    }
}
