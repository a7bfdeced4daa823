use super::*;
use casemate_crypto::{AeadAlg, AesBits, EspSuite, SecretBytes};
use casemate_sa::{Mode, SaParams, Spi, Transform};
use std::path::{Path, PathBuf};

/// A path in a directory of its own.
struct Place(casemate_scratch::Scratch);

impl Place {
    fn new(name: &str) -> Self {
        Self(casemate_scratch::Scratch::new(&format!("counters-{name}")))
    }

    fn file(&self) -> PathBuf {
        self.0.file("counters")
    }
}

fn sa() -> SaParams {
    let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let transform = Transform::Esp { suite, encr: SecretBytes::new(&[7; 20]), integ: SecretBytes::new(&[]) };
    let path = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    SaParams::new(Spi::new(0x1000).unwrap(), path, Mode::Tunnel, transform)
}

fn open(path: &Path) -> CounterFile {
    CounterFile::open(path).unwrap()
}

#[test]
fn what_was_reserved_is_there_after_reopening() {
    let place = Place::new("reopen");
    let account = {
        let mut file = open(&place.file());
        assert!(file.is_new());
        let account = file.account(&sa());
        assert_eq!(file.reserved(&account), 0);
        file.reserve(&[(account, 500)]).unwrap();
        file.reserve(&[(account, 400)]).unwrap();
        account
    };
    let mut file = open(&place.file());
    assert!(!file.is_new());
    assert_eq!(file.account(&sa()), account, "the salt is kept");
    assert_eq!(file.reserved(&account), 500, "never lowered by reserving");
    file.settle(&[(account, 450)]).unwrap();
    drop(file);
    assert_eq!(open(&place.file()).reserved(&account), 450);
}

#[test]
fn everything_that_makes_an_iv_makes_the_account() {
    let place = Place::new("account");
    let file = open(&place.file());
    let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 12).unwrap());
    let key = |byte| SecretBytes::new(&[byte; 20]);
    let none = || SecretBytes::new(&[]);
    let Transform::Esp { suite: same, .. } = sa().transform else { unreachable!() };
    let variants = [
        sa(),
        SaParams { spi: Spi::new(0x1001).unwrap(), ..sa() },
        SaParams { src: [192, 0, 2, 9].into(), ..sa() },
        SaParams { dst: [192, 0, 2, 9].into(), ..sa() },
        SaParams { transform: Transform::Esp { suite, encr: key(7), integ: none() }, ..sa() },
        SaParams { transform: Transform::Esp { suite: same, encr: key(8), integ: none() }, ..sa() },
    ];
    let mut accounts: Vec<_> = variants.iter().map(|sa| file.account(sa)).collect();
    accounts.sort_unstable();
    accounts.dedup();
    assert_eq!(accounts.len(), variants.len());
    assert_eq!(file.account(&SaParams { reqid: 5, ..sa() }), file.account(&sa()));
}

#[test]
fn two_processes_do_not_share_a_file() {
    let place = Place::new("lock");
    let file = open(&place.file());
    assert!(matches!(CounterFile::open(&place.file()), Err(CountersError::InUse(_))));
    drop(file);
    open(&place.file());
}

#[test]
fn every_damaged_byte_is_noticed() {
    let place = Place::new("damage");
    let account = {
        let mut file = open(&place.file());
        let account = file.account(&sa());
        file.reserve(&[(account, 123_456)]).unwrap();
        account
    };
    let good = std::fs::read(place.file()).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        std::fs::write(place.file(), &bad).unwrap();
        assert!(CounterFile::open(&place.file()).is_err(), "byte {at}");
    }
    for len in 0..good.len() {
        std::fs::write(place.file(), &good[..len]).unwrap();
        assert!(CounterFile::open(&place.file()).is_err(), "cut to {len}");
    }
    std::fs::write(place.file(), [&good[..], b"\n"].concat()).unwrap();
    assert!(CounterFile::open(&place.file()).is_err(), "something behind the sum");
    std::fs::write(place.file(), &good).unwrap();
    assert_eq!(open(&place.file()).reserved(&account), 123_456);
}

#[test]
fn errors_say_where_and_what() {
    let place = Place::new("errors");
    let say = |text: &str| {
        std::fs::write(place.file(), text).unwrap();
        CounterFile::open(&place.file()).unwrap_err().to_string()
    };
    let path = place.file().display().to_string();
    assert_eq!(
        say("#!/bin/sh\n"),
        format!("{path}: not a file of counters: the first line was expected to be `casemate counters 1`")
    );
    let damaged = say("casemate counters 1\nsalt 00112233445566778899aabbccddeeff\nnonsense\n");
    let expected = format!("{path}:3: the file is damaged: 64 hexadecimal digits and a number was expected.");
    assert!(damaged.starts_with(&expected), "{damaged}");
}
