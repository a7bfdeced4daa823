//! Calls over IPsec (ACSAC 2002): packets, calls on a line, waiting for the line, and waiting for the engine that encrypts.
//!
//! Formats and models are computed by the crate `casemate-calls`; delays and throughput are measured on the gateway.

mod engine;
mod formats;
mod line;
mod models;
mod priority;
mod rig;
mod traffic;

use crate::{Experiment, Need, Step};
use casemate_report::Paper;

/// The experiment.
pub static VOICE: Experiment = Experiment {
    name: "voice",
    paper,
    summary: "How many calls a line of 128 kbit/s carries with IPsec, how long their packets wait for the line, and what the engine that \
              encrypts does when more packets come than it can take. What the paper computed is computed from the formats and from queueing \
              theory; what it measured on routers is measured on this program in network namespaces.",
    steps: &[
        Step { title: "packets and calls", needs: &[], share: 0, run: formats::parts },
        Step { title: "waiting for a line, in theory", needs: &[], share: 0, run: models::parts },
        Step {
            title: "waiting for a line, measured",
            needs: &[Need::Namespaces, Need::Tun, Need::Program("tc", "iproute2")],
            share: 6,
            run: line::parts,
        },
        Step {
            title: "throughput of the engine",
            needs: &[Need::Namespaces, Need::Tun, Need::Program("nft", "nftables")],
            share: 5,
            run: engine::parts,
        },
        Step {
            title: "priority before the engine, measured",
            needs: &[Need::Namespaces, Need::Tun, Need::Program("nft", "nftables")],
            share: 2,
            run: priority::parts,
        },
    ],
};

fn paper() -> Paper {
    Paper {
        authors: "R. Barbieri, D. Bruschi, E. Rosti".into(),
        title: "Voice over IPsec: Analysis and Solutions".into(),
        venue: "18th Annual Computer Security Applications Conference".into(),
        year: 2002,
    }
}
