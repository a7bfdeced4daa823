//! Configuration files: `ip xfrm` lines for manual keys, or a `swanctl.conf` for IKE.

use casemate::{Datapath, Endpoint, bypass_control_plane};
use casemate_app::keyring::Keyring;
use casemate_app::providers;
use casemate_app::swanctl::{self, SystemEnvironment};
use casemate_app::xfrm::{self, XfrmFile};
use casemate_crypto::{Provider, Providers};
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::config::{Connection, Pool};
use casemate_ike::{IkeSettings, Retransmission};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use casemate_smoltcp::IkeConfig;
use smoltcp::wire::IpCidr;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limits of a device with plenty of memory.
pub(crate) const LIMITS: Limits = Limits {
    sas: 64,
    policies: 64,
    flows: 64,
    audit_events: 8,
    replay_window: 4_096,
    reassemblies: 8,
    reassembly_bytes: 65_535,
};

/// Settings of a device. A silent peer is given up after five seconds, which keeps tests short.
const SETTINGS: IkeSettings = IkeSettings {
    retransmission: Retransmission {
        initial_timeout: Duration::from_secs(1),
        growth_permille: 1_000,
        max_timeout: Duration::from_secs(1),
        jitter_percent: 0,
        tries: 4,
    },
    ..IkeSettings::DEVICE
};

/// Providers of algorithms for IKE that need no operating system.
const IKE_PROVIDERS: [&dyn Provider; 1] = [&RUSTCRYPTO];

/// Creates an endpoint without keys. As on a Linux host, packets that match no policy pass.
pub(crate) fn unprotected(now: Instant) -> Endpoint {
    let config =
        Config { limits: LIMITS, unmatched: Unmatched::PassClear, ..Config::server(now.as_micros()) };
    Endpoint::new(Datapath::new(config), SETTINGS)
}

/// Creates an endpoint with the SAs and policies of a file with `ip xfrm` lines.
pub(crate) fn from_xfrm(path: &Path, addresses: &[IpCidr], now: Instant) -> Result<Endpoint, String> {
    let file = XfrmFile::load(path).map_err(|error| error.to_string())?;
    let mut endpoint = unprotected(now);
    let list = providers::for_sas(file.states.iter().map(|state| &state.value));
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
            // The device does not forward packets.
            xfrm::Direction::Forward => continue,
        };
        let added = endpoint.datapath_mut().add_policy(direction, policy.value.policy.clone());
        added.map_err(|error| format!("line {}: {error}", policy.line))?;
    }
    Ok(endpoint)
}

/// Creates an endpoint for IKE without connections, with the policies of `bypass_control_plane`.
pub(crate) fn without_connections(now: Instant) -> Result<Endpoint, String> {
    let mut endpoint = unprotected(now);
    bypass_control_plane(endpoint.datapath_mut()).map_err(|error| error.to_string())?;
    Ok(endpoint)
}

/// An IKE configuration with its keys and certificates.
pub(crate) struct Loaded {
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) keys: IkeConfig,
}

/// Reads a `swanctl.conf` and the files that it names. Returns all errors if there are any.
pub(crate) fn from_swanctl(path: &Path, now: Instant) -> Result<Loaded, String> {
    let config = swanctl::Config::load(path, &SystemEnvironment).map_err(|error| error.to_string())?;
    let keyring = Keyring::load(&config, &IKE_PROVIDERS, &SystemEnvironment)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Loaded {
        connections: config.connections,
        pools: config.pools,
        keys: IkeConfig {
            providers: IKE_PROVIDERS.to_vec(),
            credentials: Box::new(keyring),
            // Rounded up, so that a certificate issued in this second is valid.
            unix_time_at_origin: unix_time
                .as_secs()
                .saturating_add(1)
                .saturating_sub(now.as_micros() / 1_000_000),
        },
    })
}
