//! What the names of a configuration mean.

use crate::Endpoint;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, IkeSaId};

/// SAs that a name means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// IKE SAs.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs.
    pub children: Vec<ChildId>,
}

impl Endpoint {
    /// The IKE SAs of a connection, and the Child SAs of one of its children, by name.
    pub fn named(&self, name: &str) -> Named {
        let mut named = Named::default();
        for sa in self.ike().status() {
            if sa.connection.name == name {
                named.ikes.push(sa.id);
            }
            let children = sa.children.iter().filter(|child| child.child.name == name);
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
            let whole = |child: &Arc<Child>| -> String { [&*connection.name, "/", &*child.name].concat() };
            let is_it = |child: &&Arc<Child>| child.name == name || whole(child) == name;
            Some((connection.clone(), Some(connection.children.iter().find(is_it)?.clone())))
        })
    }
}
