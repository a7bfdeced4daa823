//! Commands on the IKE and Child SAs of an endpoint: initiate, terminate and rekey by name, and their
//! completion.
//!
//! Names are those of [`Endpoint::config_by_name`] and [`Endpoint::sas_by_name`].

use crate::log::wording;
use casemate::{Context, Endpoint};
use casemate_ike::config::{ChildConfig, Connection, Gateway};
use casemate_ike::{ChildId, ChildState, DownReason, Event, IkeSaId, IkeState, IkeStatus, UserIdentity};
use std::sync::Arc;

/// A command that was started, and what is left until it is complete.
#[derive(Debug)]
pub enum PendingCommand {
    /// An IKE SA and Child SAs are being set up.
    Up {
        /// The connection.
        connection: Arc<Connection>,
        /// Child SAs that are not installed yet.
        children: Vec<Arc<ChildConfig>>,
        /// Whether the IKE SA is not established yet.
        ike: bool,
    },
    /// SAs are being closed.
    Down {
        /// IKE SAs that still exist.
        ikes: Vec<IkeSaId>,
        /// Child SAs that still exist.
        children: Vec<ChildId>,
    },
}

impl PendingCommand {
    /// Initiates a child by name, or a connection with all its children, or its IKE SA alone if `ike` is
    /// set.
    pub fn initiate(
        name: &str,
        ike: bool,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> Result<Self, String> {
        let found = endpoint.config_by_name(name);
        let (connection, child) = found.ok_or_else(|| {
            child_without_sa(name, endpoint)
                .unwrap_or_else(|| format!("{name}: no connection and no child has this name"))
        })?;
        let children = match child {
            Some(child) => vec![child],
            None if ike => Vec::new(),
            None => connection.children.clone(),
        };
        let missing: Vec<Arc<ChildConfig>> =
            children.into_iter().filter(|child| !stands(endpoint, &connection, child)).collect();
        let started = if missing.is_empty() && !connected(endpoint, &connection) {
            endpoint.initiate(&connection, None, context)
        } else {
            missing.iter().try_for_each(|child| endpoint.initiate(&connection, Some(child), context))
        };
        started.map_err(|error| format!("{}: {error}", connection.name))?;
        let ike = !connected(endpoint, &connection);
        Ok(Self::Up { connection, children: missing, ike })
    }

    /// Closes the SAs with this name, cancels pending retries, and stops blocking their traffic. A name such
    /// as
    /// `gw[3]` or an EAP identity selects IKE SAs of one peer.
    pub fn terminate(name: &str, endpoint: &mut Endpoint, context: &mut Context<'_>) -> Result<Self, String> {
        let of_peer = ike_sas_of_peer(name, endpoint);
        if !of_peer.is_empty() {
            return Ok(Self::close(of_peer, Vec::new(), endpoint, context));
        }
        let is_cancelled = endpoint.cancel(name, context);
        let named = endpoint.sas_by_name(name);
        if !is_cancelled && named.ikes.is_empty() && named.children.is_empty() {
            return Err(format!(
                "{name}: no SA has this name, no retry is pending, and no traffic is blocked for it; \
                 `casemate status` shows the SAs"
            ));
        }
        // The name of a connection selects its IKE SAs, which take their Child SAs with them.
        let children = if named.ikes.is_empty() { named.children } else { Vec::new() };
        Ok(Self::close(named.ikes, children, endpoint, context))
    }

    /// Closes these SAs.
    pub fn close(
        ikes: Vec<IkeSaId>,
        children: Vec<ChildId>,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> Self {
        for ike in &ikes {
            endpoint.terminate(*ike, context);
        }
        for child in &children {
            endpoint.terminate_child(*child, context);
        }
        Self::Down { ikes, children }
    }

    /// Name of the connection that is being set up.
    pub(crate) fn connection_name(&self) -> Option<&str> {
        match self {
            Self::Up { connection, .. } => Some(&connection.name),
            Self::Down { .. } => None,
        }
    }

    /// Number of SAs that are left to wait for.
    pub fn remaining(&self) -> usize {
        match self {
            Self::Up { children, ike, .. } => children.len().saturating_add((*ike).into()),
            Self::Down { ikes, children } => ikes.len().saturating_add(children.len()),
        }
    }

    /// Whether nothing is left to wait for.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Up { children, ike, .. } => children.is_empty() && !ike,
            Self::Down { ikes, children } => ikes.is_empty() && children.is_empty(),
        }
    }

    /// Processes an event. Returns the outcome when the command is complete or has failed.
    pub fn on_event(&mut self, event: &Event) -> Option<Result<(), String>> {
        match (&mut *self, event) {
            (Self::Up { connection, children, .. }, Event::ChildUp(up))
                if up.connection.name == connection.name =>
            {
                children.retain(|child| child.name != up.child.name);
            }
            (Self::Up { connection, ike, .. }, Event::IkeUp { connection: other, .. })
                if other.name == connection.name =>
            {
                *ike = false;
            }
            (
                Self::Up { connection, children, .. },
                Event::ChildFailed { connection: other, child, reason: why, .. },
            ) if other.name == connection.name
                && children.iter().any(|pending| pending.name == child.name) =>
            {
                return Some(Err(format!("{}/{}: {why}", connection.name, child.name)));
            }
            (Self::Up { connection, .. }, Event::IkeDown { connection: other, reason: why, .. })
                if other.name == connection.name && *why != DownReason::Replaced =>
            {
                return Some(Err(format!("{}: {why}", connection.name)));
            }
            (Self::Up { connection, .. }, Event::InitiateFailed { connection: other, error })
                if other.name == connection.name =>
            {
                return Some(Err(format!("{}: {error}", connection.name)));
            }
            (Self::Down { ikes, .. }, Event::IkeDown { ike, .. }) => ikes.retain(|id| id != ike),
            (Self::Down { children, .. }, Event::ChildDown { id, .. }) => {
                children.retain(|child| child != id);
            }
            _ => {}
        }
        self.is_complete().then_some(Ok(()))
    }
}

/// Starts rekeying of the SAs with this name: IKE SAs if `ike` is set, otherwise Child SAs.
pub fn rekey(
    name: &str,
    ike: bool,
    endpoint: &mut Endpoint,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let named = endpoint.sas_by_name(name);
    let mut any = false;
    if ike {
        named.ikes.iter().for_each(|id| any |= endpoint.rekey(*id, context));
    } else {
        named.children.iter().for_each(|id| any |= endpoint.rekey_child(*id, context));
    }
    let what = if ike { "IKE SA" } else { "Child SA" };
    if any {
        Ok(())
    } else {
        Err(format!("{name}: no {what} has this name; `casemate status` shows the SAs"))
    }
}

/// Redirects the peers of a connection, or of one IKE SA of a connection such as `users[3]`, to another
/// gateway.
pub fn redirect(
    name: &str,
    gateway: &Gateway,
    endpoint: &mut Endpoint,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let mut ikes = ike_sas_of_peer(name, endpoint);
    ikes.extend(endpoint.sas_by_name(name).ikes);
    if ikes.is_empty() {
        return Err(format!("{name}: no IKE SA has this name; `casemate status` shows the SAs"));
    }
    let redirected = ikes.iter().filter(|id| endpoint.redirect(**id, gateway.clone(), context)).count();
    match ikes.len().saturating_sub(redirected) {
        0 => Ok(()),
        others => Err(format!(
            "{name}: {redirected} peers are redirected; {others} follow no redirects, or this host has \
             started their \
             IKE SAs"
        )),
    }
}

/// What a child with this name does that only lets traffic pass or drops it, if there is one.
pub(crate) fn child_without_sa(name: &str, endpoint: &Endpoint) -> Option<String> {
    endpoint.ike().connections().iter().find_map(|connection| {
        let whole = name.strip_prefix(&*connection.name).and_then(|rest| rest.strip_prefix('/'));
        let shunt =
            connection.shunts.iter().find(|shunt| shunt.name == name || whole == Some(&shunt.name))?;
        let (mode, effect) = if shunt.passes { ("pass", "passes in clear") } else { ("drop", "is dropped") };
        Some(format!(
            "{name}: a child of {} with mode = {mode}: its traffic {effect}, and there is nothing to set up",
            connection.name
        ))
    })
}

fn connected(endpoint: &Endpoint, connection: &Connection) -> bool {
    endpoint.ike().status().any(|sa| sa.connection.name == connection.name && sa.established.is_some())
}

fn stands(endpoint: &Endpoint, connection: &Connection, child: &ChildConfig) -> bool {
    let of_connection = endpoint.ike().status().filter(|sa| sa.connection.name == connection.name);
    of_connection
        .flat_map(|sa| sa.children)
        .any(|known| known.child.name == child.name && known.state == ChildState::Installed)
}

/// Whether the peer has proved an EAP identity of this name.
fn is_proven_user(sa: &IkeStatus, name: &str) -> bool {
    let proven = sa.eap_identity.as_ref().and_then(UserIdentity::proven);
    proven.is_some_and(|identity| wording::eap_identity_text(identity) == name)
}

/// The IKE SAs that the log calls `name`, such as `gw[3]`, or whose peer has proved this EAP identity. Empty
/// if a connection or child has the name.
pub(crate) fn ike_sas_of_peer(name: &str, endpoint: &Endpoint) -> Vec<IkeSaId> {
    let has_name = |connection: &Arc<Connection>| {
        connection.name == name || connection.children.iter().any(|child| child.name == name)
    };
    if endpoint.ike().connections().iter().any(has_name) {
        return Vec::new();
    }
    let is_meant = |sa: &IkeStatus| {
        sa.state == IkeState::Established
            && (format!("{}[{}]", sa.connection.name, sa.id) == name || is_proven_user(sa, name))
    };
    endpoint.ike().status().filter(is_meant).map(|sa| sa.id).collect()
}
