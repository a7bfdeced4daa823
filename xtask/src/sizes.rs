//! The `sizes` task: code and memory of several kinds of devices, for several processors (verify/bare).

mod measure;
mod page;

use crate::bare::{self, TARGETS, THUMB, Target};
use crate::shell::{self, Failure, Result};
use measure::Footprint;
use std::fs;

pub(crate) const ABOUT: &str = "Measure code and memory of devices, for the table in docs/manual/sizes.md
Builds one program for each device profile, from ESP with manual keys to IKEv2 with certificates and smoltcp
behind Casemate, and links the C library for lwIP, for Thumb, ARMv6, AArch64 and x86-64, optimized for size.
Runs the programs on an emulated board to measure the memory that they allocate. Writes
docs/manual/sizes.md, or prints the numbers with --json. PROCESSOR selects processors; the default is all.
--check builds for Thumb only, and fails if a number exceeds its bound. xtask/src/sizes.rs contains goals
and bounds. Needs Debian's rustc-web, rust-web-src and qemu-system-arm.";

/// Row of the code table.
pub(crate) struct Profile {
    /// Name of the image.
    pub(crate) program: &'static str,
    pub(crate) about: &'static str,
    pub(crate) image: Image,
}

/// Content of an image.
#[derive(Clone, Copy)]
pub(crate) enum Image {
    /// Program of verify/bare with these Cargo features of it, which is run.
    Program(&'static str),
    /// The C library for lwIP with these Cargo features, linked with every function of these headers and no
    /// other code.
    Library { headers: &'static [&'static str], features: &'static str },
}

/// Program of verify/bare.
const fn device(program: &'static str, about: &'static str) -> Profile {
    Profile { program, about, image: Image::Program("image") }
}

const PROFILES: [Profile; 14] = [
    device("nothing", "the board alone: start, console, heap"),
    device("esp_gcm", "ESP, manual keys, AES-128-GCM"),
    device("esp_fragments", "the same, with fragments and reassembly"),
    device("esp_rohc", "ESP, manual keys, AES-128-GCM, with header compression"),
    device("esp_ah_cbc", "ESP and AH, manual keys, AES-128-GCM, AES-128-CBC, HMAC-SHA-256"),
    device("ike_psk", "IKEv2, pre-shared key, X25519, AES-128-GCM, HMAC-SHA-256"),
    Profile {
        program: "ike_ml_kem",
        about: "the same with ML-KEM-768 after X25519",
        image: Image::Program("image,multiple-kex"),
    },
    device("ike_certificates", "IKEv2, certificates, every algorithm"),
    device("smoltcp_alone", "smoltcp alone: IPv4, UDP"),
    device("smoltcp_esp", "smoltcp behind Casemate, manual keys, AES-128-GCM"),
    device("smoltcp_ike", "smoltcp behind Casemate, IKEv2 with the algorithms above"),
    Profile {
        program: "lwip_esp",
        about: "the C library for lwIP, `casemate.h`: manual keys, every algorithm",
        image: Image::Library { headers: &["casemate.h"], features: "" },
    },
    Profile {
        program: "lwip_ike",
        about: "the same with `casemate_ike.h`: IKEv2, certificates",
        image: Image::Library { headers: &["casemate.h", "casemate_ike.h"], features: "" },
    },
    Profile {
        program: "lwip_ml_kem",
        about: "the same with the features `multiple-kex` (ML-KEM) and `ppk`",
        image: Image::Library { headers: &["casemate.h", "casemate_ike.h"], features: "multiple-kex,ppk" },
    },
];

/// Goal, if there is one, and bound of a number of a profile on Thumb.
pub(crate) struct Goal {
    pub(crate) program: &'static str,
    pub(crate) what: &'static str,
    pub(crate) goal: Option<usize>,
    /// The check fails above this bound. Lower it when the code shrinks; raise it only with a reason in the
    /// commit.
    pub(crate) bound: usize,
    pub(crate) number: fn(&Footprint) -> usize,
}

const GOALS: [Goal; 7] = [
    Goal {
        program: "esp_gcm",
        what: "code with AES-GCM and manual keys",
        goal: Some(24 << 10),
        bound: 83 << 10,
        number: Footprint::code,
    },
    Goal {
        program: "ike_psk",
        what: "code with IKEv2 (pre-shared key, X25519, AES-GCM, SHA-256)",
        goal: Some(96 << 10),
        bound: 280 << 10,
        number: Footprint::code,
    },
    Goal {
        program: "esp_gcm",
        what: "memory of a pair of ESP SAs",
        goal: Some(1536),
        bound: 1536,
        number: Footprint::pair,
    },
    Goal {
        program: "ike_psk",
        what: "memory of an IKE SA",
        goal: Some(4096),
        bound: 4096,
        number: Footprint::ike_sa,
    },
    Goal {
        program: "ike_ml_kem",
        what: "code with IKEv2 and ML-KEM-768",
        goal: None,
        bound: 314 << 10,
        number: Footprint::code,
    },
    Goal {
        program: "ike_ml_kem",
        what: "stack with IKEv2 and ML-KEM-768",
        goal: None,
        bound: 52 << 10,
        number: Footprint::stack,
    },
    Goal {
        program: "ike_ml_kem",
        what: "memory of an IKE SA with ML-KEM-768",
        goal: None,
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
            println!("{}", page::json(&measure::all(&targets(names)?, &PROFILES.each_ref())?));
            Ok(())
        }
        _ => write_page(&targets(arguments)?),
    }
}

/// Processors with these names; all processors if the list is empty. Thumb is always included, because the
/// goals are for it.
fn targets(names: &[String]) -> Result<Vec<Target>> {
    let known = |name: &String| TARGETS.iter().any(|target| target.name.eq_ignore_ascii_case(name));
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Failure::new(format!(
            "unknown argument `{unknown}`; expected --check, --json, or processor names"
        )));
    }
    let is_meant = |target: &Target| {
        names.is_empty()
            || target.triple == THUMB.triple
            || names.iter().any(|name| target.name.eq_ignore_ascii_case(name))
    };
    Ok(TARGETS.into_iter().filter(is_meant).collect())
}

fn write_page(targets: &[Target]) -> Result {
    let measured = measure::all(targets, &PROFILES.each_ref())?;
    let path = shell::root().join("docs/manual/sizes.md");
    fs::write(&path, page::page(&measured, targets)?)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn check() -> Result {
    let has_goal = |profile: &&Profile| GOALS.iter().any(|goal| goal.program == profile.program);
    let measured = measure::all(&[THUMB], &PROFILES.iter().filter(has_goal).collect::<Vec<_>>())?;
    let mut above = Vec::new();
    for Goal { program, what, goal, bound, number } in &GOALS {
        let found = measured.iter().find(|footprint| footprint.program == *program).map(number);
        let found = found.ok_or_else(|| Failure::new(format!("{program} was not measured")))?;
        let goal = goal.map(|goal| format!("goal {goal}, ")).unwrap_or_default();
        println!("{what}: {found} bytes; {goal}bound {bound}");
        if found > *bound {
            above.push(format!("{program}: {what}: {found} bytes exceed the bound of {bound}"));
        }
    }
    Failure::unless_empty(&above, "the footprint on Thumb exceeds its bounds (xtask/src/sizes.rs)")
}
