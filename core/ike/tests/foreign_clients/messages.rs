//! What clients of other makers send, as tables of facts from public logs and source code
//! (`tests/data/foreign-clients/ORIGIN.md` names the source of each), and the writer that makes messages of
//! them. The writer shares no code with the parser.

use crate::forge::{Raw, plain};
use crate::pair::RecordingRng;
use casemate_crypto::{KexMethod, Provider};
use casemate_wire::ike::{ExchangeType, Flags, Header, IkeSpi, NotifyType, PayloadType, Version};

/// Type, number and key length in bits (0: none) of a transform.
pub(crate) type Transform = (u8, u16, u16);

const fn encr(id: u16, bits: u16) -> Transform {
    (1, id, bits)
}
const fn prf(id: u16) -> Transform {
    (2, id, 0)
}
const fn integ(id: u16) -> Transform {
    (3, id, 0)
}
const fn group(id: u16) -> Transform {
    (4, id, 0)
}

/// A first request of a client.
pub(crate) struct Request {
    pub(crate) proposals: Vec<Vec<Transform>>,
    /// Group of the KE payload and its public value.
    pub(crate) kex: (u16, Vec<u8>),
    /// Notifications and vendor IDs, in this order.
    pub(crate) rest: Vec<Raw>,
}

impl Request {
    fn new(proposals: Vec<Vec<Transform>>, kex: KexMethod, rest: Vec<Raw>) -> Self {
        let provider: &dyn Provider = match kex {
            KexMethod::Modp1024 => &casemate_legacy::LEGACY,
            _ => &casemate_rustcrypto::RustCrypto,
        };
        let public = provider.kex(kex, &mut RecordingRng::new(77)).unwrap().public().to_vec();
        Self { proposals, kex: (kex.id(), public), rest }
    }

    /// The message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let (id, public) = &self.kex;
        let ke = [&id.to_be_bytes()[..], &[0, 0], public].concat();
        let mut payloads = vec![
            Raw::new(PayloadType::SA, &sa(1, &[], &self.proposals)),
            Raw::new(PayloadType::KE, &ke),
            Raw::new(PayloadType::NONCE, &[0x6e; 48]),
        ];
        payloads.extend(self.rest.iter().cloned());
        let header = Header {
            spi_i: IkeSpi(0x2386_71c8_0375_a0fb),
            spi_r: IkeSpi::NONE,
            next_payload: PayloadType::NONE,
            version: Version::V2,
            exchange: ExchangeType::IKE_SA_INIT,
            flags: Flags { initiator: true, higher_version: false, response: false },
            message_id: 0,
            length: 0,
        };
        plain(&header, &payloads)
    }
}

/// The body of an SA payload with proposals for this protocol.
pub(crate) fn sa(protocol: u8, spi: &[u8], proposals: &[Vec<Transform>]) -> Vec<u8> {
    let one = |(at, transforms): (usize, &Vec<Transform>)| {
        let more = if at + 1 == proposals.len() { 0 } else { 2 };
        let each = transforms.iter().enumerate().flat_map(|(at, &(kind, id, bits))| {
            let more = if at + 1 == transforms.len() { 0 } else { 3 };
            let length = if bits == 0 { vec![] } else { [&[0x80, 14][..], &bits.to_be_bytes()].concat() };
            let len = u8::try_from(8 + length.len()).unwrap();
            [&[more, 0, 0, len, kind, 0], &id.to_be_bytes()[..], &length].concat()
        });
        let head =
            [at + 1, protocol.into(), spi.len(), transforms.len()].map(|byte| u8::try_from(byte).unwrap());
        let body: Vec<u8> = head.into_iter().chain(spi.iter().copied()).chain(each).collect();
        let len = u16::try_from(4 + body.len()).unwrap().to_be_bytes();
        [&[more, 0], &len[..], &body].concat()
    };
    proposals.iter().enumerate().flat_map(one).collect()
}

/// NAT detection of a client behind a NAT: the hashes match no address.
fn nat() -> [Raw; 2] {
    let hash = |kind, byte| Raw::notify(kind, &[byte; 20]);
    [hash(NotifyType::NAT_DETECTION_SOURCE_IP, 0xa1), hash(NotifyType::NAT_DETECTION_DESTINATION_IP, 0xb2)]
}

fn vendor(hex: &str) -> Raw {
    Raw::new(PayloadType::VENDOR, &bytes(hex))
}

/// The bytes that hexadecimal digits stand for. White space is ignored.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Notifications and vendor IDs of Windows 7 to 11; newer releases also announce fragmentation.
fn windows_rest(fragmentation: bool) -> Vec<Raw> {
    let frag = fragmentation.then(|| Raw::notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]));
    let vendors = [
        "1e2b516905991c7d7c96fcbfb587e46100000009",
        "fb1de3cdf341b7ea16b7e5be0855f120",
        "26244d38eddb61b3172a36e3d0cfb819",
        "01528bbbc00696121849ab9a1c5b2a5100000002",
    ];
    frag.into_iter().chain(nat()).chain(vendors.map(vendor)).collect()
}

/// Windows with its own defaults: four ciphers with three hashes, each with the 1024-bit group.
pub(crate) fn windows_defaults() -> Request {
    let hashes = [[integ(2), prf(2)], [integ(12), prf(5)], [integ(13), prf(6)]];
    let ciphers = [encr(3, 0), encr(12, 128), encr(12, 192), encr(12, 256)];
    let with = |cipher| hashes.iter().map(move |[mac, prf]| vec![cipher, *mac, *prf, group(2)]);
    Request::new(ciphers.into_iter().flat_map(with).collect(), KexMethod::Modp1024, windows_rest(false))
}

/// Windows with `Set-VpnConnectionIPsecConfiguration`: AES-128, SHA-256, group 14.
pub(crate) fn windows_group14() -> Request {
    let proposal = vec![encr(12, 128), integ(12), prf(5), group(14)];
    Request::new(vec![proposal], KexMethod::Modp2048, windows_rest(true))
}

/// Windows with `Set-VpnConnectionIPsecConfiguration`: AES-128, SHA-384, P-256.
pub(crate) fn windows_p256() -> Request {
    let proposal = vec![encr(12, 128), integ(13), prf(6), group(19)];
    Request::new(vec![proposal], KexMethod::EcpP256, windows_rest(true))
}

/// The platform of Android 13 and later (`Ikev2VpnProfile`).
pub(crate) fn android() -> Request {
    let common = || [16, 31, 15, 14].map(group).into_iter().chain([7, 6, 5, 4, 8, 2].map(prf));
    let ciphers = [256, 192, 128].into_iter().flat_map(|bits| [encr(13, bits), encr(12, bits)]);
    let macs = [14, 13, 12, 5, 8].map(integ);
    let combined = [256, 192, 128].into_iter().flat_map(|bits| [20, 19, 18].map(|id| encr(id, bits)));
    let separate = ciphers.chain(macs).chain(common()).collect();
    let combined = [encr(28, 0)].into_iter().chain(combined).chain(common()).collect();
    let notify = |kind, data: &[u8]| Raw::notify(kind, data);
    let hashes = notify(NotifyType::SIGNATURE_HASH_ALGORITHMS, &[0, 1, 0, 2, 0, 3, 0, 4]);
    let frag = notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
    let rest = nat().into_iter().chain([frag, hashes]).collect();
    Request::new(vec![separate, combined], KexMethod::Modp4096, rest)
}

/// strongSwan's app for Android, whose first public value is for a group that few gateways have.
pub(crate) fn android_app() -> Request {
    let ciphers = [encr(12, 128), encr(12, 192), encr(12, 256), encr(3, 0)];
    let macs = [12, 13, 14, 2, 5].map(integ);
    let all = ciphers.into_iter().chain(macs).chain([5, 6, 7, 4, 2].map(prf));
    let proposal = all.chain([19, 20, 21, 31, 15, 16, 18, 14, 24].map(group)).collect();
    let redirect = Raw::notify(NotifyType::REDIRECT_SUPPORTED, &[]);
    let frag = Raw::notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
    let hashes = Raw::notify(NotifyType::SIGNATURE_HASH_ALGORITHMS, &[0, 2, 0, 3, 0, 4, 0, 5]);
    let rest = nat().into_iter().chain([frag, hashes, redirect]).collect();
    Request { proposals: vec![proposal], kex: (24, vec![0x5a; 256]), rest }
}

fn apple_rest() -> Vec<Raw> {
    let redirect = Raw::notify(NotifyType::REDIRECT_SUPPORTED, &[]);
    let frag = Raw::notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
    [redirect].into_iter().chain(nat()).chain([frag]).collect()
}

/// iOS with a profile made in its settings.
pub(crate) fn ios() -> Request {
    let proposal = vec![encr(12, 256), integ(12), prf(5), group(14)];
    Request::new(vec![proposal], KexMethod::Modp2048, apple_rest())
}

/// macOS of 2025.
pub(crate) fn macos() -> Request {
    let combined = |id| vec![encr(20, 256), prf(5), group(id)];
    let separate = |id| vec![encr(12, 256), integ(12), prf(5), group(id)];
    let proposals = vec![combined(19), combined(14), separate(19), separate(14)];
    Request::new(proposals, KexMethod::EcpP256, apple_rest())
}

/// The body of a Configuration payload that asks for these attributes, each empty.
pub(crate) fn asks_for(attributes: &[u16]) -> Vec<u8> {
    let empty = |kind: &u16| [&kind.to_be_bytes()[..], &[0, 0]].concat();
    [vec![1, 0, 0, 0], attributes.iter().flat_map(empty).collect()].concat()
}

/// Traffic selectors for all addresses of both families.
pub(crate) fn everything() -> Vec<u8> {
    let v4 = [&[7, 0, 0, 16, 0, 0, 255, 255][..], &[0; 4], &[255; 4]].concat();
    let v6 = [&[8, 0, 0, 40, 0, 0, 255, 255][..], &[0; 16], &[255; 16]].concat();
    [&[2, 0, 0, 0][..], &v4, &v6].concat()
}
