//! No tunnel: what the link, the sender and the receiver are able to do.

use super::Subject;
use casemate_interop::{Background, Result};
use casemate_stage::arena::Arena;
use std::path::Path;

pub(super) struct Link;

impl Subject for Link {
    fn name(&self) -> String {
        "link".into()
    }

    fn start(&self, arena: &Arena, _: &Path) -> Result<Vec<Background>> {
        [0, 1].into_iter().try_for_each(|end| arena.route_over_link(end))?;
        Ok(Vec::new())
    }
}
