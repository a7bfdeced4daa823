//! A data path with manual keys, from a file for `ip xfrm`.

use crate::failure::Failure;
use crate::providers::providers;
use crate::xfrm::{self, XfrmFile};
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Direction};
use casemate_sa::{Instant, Limits};
use std::path::Path;

/// A data path with everything that the file says. What its outbound policies protect goes out; all other SAs come in.
pub(super) fn load(path: &Path, limits: Limits) -> Result<Datapath, Failure> {
    let file = XfrmFile::load(path).map_err(Failure::bad_input)?;
    // Both ends are ours, and nobody else reaches them: the tables need no secret.
    let mut datapath = Datapath::new(Config { limits, ..Config::server(0) });
    let providers = providers(file.states.iter().map(|state| &state.value));
    for state in &file.states {
        let sa = &state.value;
        let out = file.policies.iter().filter(|policy| policy.value.direction == xfrm::Direction::Out);
        let is_out = out.clone().any(|policy| policy.value.policy.selector.src.contains(sa.src));
        let direction = if is_out { Direction::Outbound } else { Direction::Inbound };
        let added = datapath.add_sa(sa, direction, &Providers(&providers), Instant::ZERO);
        added.map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), state.line)))?;
    }
    for policy in &file.policies {
        let direction = match policy.value.direction {
            xfrm::Direction::Out => Direction::Outbound,
            xfrm::Direction::In | xfrm::Direction::Forward => Direction::Inbound,
        };
        let added = datapath.add_policy(direction, policy.value.policy.clone());
        added.map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), policy.line)))?;
    }
    Ok(datapath)
}
