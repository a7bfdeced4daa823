//! The page of the manual, and the same as JSON.

use super::measure::Footprint;
use super::{GOALS, Goal, PROFILES, Profile};
use crate::bare::{THUMB, Target};
use crate::failure::{Failure, Result};
use crate::shell;
use serde_json::{Value, json};

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

What is counted and what is not:

- The two rows of IKEv2 negotiate and install SAs between two endpoints in one memory, and send no packet: the tables of the data path are in
  them, the roads of packets are not. What negotiates and carries packets is the row of smoltcp with IKEv2, less smoltcp alone.
- The rows of smoltcp are two hosts of the same code on a wire in memory, with one UDP socket each; a datagram crosses. smoltcp has IPv4 and UDP, no TCP. There
  is no driver.
- The rows of the C library are no programs: the linker gets `libcasemate_lwip.a` and every function of the headers as called. Board, lwIP
  and the files in C between the two are not in it. The library chooses algorithms by their names at run time, so all of them are there.
";

const MEMORY: &str = "
## Memory

Bytes of the heap, as the program counted them on the emulated board, without what its allocator adds; tables of the sizes of
`Limits::DEVICE` and `Settings::DEVICE`. A pair is one ESP SA for each direction with AES-128-GCM and a window of 64 packets. The first
pair and the first IKE SA bring the first room of the tables along. A host over smoltcp has buffers for packets of 4,096 bytes, two
reassemblers, and one UDP socket. What the C library takes is said by `casemate_limits`. x86-64 is only linked, not run. The stack is the
deepest that it ever was.
";

/// What is reported, and by which program.
const ROWS: [(&str, &str, &str); 13] = [
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
    ("smoltcp_alone", "heap-host", "a host with smoltcp alone"),
    ("smoltcp_esp", "heap-host", "the same behind Casemate, with a pair of SAs and its policies"),
    ("smoltcp_ike", "heap-host", "the same with IKEv2: an IKE SA and its Child SA"),
    ("esp_gcm", "stack", "stack with manual keys"),
    ("ike_psk", "stack", "stack with IKEv2"),
];

/// The page, with a column for each of the targets.
pub(crate) fn page(measured: &[Footprint], targets: &[Target]) -> Result<String> {
    let commit = shell::output(shell::command("git").args(["describe", "--always", "--dirty"]))?;
    let mut text = format!("{HEAD}\nMeasured at commit {}.\n", String::from_utf8_lossy(&commit).trim());
    text.push_str("\n## Code\n\nCode and constants together; in brackets the constants.\n");
    let code = |footprint: &Footprint| format!("{} ({})", footprint.code(), footprint.rodata);
    let rows = PROFILES.map(|Profile { program, about, .. }| (program, about));
    text.push_str(&table("device", measured, targets, &rows, |footprint, _| code(footprint))?);
    text.push_str(MEMORY);
    let boards: Vec<Target> = targets.iter().copied().filter(Target::runs).collect();
    let rows = ROWS.map(|(program, _, about)| (program, about));
    let ran = |footprint: &Footprint, row: usize| {
        let report = ROWS.get(row).and_then(|(_, report, _)| footprint.reports.get(*report));
        report.map(ToString::to_string).unwrap_or_default()
    };
    text.push_str(&table("what", measured, &boards, &rows, ran)?);
    text.push_str("\n## Goals, on Thumb\n\n| what | goal | is |\n|---|---:|---:|\n");
    for Goal { program, what, goal, number, .. } in &GOALS {
        let is = number(find(measured, program, THUMB.triple)?);
        text.push_str(&format!("| {what} | {goal} | {is} |\n"));
    }
    text.push_str(NOTE);
    Ok(text)
}

/// A row for each program, a column for each target; `cell` is told the number of the row.
fn table(
    title: &str,
    measured: &[Footprint],
    targets: &[Target],
    rows: &[(&str, &str)],
    cell: impl Fn(&Footprint, usize) -> String,
) -> Result<String> {
    let names: String = targets.iter().map(|target| format!(" {} |", target.name)).collect();
    let mut text = format!("\n| {title} |{names}\n|---|{}\n", "---:|".repeat(targets.len()));
    for (number, (program, about)) in rows.iter().enumerate() {
        text.push_str(&format!("| {about} |"));
        for target in targets {
            text.push_str(&format!(" {} |", cell(find(measured, program, target.triple)?, number)));
        }
        text.push('\n');
    }
    Ok(text)
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

Both goals for memory hold, for each SA that is added; the first one brings tables along that hold more. Both goals for code are
missed: manual keys need 2.9 times what they should, IKEv2 1.9 times, and 2.3 times with the roads of packets.

**Manual keys**, by the lines that the code comes from: 31 KB are the data path, 14 KB algorithms (AES and GCM), 11 KB Rust's own library (4 of them
ordered trees), 6 KB formats, 3 KB the board and the program. The data path has all of RFC 4301 in one piece, chosen by the SA and the policy at
run time, so an image for one SA in transport mode holds tunnels, AH, ICMP and path MTU discovery too. Tables that are made for a hundred
thousand SAs and policies (hash tables, ordered trees, flow caches, the index of prefixes) are 10 KB that a device with two SAs does not need.
What would help: tables of a fixed small size as a type of their own, and roads in and out that are chosen when an SA is added, so that what
no SA can be asked for is dropped.

**IKEv2**, likewise: 74 KB are `core/ike`, of which 33 are its exchanges, 17 the engine and what stands beside it, 12 Child SAs and proposals,
6 configuration; 33 KB are Rust's own library (dropping, cloning and collecting values, 5 of them ordered trees), 26 KB algorithms (AES, GCM, SHA,
X25519), 17 KB the data path and the tables, 11 KB the endpoint, 9 KB formats, 6 KB key derivation and the traits of algorithms. No item is
large: of a thousand functions the largest two have 17 and 9 KB, and the hundredth has less than half a KB. What is left are features: both
roles, rekeying, virtual addresses with their pools, fragments of messages and NATs are always there. To reach the goal they
would have to be chosen as algorithms are, by values that a device names. To end in a trap where a panic would be (rustc's `immediate-abort`)
takes away only one to two per cent.

**What was done so far**, for the data path with manual keys and for IKEv2 with a pre-shared key, in bytes of code and constants on Thumb:

| step | manual keys | IKEv2 |
|---|---:|---:|
| one provider with every algorithm | 352072 | |
| algorithms named one by one | 75658 | 312556 |
| compact SHA-2, identical functions folded | 74854 | 303588 |
| X25519 without its table, one kind of tree in the data path, messages written and SAs moved by code that is there once | 70852 | 251080 |
| two kinds of trees in IKE and the endpoint (`core/tables`) instead of seventeen | 70928 | 189672 |

**The stack** is deep for a small device because 32 packets are taken at once; a packet alone needs as much.
";
