//! A process that is killed at any moment never uses a sequence number, and so an IV, a second time.
//!
//! The test starts itself as a child, which seals packets as fast as it can and writes each number down a
//! pipe; it kills the child again and again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, DropReason, HEAD_ROOM, Outbound, TAIL_ROOM};
use casemate_linux::counters::{BLOCK, CounterFile, CounterStoreBuilder};
use casemate_linux::process::SystemRng;
use casemate_sa::{AddrRange, Instant, Mode, Protocol, SaParams, Selector, SpdId, Spi, Transform};
use casemate_wire::packet::Packet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "CASEMATE_TEST_COUNTERS";
const ROUNDS: u64 = 12;

#[test]
fn no_number_is_used_twice_after_a_kill() {
    if let Some(path) = std::env::var_os(CHILD) {
        return seal_for_ever(Path::new(&path));
    }
    let scratch = casemate_test_support::TempDir::new("killed").unwrap();
    let path = scratch.file("counters");
    let (mut last, mut blocks) = (0, 0);
    for round in 0..ROUNDS {
        // At first so soon that nothing may be there yet, later after some blocks.
        let numbers = run_for(&path, Duration::from_millis(20 + round * 60));
        for number in &numbers {
            assert!(*number > last, "round {round}: {number} after {last}");
            last = *number;
        }
        blocks += numbers.len() as u64 / BLOCK;
    }
    assert!(last > 0, "the child sealed nothing at all");
    println!("{ROUNDS} kills, numbers up to {last}, {blocks} whole blocks used up");
}

/// What a child used until it was killed.
fn run_for(path: &Path, time: Duration) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_number_is_used_twice_after_a_kill", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).unwrap();
        bytes
    });
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let bytes = reader.join().unwrap();
    bytes.chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect()
}

fn seal_for_ever(path: &Path) {
    let mut datapath = Datapath::new(Config::server(1));
    let mut counters = CounterStoreBuilder::new(CounterFile::open(path).unwrap());
    let mut sa = sa();
    counters.resume(&mut sa);
    let id = datapath
        .add_sa(&sa, Direction::Outbound, &Providers(&[&casemate_rustcrypto::RUSTCRYPTO]), Instant::ZERO)
        .unwrap();
    counters.bind_last(id);
    datapath.add_policy(Direction::Outbound, policy()).unwrap();
    let mut ledger = counters.start(&mut datapath).unwrap();
    let mut rng = SystemRng::new().unwrap();
    let mut buffer = vec![0; HEAD_ROOM + 28 + TAIL_ROOM];
    let mut out = std::io::stderr().lock();
    loop {
        buffer[HEAD_ROOM..HEAD_ROOM + 28].copy_from_slice(&PING);
        let mut packets = [Packet::new(&mut buffer, HEAD_ROOM, 28).unwrap()];
        let mut verdicts = [Outbound::Bypass];
        datapath.outbound(Instant::ZERO, &mut rng, &mut packets, &mut verdicts);
        let urgent = match verdicts[0] {
            Outbound::Send(_) => {
                // Outer header 20, SPI 4, sequence number 4, then the IV: the number under a mask in its
                // upper half.
                let iv = packets[0].data()[32..36].try_into().unwrap();
                out.write_all(&u64::from(u32::from_be_bytes(iv)).to_be_bytes()).unwrap();
                false
            }
            Outbound::Drop(DropReason::CounterNotReserved) => true,
            other => panic!("{other:?}"),
        };
        if let Some(written) = ledger.poll(&mut datapath, u64::from(!urgent), urgent) {
            written.unwrap();
        }
    }
}

/// An ICMP echo request from 10.1.0.1 to 10.2.0.1.
const PING: [u8; 28] =
    [0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0x66, 0xdb, 10, 1, 0, 1, 10, 2, 0, 1, 8, 0, 0xf7, 0xff, 0, 0, 0, 0];

fn sa() -> SaParams {
    let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let transform = Transform::Esp { suite, encr: SecretBytes::new(&[7; 20]), integ: SecretBytes::new(&[]) };
    let path = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    SaParams::new(Spi::new(0x1000).unwrap(), path.0, path.1, Mode::Tunnel, transform)
}

fn policy() -> Policy {
    let template = Template { protocol: Protocol::Esp, mode: Mode::Tunnel, src: None, dst: None, reqid: 0 };
    let selector = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
    Policy { spd: SpdId::MAIN, selector, action: Action::Protect(Bundle::single(template)), priority: 0 }
}
