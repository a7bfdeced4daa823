//! Rounds, in each of which every subject has a turn.

use crate::measures::{Meter, echo, small, stream};
use crate::options::Options;
use crate::subjects::Subject;
use casemate_interop::{Error, Result};
use casemate_stage::arena::Arena;
use std::fs;
use std::path::Path;

/// What one turn came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) stream: stream::Outcome,
    pub(crate) small: small::Outcome,
    pub(crate) echo: echo::Outcome,
}

/// The turns of one subject, one a round, until one failed.
pub(crate) struct Turns {
    pub(crate) name: String,
    pub(crate) turns: Vec<Turn>,
    /// Why the last one failed.
    pub(crate) failure: Option<String>,
}

/// Measures all subjects. What becomes of each turn is a line on standard error.
pub(crate) fn rounds(subjects: &[Box<dyn Subject>], options: &Options, directory: &Path) -> Vec<Turns> {
    let names = subjects.iter().map(|subject| subject.name());
    let mut all: Vec<Turns> = names.map(|name| Turns { name, turns: Vec::new(), failure: None }).collect();
    for round in 0..options.common.rounds as usize {
        for step in 0..subjects.len() {
            // Each round begins with another one.
            let which = (round + step) % subjects.len();
            let turns = &mut all[which];
            if turns.failure.is_some() {
                continue;
            }
            let directory = directory.join(format!("{round}-{}", turns.name));
            match turn(subjects[which].as_ref(), options, &directory) {
                Ok(turn) => {
                    tell(round, &turns.name, turn);
                    turns.turns.push(turn);
                }
                Err(error) => {
                    eprintln!("round {}: {}: {error}", round + 1, turns.name);
                    turns.failure = Some(error.to_string());
                }
            }
        }
    }
    all
}

fn tell(round: usize, name: &str, turn: Turn) {
    eprintln!(
        "round {}: {name}: {:.2} Gbit/s, {:.0} small packets/s, {:.0} us there and back",
        round + 1,
        turn.stream.gbit_per_second,
        turn.small.packets_per_second,
        turn.echo.rtt_us
    );
}

fn turn(subject: &dyn Subject, options: &Options, directory: &Path) -> Result<Turn> {
    fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
    let arena = Arena::new()?;
    let processes = subject.start(&arena, directory)?;
    arena.wait_until_connected()?;
    let meter = Meter::new(&processes);
    // Nothing has been stirred up yet.
    let echo = echo::measure(&arena, &meter)?;
    let stream = stream::measure(&arena, &meter, options.common.seconds, directory)?;
    let small = small::measure(&arena, &meter, options.common.seconds)?;
    Ok(Turn { stream, small, echo })
}
