//! NAT keepalives (RFC 3948 section 4).

use crate::raw::Sender;
use crate::udp;
use casemate_datapath::{Datapath, Direction, SaId};
use casemate_sa::{Instant, SaParams};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// RFC 3948 section 4: the default is 20 seconds, if no other packet has been sent.
const INTERVAL: Duration = Duration::from_secs(20);

/// The encapsulated outbound SAs. With manual keys nobody knows whether there is a NAT between the peers, so its entry is
/// kept alive in any case.
pub(super) struct Keepalives {
    sender: Arc<Sender>,
    paths: Vec<Path>,
}

struct Path {
    id: SaId,
    src: SocketAddr,
    dst: SocketAddr,
    last_seq: u64,
    /// When something was sent last; at first nothing was.
    active_at: Option<Instant>,
}

impl Keepalives {
    pub(super) fn new(sender: Arc<Sender>, sas: &[(SaId, SaParams)]) -> Self {
        let outbound = sas.iter().filter(|(id, _)| id.direction() == Direction::Outbound);
        let paths = outbound.filter_map(|(id, sa)| {
            let encap = sa.encap?;
            let (src, dst) = ((sa.src, encap.src_port).into(), (sa.dst, encap.dst_port).into());
            Some(Path { id: *id, src, dst, last_seq: sa.last_sent, active_at: None })
        });
        Self { sender, paths: paths.collect() }
    }

    /// Sends a keepalive for each SA that has been silent for too long.
    pub(super) fn send_due(&mut self, datapath: &mut Datapath, now: Instant) {
        for path in &mut self.paths {
            let Some(seq) = datapath.last_seq(path.id) else { continue };
            if seq != path.last_seq {
                (path.last_seq, path.active_at) = (seq, Some(now));
            } else if path.active_at.is_none_or(|at| now.since(at) >= INTERVAL) {
                path.active_at = Some(now);
                if let Some(packet) = udp::keepalive(path.src, path.dst) {
                    // Whether it goes matters little.
                    let _ = self.sender.send(now, &[(&packet, path.dst.ip())]);
                }
            }
        }
    }
}
