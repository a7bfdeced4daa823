//! Files with `ip xfrm` commands.

use crate::Target;
use casemate_app::xfrm::{XfrmFile, state_line_with_keys};
use casemate_datapath::{Config, Datapath, Direction, Unmatched};
use casemate_sa::{Instant, Limits};
use casemate_test_support::hosts::PROVIDERS;

pub(crate) const TARGET: Target = Target {
    name: "xfrm",
    about: "ip xfrm files: every error has a line and shows no key, printed lines are read back unchanged, every SA can be added",
    max_len: 4_096,
    run,
    seeds,
    dictionary: DICTIONARY,
};

fn run(bytes: &[u8]) {
    match XfrmFile::parse(bytes) {
        Ok(file) => {
            check_states(&file);
            check_policies(&file);
        }
        Err(problems) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!(!problems.is_empty() && problems.is_sorted_by_key(|problem| problem.line));
            assert!(
                problems
                    .iter()
                    .all(|problem| (1..=lines).contains(&problem.line) && !problem.text.is_empty())
            );
            check_secrecy(bytes, problems.iter().map(|problem| problem.text.as_str()));
        }
    }
}

fn check_states(file: &XfrmFile) {
    let mut datapath = Datapath::new(Config {
        limits: Limits { sas: 64, ..Limits::DEVICE },
        seed: 1,
        unmatched: Unmatched::Discard,
        link_mtu: 1_500,
    });
    for state in &file.states {
        let line = state_line_with_keys(&state.value);
        let again = XfrmFile::parse(line.as_bytes()).unwrap_or_else(|problems| panic!("{problems:?}"));
        let read: Vec<_> = again.states.iter().map(|state| &state.value).collect();
        assert_eq!(read, [&state.value], "{}", *line);
        for direction in [Direction::Inbound, Direction::Outbound] {
            let _ = datapath.add_sa(&state.value, direction, &PROVIDERS, Instant::ZERO);
        }
    }
    assert!(datapath.sas().count() <= 2 * file.states.len());
}

fn check_policies(file: &XfrmFile) {
    let mut datapath = Datapath::new(Config {
        limits: Limits { policies: 64, ..Limits::DEVICE },
        seed: 1,
        unmatched: Unmatched::Discard,
        link_mtu: 1_500,
    });
    for policy in file.policies.iter().take(64) {
        datapath
            .add_policy(Direction::Outbound, policy.value.policy.clone())
            .expect("a loaded policy can be added");
    }
}

/// Errors repeat no key: no hexadecimal word of the length of a key.
fn check_secrecy<'t>(bytes: &[u8], mut texts: impl Iterator<Item = &'t str>) {
    let Ok(file) = std::str::from_utf8(bytes) else { return };
    let words = || file.split_ascii_whitespace();
    let is_key = |word: &&str| word.starts_with("0x") && word.len() > 34;
    // A word that is a part of another word may come from there.
    let is_alone = |key: &&str| words().all(|word| word == *key || !word.contains(key));
    let keys: Vec<&str> = words().filter(is_key).filter(is_alone).collect();
    assert!(texts.all(|text| keys.iter().all(|key| !text.contains(key))), "a message shows a key");
}

const DICTIONARY: &[&str] = &[
    "ip ",
    "xfrm ",
    "state ",
    "policy ",
    "add ",
    "update ",
    "flush ",
    "src ",
    "dst ",
    "proto ",
    "esp ",
    "ah ",
    "spi ",
    "mode ",
    "transport ",
    "tunnel ",
    "reqid ",
    "replay-window ",
    "replay-seq ",
    "replay-oseq ",
    "replay-seq-hi ",
    "replay-oseq-hi ",
    "flag ",
    "esn ",
    "noecn ",
    "nopmtudisc ",
    "af-unspec ",
    "align4 ",
    "extra-flag ",
    "dont-encap-dscp ",
    "encap ",
    "espinudp ",
    "sel ",
    "sport ",
    "dport ",
    "type ",
    "code ",
    "limit ",
    "time-soft ",
    "byte-hard ",
    "packet-hard ",
    "time-use-soft ",
    "tfcpad ",
    "auth ",
    "auth-trunc ",
    "enc ",
    "aead ",
    "rfc4106(gcm(aes)) ",
    "rfc4309(ccm(aes)) ",
    "rfc7539esp(chacha20,poly1305) ",
    "rfc4543(gcm(aes)) ",
    "hmac(sha1) ",
    "hmac(sha256) ",
    "xcbc(aes) ",
    "cmac(aes) ",
    "cbc(aes) ",
    "rfc3686(ctr(aes)) ",
    "ecb(cipher_null) ",
    "'' ",
    "cbc(des3_ede) ",
    "hmac(md5) ",
    "dir ",
    "in ",
    "out ",
    "fwd ",
    "tmpl ",
    "priority ",
    "action ",
    "block ",
    "allow ",
    "ptype ",
    "main ",
    "level ",
    "required ",
    "10.0.0.1 ",
    "10.0.0.0/8 ",
    "fd00::1 ",
    "fd00::/64 ",
    "any ",
    "icmp ",
    "\\x0a",
    "\\\\\\x0a",
    "# ",
    "0x",
];

const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";

fn seeds() -> Vec<Vec<u8>> {
    let id = "src 192.0.2.1 dst 192.0.2.2 proto";
    let files = [
        format!("ip xfrm state add {id} esp spi 0x1000 mode tunnel aead 'rfc4106(gcm(aes))' {KEY} 128\n"),
        format!(
            "xfrm state add {id} esp spi 4096 reqid 7 mode transport replay-window 128 flag esn align4 \\\n  \
             enc 'cbc(aes)' {} auth-trunc 'hmac(sha256)' {KEY}{} 128 encap espinudp 4500 4500 0.0.0.0\n",
            &KEY[..34], &KEY[18..]
        ),
        format!("ip xfrm state add {id} ah spi 1 auth-trunc 'hmac(sha1)' {KEY} 96 sel src 10.0.0.0/8 dst 10.1.0.1 proto tcp sport 80\n"),
        format!("# a comment\nip xfrm state flush\nip xfrm state add {id} esp spi 2 enc 'ecb(cipher_null)' '' auth sha1 {KEY} limit time-hard 60 limit byte-soft 9\n"),
        format!("ip xfrm state add {id} esp spi 3 aead 'rfc7539esp(chacha20,poly1305)' {KEY}{} 128 replay-oseq 5 tfcpad 64\n", &KEY[10..]),
        "ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode tunnel\n".into(),
        "ip xfrm policy add src fd00::/64 dst fd01::/64 proto udp sport 5 dir in priority 9 action block\n\
         ip xfrm policy update src 10.0.0.1 dst 10.0.0.2 dir fwd tmpl proto esp mode transport tmpl proto ah mode transport\n".into(),
        "ip xfrm state add src 1.2.3.4 dst fd00::1 proto esp spi 0\nnonsense\nip xfrm policy add dir\n".into(),
    ];
    files.map(String::into_bytes).to_vec()
}
