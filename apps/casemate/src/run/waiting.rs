//! Clients that wait until something stands, or is gone.

use super::control::Reply;
use crate::control::outcome;
use casemate::Endpoint;
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, Down, Event, IkeSaId};
use casemate_linux::Home;
use std::sync::Arc;

/// Clients and what they wait for.
#[derive(Default)]
pub(super) struct Waiting(Vec<(Wanted, Reply)>);

/// What a client waits for.
pub(super) enum Wanted {
    /// These Child SAs of a connection, and its IKE SA.
    Up { connection: Arc<Connection>, children: Vec<Arc<Child>>, ike: bool },
    /// These SAs are gone.
    Gone { ikes: Vec<IkeSaId>, children: Vec<ChildId> },
}

impl Waiting {
    /// Begins what has this name: a child, or a connection with all its children, or with none of them.
    pub(super) fn initiate(&mut self, name: &str, ike: bool, home: &mut Home) -> Result<Wanted, String> {
        let found = home.endpoint().configured(name);
        let (connection, child) =
            found.ok_or_else(|| format!("{name}: there is no connection and no child of this name"))?;
        let children = match child {
            Some(child) => vec![child],
            None if ike => Vec::new(),
            None => connection.children.clone(),
        };
        let missing: Vec<Arc<Child>> =
            children.into_iter().filter(|child| !stands(home.endpoint(), &connection, child)).collect();
        let begun = home.with(|endpoint, means| {
            if missing.is_empty() && !connected(endpoint, &connection) {
                return endpoint.initiate(&connection, None, means);
            }
            missing.iter().try_for_each(|child| endpoint.initiate(&connection, Some(child), means))
        });
        begun.map_err(|error| format!("{}: {error}", connection.name))?;
        Ok(Wanted::Up { connection, children: missing, ike: true })
    }

    /// Closes what has this name.
    pub(super) fn terminate(&mut self, name: &str, home: &mut Home) -> Result<Wanted, String> {
        let named = home.endpoint().named(name);
        if named.ikes.is_empty() && named.children.is_empty() {
            return Err(format!("{name}: there is no SA of this name; `casemate status` shows them"));
        }
        home.with(|endpoint, means| {
            // What has the name of a connection is an IKE SA, and its Child SAs go with it.
            for ike in &named.ikes {
                endpoint.terminate(*ike, means);
            }
            for child in named.children.iter().filter(|_| named.ikes.is_empty()) {
                endpoint.terminate_child(*child, means);
            }
        });
        let children = if named.ikes.is_empty() { named.children } else { Vec::new() };
        Ok(Wanted::Gone { ikes: named.ikes, children })
    }

    /// Lets a client wait, unless everything is as it wants it already.
    pub(super) fn wait(&mut self, mut wanted: Wanted, reply: Reply, endpoint: &Endpoint) {
        if let Wanted::Up { connection, ike, .. } = &mut wanted {
            *ike = !connected(endpoint, connection);
        }
        if wanted.is_met() {
            let _ = reply.send(outcome(&Ok(())));
        } else {
            self.0.push((wanted, reply));
        }
    }

    /// Something happened.
    pub(super) fn hear(&mut self, event: &Event) {
        self.0.retain_mut(|(wanted, reply)| match wanted.hear(event) {
            None => true,
            Some(done) => {
                let _ = reply.send(outcome(&done));
                false
            }
        });
    }
}

impl Wanted {
    fn is_met(&self) -> bool {
        match self {
            Self::Up { children, ike, .. } => children.is_empty() && !ike,
            Self::Gone { ikes, children } => ikes.is_empty() && children.is_empty(),
        }
    }

    /// What became of it, once that is known.
    fn hear(&mut self, event: &Event) -> Option<Result<(), String>> {
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

fn connected(endpoint: &Endpoint, connection: &Connection) -> bool {
    endpoint.ike().status().any(|sa| sa.connection.name == connection.name && sa.established.is_some())
}

fn stands(endpoint: &Endpoint, connection: &Connection, child: &Child) -> bool {
    let of_it = endpoint.ike().status().filter(|sa| sa.connection.name == connection.name);
    of_it.flat_map(|sa| sa.children).any(|known| known.child.name == child.name && known.state == "installed")
}
