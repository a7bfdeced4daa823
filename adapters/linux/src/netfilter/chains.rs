//! Lists the base chains of all programs.

use super::monitor::{attribute, name};
use super::{ATTRIBUTES_OFFSET, NETLINK_HEADER_LEN, NFTABLES, Netfilter, kind, messages, word_at};
use std::io;

/// Attributes of a message about a chain, and of its hook.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
/// Flag of a list that was changed while it was read (NLM_F_DUMP_INTR).
const INTERRUPTED: u16 = 0x10;

/// A chain that a hook of the kernel calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseChain {
    /// Family of the table, such as NFPROTO_INET.
    pub(crate) family: libc::c_int,
    pub(crate) table: String,
    pub(crate) name: String,
    /// Number of the hook, such as NF_INET_LOCAL_OUT.
    pub(crate) hook: u32,
    /// `filter`, `nat` or `route`.
    pub(crate) kind: String,
}

impl Netfilter {
    /// All base chains of all families in this network namespace. An error if they change meanwhile.
    pub(crate) fn base_chains(&mut self) -> io::Result<Vec<BaseChain>> {
        let (request, list) = (NFTABLES << 8 | libc::NFT_MSG_GETCHAIN as u16, libc::NLM_F_DUMP as u16);
        let mut bytes = Vec::new();
        self.message(&mut bytes, request, list, libc::AF_UNSPEC, 0, |_| {});
        self.socket.send(&bytes, 0)?;
        let mut chains = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for message in messages(&bytes) {
                if word_at(message, 8).map(u32::from_ne_bytes) != Some(self.sequence) {
                    continue;
                }
                if flags(message).is_none_or(|flags| flags & INTERRUPTED != 0) {
                    return Err(io::Error::other("the chains have changed while they were listed"));
                }
                match kind(message) {
                    Some(kind) if i32::from(kind) == libc::NLMSG_DONE => return Ok(chains),
                    Some(kind) if kind == NFTABLES << 8 | libc::NFT_MSG_NEWCHAIN as u16 => {
                        chains.extend(BaseChain::parse(message));
                    }
                    _ => return Err(super::unexpected_response()),
                }
            }
        }
    }
}

impl BaseChain {
    /// `None` for a chain without a hook.
    fn parse(message: &[u8]) -> Option<Self> {
        let attributes = message.get(ATTRIBUTES_OFFSET..)?;
        let hook = attribute(attribute(attributes, CHAIN_HOOK)?, HOOK_NUMBER)?;
        let text = |kind| attribute(attributes, kind).and_then(name).unwrap_or_default();
        Some(Self {
            family: message.get(NETLINK_HEADER_LEN).copied()?.into(),
            table: text(CHAIN_TABLE),
            name: text(CHAIN_NAME),
            hook: u32::from_be_bytes(*hook.first_chunk()?),
            kind: text(CHAIN_TYPE),
        })
    }
}

/// Flags of a message.
fn flags(message: &[u8]) -> Option<u16> {
    message.get(6..)?.first_chunk().copied().map(u16::from_ne_bytes)
}
