//! NAT detection (RFC 7296 section 2.23), and traffic selectors of transport mode through a NAT (section
//! 2.23.1).
//!
//! In transport mode the selectors are the addresses of the two hosts, and each host names the addresses that
//! it sees. The receiver replaces them with the addresses that it sees itself, those of the IKE message, and
//! keeps the originals: the checksums of TCP and UDP were computed with them (RFC 3948 section 3.1.2).

use crate::transport::Content;
use crate::{IkeSpis, Path, StateFault, TrafficSelector};
use alloc::vec::Vec;
use casemate_crypto::{HashAlg, Providers};
use casemate_sa::{AddrPair, AddrRange};
use casemate_wire::ike::{Notify, NotifyType, Vendor, WriteError, Writer};
use core::net::{IpAddr, SocketAddr};

/// Which side is behind a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NatStatus {
    /// This host is behind a NAT, or its configuration demands encapsulation as if it were.
    pub local: bool,
    /// The peer is behind a NAT.
    pub remote: bool,
    /// `local` is only demanded by the configuration: detection has found no NAT at this host.
    pub forced: bool,
}

impl NatStatus {
    /// Makes this host act as if it were behind a NAT.
    pub(crate) const fn force_local(&mut self) {
        self.forced = !self.local;
        self.local = true;
    }

    /// Whether one of the hosts is behind a NAT.
    pub const fn any(self) -> bool {
        self.local || self.remote
    }
}

/// SHA-1 hash of SPIs, address and port.
fn hash(spis: IkeSpis, end: SocketAddr, providers: &Providers<'_>) -> Result<Vec<u8>, StateFault> {
    let (i, r) = (spis.initiator.0.to_be_bytes(), spis.responder.0.to_be_bytes());
    let port = end.port().to_be_bytes();
    let digest = match end.ip() {
        IpAddr::V4(ip) => providers.hash(HashAlg::Sha1, &[&i, &r, &ip.octets(), &port]),
        IpAddr::V6(ip) => providers.hash(HashAlg::Sha1, &[&i, &r, &ip.octets(), &port]),
    };
    digest.map(|digest| digest.as_slice().into()).ok_or(StateFault::Provider)
}

/// Vendor ID with which an initiator says that it prefers ESP in UDP
/// ([`Encapsulation::Auto`](crate::config::Encapsulation)). A responder that prefers it, too, answers as if
/// it were behind a NAT.
pub(crate) const PREFERS_UDP: Vendor<'static> = Vendor(b"Casemate: ESP in UDP preferred");

/// Data of both NAT detection notifications, as the sender at `path.local` computes them.
pub(crate) struct NatDetection {
    source: Vec<u8>,
    destination: Vec<u8>,
}

impl NatDetection {
    /// With `force_encap`, the source hash matches no address, so that the peer detects a NAT and
    /// encapsulates.
    pub(crate) fn new(
        spis: IkeSpis,
        path: Path,
        force_encap: bool,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        // Port 0 is never used, so no real source has this hash.
        let unused = SocketAddr::new(path.local.ip(), 0);
        let source = if force_encap { unused } else { path.local };
        Ok(Self { source: hash(spis, source, providers)?, destination: hash(spis, path.remote, providers)? })
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.notify(&Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, &self.source))?;
        out.notify(&Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, &self.destination))
    }
}

/// Evaluates the notifications of a message that arrived on `path`; `None` if there are none.
pub(crate) fn detect(
    content: &Content<'_>,
    spis: IkeSpis,
    path: Path,
    providers: &Providers<'_>,
) -> Result<Option<NatStatus>, StateFault> {
    let of = |kind| content.notifies.iter().filter(move |notify| notify.kind == kind);
    let mut sources = of(NotifyType::NAT_DETECTION_SOURCE_IP).peekable();
    let mut destinations = of(NotifyType::NAT_DETECTION_DESTINATION_IP).peekable();
    if sources.peek().is_none() || destinations.peek().is_none() {
        return Ok(None);
    }
    let (theirs, ours) = (hash(spis, path.remote, providers)?, hash(spis, path.local, providers)?);
    // A sender with several addresses may send several hashes. One match is enough.
    Ok(Some(NatStatus {
        remote: !sources.any(|notify| notify.data == theirs),
        local: !destinations.any(|notify| notify.data == ours),
        forced: false,
    }))
}

/// Addresses that replace those behind a NAT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Substitution {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
}

/// Selectors with the addresses that this host sees.
pub(super) struct Substituted {
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    /// Addresses of the peer's packets, as the peer sees them; `None` if this host sees the same.
    pub(super) original: Option<AddrPair>,
}

impl Substitution {
    /// Substitution for messages on `path`; `None` without a NAT.
    pub(crate) fn new(nat: NatStatus, path: Path) -> Option<Self> {
        let of = |translated: bool, addr| Some(addr).filter(|_| translated);
        let (local, remote) = (of(nat.local, path.local.ip()), of(nat.remote, path.remote.ip()));
        nat.any().then_some(Self { local, remote })
    }

    /// Replaces the addresses of a peer's selectors for transport mode; `None` if a side is not exactly one
    /// address of the IP version of the IKE SA.
    pub(super) fn apply(&self, local: &[TrafficSelector], remote: &[TrafficSelector]) -> Option<Substituted> {
        let original = AddrPair { src: single(remote)?, dst: single(local)? };
        let seen =
            AddrPair { src: self.remote.unwrap_or(original.src), dst: self.local.unwrap_or(original.dst) };
        if original.src.is_ipv4() != seen.src.is_ipv4() || original.dst.is_ipv4() != seen.dst.is_ipv4() {
            return None;
        }
        let with = |traffic: &[TrafficSelector], addr| {
            traffic.iter().map(|part| TrafficSelector { addrs: AddrRange::single(addr), ..*part }).collect()
        };
        Some(Substituted {
            local: with(local, seen.dst),
            remote: with(remote, seen.src),
            original: Some(original).filter(|original| *original != seen),
        })
    }
}

/// The only address of all these selectors.
fn single(traffic: &[TrafficSelector]) -> Option<IpAddr> {
    let addr = traffic.first()?.addrs.first();
    traffic.iter().all(|part| part.addrs == AddrRange::single(addr)).then_some(addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use casemate_crypto::Provider;
    use casemate_wire::ike::IkeSpi;

    const SPIS: IkeSpis = IkeSpis { initiator: IkeSpi(0x0102_0304_0506_0708), responder: IkeSpi::NONE };

    fn with_providers<T>(act: impl FnOnce(&Providers<'_>) -> T) -> T {
        let provider: &dyn Provider = &casemate_rustcrypto::RustCrypto;
        act(&Providers(&[provider]))
    }

    /// Expected values computed with Python's hashlib.
    #[test]
    fn hashes_of_spis_address_and_port() {
        for (end, expected) in [
            ("192.0.2.1:500", "644b4575455bd6fcc1efe2be8162a9218e448e5f"),
            ("[2001:db8::1]:4500", "98c75483db80168697635aa7844504963e87de33"),
        ] {
            let hash = with_providers(|providers| hash(SPIS, end.parse().unwrap(), providers)).unwrap();
            assert_eq!(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        }
    }

    #[test]
    fn one_matching_nat_detection_hash_is_enough() {
        let path = Path { local: "192.0.2.2:500".parse().unwrap(), remote: "192.0.2.1:500".parse().unwrap() };
        let (theirs, ours) = with_providers(|providers| {
            (hash(SPIS, path.remote, providers).unwrap(), hash(SPIS, path.local, providers).unwrap())
        });
        let wrong = [0; 20];
        let judge = |sources: &[&[u8]], destinations: &[&[u8]]| {
            let mut content = Content::default();
            let source = |data| Notify::new(NotifyType::NAT_DETECTION_SOURCE_IP, data);
            let destination = |data| Notify::new(NotifyType::NAT_DETECTION_DESTINATION_IP, data);
            content.notifies.extend(sources.iter().copied().map(source));
            content.notifies.extend(destinations.iter().copied().map(destination));
            with_providers(|providers| detect(&content, SPIS, path, providers)).unwrap()
        };
        let nat = |local, remote| Some(NatStatus { local, remote, forced: false });
        assert_eq!(judge(&[&theirs], &[&ours]), nat(false, false));
        assert_eq!(judge(&[&wrong, &theirs], &[&wrong, &ours]), nat(false, false));
        assert_eq!(judge(&[&wrong], &[&ours]), nat(false, true));
        assert_eq!(judge(&[&theirs], &[&wrong]), nat(true, false));
        assert_eq!(judge(&[&theirs[..19]], &[&[]]), nat(true, true));
        // A message with only one of the two notifications gives no result.
        assert_eq!((judge(&[], &[&ours]), judge(&[&theirs], &[])), (None, None));
    }
}
