//! Tables of nftables with the flag `owner`: the kernel removes them when the connection that made them is
//! closed, however this process ends. Kernels before 5.12 do not know the flag; they get no such table.

use super::{DATA_VALUE, LIST_ELEM, NFTABLES, Netfilter, TABLE_NAME, attribute, nested, string};
use std::io;

/// Flag of a table that ends with the connection that made it (NFT_TABLE_F_OWNER).
const TABLE_OWNER: u32 = 2;
const TABLE_FLAGS: u16 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
/// Register in which expressions pass values. Register 0 is the verdict.
pub(super) const REGISTER: u32 = 1;

/// A message of a transaction.
pub(super) struct Request {
    kind: libc::c_int,
    flags: libc::c_int,
    attributes: Vec<u8>,
}

pub(super) const fn create(kind: libc::c_int, attributes: Vec<u8>) -> Request {
    Request { kind, flags: libc::NLM_F_CREATE, attributes }
}

/// Adds a rule behind the others of its chain.
pub(super) const fn append_rule(attributes: Vec<u8>) -> Request {
    Request { kind: libc::NFT_MSG_NEWRULE, flags: libc::NLM_F_CREATE | libc::NLM_F_APPEND, attributes }
}

impl Netfilter {
    /// Sends requests as one transaction.
    fn transact(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let first = self.sequence.wrapping_add(1);
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_BEGIN as u16, 0, libc::AF_UNSPEC, NFTABLES, |_| {});
        for Request { kind, flags, attributes } in requests {
            let (kind, flags) = (NFTABLES << 8 | *kind as u16, (*flags | libc::NLM_F_ACK) as u16);
            let family = libc::NFPROTO_INET;
            self.message(&mut bytes, kind, flags, family, 0, |bytes| bytes.extend(attributes));
        }
        self.message(&mut bytes, libc::NFNL_MSG_BATCH_END as u16, 0, libc::AF_UNSPEC, NFTABLES, |_| {});
        self.socket.send(&bytes, 0)?;
        self.read_acks(first, requests.len())
    }

    /// Removes a table, if there is one, and makes it again with these contents, in one transaction. With
    /// `None` there is none afterwards.
    pub(super) fn replace_table(
        &mut self,
        table: &str,
        is_there: bool,
        contents: Option<Vec<Request>>,
    ) -> io::Result<()> {
        let with_name = |flags: Option<u32>| {
            let mut bytes = Vec::new();
            attribute(&mut bytes, TABLE_NAME, |bytes| string(bytes, table));
            flags.into_iter().for_each(|flags| number(&mut bytes, TABLE_FLAGS, flags));
            bytes
        };
        let mut requests = Vec::new();
        if is_there {
            requests.push(Request { kind: libc::NFT_MSG_DELTABLE, flags: 0, attributes: with_name(None) });
        }
        if let Some(contents) = contents {
            requests.push(create(libc::NFT_MSG_NEWTABLE, with_name(Some(TABLE_OWNER))));
            requests.extend(contents);
        }
        self.transact(&requests)
    }
}

/// A chain for received packets.
pub(super) fn chain(table: &str, name: &str, priority: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    attribute(&mut bytes, CHAIN_TABLE, |bytes| string(bytes, table));
    attribute(&mut bytes, CHAIN_NAME, |bytes| string(bytes, name));
    nested(&mut bytes, CHAIN_HOOK, |bytes| {
        number(bytes, HOOK_NUMBER, libc::NF_INET_PRE_ROUTING as u32);
        number(bytes, HOOK_PRIORITY, priority as u32);
    });
    number(&mut bytes, CHAIN_POLICY, libc::NF_ACCEPT as u32);
    attribute(&mut bytes, CHAIN_TYPE, |bytes| string(bytes, "filter"));
    bytes
}

/// A rule of these expressions.
pub(super) fn rule(table: &str, chain: &str, expressions: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    attribute(&mut bytes, RULE_TABLE, |bytes| string(bytes, table));
    attribute(&mut bytes, RULE_CHAIN, |bytes| string(bytes, chain));
    nested(&mut bytes, RULE_EXPRESSIONS, expressions);
    bytes
}

pub(super) fn expression(bytes: &mut Vec<u8>, name: &str, data: impl FnOnce(&mut Vec<u8>)) {
    nested(bytes, LIST_ELEM, |bytes| {
        attribute(bytes, EXPR_NAME, |bytes| string(bytes, name));
        nested(bytes, EXPR_DATA, data);
    });
}

/// Loads a property of the packet into the register.
pub(super) fn load_meta(bytes: &mut Vec<u8>, key: libc::c_int) {
    expression(bytes, "meta", |bytes| {
        number(bytes, 1, REGISTER);
        number(bytes, 2, key as u32);
    });
}

/// Continues only if the register compares like this to a value.
pub(super) fn compare(bytes: &mut Vec<u8>, operator: libc::c_int, with: &[u8]) {
    expression(bytes, "cmp", |bytes| {
        number(bytes, 1, REGISTER);
        number(bytes, 2, operator as u32);
        nested(bytes, 3, |bytes| value(bytes, with));
    });
}

pub(super) fn value(bytes: &mut Vec<u8>, value: &[u8]) {
    attribute(bytes, DATA_VALUE, |bytes| bytes.extend(value));
}

pub(super) fn number(bytes: &mut Vec<u8>, kind: u16, number: u32) {
    attribute(bytes, kind, |bytes| bytes.extend(number.to_be_bytes()));
}
