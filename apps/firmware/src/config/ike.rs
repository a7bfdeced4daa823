//! Words of an IKEv2 connection.

use super::{ConfigError, Words, wrong};
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_ike::config::{ChildProposal, Identity, IkeProposal, child_proposals, ike_proposals};
use casemate_sa::Mode;
use casemate_strongswan::{self as strongswan, proposal, value};
use core::net::IpAddr;

/// Maximum length of a PPK_ID in bytes.
const MAX_PPK_ID: usize = 64;

/// An IKEv2 connection with a pre-shared key.
#[derive(Debug, PartialEq, Eq)]
pub struct IkeKeys {
    /// Address of the peer.
    pub peer: IpAddr,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Local identity.
    pub id: Identity,
    /// Identity of the peer.
    pub peer_id: Identity,
    /// The pre-shared key.
    pub secret: SecretBytes,
    /// Whether this machine initiates the connection.
    pub initiates: bool,
    /// Proposals for the IKE SA, preferred ones first.
    pub ike: Vec<IkeProposal>,
    /// ESP proposals for the Child SAs, preferred ones first.
    pub esp: Vec<ChildProposal>,
    /// Post-quantum pre-shared key, if there is one.
    pub ppk: Option<Ppk>,
    /// Whether to negotiate header compression (RFC 5857); tunnel mode only.
    pub rohc: bool,
}

/// A post-quantum pre-shared key (RFC 8784).
#[derive(Debug, PartialEq, Eq)]
pub struct Ppk {
    /// PPK_ID of the type PPK_ID_FIXED, without the octet of the type (section 5.1).
    pub id: Vec<u8>,
    /// The key.
    pub key: SecretBytes,
    /// Whether an IKE SA without it is refused.
    pub required: bool,
}

const IKE_SUITES: &str = "proposals in strongSwan's format were expected, such as aes128-sha256-x25519";
const ESP_SUITES: &str =
    "proposals in strongSwan's format were expected, such as aes128gcm16,chacha20poly1305";

/// Parses a non-empty list of proposals, separated by commas.
fn proposals<T: Clone>(one: fn(&str) -> strongswan::Parsed<Vec<T>>) -> impl Fn(&str) -> Option<Vec<T>> {
    move |text| {
        let all: strongswan::Parsed<Vec<Vec<T>>> = value::list_items(text).map(one).collect();
        all.ok().map(|all| all.concat()).filter(|all| !all.is_empty())
    }
}

impl Words<'_> {
    pub(super) fn ike(&mut self, own: IpAddr) -> Result<IkeKeys, ConfigError> {
        let name = |text: &str| (!text.is_empty()).then(|| Identity::Fqdn(text.into()));
        let role = |text: &str| match text {
            "initiate" => Some(true),
            "respond" => Some(false),
            _ => None,
        };
        let secret = |text: &str| (!text.is_empty()).then(|| SecretBytes::new(text.as_bytes()));
        let mode = self.mode()?;
        Ok(IkeKeys {
            peer: self.peer(own)?,
            mode,
            id: self.needed("id", name, "a name was expected")?,
            peer_id: self.needed("peer-id", name, "a name was expected")?,
            secret: self.needed("psk", secret, "the shared key was expected")?,
            initiates: self.needed("role", role, "initiate or respond was expected")?,
            ike: self
                .optional("ike", proposals(proposal::parse_ike), IKE_SUITES)?
                .unwrap_or_else(ike_proposals),
            esp: self
                .optional("esp", proposals(proposal::parse_esp), ESP_SUITES)?
                .unwrap_or_else(child_proposals),
            ppk: self.ppk()?,
            rohc: self.rohc(mode)?,
        })
    }

    fn ppk(&mut self) -> Result<Option<Ppk>, ConfigError> {
        let id = |text: &str| {
            let id = strongswan::parse_ppk_id(text).ok()?;
            // An asterisk would stand for all PPK_IDs with an ending, but there is one key.
            let is_valid = (1..=MAX_PPK_ID).contains(&id.len()) && !id.starts_with(b"*");
            is_valid.then_some(id)
        };
        let secret = |text: &str| (!text.is_empty()).then(|| SecretBytes::new(text.as_bytes()));
        let id = self.optional("ppk-id", id, "a name of up to 64 bytes without an asterisk was expected")?;
        let key = self.optional("ppk", secret, "the post-quantum pre-shared key was expected")?;
        let required = self.flag("ppk-required")?;
        match (id, key) {
            (Some(id), Some(key)) => Ok(Some(Ppk { id, key, required })),
            (Some(_), None) => Err(wrong("ppk", "the word is missing")),
            (None, Some(_)) => Err(wrong("ppk-id", "the word is missing")),
            (None, None) if required => Err(wrong("ppk-id", "the word is missing")),
            (None, None) => Ok(None),
        }
    }

    /// Reads a word that is `yes` or `no`; `no` if it is missing.
    fn flag(&mut self, name: &str) -> Result<bool, ConfigError> {
        let read = |text: &str| match text {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        Ok(self.optional(name, read, "yes or no was expected")?.unwrap_or(false))
    }

    fn rohc(&mut self, mode: Mode) -> Result<bool, ConfigError> {
        match self.flag("rohc")? {
            true if mode != Mode::Tunnel => Err(wrong("rohc", "mode=tunnel was expected with yes")),
            is_wanted => Ok(is_wanted),
        }
    }
}
