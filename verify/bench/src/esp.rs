//! ESP compared with the bare cipher: sealing and opening, for each provider, suite and size. The bare cipher
//! processes the bytes of ESP packets, in buffers with the layout of packet buffers.

use crate::report::{Entry, Report};
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, EspSuite, EtmJob, EtmKey, JobStatus, MacAlg, MacKind,
    Provider, Providers, Tag,
};
use casemate_datapath::HEAD_ROOM;
use casemate_measure::harness::{Workload, time};
use casemate_measure::tunnel::{self, HOSTS, Tunnel, TunnelSpec, buffer_stride};
use casemate_sa::Limits;
use casemate_test_support::TestRng;
use std::time::Duration;

/// Parameters of a row.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) provider: &'static dyn Provider,
    pub(crate) suite: EspSuite,
    pub(crate) operation: Operation,
    pub(crate) size: usize,
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    providers().into_iter().flat_map(|provider| {
        suites().into_iter().flat_map(move |suite| {
            let operations = Operation::BOTH.into_iter();
            operations.flat_map(move |operation| SIZES.map(|size| Row { provider, suite, operation, size }))
        })
    })
}

/// Measures all selected rows.
pub(crate) fn run(report: &mut Report<'_>) {
    for row in rows() {
        let name = format!("esp/{}", row.name());
        if report.wants(&name)
            && let Some(entries) = row.entries()
        {
            report.measure(&name, entries);
        }
    }
}

impl Row {
    /// Provider, suite, operation and size.
    pub(crate) fn name(&self) -> String {
        let Self { provider, suite, operation, size } = self;
        format!("{}/{suite}/{}/{size}", provider.name(), operation.name())
    }

    /// Loads of the row. `None` if the provider does not support the suite.
    pub(crate) fn entries(&self) -> Option<Vec<Entry<'static>>> {
        let Self { provider, suite, operation, size } = *self;
        Some(vec![
            Entry { label: "bare", base: None, load: load(provider, suite, operation, size, 1)? },
            Entry { label: "esp", base: Some(0), load: tunnel_load(provider, suite, operation, size, 1)? },
            Entry { label: "bare-batch", base: None, load: load(provider, suite, operation, size, BATCH)? },
            Entry {
                label: "esp-batch",
                base: Some(2),
                load: tunnel_load(provider, suite, operation, size, BATCH)?,
            },
        ])
    }
}

/// Load of packets of `len` bytes through a tunnel with `suite`, `batch` packets per call. `None` if the
/// provider does not support the suite.
fn tunnel_load(
    provider: &'static dyn Provider,
    suite: EspSuite,
    operation: Operation,
    len: usize,
    batch: usize,
) -> Option<Box<dyn Workload>> {
    let tunnel = Tunnel::new(&tunnel_spec(suite), &[provider], TestRng::new(1), udp_packet(len), POOL)?;
    Some(Box::new(Packets { tunnel, operation, batch }))
}

struct Packets {
    tunnel: Tunnel<TestRng>,
    operation: Operation,
    batch: usize,
}

impl Workload for Packets {
    fn run(&mut self) -> (Duration, u32) {
        let Self { tunnel, operation, batch } = self;
        let mut round = tunnel.fill();
        let (elapsed, passed) = match operation {
            Operation::Seal => (time(|| round.seal(*batch)), round.sealed()),
            Operation::Open => {
                round.seal(*batch);
                (time(|| round.open(*batch)), round.opened())
            }
        };
        assert_eq!(passed, POOL, "all packets pass");
        (elapsed, POOL as u32)
    }
}

/// Lengths of the protected packets, in bytes.
pub(crate) const SIZES: [usize; 5] = [64, 256, 576, 1024, 1420];

/// Packets of one measurement.
pub(crate) const POOL: usize = 64;

/// Packets of a batch.
pub(crate) const BATCH: usize = 32;

/// Providers. Intel's provider supports no suite without its library, and then has no rows.
pub(crate) fn providers() -> [&'static dyn Provider; 4] {
    [
        &casemate_ipsec_mb::IPSEC_MB,
        &casemate_ring::RING,
        &casemate_aws_lc::AWS_LC,
        &casemate_rustcrypto::RUSTCRYPTO,
    ]
}

/// Suites, in the order of their popularity.
pub(crate) fn suites() -> Vec<EspSuite> {
    use AesBits::{B128, B192, B256};
    use CipherAlg::{AesCbc, AesCtr, Null};
    let gcm = |bits| AeadAlg::aes_gcm(bits, 16).unwrap();
    let ccm = |bits| AeadAlg::aes_ccm(bits, 16).unwrap();
    let combined = [gcm(B128), gcm(B192), gcm(B256), AeadAlg::ChaCha20Poly1305, ccm(B128), ccm(B256)];
    let separate = [
        (AesCbc(B128), MacKind::HmacSha1),
        (AesCbc(B128), MacKind::HmacSha256),
        (AesCbc(B256), MacKind::HmacSha256),
        (AesCbc(B128), MacKind::HmacSha384),
        (AesCbc(B128), MacKind::HmacSha512),
        (AesCbc(B128), MacKind::AesXcbc),
        (AesCbc(B128), MacKind::AesCmac),
        (AesCtr(B128), MacKind::HmacSha256),
        (AesCtr(B256), MacKind::HmacSha256),
        (Null, MacKind::HmacSha1),
        (Null, MacKind::HmacSha256),
        (Null, MacKind::AesGmac(B128)),
        (Null, MacKind::AesGmac(B256)),
    ];
    let separate = separate.map(|(cipher, kind)| EspSuite::Separate(cipher, MacAlg::standard(kind)));
    combined.map(EspSuite::Combined).into_iter().chain(separate).collect()
}

/// Tunnel between two gateways with the limits of a server and a replay window of 1,024 packets.
pub(crate) fn tunnel_spec(suite: EspSuite) -> TunnelSpec {
    TunnelSpec::between_networks(suite, Limits { replay_window: 1_024, ..Limits::SERVER })
}

/// UDP packet of `len` bytes from a host of the near network to a host of the far network.
pub(crate) fn udp_packet(len: usize) -> Vec<u8> {
    let mut packet = tunnel::ipv4(17, HOSTS, len).unwrap();
    let udp_len = (len - 20) as u16;
    packet[20..28].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, (udp_len >> 8) as u8, udp_len as u8, 0, 0]);
    packet
}

/// Length of SPI and sequence number.
const HEADER: usize = 8;

/// Operation to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Seal,
    Open,
}

impl Operation {
    pub(crate) const BOTH: [Self; 2] = [Self::Seal, Self::Open];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// Load of the bare cipher of `suite` on packets of `len` bytes, in calls of `batch` packets. `None` if the
/// provider does not support the suite.
pub(crate) fn load(
    provider: &'static dyn Provider,
    suite: EspSuite,
    operation: Operation,
    len: usize,
    batch: usize,
) -> Option<Box<dyn Workload>> {
    let buffers = Buffers::new(len, (len + 2).next_multiple_of(suite.pad_to()));
    match suite {
        EspSuite::Combined(_) | EspSuite::ImplicitIv(_) => {
            let alg = suite.aead()?;
            let key = provider.aead(alg, &vec![0x42; alg.key_len()]).ok()?;
            Some(Box::new(Combined::new(key, alg, operation, batch, buffers)))
        }
        EspSuite::Separate(cipher, mac) => {
            let (cipher_key, mac_key) = (vec![0x42; cipher.key_len()], vec![0x24; mac.key_len()]);
            let key = Providers(&[provider]).etm(cipher, &cipher_key, mac, &mac_key).ok()?;
            Some(Box::new(Separate::new(key, cipher, mac, operation, batch, buffers)))
        }
    }
}

/// Packet buffers of a pool. The text stands at its offset in a packet.
struct Buffers {
    /// Contents before each operation.
    image: Vec<u8>,
    bytes: Vec<u8>,
    stride: usize,
    text_len: usize,
}

impl Buffers {
    fn new(len: usize, text_len: usize) -> Self {
        let image = vec![0x5A; buffer_stride(len) * POOL];
        Self { bytes: image.clone(), image, stride: buffer_stride(len), text_len }
    }

    /// Packets with their original contents, from `front` bytes before the text to `back` bytes after it.
    fn packets(&mut self, front: usize, back: usize) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.copy_from_slice(&self.image);
        let range = HEAD_ROOM - front..HEAD_ROOM + self.text_len + back;
        self.bytes.chunks_exact_mut(self.stride).map(move |buffer| &mut buffer[range.clone()])
    }

    /// Makes the current contents the original contents of the next operation.
    fn keep(&mut self) {
        self.image.clone_from(&self.bytes);
    }
}

struct Combined {
    key: Box<dyn AeadKey>,
    operation: Operation,
    icv: usize,
    batch: usize,
    buffers: Buffers,
}

impl Combined {
    fn new(
        key: Box<dyn AeadKey>,
        alg: AeadAlg,
        operation: Operation,
        batch: usize,
        buffers: Buffers,
    ) -> Self {
        let mut load = Self { key, operation: Operation::Seal, icv: alg.icv_len(), batch, buffers };
        load.run();
        if operation == Operation::Open {
            load.buffers.keep();
        }
        Self { operation, ..load }
    }
}

impl Workload for Combined {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, operation, icv, batch, buffers } = self;
        let text_len = buffers.text_len;
        let mut jobs: Vec<AeadJob<'_>> = Vec::with_capacity(POOL);
        for (n, packet) in buffers.packets(0, *icv).enumerate() {
            let (text, tag) = packet.split_at_mut(text_len);
            let nonce = [n as u8; 12];
            jobs.push(AeadJob { nonce, aad: &[1; HEADER], text, tag, status: JobStatus::Pending });
        }
        let elapsed = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match operation {
                    Operation::Seal => key.seal(jobs),
                    Operation::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        (elapsed, POOL as u32)
    }
}

struct Separate {
    key: Box<dyn EtmKey>,
    operation: Operation,
    batch: usize,
    buffers: Buffers,
    /// Length of header and IV in front of the text.
    front: usize,
    tags: Vec<Tag>,
}

impl Separate {
    fn new(
        key: Box<dyn EtmKey>,
        cipher: CipherAlg,
        mac: MacAlg,
        operation: Operation,
        batch: usize,
        buffers: Buffers,
    ) -> Self {
        let front = HEADER + cipher.iv_len() + mac.iv_len();
        let tags = vec![Tag::zeroed(mac.tag_len()); POOL];
        let mut load = Self { key, operation: Operation::Seal, batch, buffers, front, tags };
        load.run();
        if operation == Operation::Open {
            load.buffers.keep();
        }
        Self { operation, ..load }
    }
}

impl Workload for Separate {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, operation, batch, buffers, front, tags } = self;
        let text = *front..*front + buffers.text_len;
        let mut jobs: Vec<EtmJob<'_>> = Vec::with_capacity(POOL);
        for ((n, data), tag) in buffers.packets(*front, 0).enumerate().zip(&*tags) {
            let (iv, mac_nonce) = ([n as u8; 16], [n as u8; 12]);
            let (text, tag) = (text.clone(), *tag);
            jobs.push(EtmJob { iv, mac_nonce, data, text, tag, status: JobStatus::Pending });
        }
        let elapsed = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match operation {
                    Operation::Seal => key.seal(jobs),
                    Operation::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        *tags = jobs.iter().map(|job| job.tag).collect();
        (elapsed, POOL as u32)
    }
}
