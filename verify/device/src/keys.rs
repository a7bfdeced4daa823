//! Where keys come from: a file of `ip xfrm` lines, or a `swanctl.conf` for IKE.

use casemate::{Datapath, Endpoint, housekeeping};
use casemate_app::keyring::Keyring;
use casemate_app::providers::providers;
use casemate_app::swanctl;
use casemate_app::xfrm::{self, XfrmFile};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::config::{Connection, Pool};
use casemate_ike::{Retransmission, Settings};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use casemate_smoltcp::Keys;
use smoltcp::wire::IpCidr;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A device's bounds. A peer that does not answer is given up after five seconds: whoever tests need not wait longer.
const SETTINGS: Settings = Settings {
    retransmission: Retransmission {
        first: Duration::from_secs(1),
        factor: 1,
        longest: Duration::from_secs(1),
        tries: 4,
    },
    ..Settings::DEVICE
};

/// What IKE has for algorithms: those that need no operating system.
const IKE_PROVIDERS: [&dyn Provider; 1] = [&RUSTCRYPTO];

/// An endpoint without a key. What no policy names passes, as on a Linux host.
pub(crate) fn none(now: Instant) -> Endpoint {
    let config =
        Config { limits: LIMITS, unmatched: Unmatched::PassClear, ..Config::server(now.as_micros()) };
    Endpoint::new(Datapath::new(config), SETTINGS)
}

/// An endpoint with what a file of `ip xfrm` lines says.
pub(crate) fn manual(path: &Path, addresses: &[IpCidr], now: Instant) -> Result<Endpoint, String> {
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

/// An endpoint for IKE, which has no connections yet: only what a network needs passes by a policy.
pub(crate) fn for_ike(now: Instant) -> Result<Endpoint, String> {
    let mut endpoint = none(now);
    housekeeping(endpoint.datapath_mut()).map_err(|error| error.to_string())?;
    Ok(endpoint)
}

/// A configuration of IKE with its keys and certificates.
pub(crate) struct Loaded {
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) keys: Keys,
}

/// Reads a `swanctl.conf` and all that it names. Either all of it is right, or everything that is wrong is told.
pub(crate) fn negotiated(path: &Path, now: Instant) -> Result<Loaded, String> {
    let config = swanctl::Config::load(path).map_err(|error| error.to_string())?;
    let keyring = Keyring::load(&config, &IKE_PROVIDERS)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Loaded {
        connections: config.connections.into_iter().map(Arc::new).collect(),
        pools: config.pools,
        keys: Keys {
            providers: IKE_PROVIDERS.to_vec(),
            credentials: Box::new(keyring),
            // Rounded up: a certificate that was made in this second is valid.
            unix_time_at_origin: unix_time
                .as_secs()
                .saturating_add(1)
                .saturating_sub(now.as_micros() / 1_000_000),
        },
    })
}
