//! SAs and policies of a file, in an endpoint.

use casemate::{Datapath, Endpoint};
use casemate_app::providers::providers;
use casemate_app::xfrm::{self, XfrmFile};
use casemate_crypto::Providers;
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::Settings;
use casemate_sa::{Instant, Limits};
use smoltcp::wire::IpCidr;
use std::net::IpAddr;
use std::path::Path;

/// Tables of a device that has memory to spare.
pub(crate) const LIMITS: Limits = Limits {
    sas: 64,
    policies: 64,
    flows: 64,
    audit_events: 8,
    replay_window: 4_096,
    reassemblies: 8,
    reassembly_bytes: 65_535,
};

/// An endpoint without a key. What no policy names passes, as on a Linux host.
pub(crate) fn none(now: Instant) -> Endpoint {
    let config =
        Config { limits: LIMITS, unmatched: Unmatched::PassClear, ..Config::server(now.as_micros()) };
    Endpoint::new(Datapath::new(config), Settings::SERVER)
}

/// An endpoint with what a file of `ip xfrm` lines says.
pub(crate) fn load(path: &Path, addresses: &[IpCidr], now: Instant) -> Result<Endpoint, String> {
    let file = XfrmFile::load(path).map_err(|error| error.to_string())?;
    let mut endpoint = none(now);
    let list = providers(file.states.iter().map(|state| &state.value));
    for state in &file.states {
        let ours = addresses.iter().any(|cidr| IpAddr::from(cidr.address()) == state.value.src);
        let direction = if ours { Direction::Outbound } else { Direction::Inbound };
        let added = endpoint.add_sa(&state.value, direction, &Providers(&list), now);
        added.map_err(|error| format!("line {}: {error}", state.line))?;
    }
    for policy in &file.policies {
        let direction = match policy.value.direction {
            xfrm::Direction::Out => Direction::Outbound,
            xfrm::Direction::In => Direction::Inbound,
            // A device forwards nothing.
            xfrm::Direction::Forward => continue,
        };
        let added = endpoint.datapath_mut().add_policy(direction, policy.value.policy.clone());
        added.map_err(|error| format!("line {}: {error}", policy.line))?;
    }
    Ok(endpoint)
}
