//! Fields of records that consist of several values: secrets, times, paths, algorithms, messages.

use crate::child_sa::ChildSpi;
use crate::config::DomainName;
use crate::negotiate::{Algorithm, ChildSuite, IkeSuite};
use crate::{AssignedConfig, Path, TrafficSelector};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_sa::{AddrRange, Instant, PortRange, Protocol};
use casemate_wire::ike::{ProtocolId, TransformType};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use minicbor::bytes::ByteVec;
use minicbor::decode::{Decoder, Error as DecodeError};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use minicbor::{Decode, Encode};

/// A key or token, as a byte string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) SecretBytes);

impl<C> Encode<C> for Secret {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.bytes(self.0.expose())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Secret {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, DecodeError> {
        Ok(Self(SecretBytes::new(d.bytes()?)))
    }
}

/// A duration in microseconds: an age, or the time left until a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub(crate) struct Span(#[n(0)] u64);

impl Span {
    /// No time.
    pub(crate) const ZERO: Self = Self(0);

    /// Time that has passed since `at`.
    pub(crate) fn since(at: Instant, now: Instant) -> Self {
        Self(now.as_micros().saturating_sub(at.as_micros()))
    }

    /// Time from `now` until `at`.
    pub(crate) fn until(at: Instant, now: Instant) -> Self {
        Self::since(now, at)
    }

    /// The moment this long before `now`; the origin of the clock if it was earlier.
    pub(crate) const fn before(self, now: Instant) -> Instant {
        Instant::from_micros(now.as_micros().saturating_sub(self.0))
    }

    /// The moment this long after `now`.
    pub(crate) const fn after(self, now: Instant) -> Instant {
        Instant::from_micros(now.as_micros().saturating_add(self.0))
    }

    pub(super) const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    pub(super) fn add(&mut self, elapsed: Duration) {
        self.0 = self.0.saturating_add(micros(elapsed));
    }

    /// Subtracts a time. What is left is `least`, or less if it was less before.
    pub(super) fn subtract(&mut self, elapsed: Duration, least: Duration) {
        self.0 = self.0.saturating_sub(micros(elapsed)).max(micros(least).min(self.0));
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Addresses and ports of both hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct PathFields {
    #[n(0)]
    local: SocketAddr,
    #[n(1)]
    remote: SocketAddr,
}

impl From<Path> for PathFields {
    fn from(Path { local, remote }: Path) -> Self {
        Self { local, remote }
    }
}

impl From<PathFields> for Path {
    fn from(PathFields { local, remote }: PathFields) -> Self {
        Self { local, remote }
    }
}

/// Datagrams of a message that may be sent again, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct MessageFields {
    #[n(0)]
    pub(crate) datagrams: Vec<ByteVec>,
    /// Time for which a response is kept; not used for requests.
    #[n(1)]
    pub(crate) left: Span,
    /// Why a request is outstanding.
    #[n(2)]
    pub(crate) purpose: Option<PurposeFields>,
}

impl MessageFields {
    pub(crate) fn new(datagrams: &[Vec<u8>], left: Span) -> Self {
        let datagrams = datagrams.iter().map(|datagram| ByteVec::from(datagram.clone())).collect();
        Self { datagrams, left, purpose: None }
    }

    pub(crate) fn into_datagrams(self) -> Vec<Vec<u8>> {
        self.datagrams.into_iter().map(Into::into).collect()
    }
}

/// Agreed algorithms, as transforms name them.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct SuiteFields {
    #[n(0)]
    is_ah: bool,
    /// Type, ID and key length of each transform.
    #[n(1)]
    transforms: Vec<(u8, u16, Option<u16>)>,
}

impl SuiteFields {
    /// `None` for algorithms that no transform names.
    pub(crate) fn of_ike(suite: IkeSuite) -> Option<Self> {
        Some(Self::new(false, suite.algorithms()?))
    }

    /// `None` for algorithms that no transform names.
    pub(crate) fn of_child(suite: ChildSuite) -> Option<Self> {
        Some(Self::new(suite.protocol() == Protocol::Ah, suite.algorithms()?))
    }

    fn new(is_ah: bool, algorithms: Vec<Algorithm>) -> Self {
        let of = |Algorithm { kind, id, key_bits }: Algorithm| (kind.0, id, key_bits);
        Self { is_ah, transforms: algorithms.into_iter().map(of).collect() }
    }

    fn algorithms(&self) -> Vec<Algorithm> {
        let of = |(kind, id, key_bits): &(u8, u16, _)| Algorithm {
            kind: TransformType(*kind),
            id: *id,
            key_bits: *key_bits,
        };
        self.transforms.iter().map(of).collect()
    }

    /// The algorithms of an IKE SA; `None` if one is unknown.
    pub(crate) fn to_ike(&self) -> Option<IkeSuite> {
        IkeSuite::from_algorithms(self.algorithms())
    }

    /// The algorithms of a Child SA; `None` if one is unknown.
    pub(crate) fn to_child(&self) -> Option<ChildSuite> {
        let protocol = if self.is_ah { Protocol::Ah } else { Protocol::Esp };
        ChildSuite::from_algorithms(protocol, self.algorithms())
    }
}

/// A traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct SelectorFields {
    #[n(0)]
    first: IpAddr,
    #[n(1)]
    last: IpAddr,
    #[n(2)]
    proto: Option<u8>,
    #[n(3)]
    ports: (u16, u16),
}

impl From<&TrafficSelector> for SelectorFields {
    fn from(TrafficSelector { addrs, proto, ports }: &TrafficSelector) -> Self {
        let ports = (ports.first(), ports.last());
        Self { first: addrs.first(), last: addrs.last(), proto: *proto, ports }
    }
}

impl SelectorFields {
    /// `None` if the ranges are not in order.
    pub(crate) fn to_selector(self) -> Option<TrafficSelector> {
        let Self { first, last, proto, ports: (from, to) } = self;
        Some(TrafficSelector {
            addrs: AddrRange::new(first, last).ok()?,
            proto,
            ports: PortRange::new(from, to)?,
        })
    }
}

/// Configuration that the peer assigned to the host.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct AssignedFields {
    #[n(0)]
    addrs: Vec<IpAddr>,
    #[n(1)]
    dns: Vec<IpAddr>,
    #[n(2)]
    domains: Vec<String>,
    #[n(3)]
    refused_addrs: Vec<IpAddr>,
    #[n(4)]
    refused: u32,
    /// First and last address of each.
    #[n(5)]
    subnets: Vec<(IpAddr, IpAddr)>,
}

impl From<&AssignedConfig> for AssignedFields {
    fn from(config: &AssignedConfig) -> Self {
        let AssignedConfig { addrs, dns, domains, refused_addrs, refused, subnets } = config;
        Self {
            addrs: addrs.clone(),
            dns: dns.clone(),
            domains: domains.iter().map(|name| name.as_str().to_string()).collect(),
            refused_addrs: refused_addrs.clone(),
            refused: u32::try_from(*refused).unwrap_or(u32::MAX),
            subnets: subnets.iter().map(|range| (range.first(), range.last())).collect(),
        }
    }
}

impl AssignedFields {
    /// `None` if a subnet or a name is malformed.
    pub(crate) fn to_config(&self) -> Option<AssignedConfig> {
        let Self { addrs, dns, domains, refused_addrs, refused, subnets } = self;
        let domains = domains.iter().map(|name| DomainName::parse(name.as_bytes()));
        let subnets = subnets.iter().map(|(first, last)| AddrRange::new(*first, *last).ok());
        Some(AssignedConfig {
            addrs: addrs.clone(),
            dns: dns.clone(),
            domains: domains.collect::<Option<_>>()?,
            refused_addrs: refused_addrs.clone(),
            refused: usize::try_from(*refused).unwrap_or(usize::MAX),
            subnets: subnets.collect::<Option<_>>()?,
        })
    }
}

/// A Child SA of which only our SPI is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ClosedChild {
    #[n(0)]
    pub(crate) spi: u32,
    #[n(1)]
    pub(crate) is_ah: bool,
}

impl From<ChildSpi> for ClosedChild {
    fn from(ChildSpi { protocol, spi }: ChildSpi) -> Self {
        Self { spi: u32::from_be_bytes(spi), is_ah: protocol == ProtocolId::AH }
    }
}

impl From<ClosedChild> for ChildSpi {
    fn from(ClosedChild { spi, is_ah }: ClosedChild) -> Self {
        let protocol = if is_ah { ProtocolId::AH } else { ProtocolId::ESP };
        Self { protocol, spi: spi.to_be_bytes() }
    }
}

/// What an outstanding request asked for. Its nonces and private values are lost with its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) enum PurposeFields {
    /// To create or rekey a Child SA, with this SPI of ours.
    #[n(0)]
    Child {
        #[n(0)]
        spi: u32,
        #[n(1)]
        is_ah: bool,
        /// Inbound SPI of the Child SA that it replaces.
        #[n(2)]
        replaces: Option<u32>,
    },
    /// To rekey the IKE SA.
    #[n(1)]
    RekeyIke,
    /// To delete the IKE SA.
    #[n(2)]
    DeleteIke,
    /// To tell the peer that the SAs have moved (RFC 4555).
    #[n(4)]
    UpdateAddresses,
    /// Anything whose response changes nothing, or that is asked again.
    #[n(3)]
    Other,
}
