//! Keys are in one process alone.

use crate::lab::{Lab, SECRET};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// All keys that there are: the pre-shared one, and those of the SAs, which the peer has written down.
fn keys(lab: &Lab) -> Vec<Vec<u8>> {
    let states = fs::read_to_string(lab.scratch.file("keys/states.xfrm")).unwrap();
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

/// Everything that a process can read of its memory, shared or not. As root: the kernel lets nobody else in.
fn memory(process: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let file = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with('r'))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let mut part = vec![0; (number(to) - number(from)) as usize];
        // The kernel's own pages cannot be read this way.
        if file.read_exact_at(&mut part, number(from)).is_ok() {
            all.extend(part);
        }
    }
    all
}

/// Which of the keys are there: by their first 16 bytes, so that what is beside them does not matter.
fn found(memory: &[u8], keys: &[Vec<u8>]) -> usize {
    let is_there = |key: &[u8]| memory.windows(16).any(|part| part == &key[..16]);
    keys.iter().filter(|key| is_there(key)).count()
}

#[test]
fn no_key_is_in_an_application() {
    let Some(lab) = Lab::protected("keys", &[]) else { return };
    let echo = lab.ready("echo", "7000");
    lab.echoes(7_000, 200_000);
    let keys = keys(&lab);
    // The search finds what is there: the server has the pre-shared key at least.
    assert!(found(&memory(lab.server.id()), &keys) >= 1);
    let application = memory(echo.id());
    assert!(application.len() > 1 << 20);
    // What went through its rings is found too: the search sees the memory that it shares.
    let echoed: Vec<u8> = (700..716).map(|at| (at / 7) as u8).collect();
    assert_eq!(found(&application, &[echoed]), 1);
    assert_eq!(found(&application, &keys), 0);
}

/// A process of the same user, without capabilities, is not let into the server's memory.
#[test]
fn the_servers_memory_is_closed() {
    let Some(lab) = Lab::clear("closed", &[]) else { return };
    let process = lab.server.id().to_string();
    assert_eq!(lab.application("look", &process).line(), "own true, other Some(PermissionDenied)");
    // What makes the difference is the server: an application may be looked at.
    let other = lab.ready("idle", "");
    assert_eq!(lab.application("look", &other.id().to_string()).line(), "own true, other None");
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}
