//! The page of the manual, and the same as JSON.

use super::measure::Footprint;
use super::{Goal, Profile};
use crate::bare::TARGETS;
use crate::failure::{Failure, Result};
use crate::shell;
use serde_json::{Value, json};
use std::fmt::Write;

/// What stands above the tables.
const HEAD: &str = "# Code and memory of small devices

Written by `cargo xtask sizes`: do not edit. `--json` gives the same numbers to programs, `--check` holds them to their bounds in CI.

Every program is a whole image: start-up code, console, heap, and what the profile names. A device names its algorithms in one
line, and the linker drops the others:

```rust
const SUITES: Providers<'static> = Providers(&[AES_128_GCM, HMAC_SHA256, SHA1, X25519]);
```

They are built with `opt-level = \"z\"`, fat LTO, one codegen unit and `panic = \"abort\"` (profile `tiny` of `Cargo.toml`), by Debian's
rustc-web with a `core` that is built for size too, with the compact forms of AES and SHA-2, and with identical functions folded by
the linker. What each program does is in `verify/bare/src/profile`. All numbers are bytes.
";

const MEMORY: &str = "
## Memory

Bytes of the heap, as the program counted them on the emulated board, without what its allocator adds; tables of the sizes of
`Limits::DEVICE` and `Settings::DEVICE`. A pair is one ESP SA for each direction with AES-128-GCM and a window of 64 packets. The first
pair and the first IKE SA bring the first room of the tables along. x86-64 has the sizes of AArch64. The stack is the deepest
that it ever was.
";

/// What is reported, and by which program.
const ROWS: [(&str, &str, &str); 10] = [
    ("esp_gcm", "heap-datapath", "an empty data path"),
    ("esp_gcm", "heap-pair", "the first pair of SAs"),
    ("esp_gcm", "heap-three-pairs", "three more pairs"),
    ("esp_gcm", "heap-policies", "the first policy of each direction"),
    ("esp_fragments", "heap-reassembler", "reassembly of two datagrams of 4,096 bytes"),
    ("ike_psk", "heap-first-ike-sa", "the first IKE SA"),
    ("ike_psk", "heap-second-ike-sa", "one more IKE SA"),
    (
        "ike_psk",
        "heap-ike-sa-with-child",
        "one more, with the first Child SA, its pair of SAs and its policies",
    ),
    ("esp_gcm", "stack", "stack with manual keys"),
    ("ike_psk", "stack", "stack with IKEv2"),
];

/// The page.
pub(crate) fn page(measured: &[Footprint], profiles: &[Profile], goals: &[Goal]) -> Result<String> {
    let commit = shell::output(shell::command("git").args(["describe", "--always", "--dirty"]))?;
    let mut text = format!("{HEAD}\nMeasured at commit {}.\n", String::from_utf8_lossy(&commit).trim());
    text.push_str("\n## Code\n\nCode and constants together; in brackets the constants.\n\n| device |");
    TARGETS.iter().for_each(|target| text.push_str(&format!(" {} |", target.name)));
    text.push_str(&format!("\n|---|{}\n", "---:|".repeat(TARGETS.len())));
    for Profile { program, about } in profiles {
        let cell = |footprint: &Footprint| format!("{} ({})", footprint.code(), footprint.rodata);
        row(&mut text, about, measured, program, cell)?;
    }
    text.push_str(MEMORY);
    text.push_str(&format!("\n| what | Thumb | ARMv6 | AArch64 |\n|---|{}\n", "---:|".repeat(3)));
    for (program, report, about) in ROWS {
        let ran = |footprint: &Footprint| {
            footprint.reports.get(report).map(ToString::to_string).unwrap_or_default()
        };
        row(&mut text, about, measured, program, ran)?;
    }
    text.push_str("\n## Goals, on Thumb\n\n| what | goal | is |\n|---|---:|---:|\n");
    for Goal { program, what, goal, number, .. } in goals {
        let is = number(find(measured, program, TARGETS[0].triple)?);
        writeln!(text, "| {what} | {goal} | {is} |").map_err(|why| Failure::new(why.to_string()))?;
    }
    text.push_str(NOTE);
    Ok(text)
}

fn row(
    text: &mut String,
    about: &str,
    measured: &[Footprint],
    program: &str,
    cell: impl Fn(&Footprint) -> String,
) -> Result {
    text.push_str(&format!("| {about} |"));
    for target in TARGETS {
        let cell = cell(find(measured, program, target.triple)?);
        if !cell.is_empty() {
            text.push_str(&format!(" {cell} |"));
        }
    }
    text.push('\n');
    Ok(())
}

fn find<'f>(measured: &'f [Footprint], program: &str, triple: &str) -> Result<&'f Footprint> {
    let found = measured.iter().find(|one| one.program == program && one.target.triple == triple);
    found.ok_or_else(|| Failure::new(format!("{program} for {triple} was not measured")))
}

/// The numbers for programs.
pub(crate) fn json(measured: &[Footprint]) -> Value {
    let one = |one: &Footprint| {
        json!({
            "target": one.target.triple, "program": one.program, "text": one.text, "rodata": one.rodata,
            "data": one.data, "reports": one.reports,
        })
    };
    measured.iter().map(one).collect()
}

/// Why goals are missed. Kept with the goals: whoever changes a number looks here.
const NOTE: &str = "
## Where a goal is missed

TODO
";
