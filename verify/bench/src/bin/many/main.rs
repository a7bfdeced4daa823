//! Ten thousand tunnels between two gateways, beside one (`cargo xtask bench many`): what an idle one takes of memory, and how
//! much slower all of them are than one that carries the same packets.
//!
//! In each round every provider has a turn with one tunnel and a turn with all ([`turn`]), with fresh namespaces and gateways.
//! Everything runs on two CPUs.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod options;
mod report;
mod tunnels;
mod turn;

use casemate_bench::program;
use casemate_interop::Result;
use casemate_stage::gateway::Gateway;
use options::Options;
use report::Pair;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::run::<Options>()
}

/// What was measured with each provider, round by round.
fn rounds(options: &Options, directory: &Path) -> Result<Vec<(&'static str, Vec<Pair>)>> {
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let mut gateways = vec![("aws-lc", gateway.clone().without_intels_library(directory)?)];
    match casemate_ipsec_mb::IPSEC_MB.available() {
        Ok(()) => gateways.push(("ipsec-mb", gateway)),
        Err(absent) => eprintln!("left out: ipsec-mb: {absent}"),
    }
    let mut all: Vec<(&str, Vec<Pair>)> = gateways.iter().map(|(name, _)| (*name, Vec::new())).collect();
    for round in 1..=options.common.rounds {
        for ((name, gateway), (_, pairs)) in gateways.iter().zip(&mut all) {
            let run = |tunnels: u32| {
                let directory = directory.join(format!("{round}-{name}-{tunnels}"));
                turn::run(gateway, (tunnels, options.tunnels), options.common.seconds, &directory)
            };
            let pair = Pair { one: run(1)?, all: run(options.tunnels)?, tunnels: options.tunnels };
            eprintln!("round {round}: {name}: {}", pair.line());
            pairs.push(pair);
        }
    }
    Ok(all)
}
