//! IKE SAs and Child SAs as `list-sas` and the events describe them.
//!
//! The keys, their order and the notation of values are those of charon.

use super::algorithms;
use super::message::MessageWriter;
use crate::keyring::Keyring;
use crate::log::wording;
use crate::swanctl::mark_of;
use casemate::FIRST_REQID;
use casemate_datapath::SaStatus;
use casemate_ike::config::{Identity, LocalMethod, Round};
use casemate_ike::{
    ChildId, ChildState, ChildStatus, Credentials, IkeSaId, IkeState, IkeStatus, NatStatus, TrafficSelector,
    UserIdentity,
};
use casemate_linux::EndpointContext;
use casemate_sa::{Instant, Protocol, SpdPair};
use std::borrow::Cow;
use std::collections::HashMap;

/// Length of a SHA-1 digest, as which a key identifier is usually formed (RFC 5280 section 4.2.1.2).
const DIGEST_LEN: usize = 20;

/// An IKE SA with the state of its Child SAs in the data path, at one moment.
#[derive(Debug, Clone)]
pub(super) struct SaView {
    pub(super) status: IkeStatus,
    local_id: Identity,
    /// Inbound and outbound SA of each Child SA.
    traffic: HashMap<ChildId, [Option<SaStatus>; 2]>,
    /// SPDs of each Child SA.
    spds: HashMap<ChildId, SpdPair>,
    /// SPDs that belong to the IKE SA.
    own_spds: SpdPair,
    at: Instant,
}

/// Which Child SAs of an IKE SA to write.
#[derive(Clone, Copy)]
pub(super) enum Children {
    /// No section `child-sas`.
    Omitted,
    /// All.
    All,
    /// One.
    Only(ChildId),
}

impl SaView {
    /// The IKE SAs for which `is_wanted` is true.
    pub(super) fn take(
        context: &EndpointContext,
        keyring: &Keyring,
        is_wanted: impl Fn(&IkeStatus) -> bool,
    ) -> Vec<Self> {
        let wanted = context.endpoint().ike().status().filter(is_wanted);
        wanted.map(|status| Self::new(status, context, keyring)).collect()
    }

    /// The IKE SA with this identifier.
    pub(super) fn of(context: &EndpointContext, keyring: &Keyring, id: IkeSaId) -> Option<Self> {
        let status = context.endpoint().ike().status_of(id)?;
        Some(Self::new(status, context, keyring))
    }

    fn new(status: IkeStatus, context: &EndpointContext, keyring: &Keyring) -> Self {
        let endpoint = context.endpoint();
        let of_child = |child: &ChildStatus| {
            let sas = endpoint.sas_of(child.id);
            let ids = [sas.map(|sas| sas.inbound), sas.and_then(|sas| sas.outbound)];
            (child.id, ids.map(|id| endpoint.datapath().sa(id?)))
        };
        let traffic = status.children.iter().map(of_child).collect();
        let spds_of = |child: &ChildStatus| Some((child.id, endpoint.spds_of(child.id)?));
        let spds = status.children.iter().filter_map(spds_of).collect();
        let own_spds = endpoint.spds_of_ike(status.id, &status.connection).unwrap_or_default();
        let local_id = local_id(&status, keyring);
        Self { status, local_id, traffic, spds, own_spds, at: context.now() }
    }

    /// Writes a section with the name of the connection.
    pub(super) fn write(&self, children: Children, message: &mut MessageWriter) {
        message.section(&self.status.connection.name, |section| self.write_fields(children, section));
    }

    /// Writes the fields of the IKE SA.
    pub(super) fn write_fields(&self, children: Children, message: &mut MessageWriter) {
        let status = &self.status;
        message.display("uniqueid", status.id);
        message.value("version", "2");
        message.value("state", ike_state(status.state));
        message.display("local-host", status.path.local.ip());
        message.display("local-port", status.path.local.port());
        message.value("local-id", identity_text(&self.local_id));
        message.display("remote-host", status.path.remote.ip());
        message.display("remote-port", status.path.remote.port());
        match &status.peer {
            Some(peer) => message.value("remote-id", identity_text(peer)),
            None => message.value("remote-id", "%any"),
        }
        if let Some(identity) = status.eap_identity.as_ref().and_then(UserIdentity::proven)
            && status.peer.as_ref().is_none_or(|peer| peer.to_eap() != identity)
        {
            message.value("remote-eap-id", wording::eap_identity_text(identity));
        }
        message.flag("initiator", status.initiator);
        message.display("initiator-spi", status.spis.initiator);
        message.display("responder-spi", status.spis.responder);
        let NatStatus { local, remote, forced } = status.nat;
        message.flag("nat-local", local && !forced);
        message.flag("nat-remote", remote);
        message.flag("nat-fake", forced && !remote);
        message.flag("nat-any", status.nat.any());
        write_spds(self.own_spds, message);
        if let Some(suite) = &status.suite {
            algorithms::write_ike(suite, message);
        }
        message.flag("ppk", status.ppk_id.is_some());
        if let (IkeState::Established, Some(at)) = (status.state, status.established) {
            message.display("established", self.at.since(at).as_secs());
            message.optional("rekey-time", status.rekey_at.map(|at| self.until(at)));
        }
        if !status.virtual_addrs.is_empty() {
            // Only one side of a connection has pools.
            let name = if status.connection.pools.is_empty() { "local-vips" } else { "remote-vips" };
            message.list(name, status.virtual_addrs.iter().map(ToString::to_string));
        }
        let children: Vec<&ChildStatus> = match children {
            Children::Omitted => return,
            Children::All => status.children.iter().collect(),
            Children::Only(id) => status.children.iter().filter(|child| child.id == id).collect(),
        };
        message.section("child-sas", |section| {
            for child in children {
                let name = format!("{}-{}", child.child.name, child.id);
                section.section(&name, |section| self.write_child(child, section));
            }
        });
    }

    /// Writes the section `child-sas` of a rekeyed Child SA: the old one as `before` had it, and the new one.
    pub(super) fn write_rekeyed(
        &self,
        new: ChildId,
        old: ChildId,
        before: Option<&Self>,
        message: &mut MessageWriter,
    ) {
        let find = |view: &'_ Self, id| view.status.children.iter().find(|child| child.id == id).cloned();
        let Some(child) = find(self, new) else { return };
        let former = find(self, old).map(|child| (self, child));
        let former = former.or_else(|| before.and_then(|view| Some((view, find(view, old)?))));
        message.section("child-sas", |section| {
            section.section(&child.child.name, |section| {
                if let Some((view, former)) = former {
                    section.section("old", |section| view.write_child(&former, section));
                }
                section.section("new", |section| self.write_child(&child, section));
            });
        });
    }

    fn write_child(&self, child: &ChildStatus, message: &mut MessageWriter) {
        let [inbound, outbound] =
            self.traffic.get(&child.id).map_or([None, None], |sas| sas.each_ref().map(Option::as_ref));
        let any = inbound.or(outbound);
        message.value("name", &child.child.name);
        message.display("uniqueid", child.id);
        message.display("reqid", any.map_or(0, |sa| shown_reqid(sa.reqid)));
        message.value("state", child_state(child.state));
        message.value("mode", child.mode.to_string().to_uppercase());
        message.value("protocol", if child.protocol == Protocol::Ah { "AH" } else { "ESP" });
        message.flag("encap", any.is_some_and(|sa| sa.udp_encapsulated));
        message.value("spi-in", format!("{:08x}", child.spi_in.get()));
        message.value("spi-out", format!("{:08x}", child.spi_out.get()));
        write_spds(self.spds.get(&child.id).copied().unwrap_or_default(), message);
        algorithms::write_child(&child.suite, message);
        for (sa, [bytes, packets, used]) in [
            (inbound, ["bytes-in", "packets-in", "use-in"]),
            (outbound, ["bytes-out", "packets-out", "use-out"]),
        ] {
            message.display(bytes, sa.map_or(0, |sa| sa.meter.bytes));
            message.display(packets, sa.map_or(0, |sa| sa.meter.packets));
            let last_used = sa.and_then(|sa| sa.meter.last_used);
            message.optional(used, last_used.map(|at| self.at.since(at).as_secs()));
        }
        message.optional("rekey-time", child.rekey_at.map(|at| self.until(at)));
        message.optional("life-time", child.expires_at.map(|at| self.until(at)));
        message.display("install-time", any.map_or(0, |sa| self.at.since(sa.meter.added).as_secs()));
        write_traffic(&child.local, &child.remote, message);
    }

    /// Seconds until `at`.
    fn until(&self, at: Instant) -> u64 {
        at.since(self.at).as_secs()
    }
}

/// Writes the marks and interface IDs of these SPDs, inbound before outbound.
fn write_spds(spds: SpdPair, message: &mut MessageWriter) {
    let SpdPair { inbound, outbound } = spds;
    for (name, mark) in [("mark-in", mark_of(inbound)), ("mark-out", mark_of(outbound))] {
        message.optional(name, mark.map(|mark| format!("{mark:08x}")));
    }
    for (name, spd) in [("if-id-in", inbound), ("if-id-out", outbound)] {
        let id = Some(spd.number()).filter(|_| !spd.is_main() && mark_of(spd).is_none());
        message.optional(name, id.map(|id| format!("{id:08x}")));
    }
}

/// The number of a reqid that was assigned here, from 1, as charon counts; or a configured reqid.
pub(crate) fn shown_reqid(reqid: u32) -> u32 {
    reqid.checked_sub(FIRST_REQID).filter(|number| *number > 0).unwrap_or(reqid)
}

/// Writes the traffic selectors of both sides.
fn write_traffic(local: &[TrafficSelector], remote: &[TrafficSelector], message: &mut MessageWriter) {
    message.list("local-ts", local.iter().map(selector));
    message.list("remote-ts", remote.iter().map(selector));
}

/// A traffic selector as charon writes it: a range that is not a prefix has two dots.
pub(super) fn selector(selector: &TrafficSelector) -> String {
    let (text, addrs) = (selector.to_string(), &selector.addrs);
    match addrs.prefix_len() {
        Some(_) => text,
        None => text.replacen(&addrs.to_string(), &format!("{}..{}", addrs.first(), addrs.last()), 1),
    }
}

/// The identity in the form that charon has for it. A key identifier is text if it consists of printable
/// characters and cannot be a SHA-1 digest; otherwise it is bytes in hexadecimal digits with colons.
pub(super) fn identity_text(identity: &Identity) -> String {
    match identity {
        Identity::KeyId(id)
            if id.len() != DIGEST_LEN && id.iter().all(|byte| (b' '..=b'~').contains(byte)) =>
        {
            id.iter().copied().map(char::from).collect()
        }
        Identity::KeyId(id) => id.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        other => other.to_string(),
    }
}

/// Our identity: the one that the peer knows; before, the configured one, or else the subject of our
/// certificate, or else our address.
pub(crate) fn local_id(status: &IkeStatus, keyring: &Keyring) -> Identity {
    let configured = &status.connection;
    if let Some(own) = status.own_id.as_ref().filter(|_| configured.local_rounds() == 1) {
        return own.clone();
    }
    // The identity of the last round is the one that the peer knows.
    let last = Round { local: configured.local_rounds().saturating_sub(1), remote: 0 };
    let connection = configured.in_round(last).unwrap_or(Cow::Borrowed(configured));
    let subject = || match connection.local.method {
        LocalMethod::Eap(_) => keyring.eap_subject(&connection),
        _ => keyring.own_key(&connection, &[])?.subject,
    };
    let id = connection.local.id.clone().or_else(subject);
    id.unwrap_or(Identity::Address(status.path.local.ip()))
}

const fn ike_state(state: IkeState) -> &'static str {
    match state {
        IkeState::Connecting => "CONNECTING",
        IkeState::Established => "ESTABLISHED",
        IkeState::Rekeyed => "REKEYED",
        IkeState::Closing => "DELETING",
        IkeState::Closed => "DESTROYING",
    }
}

/// A Child SA whose outbound SA is not in use yet is installed for charon, too.
const fn child_state(state: ChildState) -> &'static str {
    match state {
        ChildState::Installed | ChildState::Awaiting => "INSTALLED",
        ChildState::Rekeyed => "REKEYED",
        ChildState::Closing => "DELETING",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_identifiers_have_the_form_of_charon() {
        let text = |id: &[u8]| identity_text(&Identity::KeyId(id.to_vec()));
        assert_eq!(text(b"office key"), "office key");
        assert_eq!(text(&[0xeb, 0x38, 0x0b]), "eb:38:0b");
        assert_eq!(text(&[b'a'; DIGEST_LEN]), ["61"; DIGEST_LEN].join(":"));
        assert_eq!(identity_text(&Identity::Fqdn("moon.test".into())), "moon.test");
    }
}
