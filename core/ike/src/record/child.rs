//! The part of a record that describes a Child SA.

use super::ChildSequence;
use super::fields::{Secret, SelectorFields, Span, SuiteFields};
use crate::TrafficSelector;
use crate::child_sa::{AgreedChild, AgreedRohc};
use crate::negotiate::{mac_id, mac_with_id};
use alloc::string::String;
use alloc::vec::Vec;
use casemate_rohc::{ChannelParams, Profile};
use casemate_sa::{AddrPair, Mode, Spi};
use core::net::IpAddr;
use minicbor::{Decode, Encode};

/// A Child SA.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct ChildFields {
    /// Name of its configuration.
    #[n(0)]
    pub(crate) name: String,
    #[n(1)]
    pub(crate) suite: SuiteFields,
    #[n(2)]
    pub(crate) is_transport: bool,
    #[n(3)]
    pub(crate) spi_in: u32,
    #[n(4)]
    pub(crate) spi_out: u32,
    #[n(5)]
    pub(crate) local: Vec<SelectorFields>,
    #[n(6)]
    pub(crate) remote: Vec<SelectorFields>,
    /// Source and destination of inbound packets as the peer sees them, if there is a NAT.
    #[n(7)]
    pub(crate) original: Option<(IpAddr, IpAddr)>,
    #[n(8)]
    pub(crate) rohc: Option<RohcFields>,
    #[n(9)]
    pub(crate) takes_tfc_padding: bool,
    #[n(10)]
    pub(crate) keys: ChildKeys,
    /// Whether another Child SA has replaced it, and the peer is to close it.
    #[n(11)]
    pub(crate) is_replaced: bool,
    /// Whether the host is to close it.
    #[n(12)]
    pub(crate) is_closing: bool,
    /// Whether the outbound SA is in use.
    #[n(13)]
    pub(crate) is_active: bool,
    /// SPI of the inbound SA of the Child SA that it replaces.
    #[n(14)]
    pub(crate) replaces: Option<u32>,
    #[n(15)]
    pub(crate) times: ChildTimes,
    /// The last sequence number that may have been sent.
    #[n(16)]
    pub(crate) sent: u64,
    /// The highest sequence number that may have been received.
    #[n(17)]
    pub(crate) received: u64,
    /// A number that the peer has used or skipped; absent in records of earlier versions.
    #[n(18)]
    pub(crate) reached: Option<u64>,
}

/// Key material of both SAs, in the order of the derivation (RFC 7296 section 2.17): encryption, integrity,
/// header compression.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct ChildKeys {
    #[n(0)]
    pub(crate) outbound: Secret,
    #[n(1)]
    pub(crate) inbound: Secret,
}

/// Age of a Child SA, and times until its deadlines; `None` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct ChildTimes {
    #[n(0)]
    pub(crate) installed: Span,
    #[n(1)]
    pub(crate) rekey: Option<Span>,
    #[n(2)]
    pub(crate) expire: Option<Span>,
}

/// Agreed header compression.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct RohcFields {
    #[n(0)]
    inbound: ChannelFields,
    #[n(1)]
    outbound: ChannelFields,
    /// Transform ID.
    #[n(2)]
    integrity: Option<u16>,
    #[n(3)]
    icv_in: u8,
    #[n(4)]
    icv_out: u8,
}

/// A channel of header compression.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct ChannelFields {
    #[n(0)]
    max_cid: u16,
    /// Numbers of the profiles.
    #[n(1)]
    profiles: Vec<u16>,
}

impl From<ChannelParams> for ChannelFields {
    fn from(ChannelParams { max_cid, profiles }: ChannelParams) -> Self {
        Self { max_cid, profiles: profiles.iter().map(Profile::number).collect() }
    }
}

impl From<&ChannelFields> for ChannelParams {
    fn from(ChannelFields { max_cid, profiles }: &ChannelFields) -> Self {
        let is_known = |profile: &Profile| profiles.contains(&profile.number());
        Self { max_cid: *max_cid, profiles: Profile::ALL.into_iter().filter(is_known).collect() }
    }
}

impl RohcFields {
    /// `None` for an integrity algorithm without a transform ID.
    fn new(agreed: &AgreedRohc) -> Option<Self> {
        let AgreedRohc { inbound, outbound, integrity, icv_in, icv_out } = *agreed;
        let integrity = match integrity {
            Some(mac) => Some(mac_id(mac)?),
            None => None,
        };
        Some(Self { inbound: inbound.into(), outbound: outbound.into(), integrity, icv_in, icv_out })
    }

    fn to_agreed(&self) -> Option<AgreedRohc> {
        let integrity = match self.integrity {
            Some(id) => Some(mac_with_id(id)?),
            None => None,
        };
        let (icv_in, icv_out) = (self.icv_in, self.icv_out);
        Some(AgreedRohc {
            inbound: (&self.inbound).into(),
            outbound: (&self.outbound).into(),
            integrity,
            icv_in,
            icv_out,
        })
    }
}

impl ChildFields {
    pub(crate) fn sequence(&self) -> ChildSequence {
        ChildSequence {
            spi: self.spi_in,
            esn: self.suite.to_child().is_some_and(|suite| suite.esn),
            sent: self.sent,
            received: self.received,
            reached: self.reached,
        }
    }

    /// The agreement; `None` if it is malformed or has unknown algorithms.
    pub(crate) fn to_agreed(&self) -> Option<AgreedChild> {
        let selectors = |fields: &[SelectorFields]| {
            fields.iter().map(|selector| selector.to_selector()).collect::<Option<Vec<TrafficSelector>>>()
        };
        let rohc = match &self.rohc {
            Some(fields) => Some(fields.to_agreed()?),
            None => None,
        };
        Some(AgreedChild {
            suite: self.suite.to_child()?,
            mode: if self.is_transport { Mode::Transport } else { Mode::Tunnel },
            spi_in: Spi::new(self.spi_in)?,
            spi_out: Spi::new(self.spi_out)?,
            local: selectors(&self.local)?,
            remote: selectors(&self.remote)?,
            original: self.original.map(|(src, dst)| AddrPair { src, dst }),
            rohc,
            takes_tfc_padding: self.takes_tfc_padding,
        })
    }

    /// Fields of an agreement without the rest of its Child SA; `None` for algorithms that no transform
    /// names.
    pub(crate) fn of(agreed: &AgreedChild, name: &str, keys: ChildKeys, times: ChildTimes) -> Option<Self> {
        let rohc = match &agreed.rohc {
            Some(agreed) => Some(RohcFields::new(agreed)?),
            None => None,
        };
        Some(Self {
            name: name.into(),
            suite: SuiteFields::of_child(agreed.suite)?,
            is_transport: agreed.mode == Mode::Transport,
            spi_in: agreed.spi_in.get(),
            spi_out: agreed.spi_out.get(),
            local: agreed.local.iter().map(Into::into).collect(),
            remote: agreed.remote.iter().map(Into::into).collect(),
            original: agreed.original.map(|pair| (pair.src, pair.dst)),
            rohc,
            takes_tfc_padding: agreed.takes_tfc_padding,
            keys,
            is_replaced: false,
            is_closing: false,
            is_active: true,
            replaces: None,
            times,
            sent: 0,
            received: 0,
            reached: None,
        })
    }
}
