use super::*;
use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
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
    try_open(path).unwrap()
}

/// Opens a file that no other process uses. Programs that other tests start at this moment may still hold
/// copies of a lock that was just released.
fn try_open(path: &Path) -> Result<CounterFile, CountersError> {
    crate::eventually::eventually("the lock is free", || match CounterFile::open(path) {
        Err(CountersError::InUse(_)) => None,
        opened => Some(opened),
    })
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

/// An SA with this suite and keys.
fn esp(suite: EspSuite, encr: &[u8], integ: &[u8]) -> SaParams {
    let (encr, integ) = (SecretBytes::new(encr), SecretBytes::new(integ));
    SaParams { transform: Transform::Esp { suite, encr, integ }, ..sa() }
}

fn gcm(icv: usize, key: &[u8]) -> SaParams {
    esp(EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, icv).unwrap()), key, &[])
}

fn ctr(mac: MacAlg, key: &[u8], integ: &[u8]) -> SaParams {
    esp(EspSuite::Separate(CipherAlg::AesCtr(AesBits::B128), mac), key, integ)
}

/// The audit's case: the key stream depends on the cipher key, its salt and the number, and on nothing else.
#[test]
fn one_cipher_key_has_one_number_space_whatever_else_changes() {
    let place = Place::new("account");
    let file = open(&place.file());
    let gmac = MacAlg::standard(MacKind::AesGmac(AesBits::B128));
    let (sha256, sha1) = (MacAlg::standard(MacKind::HmacSha256), MacAlg::standard(MacKind::HmacSha1));
    let cut = MacAlg::truncated(MacKind::HmacSha256, 12).unwrap();
    let same = [
        sa(),
        gcm(8, &[7; 20]),
        gcm(12, &[7; 20]),
        ctr(sha256, &[7; 20], &[1; 32]),
        ctr(sha256, &[7; 20], &[2; 32]),
        ctr(cut, &[7; 20], &[1; 32]),
        ctr(sha1, &[7; 20], &[1; 20]),
        esp(EspSuite::Separate(CipherAlg::Null, gmac), &[], &[7; 20]),
        SaParams {
            transform: Transform::Ah { suite: AhSuite(gmac), integ: SecretBytes::new(&[7; 20]) },
            ..sa()
        },
        SaParams { spi: Spi::new(0x1001).unwrap(), ..sa() },
        SaParams { src: [192, 0, 2, 9].into(), ..sa() },
        SaParams { dst: [192, 0, 2, 9].into(), ..sa() },
        SaParams { src: std::net::Ipv6Addr::LOCALHOST.into(), ..sa() },
        SaParams { mode: Mode::Transport, reqid: 5, esn: true, ..sa() },
    ];
    for sa in &same {
        assert_eq!(file.account(sa), file.account(&same[0]), "{:?}", sa.transform);
    }
    let mut other_salt = [7; 20];
    other_salt[19] = 8;
    for other in [gcm(16, &[8; 20]), gcm(16, &other_salt), gcm(16, &[7; 36])] {
        assert_ne!(file.account(&other), file.account(&sa()), "{:?}", other.transform);
    }
}

#[test]
fn without_a_counter_iv_each_sa_has_its_own_numbers() {
    let place = Place::new("random-iv");
    let file = open(&place.file());
    let mac = MacAlg::standard(MacKind::HmacSha256);
    let cbc = |encr: u8, integ: u8| {
        esp(EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac), &[encr; 16], &[integ; 32])
    };
    let ah = Transform::Ah { suite: AhSuite(mac), integ: SecretBytes::new(&[1; 32]) };
    let variants = [
        cbc(7, 1),
        cbc(8, 1),
        cbc(7, 2),
        SaParams { spi: Spi::new(0x1001).unwrap(), ..cbc(7, 1) },
        SaParams { src: [192, 0, 2, 9].into(), ..cbc(7, 1) },
        SaParams { dst: [192, 0, 2, 9].into(), ..cbc(7, 1) },
        SaParams { transform: ah, ..sa() },
    ];
    let mut accounts: Vec<_> = variants.iter().map(|sa| file.account(sa)).collect();
    accounts.sort_unstable();
    accounts.dedup();
    assert_eq!(accounts.len(), variants.len());
    assert_eq!(file.account(&SaParams { reqid: 5, ..cbc(7, 1) }), file.account(&cbc(7, 1)));
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
        assert!(try_open(&place.file()).is_err(), "byte {at}");
    }
    for len in 0..good.len() {
        std::fs::write(place.file(), &good[..len]).unwrap();
        assert!(try_open(&place.file()).is_err(), "cut to {len}");
    }
    std::fs::write(place.file(), [&good[..], b"\n"].concat()).unwrap();
    assert!(try_open(&place.file()).is_err(), "something behind the sum");
    std::fs::write(place.file(), &good).unwrap();
    assert_eq!(open(&place.file()).reserved(&account), 123_456);
}

#[test]
fn errors_say_where_and_what() {
    let place = Place::new("errors");
    let say = |text: &str| {
        std::fs::write(place.file(), text).unwrap();
        try_open(&place.file()).unwrap_err().to_string()
    };
    let path = place.file().display().to_string();
    assert_eq!(
        say("#!/bin/sh\n"),
        format!("{path}: not a file of counters: the first line was expected to be `casemate counters 2`")
    );
    let damaged = say("casemate counters 2\nsalt 00112233445566778899aabbccddeeff\nnonsense\n");
    let expected = format!(
        "{path}:3: the file is damaged: `key`, `sa` or `old`, 64 hexadecimal digits and a number was expected."
    );
    assert!(damaged.starts_with(&expected), "{damaged}");
}

/// A file of version 1 with these records, as the version before this one wrote it.
fn write_v1(path: &Path, records: &[(&SaParams, u64)]) {
    use std::fmt::Write as _;
    let salt = [5; 16];
    let mut text = format!("casemate counters 1\nsalt {}\n", "05".repeat(16));
    for (sa, number) in records {
        let hash = account::Account::old(sa, &salt).hash;
        hash.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        writeln!(text, " {number}").unwrap();
    }
    let sum = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    text.push_str("sum ");
    sum.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    std::fs::write(path, text + "\n").unwrap();
}

/// The last number of each SA when a run with these SAs begins.
fn begin(path: &Path, sas: &[SaParams]) -> Vec<u64> {
    let mut opened = Opened::new(open(path));
    opened.adopt(sas.iter());
    let last: Vec<u64> = sas.iter().map(|sa| opened.resume(&mut sa.clone())).collect();
    let mut datapath = casemate_datapath::Datapath::new(casemate_datapath::Config::server(1));
    opened.start(&mut datapath).unwrap().close(&mut datapath).unwrap();
    last
}

#[test]
fn a_restart_with_another_icv_goes_on_where_the_key_stopped() {
    let place = Place::new("icv");
    assert_eq!(begin(&place.file(), &[sa()]), [0]);
    assert_eq!(begin(&place.file(), &[gcm(8, &[7; 20])]), [BLOCK], "the first run did not say what it used");
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    assert_eq!(begin(&place.file(), &[ctr(sha256, &[7; 20], &[1; 32])]), [2 * BLOCK]);
    assert_eq!(begin(&place.file(), &[ctr(sha256, &[7; 20], &[2; 32])]), [3 * BLOCK]);
    assert_eq!(begin(&place.file(), &[gcm(8, &[9; 20])]), [0], "another key");
}

/// A file made outside of this program from the description of version 1, so that the hash is not only compared with itself.
#[test]
fn a_file_of_the_version_before_is_read() {
    let place = Place::new("v1-bytes");
    std::fs::write(place.file(), include_str!("v1.counters")).unwrap();
    assert_eq!(begin(&place.file(), &[sa()]), [123_456]);
    let text = std::fs::read_to_string(place.file()).unwrap();
    assert!(text.starts_with("casemate counters 2\n") && !text.contains("\nold "), "{text}");
}

#[test]
fn records_of_the_version_before_keep_their_number_with_their_sa() {
    let place = Place::new("v1-match");
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    let cbc = esp(EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), sha256), &[7; 16], &[1; 32]);
    let other = gcm(16, &[8; 20]);
    write_v1(&place.file(), &[(&sa(), 1_000), (&other, 4_000_000_000), (&cbc, 70)]);
    assert_eq!(begin(&place.file(), &[sa(), other.clone(), cbc.clone()]), [1_000, 4_000_000_000, 70]);
    // All of them are known now: a new key begins at the beginning.
    assert_eq!(begin(&place.file(), &[gcm(16, &[9; 20])]), [0]);
    assert_eq!(begin(&place.file(), &[gcm(12, &[7; 20]), cbc]), [1_000 + BLOCK, 70 + BLOCK]);
}

#[test]
fn a_key_that_may_be_that_of_an_unmatched_record_begins_after_it() {
    let place = Place::new("v1-unmatched");
    let mac = MacAlg::standard(MacKind::HmacSha256);
    write_v1(&place.file(), &[(&ctr(mac, &[7; 20], &[1; 32]), 5_000), (&gcm(16, &[8; 20]), 1_000)]);
    // The integrity key was changed together with the program.
    let changed = ctr(mac, &[7; 20], &[2; 32]);
    assert_eq!(begin(&place.file(), std::slice::from_ref(&changed)), [5_000]);
    assert_eq!(begin(&place.file(), std::slice::from_ref(&changed)), [5_000 + BLOCK], "it is the key's now");
    // The record stays, because it may be that of other keys, too: of one with a record of its own as well.
    assert_eq!(begin(&place.file(), &[gcm(16, &[9; 20]), gcm(16, &[8; 20])]), [5_000, 5_000]);
    // Random IVs do not depend on it.
    let cbc = esp(EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac), &[7; 16], &[1; 32]);
    assert_eq!(begin(&place.file(), &[cbc]), [0]);
    // Nothing is left of the key if the record is at the end.
    let place = Place::new("v1-end");
    write_v1(&place.file(), &[(&ctr(mac, &[7; 20], &[1; 32]), u64::from(u32::MAX) + 1)]);
    assert_eq!(begin(&place.file(), &[sa()]), [u64::from(u32::MAX)]);
}

#[test]
fn a_record_stands_once() {
    let place = Place::new("twice");
    let account = {
        let mut file = open(&place.file());
        let account = file.account(&sa());
        file.reserve(&[(account, 5)]).unwrap();
        account
    };
    let text = std::fs::read_to_string(place.file()).unwrap();
    let (before, _) = text.split_once("sum ").unwrap();
    // Only the number differs: the hash before it may begin with any digit.
    let record = before.lines().last().unwrap().strip_suffix(" 5").unwrap();
    let text = format!("{before}{record} 4\n");
    let sum = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(place.file(), format!("{text}sum {sum}\n")).unwrap();
    assert!(matches!(try_open(&place.file()), Err(CountersError::Damaged { .. })), "{account:?}");
}

#[test]
fn files_that_other_users_may_have_made_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new("others");
    drop(open(&place.file()));
    let mut file = open(&place.file());
    let account = file.account(&sa());
    file.reserve(&[(account, 5)]).unwrap();
    // What a crash, or another user in a shared directory, left behind.
    let victim = place.0.file("victim");
    std::fs::write(&victim, "untouched").unwrap();
    symlink(&victim, place.0.file("counters.new")).unwrap();
    file.reserve(&[(account, 6)]).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    drop(file);
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o622)).unwrap();
    let said = try_open(&place.file()).unwrap_err().to_string();
    assert!(said.contains("0622"), "{said}");
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(place.file(), place.0.file("elsewhere")).unwrap();
    symlink(place.0.file("elsewhere"), place.file()).unwrap();
    assert!(try_open(&place.file()).unwrap_err().to_string().contains("symbolic link"));
}
