//! The rows of the paper's figures and additional rows with current algorithms: the protection of the
//! packets.

use crate::traffic;
use alloc::boxed::Box;
use casemate::{Datapath, Endpoint};
use casemate_crypto::{AeadAlg, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, Providers};
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::IkeSettings;
use casemate_legacy::LEGACY;
use casemate_rustcrypto::{AES_128_CBC, AES_128_GCM, CHACHA20_POLY1305, HMAC_SHA256};
use casemate_sa::{Instant, Limits, Transform};
use casemate_smoltcp::{IpsecConfig, IpsecDevice};
use core::net::IpAddr;

use crate::link::LinkEnd;
use crate::peers::TestRng;

/// Protection of all packets between the two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// smoltcp without IPsec.
    Plain,
    /// smoltcp with IPsec, without policies.
    Unused,
    AhMd5,
    EspTripleDes,
    AhSha2,
    Gcm,
    ChaCha,
    CbcSha2,
}

/// All rows with their names on the command line and in the output.
pub(super) const PROTECTIONS: [(&str, Protection); 8] = [
    ("plain", Protection::Plain),
    ("unused", Protection::Unused),
    ("ah-md5", Protection::AhMd5),
    ("esp-3des-md5", Protection::EspTripleDes),
    ("ah-sha256", Protection::AhSha2),
    ("esp-aes128gcm16", Protection::Gcm),
    ("esp-chacha20poly1305", Protection::ChaCha),
    ("esp-aes128-sha256", Protection::CbcSha2),
];

/// Start time of the SAs.
const NOW: Instant = Instant::ZERO;

impl Protection {
    fn transform(self) -> Option<Transform> {
        let md5 = MacAlg::standard(MacKind::HmacMd5);
        let transform = match self {
            Self::Plain | Self::Unused => return None,
            Self::AhMd5 => Transform::Ah { suite: AhSuite(md5), integ: traffic::key(16) },
            Self::EspTripleDes => Transform::Esp {
                suite: EspSuite::Separate(CipherAlg::TripleDesCbc, md5),
                encr: traffic::key(24),
                integ: traffic::key(16),
            },
            Self::AhSha2 => traffic::ah(),
            Self::Gcm => traffic::gcm(),
            Self::ChaCha => Transform::Esp {
                suite: EspSuite::Combined(AeadAlg::ChaCha20Poly1305),
                encr: traffic::key(36),
                integ: traffic::key(0),
            },
            Self::CbcSha2 => traffic::cbc(),
        };
        Some(transform)
    }

    /// Returns the IP protocol number of the packets on the wire.
    pub(super) const fn protocol(self) -> u8 {
        match self {
            Self::Plain | Self::Unused => 6,
            Self::AhMd5 | Self::AhSha2 => 51,
            Self::EspTripleDes | Self::Gcm | Self::ChaCha | Self::CbcSha2 => 50,
        }
    }

    /// Creates an IPsec device for the host `own` with the peer `peer`. Returns `None` if an SA is refused.
    pub(super) fn ipsec_device(self, own: IpAddr, peer: IpAddr) -> Option<IpsecDevice<LinkEnd>> {
        let limits = Limits::DEVICE;
        let unmatched = if self == Self::Unused { Unmatched::PassClear } else { Unmatched::Discard };
        let mut datapath = Datapath::new(Config { limits, unmatched, ..Config::server(1) });
        if let Some(transform) = self.transform() {
            let providers = Providers(&[&LEGACY, AES_128_GCM, CHACHA20_POLY1305, AES_128_CBC, HMAC_SHA256]);
            for (direction, path) in [(Direction::Outbound, (own, peer)), (Direction::Inbound, (peer, own))] {
                let params = traffic::params(u32::from(path.0 < path.1), path, &transform)?;
                datapath.add_sa(&params, direction, &providers, NOW).ok()?;
                datapath.add_policy(direction, traffic::policy(path, &transform)?).ok()?;
            }
        }
        let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
        Some(IpsecDevice::new(
            LinkEnd::default(),
            IpsecConfig { endpoint, rng: Box::new(TestRng(1)), limits },
        ))
    }
}
