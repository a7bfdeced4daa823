//! SPDs of Child SAs: those that the configuration names, and those that belong to one SA.

use super::Endpoint;
use crate::InstallError;
use casemate_ike::{ChildId, ChildUp, Event};
use casemate_sa::SpdPair;
#[cfg(feature = "spds")]
use {
    crate::children::InstalledConfig,
    crate::own_spds::PeerName,
    casemate_ike::config::Connection,
    casemate_ike::{Context, IkeSaId},
    casemate_sa::SpdId,
};

impl Endpoint {
    /// The SPDs of a Child SA; `None` if it is not installed.
    pub fn spds_of(&self, child: ChildId) -> Option<SpdPair> {
        self.children.spds(child)
    }

    #[cfg(not(feature = "spds"))]
    pub(super) fn assign_spds(&self, up: &ChildUp) -> Result<SpdPair, InstallError> {
        up.child.spds.pair().ok_or(InstallError::SpdNumbers)
    }

    #[cfg(not(feature = "spds"))]
    pub(super) fn release_spds(&self, _: ChildId) {}

    #[cfg(not(feature = "spds"))]
    pub(super) fn note_own_spds(&self, _: &Event) {}
}

#[cfg(feature = "spds")]
impl Endpoint {
    /// The SPDs that belong to an IKE SA of this connection, by the rules of its first child that has such
    /// SPDs; `None` if there are none.
    pub fn spds_of_ike(&self, ike: IkeSaId, connection: &Connection) -> Option<SpdPair> {
        let mut rules = connection.children.iter().map(|child| child.spds);
        rules.find_map(|rules| self.own_spds.of_ike_sa(ike, rules))
    }

    /// Closes the Child SAs that have an SPD of which [`SpdAdded`](crate::PolicyChange::SpdAdded) told,
    /// because there is no interface for it.
    pub fn reject_spd(&mut self, spd: SpdId, context: &mut Context<'_>) {
        for id in self.own_spds.reject(spd, &mut self.notices) {
            let Some(InstalledConfig { connection, child }) = self.children.config_of(id) else { continue };
            self.close_uninstalled(id, (&connection, &child), InstallError::Interface, context);
        }
        self.handle_timeouts(context);
    }

    pub(super) fn assign_spds(&mut self, up: &ChildUp) -> Result<SpdPair, InstallError> {
        let peer = if up.child.spds.pair().is_none() { self.peer_name(up.ike) } else { None };
        self.own_spds.child_up(up, peer, &mut self.notices)
    }

    /// The peer of an IKE SA, for its share of the numbers.
    fn peer_name(&self, ike: IkeSaId) -> Option<PeerName> {
        let status = self.ike.status_of(ike)?;
        #[cfg(feature = "eap")]
        if let Some(user) = status.eap_identity {
            return Some(PeerName::Eap(user));
        }
        status.peer.map(PeerName::Id)
    }

    pub(super) fn release_spds(&mut self, child: ChildId) {
        self.own_spds.child_down(child, &mut self.notices);
    }

    /// Follows an event that was applied.
    pub(super) fn note_own_spds(&mut self, event: &Event) {
        let peer = match event {
            Event::IkeUp { ike, .. } => self.peer_name(*ike),
            _ => None,
        };
        let Self { own_spds, notices, .. } = self;
        match event {
            Event::IkeUp { ike, connection, .. } => own_spds.ike_up(*ike, connection, peer, notices),
            Event::IkeRekeyed { old, new } => own_spds.ike_rekeyed(*old, *new),
            Event::IkeDown { ike, .. } => own_spds.ike_down(*ike, notices),
            Event::ChildDown { id, .. } => own_spds.child_down(*id, notices),
            _ => {}
        }
    }
}
