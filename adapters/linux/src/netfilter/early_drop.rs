//! Drops received ESP and AH packets in the prerouting hook, behind the packet sockets, which have their
//! copies by then. Otherwise the kernel would route each packet and deliver it to a socket that discards it.
//!
//! The rules are in a table that ends with this process, however it ends. So another IPsec program that is
//! started next gets its packets, although the guard stays. Kernels before 5.12 do not know the flag; they
//! get no such table.

use super::owned_table::{
    REGISTER, Request, append_rule, chain, compare, create, expression, load_meta, number, rule, value,
};
use super::{
    ELEM_KEY, ELEM_LIST_ELEMENTS, ELEM_LIST_SET, ELEM_LIST_TABLE, LIST_ELEM, Netfilter, attribute, nested,
    string,
};
use casemate_wire::ip::{proto, v4, v6};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

const CHAIN: &str = "received";
/// Before reassembly (-400) and connection tracking (-200).
const PRIORITY: i32 = -450;
/// Addresses of an IP version, at most. Packets to others take the longer way.
const MAX_ADDRESSES: usize = 512;

const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LEN: u16 = 5;
const SET_ID: u16 = 10;
/// Kind of the interface on which the packet arrived (NFT_META_IIFKIND).
const META_IIFKIND: libc::c_int = 26;
const VERDICT_REGISTER: u32 = 0;

/// The early drop of received packets.
pub(crate) struct EarlyDrop {
    netfilter: Netfilter,
    table: String,
    /// Index of the TUN interface. Packets from it came through an SA and are for the host.
    tun: u32,
    /// The addresses to which packets are dropped now; without any there is no table.
    addrs: BTreeSet<IpAddr>,
}

/// What the rule for an IP version needs.
struct Version {
    set: &'static str,
    set_id: u32,
    /// Number of the type `ipv4_addr` or `ipv6_addr` in `nft`.
    key_type: u32,
    address_len: u32,
    nfproto: libc::c_int,
    /// Offsets of protocol and destination in the IP header.
    protocol_offset: u32,
    destination_offset: u32,
}

const VERSIONS: [Version; 2] = [
    Version {
        set: "local4",
        set_id: 1,
        key_type: 7,
        address_len: 4,
        nfproto: libc::NFPROTO_IPV4,
        protocol_offset: 9,
        destination_offset: 16,
    },
    Version {
        set: "local6",
        set_id: 2,
        key_type: 8,
        address_len: 16,
        nfproto: libc::NFPROTO_IPV6,
        protocol_offset: 6,
        destination_offset: 24,
    },
];
const _: () = assert!(v4::HEADER_LEN == 16 + 4 && v6::HEADER_LEN == 24 + 16);

impl EarlyDrop {
    /// Drops nothing yet. `tun` is the index of the TUN interface with this name.
    pub(crate) fn open(name: &str, tun: u32) -> io::Result<Self> {
        let table = table_name(name);
        Ok(Self { netfilter: Netfilter::open()?, table, tun, addrs: BTreeSet::new() })
    }

    /// Drops packets to exactly these local addresses from now on. After an error, the former addresses are
    /// used.
    pub(crate) fn set(&mut self, addrs: BTreeSet<IpAddr>) -> io::Result<()> {
        if addrs == self.addrs {
            return Ok(());
        }
        let table = &self.table;
        let contents = (!addrs.is_empty()).then(|| {
            let mut contents = vec![
                create(libc::NFT_MSG_NEWCHAIN, chain(table, CHAIN, PRIORITY)),
                append_rule(bridge_rule(table)),
            ];
            for version in &VERSIONS {
                contents.push(create(libc::NFT_MSG_NEWSET, version.set(table)));
                contents.extend(version.elements(table, &addrs));
                contents.push(append_rule(version.rule(table, self.tun)));
            }
            contents
        });
        self.netfilter.replace_table(table, !self.addrs.is_empty(), contents)?;
        self.addrs = addrs;
        Ok(())
    }
}

/// Name of the table. No guard has it, because it has another prefix.
pub(crate) fn table_name(tun: &str) -> String {
    format!("casemate-received_{tun}")
}

/// The rule that accepts packets from a bridge. With br_netfilter, the kernel calls the hook at a port of the
/// bridge, before the packet reaches the bridge and thus before the packet sockets have it.
fn bridge_rule(table: &str) -> Vec<u8> {
    let mut kind = [0; libc::IFNAMSIZ];
    kind.iter_mut().zip(b"bridge").for_each(|(to, from)| *to = *from);
    rule(table, CHAIN, |bytes| {
        load_meta(bytes, META_IIFKIND);
        compare(bytes, libc::NFT_CMP_EQ, &kind);
        decide(bytes, libc::NF_ACCEPT);
    })
}

impl Version {
    fn set(&self, table: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        attribute(&mut bytes, SET_TABLE, |bytes| string(bytes, table));
        attribute(&mut bytes, SET_NAME, |bytes| string(bytes, self.set));
        number(&mut bytes, SET_KEY_TYPE, self.key_type);
        number(&mut bytes, SET_KEY_LEN, self.address_len);
        number(&mut bytes, SET_ID, self.set_id);
        bytes
    }

    /// Adds the addresses of this version to the set; `None` if there are none.
    fn elements(&self, table: &str, addrs: &BTreeSet<IpAddr>) -> Option<Request> {
        let of_version = |addr: &&IpAddr| addr.is_ipv4() == (self.nfproto == libc::NFPROTO_IPV4);
        let mut addrs = addrs.iter().filter(of_version).take(MAX_ADDRESSES).peekable();
        addrs.peek()?;
        let mut bytes = Vec::new();
        attribute(&mut bytes, ELEM_LIST_TABLE, |bytes| string(bytes, table));
        attribute(&mut bytes, ELEM_LIST_SET, |bytes| string(bytes, self.set));
        nested(&mut bytes, ELEM_LIST_ELEMENTS, |bytes| {
            for addr in addrs {
                nested(bytes, LIST_ELEM, |bytes| {
                    nested(bytes, ELEM_KEY, |bytes| match addr {
                        IpAddr::V4(addr) => value(bytes, &addr.octets()),
                        IpAddr::V6(addr) => value(bytes, &addr.octets()),
                    });
                });
            }
        });
        Some(create(libc::NFT_MSG_NEWSETELEM, bytes))
    }

    /// The rule: ESP or AH right behind the IP header, not from the TUN interface, to an address in the set.
    fn rule(&self, table: &str, tun: u32) -> Vec<u8> {
        rule(table, CHAIN, |bytes| {
            load_meta(bytes, libc::NFT_META_NFPROTO);
            compare(bytes, libc::NFT_CMP_EQ, &[self.nfproto as u8]);
            load_header(bytes, self.protocol_offset, 1);
            compare(bytes, libc::NFT_CMP_GTE, &[proto::ESP]);
            compare(bytes, libc::NFT_CMP_LTE, &[proto::AH]);
            load_meta(bytes, libc::NFT_META_IIF);
            compare(bytes, libc::NFT_CMP_NEQ, &tun.to_ne_bytes());
            load_header(bytes, self.destination_offset, self.address_len);
            expression(bytes, "lookup", |bytes| {
                attribute(bytes, 1, |bytes| string(bytes, self.set));
                number(bytes, 2, REGISTER);
                number(bytes, 4, self.set_id);
            });
            expression(bytes, "counter", |_| {});
            decide(bytes, libc::NF_DROP);
        })
    }
}

const _: () = assert!(proto::ESP + 1 == proto::AH, "the rule compares with a range");

/// Ends the rule with a verdict.
fn decide(bytes: &mut Vec<u8>, verdict: libc::c_int) {
    expression(bytes, "immediate", |bytes| {
        number(bytes, 1, VERDICT_REGISTER);
        nested(bytes, 2, |bytes| nested(bytes, 2, |bytes| number(bytes, 1, verdict as u32)));
    });
}

/// Loads a part of the IP header into the register.
fn load_header(bytes: &mut Vec<u8>, offset: u32, len: u32) {
    expression(bytes, "payload", |bytes| {
        number(bytes, 1, REGISTER);
        number(bytes, 2, libc::NFT_PAYLOAD_NETWORK_HEADER as u32);
        number(bytes, 3, offset);
        number(bytes, 4, len);
    });
}

#[cfg(test)]
mod tests;
