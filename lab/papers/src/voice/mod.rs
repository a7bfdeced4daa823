//! Experiment `voice`: calls over IPsec (ACSAC 2002), with packet sizes, number of calls on a line, waiting
//! for the line, and waiting for the crypto engine.
//!
//! The crate `casemate-calls` computes formats and models; delays and throughput are measured on the gateway.

mod bottleneck;
mod engine;
mod formats;
mod line;
mod models;
mod priority;
mod traffic;

use crate::{Experiment, Requirement, Step};
use casemate_measure::report::Paper;

/// The experiment.
pub static VOICE: Experiment = Experiment {
    name: "voice",
    paper,
    summary: "Number of calls that a line of 128 kbit/s carries with IPsec, waiting time of their \
         packets for the line, and behaviour of the crypto engine under overload. What the paper computed \
         is computed from packet formats and queueing theory; what it measured on routers is measured on \
         Casemate in network namespaces.",
    short_form_limits: &[
        "The short form has two loads on the line, so it does not show where the delay begins to rise.",
        "The short form has three engines instead of six and few loads, so it neither orders the ciphers nor \
         shows where throughput begins to fall.",
        "Calls beside bulk traffic last half a second, so losses below 1 % and rare long delays do not show.",
    ],
    steps: &[
        Step { title: "packets and calls", requirements: &[], share: 0, run: formats::parts },
        Step { title: "waiting for a line, in theory", requirements: &[], share: 0, run: models::parts },
        Step {
            title: "waiting for a line, measured",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("tc", "iproute2"),
            ],
            share: 6,
            run: line::parts,
        },
        Step {
            title: "throughput of the engine",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("nft", "nftables"),
            ],
            share: 5,
            run: engine::parts,
        },
        Step {
            title: "priority before the engine, measured",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("nft", "nftables"),
            ],
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
