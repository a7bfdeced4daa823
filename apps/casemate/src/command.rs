//! What commands do to an endpoint: begin, close and replace what has a name, and tell when that is done.
//!
//! The names are those of [`Endpoint::configured`] and [`Endpoint::named`].

use casemate::{Endpoint, Means};
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, Down, Event, IkeSaId};
use std::sync::Arc;

/// What whoever gave a command waits for.
#[derive(Debug)]
pub enum Wanted {
    /// These Child SAs of a connection, and its IKE SA.
    Up {
        /// The connection.
        connection: Arc<Connection>,
        /// Those that do not stand yet.
        children: Vec<Arc<Child>>,
        /// Whether the IKE SA does not stand yet.
        ike: bool,
    },
    /// These SAs are gone.
    Gone {
        /// IKE SAs.
        ikes: Vec<IkeSaId>,
        /// Child SAs.
        children: Vec<ChildId>,
    },
}

impl Wanted {
    /// Begins what has this name: a child, or a connection with all its children, or with none of them.
    pub fn initiate(
        name: &str,
        ike: bool,
        endpoint: &mut Endpoint,
        means: &mut Means<'_>,
    ) -> Result<Self, String> {
        let found = endpoint.configured(name);
        let (connection, child) =
            found.ok_or_else(|| format!("{name}: there is no connection and no child of this name"))?;
        let children = match child {
            Some(child) => vec![child],
            None if ike => Vec::new(),
            None => connection.children.clone(),
        };
        let missing: Vec<Arc<Child>> =
            children.into_iter().filter(|child| !stands(endpoint, &connection, child)).collect();
        let begun = if missing.is_empty() && !connected(endpoint, &connection) {
            endpoint.initiate(&connection, None, means)
        } else {
            missing.iter().try_for_each(|child| endpoint.initiate(&connection, Some(child), means))
        };
        begun.map_err(|error| format!("{}: {error}", connection.name))?;
        let ike = !connected(endpoint, &connection);
        Ok(Self::Up { connection, children: missing, ike })
    }

    /// Closes what has this name, cancels what is to be set up again, and does not hold its traffic any more.
    pub fn terminate(name: &str, endpoint: &mut Endpoint, means: &mut Means<'_>) -> Result<Self, String> {
        let is_cancelled = endpoint.cancel(name, means);
        let named = endpoint.named(name);
        if !is_cancelled && named.ikes.is_empty() && named.children.is_empty() {
            return Err(format!(
                "{name}: there is no SA of this name, none is to be set up again, and nothing is held after one; \
                 `casemate status` shows them"
            ));
        }
        // What has the name of a connection is an IKE SA, and its Child SAs go with it.
        for ike in &named.ikes {
            endpoint.terminate(*ike, means);
        }
        for child in named.children.iter().filter(|_| named.ikes.is_empty()) {
            endpoint.terminate_child(*child, means);
        }
        let children = if named.ikes.is_empty() { named.children } else { Vec::new() };
        Ok(Self::Gone { ikes: named.ikes, children })
    }

    /// Whether everything is as it was wanted.
    pub fn is_met(&self) -> bool {
        match self {
            Self::Up { children, ike, .. } => children.is_empty() && !ike,
            Self::Gone { ikes, children } => ikes.is_empty() && children.is_empty(),
        }
    }

    /// Something happened; what became of the command, once that is known.
    pub fn hear(&mut self, event: &Event) -> Option<Result<(), String>> {
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
            (Self::Up { connection, children, .. }, Event::ChildFailed { connection: other, child, why })
                if other.name == connection.name
                    && children.iter().any(|wanted| wanted.name == child.name) =>
            {
                return Some(Err(format!("{}/{}: {why}", connection.name, child.name)));
            }
            (Self::Up { connection, .. }, Event::IkeDown { connection: other, why, .. })
                if other.name == connection.name && *why != Down::Replaced =>
            {
                return Some(Err(format!("{}: {why}", connection.name)));
            }
            (Self::Gone { ikes, .. }, Event::IkeDown { ike, .. }) => ikes.retain(|id| id != ike),
            (Self::Gone { children, .. }, Event::ChildDown { id, .. }) => {
                children.retain(|child| child != id);
            }
            _ => {}
        }
        self.is_met().then_some(Ok(()))
    }
}

/// Begins to replace what has this name: IKE SAs if `ike` says so, otherwise Child SAs.
pub fn rekey(name: &str, ike: bool, endpoint: &mut Endpoint, means: &mut Means<'_>) -> Result<(), String> {
    let named = endpoint.named(name);
    let mut any = false;
    if ike {
        named.ikes.iter().for_each(|id| any |= endpoint.rekey(*id, means));
    } else {
        named.children.iter().for_each(|id| any |= endpoint.rekey_child(*id, means));
    }
    let what = if ike { "IKE SA" } else { "Child SA" };
    if any {
        Ok(())
    } else {
        Err(format!("{name}: there is no {what} of this name; `casemate status` shows them"))
    }
}

fn connected(endpoint: &Endpoint, connection: &Connection) -> bool {
    endpoint.ike().status().any(|sa| sa.connection.name == connection.name && sa.established.is_some())
}

fn stands(endpoint: &Endpoint, connection: &Connection, child: &Child) -> bool {
    let of_it = endpoint.ike().status().filter(|sa| sa.connection.name == connection.name);
    of_it.flat_map(|sa| sa.children).any(|known| known.child.name == child.name && known.state == "installed")
}
