//! Links between two hosts: every mode, both IP versions, and suites of every shape.

use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_datapath_tests::{Ends, LinkSpec, suites};
use casemate_sa::{Limits, Mode, Transform};

/// How many there are.
pub(super) const COUNT: u8 = 18;

/// Tables no larger than a link needs: they are set up for every input.
const LIMITS: Limits = Limits {
    sas: 8,
    policies: 4,
    flows: 16,
    audit_events: 4,
    replay_window: 1 << 12,
    reassemblies: 0,
    reassembly_bytes: 0,
};

/// One of the links, by the first byte of an input.
pub(super) fn link(choice: u8) -> LinkSpec {
    let (ends, mode, transform) = single(choice % COUNT);
    let mut spec = LinkSpec::single(ends, mode, transform);
    spec.limits = LIMITS;
    match choice % COUNT {
        1 => (spec.esn, spec.last_seq) = (true, (1 << 32) - 3),
        3 | 14 => spec.encap = true,
        8 => spec.window = 0,
        11 => (spec.esn, spec.window) = (true, 32),
        12 | 13 => spec.layers.push((Mode::Transport, ah(MacKind::HmacSha256))),
        15 => spec.tfc_pad_to = 64,
        16 => spec.window = 1_000,
        _ => {}
    }
    spec
}

fn single(choice: u8) -> (Ends, Mode, Transform) {
    use Mode::{Transport, Tunnel};
    let (cbc, ctr) = (CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCtr(AesBits::B256));
    let gmac = MacKind::AesGmac(AesBits::B128);
    match choice {
        0 | 15 => (Ends::tunnel(4, 4), Tunnel, esp(suites::gcm())),
        1 | 14 => (Ends::tunnel(6, 6), Tunnel, esp(suites::gcm())),
        2 => (Ends::transport(6), Transport, esp(suites::cbc_sha1())),
        3 => (Ends::tunnel(4, 6), Tunnel, esp(suites::cbc_sha1())),
        4 => (Ends::transport(4), Transport, esp(EspSuite::Combined(AeadAlg::ChaCha20Poly1305))),
        5 => (Ends::tunnel(6, 4), Tunnel, separate(ctr, MacKind::AesXcbc)),
        6 => (Ends::tunnel(4, 4), Tunnel, separate(CipherAlg::Null, MacKind::HmacSha256)),
        7 => (Ends::transport(4), Transport, separate(CipherAlg::Null, gmac)),
        8 => {
            let ccm = AeadAlg::aes_ccm(AesBits::B128, 8).unwrap();
            (Ends::tunnel(4, 4), Tunnel, esp(EspSuite::Combined(ccm)))
        }
        9 => (Ends::tunnel(6, 6), Tunnel, ah(MacKind::HmacSha256)),
        10 => (Ends::transport(4), Transport, ah(MacKind::HmacSha1)),
        11 => (Ends::transport(6), Transport, ah(MacKind::AesCmac)),
        12 => (Ends::transport(4), Transport, esp(suites::gcm())),
        13 => (Ends::tunnel(6, 4), Tunnel, separate(cbc, MacKind::HmacSha512)),
        16 => (Ends::tunnel(4, 4), Tunnel, ah(gmac)),
        _ => (Ends::transport(6), Transport, separate(CipherAlg::Null, MacKind::HmacSha256)),
    }
}

fn esp(suite: EspSuite) -> Transform {
    suites::esp(suite, 1)
}

fn separate(cipher: CipherAlg, mac: MacKind) -> Transform {
    esp(EspSuite::Separate(cipher, MacAlg::standard(mac)))
}

fn ah(mac: MacKind) -> Transform {
    suites::ah(MacAlg::standard(mac), 9)
}
