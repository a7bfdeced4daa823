//! Negotiation of header compression (RFC 5857).
//!
//! Each side announces what its decompressor can do. The initiator offers integrity algorithms, of which the
//! responder chooses one; everything else holds for one direction.

use crate::StateFault;
use crate::config::RohcConfig;
use crate::negotiate::{mac_id, mac_with_id};
use alloc::vec::Vec;
use casemate_crypto::{MacAlg, SecretBytes};
use casemate_rohc::{ChannelParams, Profile};
use casemate_sa::{RohcIntegrity, RohcParams};
use casemate_wire::ike::{RohcAttribute, RohcAttributeType, RohcSupported};

/// Agreed header compression of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgreedRohc {
    /// Channel of the inbound SA: contexts and profiles of this host.
    pub inbound: ChannelParams,
    /// Channel of the outbound SA: contexts of the peer, of which this host uses as many as it has itself,
    /// and the profiles that both have.
    pub outbound: ChannelParams,
    /// Algorithm of the ROHC ICV; `None`: restored packets have none.
    pub integrity: Option<MacAlg>,
    /// Length in bytes of the ROHC ICV of received packets, if there is one; may be 0.
    pub icv_in: u8,
    /// Length in bytes of the ROHC ICV of sent packets, if there is one; may be 0.
    pub icv_out: u8,
}

/// Transform ID for no integrity algorithm.
const NONE: u16 = 0;

/// Transform ID of an integrity algorithm.
fn id(integrity: Option<MacAlg>) -> Option<u16> {
    integrity.map_or(Some(NONE), mac_id)
}

/// Notification data with the parameters of this host and these integrity algorithms.
fn write(config: &RohcConfig, integrity: &[Option<MacAlg>]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut put = |kind, value| data.extend_from_slice(&RohcAttribute { kind, value }.to_bytes());
    put(RohcAttributeType::MAX_CID, config.max_cid);
    for profile in config.profiles.iter().filter(|profile| *profile != Profile::Uncompressed) {
        put(RohcAttributeType::ROHC_PROFILE, profile.number());
    }
    for id in integrity.iter().filter_map(|alg| id(*alg)) {
        put(RohcAttributeType::ROHC_INTEG, id);
    }
    if let Some(len) = config.icv_len {
        put(RohcAttributeType::ROHC_ICV_LEN, len.into());
    }
    data
}

/// Notification data of a request.
pub(super) fn offer(config: &RohcConfig) -> Vec<u8> {
    write(config, &config.integrity)
}

/// Notification data of a response.
pub(super) fn answer(config: &RohcConfig, agreed: &AgreedRohc) -> Vec<u8> {
    write(config, &[agreed.integrity])
}

/// Chooses for the request of a peer. `None`: the request is not valid, or there is no common algorithm.
pub(super) fn choose(config: &RohcConfig, request: &[u8]) -> Option<AgreedRohc> {
    let theirs = RohcSupported::parse(request)?;
    let is_offered = |alg: &&Option<MacAlg>| theirs.integrity().any(|offered| Some(offered) == id(**alg));
    let integrity = *config.integrity.iter().find(is_offered)?;
    Some(agree(config, &theirs, integrity))
}

/// Evaluates the response of a peer. It must choose one of the integrity algorithms that were offered.
pub(super) fn accept(config: &RohcConfig, response: &[u8]) -> Result<AgreedRohc, StateFault> {
    let theirs = RohcSupported::parse(response).ok_or(StateFault::NotOffered)?;
    let mut chosen = theirs.integrity();
    let (Some(first), None) = (chosen.next(), chosen.next()) else { return Err(StateFault::NotOffered) };
    let integrity = match first {
        NONE => None,
        id => Some(mac_with_id(id).ok_or(StateFault::NotOffered)?),
    };
    if !config.integrity.contains(&integrity) {
        return Err(StateFault::NotOffered);
    }
    Ok(agree(config, &theirs, integrity))
}

fn agree(config: &RohcConfig, theirs: &RohcSupported<'_>, integrity: Option<MacAlg>) -> AgreedRohc {
    let full = integrity.map_or(0, MacAlg::tag_len);
    let icv = |len: Option<u16>| {
        let len = len.map_or(full, |len| full.min(len.into()));
        u8::try_from(len).unwrap_or(u8::MAX)
    };
    let common = theirs.profiles().filter_map(Profile::from_number);
    let common = common.filter(|profile| config.profiles.contains(*profile));
    AgreedRohc {
        inbound: ChannelParams { max_cid: config.max_cid, profiles: config.profiles },
        outbound: ChannelParams { max_cid: theirs.max_cid, profiles: common.collect() },
        integrity,
        icv_in: icv(config.icv_len.map(u16::from)),
        icv_out: icv(theirs.icv_len),
    }
}

impl AgreedRohc {
    /// Length in bytes of the key of the ROHC ICV of one direction.
    pub(super) fn key_len(&self) -> usize {
        self.integrity.map_or(0, MacAlg::key_len)
    }

    /// Parameters of the inbound SA.
    pub(super) fn inbound(&self, key: &[u8]) -> RohcParams {
        self.params(self.inbound, key, self.icv_in)
    }

    /// Parameters of the outbound SA.
    pub(super) fn outbound(&self, key: &[u8]) -> RohcParams {
        self.params(self.outbound, key, self.icv_out)
    }

    fn params(&self, channel: ChannelParams, key: &[u8], icv_len: u8) -> RohcParams {
        // RFC 5857 section 3.1.2: with a length of 0, no ICV is sent.
        let integrity = self.integrity.filter(|_| icv_len > 0);
        let key = || SecretBytes::new(key);
        let integrity = integrity.map(|algorithm| RohcIntegrity { algorithm, key: key(), icv_len });
        RohcParams { channel, max_cid: self.inbound.max_cid, integrity }
    }
}
