//! Experiment `voice`: calls over IPsec (ACSAC 2002), with packet sizes, number of calls on a line, waiting
//! for the line, and waiting for the crypto engine.
//!
//! The crate `casemate-calls` computes formats and models; delays and throughput are measured on the gateway.

mod bottleneck;
mod engine;
mod formats;
mod line;
mod line_queue;
mod models;
mod priority;
mod routers;
mod serial_line;
mod traffic;

use crate::{Experiment, Requirement, Step};
use casemate_measure::report::Paper;

/// The experiment.
pub static VOICE: Experiment = Experiment {
    name: "voice",
    paper,
    summary: "Number of calls that a line of 128 kbit/s carries with IPsec, waiting time of their \
         packets for the line, also over three routers with two tunnels, and behaviour of the crypto engine \
         under overload. What the paper computed \
         is computed from packet formats and queueing theory; what it measured on routers is measured on \
         Casemate in network namespaces.",
    short_form_limits: &[
        "The short form has two loads on the line, so it does not show where the delay begins to rise.",
        "The short form has two engines instead of six and two loads, so it shows neither the order of the \
         ciphers nor where an engine begins to level off, and nothing about the length of packets (figure 6).",
        "Calls beside bulk traffic last less than a quarter of a second and are not measured alone, so losses below 1 % \
         and rare long delays do not show.",
    ],
    artifacts: &[],
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
            title: "three routers, measured",
            requirements: &[Requirement::Namespaces, Requirement::Tun],
            share: 3,
            run: routers::parts,
        },
        Step {
            title: "throughput of the engine",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("nft", "nftables"),
            ],
            share: 13,
            run: engine::parts,
        },
        Step {
            title: "priority before the engine, measured",
            requirements: &[
                Requirement::Namespaces,
                Requirement::Tun,
                Requirement::Program("nft", "nftables"),
            ],
            share: 3,
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
