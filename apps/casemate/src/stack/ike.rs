//! IKE over a stack of our own, from a `swanctl.conf`.

use crate::failure::Failure;
use crate::run::config::{Loaded, Source};
use casemate_smoltcp::{Exchange, Guarded, IkeSockets, Keys};
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;
use std::time::{SystemTime, UNIX_EPOCH};

/// Opens IKE's ports and applies a configuration.
pub(crate) fn open<D: Exchange>(
    source: &Source,
    loaded: Loaded,
    now: Instant,
    device: &mut Guarded<D>,
    interface: &Interface,
    sockets: &mut SocketSet<'_>,
) -> Result<IkeSockets, Failure> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let uptime = u64::try_from(now.secs()).unwrap_or(0);
    let keys = Keys {
        providers: source.providers().to_vec(),
        credentials: Box::new(loaded.keyring),
        unix_time_at_origin: since_1970.saturating_sub(uptime),
    };
    let ike = IkeSockets::new(device, sockets, keys);
    let (connections, pools) = (loaded.connections, loaded.pools);
    ike.with(now, interface, device, |endpoint, means| endpoint.configure(connections, &pools, means))
        .map_err(Failure::failed)?;
    Ok(ike)
}
