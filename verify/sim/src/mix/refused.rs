//! Mix in which no IKE SA may be established: one side requires what its peer does not have, or an
//! attacker removes an announcement from the unprotected messages, so that the two sides would use less than
//! both want.

use crate::invariants::{self, Checked, violated};
use crate::net::{Datagram, Payload};
use crate::simulation::Simulation;
use casemate_ike::IkeState;
use casemate_wire::ike::{ExchangeType, Header};
use std::time::Duration;

/// Longer than all requests of an attempt are repeated.
const ATTEMPT: Duration = Duration::from_secs(120);
/// Number of attempts.
const ATTEMPTS: usize = 3;
/// A status type that no host knows (RFC 7296 section 3.10.1: it is ignored).
const UNKNOWN_STATUS: u16 = 40_960;
/// Protocol ID and SPI size of a notification that concerns the IKE SA.
const NO_SPI: [u8; 2] = [0, 0];

impl Simulation {
    /// Both endpoints try to establish an IKE SA several times, and never succeed. The invariants notice each
    /// established IKE SA. Packets are sent meanwhile, and none may leave.
    pub(super) fn run_refused(&mut self) -> Checked {
        self.configure_nodes()?;
        for _ in 0..ATTEMPTS {
            self.send_on_all_children(false)?;
            self.run_for(ATTEMPT)?;
            self.check_nothing_up()?;
            self.connect()?;
        }
        if self.monitor.packet_log.delivered_count() > 0 {
            return violated("a packet was delivered without an IKE SA".into());
        }
        self.shut_down()
    }

    fn check_nothing_up(&self) -> Checked {
        let is_up = |node: &crate::node::Node| {
            node.ikes().iter().any(|ike| ike.state != IkeState::Connecting || !ike.children.is_empty())
        };
        if self.nodes.iter().any(is_up) {
            return violated(format!("an IKE SA is up: {}", invariants::describe(&self.nodes)));
        }
        Ok(())
    }

    /// Replaces an announcement in an IKE_SA_INIT message, as an attacker on the path would.
    pub(super) fn strip(&self, datagram: &mut Datagram) {
        let Some(kind) = self.rules.as_ref().and_then(|rules| rules.strips) else { return };
        let Payload::Udp(bytes) = &mut datagram.payload else { return };
        if !Header::parse(bytes).is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT) {
            return;
        }
        let [high, low] = kind.0.to_be_bytes();
        let wanted = [NO_SPI[0], NO_SPI[1], high, low];
        if let Some(at) = bytes.windows(wanted.len()).position(|part| part == wanted) {
            bytes[at + NO_SPI.len()..at + wanted.len()].copy_from_slice(&UNKNOWN_STATUS.to_be_bytes());
        }
    }
}
