//! Policy rules, which select routing tables.

use super::{Netlink, family};
use crate::Error;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleFlags, RuleMessage};
use std::io;

impl Netlink {
    /// All policy rules of an IP version.
    pub(crate) fn rules(&mut self, v4: bool) -> Result<Vec<RuleMessage>, Error> {
        let mut message = RuleMessage::default();
        message.header.family = family(v4);
        let replies = self
            .request(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP)
            .map_err(|error| Error::new("list of rules", error))?;
        let rule = |reply| match reply {
            RouteNetlinkMessage::NewRule(rule) => Some(rule),
            _ => None,
        };
        Ok(replies.into_iter().filter_map(rule).collect())
    }

    pub(crate) fn add_rule(&mut self, rule: RuleMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewRule(rule), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    pub(crate) fn remove_rule(&mut self, rule: RuleMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRule(rule), NLM_F_ACK).map(drop)
    }
}

/// Whether a rule of the kernel is this one. The kernel adds attributes and flags of its own.
pub(crate) fn is_same_rule(rule: &RuleMessage, wanted: &RuleMessage) -> bool {
    let header = |rule: &RuleMessage| {
        let is_inverted = rule.header.flags.contains(RuleFlags::Invert);
        (rule.header.family, rule.header.action, rule.header.src_len, rule.header.dst_len, is_inverted)
    };
    header(rule) == header(wanted) && wanted.attributes.iter().all(|own| rule.attributes.contains(own))
}
