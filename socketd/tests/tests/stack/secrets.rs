//! Only the server process has keys.

use crate::harness::{Harness, SECRET};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Returns all keys: the pre-shared key, and the keys of the SAs, which the peer has saved.
fn keys(harness: &Harness) -> Vec<Vec<u8>> {
    let states = fs::read_to_string(harness.scratch.file("keys/states.xfrm")).unwrap();
    let hex =
        states.split_whitespace().filter_map(|word| word.strip_prefix("0x")).filter(|word| word.len() >= 32);
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let mut keys: Vec<Vec<u8>> = hex.map(bytes).collect();
    assert!(keys.len() >= 2, "{} keys of SAs", keys.len());
    keys.push(SECRET.as_bytes().to_vec());
    keys
}

/// Returns all readable memory of a process, shared memory included. Requires root.
fn memory(process: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let file = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with('r'))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let mut part = vec![0; (number(to) - number(from)) as usize];
        // Pages of the kernel, such as vvar, cannot be read this way.
        if file.read_exact_at(&mut part, number(from)).is_ok() {
            all.extend(part);
        }
    }
    all
}

/// Returns how many of the keys are in the memory. Compares the first 16 bytes only, so that the data
/// that follows a key does not matter.
fn found(memory: &[u8], keys: &[Vec<u8>]) -> usize {
    let is_there = |key: &[u8]| memory.windows(16).any(|part| part == &key[..16]);
    keys.iter().filter(|key| is_there(key)).count()
}

#[test]
fn applications_have_no_keys() {
    let Some(harness) = Harness::protected("keys", &[]) else { return };
    let echo = harness.ready("echo", "7000");
    harness.echoes(7_000, 200_000);
    let keys = keys(&harness);
    // The search works: the server has at least the pre-shared key.
    assert!(found(&memory(harness.server.id()), &keys) >= 1);
    let application = memory(echo.id());
    assert!(application.len() > 1 << 20);
    // Data that went through the rings is found too: the search covers shared memory.
    let echoed: Vec<u8> = (700..716).map(|at| (at / 7) as u8).collect();
    assert_eq!(found(&application, &[echoed]), 1);
    assert_eq!(found(&application, &keys), 0);
}

/// A process of the same user without capabilities cannot read the server's memory.
#[test]
fn the_memory_of_the_server_is_not_accessible() {
    let Some(harness) = Harness::clear("closed", &[]) else { return };
    let process = harness.server.id().to_string();
    assert_eq!(harness.application("look", &process).line(), "own true, other Some(PermissionDenied)");
    // The protection is set by the server: the memory of an application is accessible.
    let other = harness.ready("idle", "");
    assert_eq!(harness.application("look", &other.id().to_string()).line(), "own true, other None");
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}
