//! What the names of a configuration mean.

use crate::Endpoint;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, ChildStatus, IkeSaId};

/// SAs that a name means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// IKE SAs.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs.
    pub children: Vec<ChildId>,
}

impl Endpoint {
    /// The IKE SAs of a connection, and the Child SAs of a child: `child`, or `connection/child` where
    /// several have one of this name.
    pub fn named(&self, name: &str) -> Named {
        let mut named = Named::default();
        for sa in self.ike().status() {
            if sa.connection.name == name {
                named.ikes.push(sa.id);
            }
            let is_it = |child: &&ChildStatus| is_named(name, &sa.connection, &child.child);
            let children = sa.children.iter().filter(is_it);
            named.children.extend(children.map(|child| child.id));
        }
        named
    }

    /// A connection by its name, or one of its children: `child`, or `connection/child` where several have one of this name.
    pub fn configured(&self, name: &str) -> Option<(Arc<Connection>, Option<Arc<Child>>)> {
        let connections = self.ike().connections();
        if let Some(connection) = connections.iter().find(|connection| connection.name == name) {
            return Some((connection.clone(), None));
        }
        connections.iter().find_map(|connection| {
            let is_it = |child: &&Arc<Child>| is_named(name, connection, child);
            Some((connection.clone(), Some(connection.children.iter().find(is_it)?.clone())))
        })
    }
}

/// Whether `name` means this child of the connection.
pub(crate) fn is_named(name: &str, connection: &Connection, child: &Child) -> bool {
    let whole = name.strip_prefix(&*connection.name).and_then(|rest| rest.strip_prefix('/'));
    name == child.name || whole == Some(&*child.name)
}
