//! A round: each gateway as the bottleneck, without and with the scheduler, under each load.

use crate::options::Options;
use crate::stage::{Outcome, Stage, Way};
use casemate_interop::Result;
use casemate_stage::gateway::Gateway;
use casemate_stage::negotiated::Tunnel;
use std::path::Path;
use std::time::Duration;

/// Loads, as multiples of what saturates the tunnel.
pub(crate) const LOADS: [u64; 4] = [0, 1, 2, 3];

/// Packets a second that the search for saturation begins with, and how often it doubles them at most.
const FIRST: u64 = 4_000;
const DOUBLINGS: u32 = 8;
const SEARCH: Duration = Duration::from_secs(1);
/// Once so much of what is offered does not arrive, more does not help.
const ENOUGH: f64 = 0.7;

/// What was measured under one load.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) way: Way,
    pub(crate) has_scheduler: bool,
    pub(crate) load: u64,
    /// The most bulk that got through in the search, in packets a second.
    pub(crate) most: f64,
    pub(crate) outcome: Outcome,
}

pub(crate) fn round(
    gateway: &Gateway,
    options: &Options,
    cpus: [usize; 2],
    directory: &Path,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for way in Way::ALL {
        let mut most = None;
        for has_scheduler in [false, true] {
            let scheduler =
                format!("scheduler {{\n enabled = {}\n}}", if has_scheduler { "yes" } else { "no" });
            // A recording is a replay.
            let tunnel = Tunnel { suite: &options.suite, child: "replay_window = 0", scheduler: &scheduler };
            let directory = directory.join(format!("{}-{has_scheduler}", way.name()));
            let mut stage = Stage::build(gateway, &tunnel, way, cpus, &directory)?;
            // Both are loaded with multiples of the same.
            let most = match most {
                Some(most) => most,
                None => *most.insert(saturation(&mut stage)?),
            };
            for load in LOADS {
                let outcome = stage.run(most as u64 * load, options.common.seconds)?;
                let sample = Sample { way, has_scheduler, load, most, outcome };
                eprintln!("{}", crate::report::line(&sample));
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

/// The most packets of bulk that get through in a second, with the calls beside them.
fn saturation(stage: &mut Stage) -> Result<f64> {
    let mut most = 0.0;
    for rate in (0..=DOUBLINGS).map(|times| FIRST << times) {
        let Outcome { offered, bulk, .. } = stage.run(rate, SEARCH)?;
        most = bulk.max(most);
        if bulk < offered * ENOUGH {
            break;
        }
    }
    Ok(most)
}
