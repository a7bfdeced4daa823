use super::*;
use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
use casemate_sa::{Mode, SaParams, Spi, Transform};
use std::path::{Path, PathBuf};

/// A path in a temporary directory.
struct CounterPath(casemate_test_support::TempDir);

impl CounterPath {
    fn new(name: &str) -> Self {
        Self(casemate_test_support::TempDir::new(&format!("counters-{name}")).unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.file("counters")
    }
}

fn sa() -> SaParams {
    let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let transform = Transform::Esp { suite, encr: SecretBytes::new(&[7; 20]), integ: SecretBytes::new(&[]) };
    let path = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    SaParams::new(Spi::new(0x1000).unwrap(), path.0, path.1, Mode::Tunnel, transform)
}

fn open(path: &Path) -> CounterFile {
    try_open(path).unwrap()
}

/// Opens a file that no other process uses. Programs that other tests are starting may still hold copies of a
/// lock that was just released.
fn try_open(path: &Path) -> Result<CounterFile, CountersError> {
    casemate_test_support::eventually("the lock is free", || match CounterFile::open(path) {
        Err(CountersError::InUse(_)) => None,
        builder => Some(builder),
    })
}

#[test]
fn reserved_numbers_survive_reopening() {
    let path = CounterPath::new("reopen");
    let space = {
        let mut file = open(&path.file());
        assert!(file.is_new());
        let space = file.number_space(&sa());
        assert_eq!(file.reserved(&space), 0);
        file.reserve(&[LastNumber { space, number: 500 }]).unwrap();
        file.reserve(&[LastNumber { space, number: 400 }]).unwrap();
        space
    };
    let mut file = open(&path.file());
    assert!(!file.is_new());
    assert_eq!(file.number_space(&sa()), space, "the salt is kept");
    assert_eq!(file.reserved(&space), 500, "never lowered by reserving");
    file.return_unused(&[LastNumber { space, number: 450 }]).unwrap();
    drop(file);
    assert_eq!(open(&path.file()).reserved(&space), 450);
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

/// The key stream depends on the cipher key, its salt and the number, and on nothing else.
#[test]
fn a_cipher_key_has_one_number_space_whatever_else_changes() {
    let path = CounterPath::new("key");
    let file = open(&path.file());
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
        assert_eq!(file.number_space(sa), file.number_space(&same[0]), "{:?}", sa.transform);
    }
    let mut other_salt = [7; 20];
    other_salt[19] = 8;
    for other in [gcm(16, &[8; 20]), gcm(16, &other_salt), gcm(16, &[7; 36])] {
        assert_ne!(file.number_space(&other), file.number_space(&sa()), "{:?}", other.transform);
    }
}

#[test]
fn without_a_counter_iv_each_sa_has_its_own_numbers() {
    let path = CounterPath::new("random-iv");
    let file = open(&path.file());
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
    let mut spaces: Vec<_> = variants.iter().map(|sa| file.number_space(sa)).collect();
    spaces.sort_unstable();
    spaces.dedup();
    assert_eq!(spaces.len(), variants.len());
    assert_eq!(file.number_space(&SaParams { reqid: 5, ..cbc(7, 1) }), file.number_space(&cbc(7, 1)));
}

#[test]
fn a_failed_write_leaves_no_temporary_file() {
    let path = CounterPath::new("failed-write");
    let mut file = open(&path.file());
    // A file cannot replace a directory.
    std::fs::create_dir(path.file()).unwrap();
    assert!(file.reserve(&[]).is_err());
    assert!(!crate::private_file::with_suffix(&path.file(), ".new").exists());
}

#[test]
fn two_processes_do_not_share_a_file() {
    let path = CounterPath::new("lock");
    let file = open(&path.file());
    assert!(matches!(CounterFile::open(&path.file()), Err(CountersError::InUse(_))));
    drop(file);
    open(&path.file());
}

#[test]
fn every_damaged_byte_is_detected() {
    let path = CounterPath::new("damage");
    let space = {
        let mut file = open(&path.file());
        let space = file.number_space(&sa());
        file.reserve(&[LastNumber { space, number: 123_456 }]).unwrap();
        space
    };
    let good = std::fs::read(path.file()).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        std::fs::write(path.file(), &bad).unwrap();
        assert!(try_open(&path.file()).is_err(), "byte {at}");
    }
    for len in 0..good.len() {
        std::fs::write(path.file(), &good[..len]).unwrap();
        assert!(try_open(&path.file()).is_err(), "cut to {len}");
    }
    std::fs::write(path.file(), [&good[..], b"\n"].concat()).unwrap();
    assert!(try_open(&path.file()).is_err(), "bytes behind the sum");
    std::fs::write(path.file(), &good).unwrap();
    assert_eq!(open(&path.file()).reserved(&space), 123_456);
}

#[test]
fn errors_name_file_line_and_expectation() {
    let path = CounterPath::new("errors");
    let say = |text: &str| {
        std::fs::write(path.file(), text).unwrap();
        try_open(&path.file()).unwrap_err().to_string()
    };
    let path = path.file().display().to_string();
    assert_eq!(
        say("#!/bin/sh\n"),
        format!("{path}: not a counter file: the first line was expected to be `casemate counters 2`")
    );
    let damaged = say("casemate counters 2\nsalt 00112233445566778899aabbccddeeff\nnonsense\n");
    let expected = format!(
        "{path}:3: the file is damaged: `key`, `sa` or `old`, 64 hexadecimal digits and a number was expected."
    );
    assert!(damaged.starts_with(&expected), "{damaged}");
}

/// Writes a file of version 1 with these records.
fn write_v1(path: &Path, records: &[(&SaParams, u64)]) {
    use std::fmt::Write as _;
    let salt = [5; 16];
    let mut text = format!("casemate counters 1\nsalt {}\n", "05".repeat(16));
    for (sa, number) in records {
        let hash = NumberSpace::v1(sa, &salt).hash;
        hash.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        writeln!(text, " {number}").unwrap();
    }
    let sum = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    text.push_str("sum ");
    sum.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
    std::fs::write(path, text + "\n").unwrap();
}

/// The last number of each SA when a run with these SAs starts.
fn begin(path: &Path, sas: &[SaParams]) -> Vec<u64> {
    let mut builder = CounterStoreBuilder::new(open(path));
    builder.migrate_v1(sas.iter());
    let last: Vec<u64> = sas.iter().map(|sa| builder.resume(&mut sa.clone())).collect();
    let mut datapath = casemate_datapath::Datapath::new(casemate_datapath::Config::server(1));
    builder.start(&mut datapath).unwrap().close(&mut datapath).unwrap();
    last
}

#[test]
fn a_restart_with_another_icv_continues_the_numbers_of_the_key() {
    let path = CounterPath::new("icv");
    assert_eq!(begin(&path.file(), &[sa()]), [0]);
    assert_eq!(
        begin(&path.file(), &[gcm(8, &[7; 20])]),
        [BLOCK],
        "the first run did not return unused numbers"
    );
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    assert_eq!(begin(&path.file(), &[ctr(sha256, &[7; 20], &[1; 32])]), [2 * BLOCK]);
    assert_eq!(begin(&path.file(), &[ctr(sha256, &[7; 20], &[2; 32])]), [3 * BLOCK]);
    assert_eq!(begin(&path.file(), &[gcm(8, &[9; 20])]), [0], "another key");
}

/// The file was made without this program, from the description of version 1, so that the hash is not only
/// compared with itself.
#[test]
fn a_file_of_version_1_is_read() {
    let path = CounterPath::new("v1-bytes");
    std::fs::write(path.file(), include_str!("v1.counters")).unwrap();
    assert_eq!(begin(&path.file(), &[sa()]), [123_456]);
    let text = std::fs::read_to_string(path.file()).unwrap();
    assert!(text.starts_with("casemate counters 2\n") && !text.contains("\nold "), "{text}");
}

#[test]
fn records_of_version_1_move_to_the_number_space_of_their_sa() {
    let path = CounterPath::new("v1-match");
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    let cbc = esp(EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), sha256), &[7; 16], &[1; 32]);
    let other = gcm(16, &[8; 20]);
    write_v1(&path.file(), &[(&sa(), 1_000), (&other, 4_000_000_000), (&cbc, 70)]);
    assert_eq!(begin(&path.file(), &[sa(), other.clone(), cbc.clone()]), [1_000, 4_000_000_000, 70]);
    // All keys are known now: a new key starts at 0.
    assert_eq!(begin(&path.file(), &[gcm(16, &[9; 20])]), [0]);
    assert_eq!(begin(&path.file(), &[gcm(12, &[7; 20]), cbc]), [1_000 + BLOCK, 70 + BLOCK]);
}

#[test]
fn a_key_starts_after_unmatched_records_of_version_1() {
    let path = CounterPath::new("v1-unmatched");
    let mac = MacAlg::standard(MacKind::HmacSha256);
    write_v1(&path.file(), &[(&ctr(mac, &[7; 20], &[1; 32]), 5_000), (&gcm(16, &[8; 20]), 1_000)]);
    // The integrity key changed together with the program version.
    let changed = ctr(mac, &[7; 20], &[2; 32]);
    assert_eq!(begin(&path.file(), std::slice::from_ref(&changed)), [5_000]);
    assert_eq!(
        begin(&path.file(), std::slice::from_ref(&changed)),
        [5_000 + BLOCK],
        "the number belongs to the key now"
    );
    // The record stays, because it may belong to another key, too, even to a key with a record of its own.
    assert_eq!(begin(&path.file(), &[gcm(16, &[9; 20]), gcm(16, &[8; 20])]), [5_000, 5_000]);
    // Random IVs do not depend on the record.
    let cbc = esp(EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac), &[7; 16], &[1; 32]);
    assert_eq!(begin(&path.file(), &[cbc]), [0]);
    // The key is used up if the record is at the end of the number space.
    let path = CounterPath::new("v1-end");
    write_v1(&path.file(), &[(&ctr(mac, &[7; 20], &[1; 32]), u64::from(u32::MAX) + 1)]);
    assert_eq!(begin(&path.file(), &[sa()]), [u64::from(u32::MAX)]);
}

#[test]
fn duplicate_records_are_rejected() {
    let path = CounterPath::new("twice");
    let space = {
        let mut file = open(&path.file());
        let space = file.number_space(&sa());
        file.reserve(&[LastNumber { space, number: 5 }]).unwrap();
        space
    };
    let text = std::fs::read_to_string(path.file()).unwrap();
    let (before, _) = text.split_once("sum ").unwrap();
    // Only the number is changed: the hash before it may begin with any digit.
    let record = before.lines().last().unwrap().strip_suffix(" 5").unwrap();
    let text = format!("{before}{record} 4\n");
    let sum = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(path.file(), format!("{text}sum {sum}\n")).unwrap();
    assert!(matches!(try_open(&path.file()), Err(CountersError::Damaged { .. })), "{space:?}");
}

#[test]
fn files_that_other_users_could_have_made_are_rejected() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let path = CounterPath::new("others");
    drop(open(&path.file()));
    let mut file = open(&path.file());
    let space = file.number_space(&sa());
    file.reserve(&[LastNumber { space, number: 5 }]).unwrap();
    // A file that a crash, or another user in a shared directory, left behind.
    let victim = path.0.file("victim");
    std::fs::write(&victim, "untouched").unwrap();
    symlink(&victim, path.0.file("counters.new")).unwrap();
    file.reserve(&[LastNumber { space, number: 6 }]).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    drop(file);
    std::fs::set_permissions(path.file(), PermissionsExt::from_mode(0o622)).unwrap();
    let error = try_open(&path.file()).unwrap_err().to_string();
    assert!(error.contains("0622"), "{error}");
    std::fs::set_permissions(path.file(), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(path.file(), path.0.file("elsewhere")).unwrap();
    symlink(path.0.file("elsewhere"), path.file()).unwrap();
    assert!(try_open(&path.file()).unwrap_err().to_string().contains("symbolic link"));
}
