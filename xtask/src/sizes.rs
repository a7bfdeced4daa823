//! The footprint: code and memory of devices of several kinds, for several processors (verify/bare).

mod measure;
mod page;

use crate::bare::{self, TARGETS, THUMB, Target};
use crate::failure::{Failure, Result};
use crate::shell;
use measure::Footprint;
use std::fs;

pub(crate) const ABOUT: &str = "Measure code and memory of devices, for the table in docs/manual/sizes.md
Builds one program for each profile of a device, from ESP with manual keys to IKEv2 with certificates, for Thumb, ARMv6, AArch64 and
x86-64, as small as can be, and runs it on an emulated board to see what it allocates. Writes docs/manual/sizes.md; with --json prints
the numbers instead. PROCESSOR names those of the page or the numbers, all by default. With --check builds for Thumb only, and fails if a number is above its bound. The goals and the bounds are in
xtask/src/sizes.rs. Needs Debian's rustc-web, rust-web-src and qemu-system-arm.";

/// A device: the program in verify/bare, and what it is.
pub(crate) struct Profile {
    pub(crate) program: &'static str,
    pub(crate) about: &'static str,
}

const PROFILES: [Profile; 6] = [
    Profile { program: "nothing", about: "the board alone: start, console, heap" },
    Profile { program: "esp_gcm", about: "ESP, manual keys, AES-128-GCM" },
    Profile { program: "esp_fragments", about: "the same, with fragments and reassembly" },
    Profile {
        program: "esp_ah_cbc",
        about: "ESP and AH, manual keys, AES-128-GCM, AES-128-CBC, HMAC-SHA-256",
    },
    Profile { program: "ike_psk", about: "IKEv2, pre-shared key, X25519, AES-128-GCM, HMAC-SHA-256" },
    Profile { program: "ike_certificates", about: "IKEv2, certificates, every algorithm" },
];

/// What a number of a profile on Thumb is to be, and what it may be at most today.
pub(crate) struct Goal {
    pub(crate) program: &'static str,
    pub(crate) what: &'static str,
    pub(crate) goal: usize,
    /// Above this the check fails. It is lowered when the code shrinks, and only raised with a reason in the commit.
    pub(crate) bound: usize,
    pub(crate) number: fn(&Footprint) -> usize,
}

const GOALS: [Goal; 4] = [
    Goal {
        program: "esp_gcm",
        what: "code with AES-GCM and manual keys",
        goal: 24 << 10,
        bound: 72 << 10,
        number: Footprint::code,
    },
    Goal {
        program: "ike_psk",
        what: "code with IKEv2 (pre-shared key, X25519, AES-GCM, SHA-256)",
        goal: 96 << 10,
        bound: 256 << 10,
        number: Footprint::code,
    },
    Goal {
        program: "esp_gcm",
        what: "memory of a pair of ESP SAs",
        goal: 1536,
        bound: 1536,
        number: Footprint::pair,
    },
    Goal {
        program: "ike_psk",
        what: "memory of an IKE SA",
        goal: 4096,
        bound: 4096,
        number: Footprint::ike_sa,
    },
];

/// Runs the task.
pub(crate) fn run(arguments: &[String]) -> Result {
    if let Some(why) = bare::unavailable() {
        return Err(Failure::new(why));
    }
    match arguments.split_first() {
        Some((first, [])) if first == "--check" => check(),
        Some((first, names)) if first == "--json" => {
            println!("{}", page::json(&measure::all(&targets(names)?, &programs())?));
            Ok(())
        }
        _ => write_page(&targets(arguments)?),
    }
}

/// The processors of these names; all without any. Thumb is always there, because the goals are for it.
fn targets(names: &[String]) -> Result<Vec<Target>> {
    let known = |name: &String| TARGETS.iter().any(|target| target.name.eq_ignore_ascii_case(name));
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Failure::new(format!(
            "`{unknown}`: --check, --json, or names of processors were expected"
        )));
    }
    let is_meant = |target: &Target| {
        names.is_empty()
            || target.triple == THUMB.triple
            || names.iter().any(|name| target.name.eq_ignore_ascii_case(name))
    };
    Ok(TARGETS.into_iter().filter(is_meant).collect())
}

fn programs() -> Vec<&'static str> {
    PROFILES.iter().map(|profile| profile.program).collect()
}

fn write_page(targets: &[Target]) -> Result {
    let measured = measure::all(targets, &programs())?;
    let path = shell::root().join("docs/manual/sizes.md");
    fs::write(&path, page::page(&measured, targets)?)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn check() -> Result {
    let mut programs: Vec<_> = GOALS.iter().map(|goal| goal.program).collect();
    programs.dedup();
    programs.sort_unstable();
    programs.dedup();
    let measured = measure::all(&[THUMB], &programs)?;
    let mut above = Vec::new();
    for Goal { program, what, goal, bound, number } in &GOALS {
        let found = measured.iter().find(|footprint| footprint.program == *program).map(number);
        let found = found.ok_or_else(|| Failure::new(format!("{program} was not measured")))?;
        println!("{what}: {found} bytes; goal {goal}, bound {bound}");
        if found > *bound {
            above.push(format!("{program}: {what}: {found} bytes, {bound} are the bound"));
        }
    }
    Failure::unless_empty(&above, "the footprint on Thumb is above its bounds (xtask/src/sizes.rs)")
}
