//! Whole files: accepted and refused lines, and the error messages.

use super::*;
use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
use casemate_datapath::spd::Action;
use casemate_sa::{
    Bounds, DfPolicy, DscpPolicy, Lifetime, Mode, OuterHeader, PortRange, Transform, UdpEncap,
};
use casemate_wire::ah::Align;
use proptest::prelude::*;
use std::time::Duration;

mod printing;

const K16: &str = "0x000102030405060708090a0b0c0d0e0f";
const K20: &str = "0x000102030405060708090a0b0c0d0e0f10111213";
const ID: &str = "src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000";

fn parse(text: &str) -> XfrmFile {
    XfrmFile::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// The state of a line that begins with ID.
fn state(rest: &str) -> SaParams {
    parse(&format!("ip xfrm state add {ID} {rest}")).states[0].value.clone()
}

/// A state with AES-GCM and these additional words.
fn gcm(rest: &str) -> SaParams {
    state(&format!("aead 'rfc4106(gcm(aes))' {K20} 128 {rest}"))
}

fn policy(rest: &str) -> DirectedPolicy {
    parse(&format!("xfrm policy add {rest}")).policies[0].value.clone()
}

/// The only error of a file, as `line: text`.
fn error(text: &str) -> String {
    let problems = XfrmFile::parse(text.as_bytes()).expect_err("an error was expected");
    assert_eq!(problems.len(), 1, "{problems:#?}");
    format!("{}: {}", problems[0].line, problems[0].text)
}

fn state_error(rest: &str) -> String {
    error(&format!("xfrm state add {ID} {rest}"))
}

fn gcm_error(rest: &str) -> String {
    state_error(&format!("aead 'rfc4106(gcm(aes))' {K20} 128 {rest}"))
}

fn policy_error(rest: &str) -> String {
    error(&format!("xfrm policy add {rest}"))
}

#[track_caller]
fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{message}` lacks `{part}`");
    }
}

#[test]
fn state_with_defaults() {
    let sa = gcm("");
    assert_eq!(sa.spi, Spi::new(0x1000).unwrap());
    assert_eq!((sa.src, sa.dst), ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()));
    assert_eq!(
        (sa.mode, sa.reqid, sa.esn, sa.replay_window),
        (Mode::Transport, 0, false, DEFAULT_REPLAY_WINDOW)
    );
    assert_eq!((sa.last_sent, sa.tfc_pad_to, sa.encap, sa.selector), (0, 0, None, None));
    assert_eq!(
        (sa.lifetime, sa.outer, sa.ah_align),
        (Lifetime::UNBOUNDED, OuterHeader::default(), Align::Eight)
    );
    let Transform::Esp { suite, encr, integ } = sa.transform else { panic!("not ESP") };
    assert_eq!(suite, EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap()));
    assert_eq!(encr.expose(), (0u8..20).collect::<Vec<_>>());
    assert!(integ.is_empty());
}

#[test]
fn state_with_every_word() {
    let sa = gcm(
        "mode tunnel reqid 0x10 seq 3 replay-window 4096 replay-oseq 5 replay-oseq-hi 1 flag esn noecn nopmtudisc \
                  af-unspec align4 extra-flag dont-encap-dscp encap espinudp 4500 4501 0.0.0.0 sel src 10.1.0.0/16 dst \
                  10.2.0.0/16 proto tcp sport 80 dport 81 limit time-soft 1 limit time-hard 2 limit time-use-soft 3 limit \
                  time-use-hard 4 limit byte-soft 5 limit byte-hard 6 limit packet-soft 7 limit packet-hard 8 tfcpad 512",
    );
    assert_eq!(
        (sa.mode, sa.reqid, sa.esn, sa.replay_window, sa.last_sent),
        (Mode::Tunnel, 16, true, 4096, (1 << 32) | 5)
    );
    let df = DfPolicy::Clear;
    assert_eq!(sa.outer, OuterHeader { dscp: DscpPolicy::Set(0), df, ecn: false, ..OuterHeader::default() });
    assert_eq!((sa.ah_align, sa.tfc_pad_to), (Align::Four, 512));
    assert_eq!(sa.encap, Some(UdpEncap { src_port: 4500, dst_port: 4501 }));
    assert_eq!(sa.selector.unwrap().to_string(), "10.1.0.0/16 -> 10.2.0.0/16 proto 6 ports 80-80 -> 81-81");
    let bounds = |n: u64| Bounds {
        since_added: Some(Duration::from_secs(n)),
        since_used: Some(Duration::from_secs(n + 2)),
        bytes: Some(n + 4),
        packets: Some(n + 6),
    };
    assert_eq!(sa.lifetime, Lifetime { soft: bounds(1), hard: bounds(2) });
}

#[test]
fn the_suites_of_esp() {
    let suite = |words: &str| match state(words).transform {
        Transform::Esp { suite, encr, integ } => (suite.to_string(), encr.len(), integ.len()),
        Transform::Ah { .. } => panic!("not ESP"),
    };
    let key = |bytes: usize| format!("0x{}", "5a".repeat(bytes));
    for (words, expected) in [
        (format!("enc aes {K16} auth sha1 {K20}"), ("ENCR_AES_CBC-128/AUTH_HMAC_SHA1_96", 16, 20)),
        (
            format!("auth sha256 {} enc aes {}", key(32), key(24)),
            ("ENCR_AES_CBC-192/AUTH_HMAC_SHA2_256_96", 24, 32),
        ),
        (
            format!("enc 'rfc3686(ctr(aes))' {} auth-trunc 'hmac(sha256)' {} 128", key(36), key(32)),
            ("ENCR_AES_CTR-256/AUTH_HMAC_SHA2_256_128", 36, 32),
        ),
        (format!("enc cipher_null '' auth sha384 {}", key(48)), ("ENCR_NULL/AUTH_HMAC_SHA2_384_192", 0, 48)),
        (
            format!("enc 'ecb(cipher_null)' \"\" auth sha512 {}", key(64)),
            ("ENCR_NULL/AUTH_HMAC_SHA2_512_256", 0, 64),
        ),
        (format!("enc des3_ede {} auth 'cmac(aes)' {K16}", key(24)), ("ENCR_3DES/AUTH_AES_CMAC_96", 24, 16)),
        (format!("enc 'cbc(des)' {} auth md5 {K16}", key(8)), ("ENCR_DES/AUTH_HMAC_MD5_96", 8, 16)),
        (format!("enc aes {K16} auth 'xcbc(aes)' {K16}"), ("ENCR_AES_CBC-128/AUTH_AES_XCBC_96", 16, 16)),
        (format!("aead 'rfc4106(gcm(aes))' {} 64", key(28)), ("ENCR_AES_GCM_8-192", 28, 0)),
        (format!("aead 'rfc4309(ccm(aes))' {} 96", key(35)), ("ENCR_AES_CCM_12-256", 35, 0)),
        (format!("aead 'rfc7539esp(chacha20,poly1305)' {} 128", key(36)), ("ENCR_CHACHA20_POLY1305", 36, 0)),
        (format!("aead 'rfc4543(gcm(aes))' {K20} 128"), ("ENCR_NULL/AUTH_AES_128_GMAC", 0, 20)),
        (format!("enc aes abcdefghijklmnop auth sha1 {K20}"), ("ENCR_AES_CBC-128/AUTH_HMAC_SHA1_96", 16, 20)),
    ] {
        assert_eq!(suite(&words), (expected.0.to_owned(), expected.1, expected.2), "{words}");
    }
}

#[test]
fn the_suites_of_ah() {
    let suite = |words: &str| {
        let file = parse(&format!("xfrm state add src fd00::1 dst fd00::2 proto ah spi 4096 {words}"));
        match file.states[0].value.transform.clone() {
            Transform::Ah { suite, integ } => (suite.to_string(), integ.len()),
            Transform::Esp { .. } => panic!("not AH"),
        }
    };
    assert_eq!(suite(&format!("auth sha1 {K20}")), ("AUTH_HMAC_SHA1_96".into(), 20));
    assert_eq!(suite(&format!("aead 'rfc4543(gcm(aes))' {K20} 128")), ("AUTH_AES_128_GMAC".into(), 20));
}

#[test]
fn each_direction_has_its_own_sequence_number() {
    let counters = |words: &str| (gcm(words).last_received, gcm(words).last_sent);
    assert_eq!(counters("replay-seq 7"), (7, 0));
    assert_eq!(counters("replay-oseq 7"), (0, 7));
    assert_eq!(counters("replay-seq 7 replay-oseq 8 replay-oseq-hi 0"), (7, 8));
    assert_contains(&gcm_error("replay-seq-hi 1"), &["expected only with `flag esn`"]);
}

#[test]
fn selectors_of_states() {
    let shown = |words: &str| gcm(words).selector.unwrap().to_string();
    assert_eq!(shown("sel src 10.0.0.1"), "10.0.0.1/32 -> 0.0.0.0/0");
    assert_eq!(shown("mode tunnel sel dst fd00::/8"), "::/0 -> fd00::/8");
    assert_eq!(shown("sel proto udp"), "0.0.0.0/0 -> 0.0.0.0/0 proto 17");
    assert_eq!(shown("sel proto any sport 0"), "0.0.0.0/0 -> 0.0.0.0/0");
    let icmp = gcm("sel proto icmp type 0 code 3").selector.unwrap();
    assert_eq!(
        (icmp.proto, icmp.src_port, icmp.dst_port),
        (Some(1), PortRange::single(0), PortRange::single(3))
    );
}

#[test]
fn policies() {
    let plain = policy("src 10.1.0.0/16 dst 10.2.0.0/16 dir out");
    assert_eq!(
        (plain.direction, plain.policy.priority, plain.policy.action),
        (Direction::Out, 0, Action::Bypass)
    );
    assert_eq!(plain.policy.selector.to_string(), "10.1.0.0/16 -> 10.2.0.0/16");
    let blocked = policy("dir in src fd00::/8 action block priority 9 index 5 ptype main flag localok");
    assert_eq!(
        (blocked.direction, blocked.policy.priority, blocked.policy.action),
        (Direction::In, 9, Action::Discard)
    );
    assert_eq!(policy("dir fwd").policy.selector.to_string(), "0.0.0.0/0 -> 0.0.0.0/0");
    let protect = policy(
        "dir out tmpl proto esp src 0.0.0.0 tmpl src 192.0.2.1 dst 192.0.2.2 proto ah mode tunnel reqid 3 level required",
    );
    assert_eq!(
        protect.policy.action.to_string(),
        "protect esp transport, then ah tunnel 192.0.2.1 -> 192.0.2.2 reqid 3"
    );
}

/// iproute2 reads the addresses of a template once; later ones belong to the selector.
#[test]
fn selector_after_a_template() {
    let policy =
        policy("dir out tmpl proto esp reqid 5 src 10.0.0.0/8 tmpl mode tunnel proto ah dst 192.0.2.2")
            .policy;
    assert_eq!(policy.selector.to_string(), "10.0.0.0/8 -> 0.0.0.0/0");
    assert_eq!(policy.action.to_string(), "protect esp transport reqid 5, then ah tunnel any -> 192.0.2.2");
}

#[test]
fn scripts_batch_files_and_abbreviations() {
    let gcm = format!("aead 'rfc4106(gcm(aes))' {K20} 128");
    let text = format!(
        "#!/bin/sh\n# two hosts\nip xfrm state flush\nip xfrm policy deleteall\n\nip -4 xfrm state add {ID} \\\n    {gcm}\n\
         x s a src fd00::1 dst fd00::2 proto esp spi 5000 {gcm}\n/sbin/ip xfrm policy update dir out\nxfrm policy update dir out action block\n\
         ip xfrm state update {ID} {gcm} reqid 9\n"
    );
    let file = parse(&text);
    assert_eq!(file.states.iter().map(|s| (s.line, s.value.reqid)).collect::<Vec<_>>(), [(11, 9), (8, 0)]);
    assert_eq!(file.policies.len(), 1);
    assert_eq!(file.policies[0].value.policy.action, Action::Discard);
}

#[test]
fn all_errors_of_a_file_are_reported() {
    let text = format!(
        "xfrm state add {ID}\n\nfoo\nxfrm state add {ID} aead 'rfc4106(gcm(aes))' {K20} 128\nxfrm state\n$x\n"
    );
    let problems = XfrmFile::parse(text.as_bytes()).unwrap_err();
    assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [1, 3, 5, 6]);
    let many =
        LoadError::Invalid("f.xfrm".into(), (1..=25).map(|line| LineProblem::new(line, "x")).collect());
    let shown = many.to_string();
    assert!(shown.starts_with("f.xfrm:1: x\nf.xfrm:2: x\n"), "{shown}");
    assert!(shown.ends_with("f.xfrm:20: x\nf.xfrm: and 5 more errors"), "{shown}");
    let missing = XfrmFile::load(Path::new("/nonexistent/file")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/file: No such file"), "{missing}");
}

#[test]
fn wrong_commands() {
    assert_contains(&error("ipsec start"), &["1: `ipsec` is not a command", "was expected"]);
    assert_contains(
        &error("\nip xfrm"),
        &["2: the command ends after `xfrm`", "state or policy was expected"],
    );
    assert_contains(&error("ip xfrm monitor"), &["`monitor` after `xfrm`: state or policy was expected"]);
    assert_contains(
        &error("xfrm state delete src 1.1.1.1"),
        &["`delete` after `state`: add or update was expected"],
    );
    assert_contains(
        &error(
            "xfrm state update src 192.0.2.1 dst 192.0.2.2 proto esp spi 9 aead 'rfc4106(gcm(aes))' 0x0011223344556677889900112233445566778899 64",
        ),
        &["no state with dst 192.0.2.2 proto esp spi 0x00000009"],
    );
    let add = format!("xfrm state add {ID} aead 'rfc4106(gcm(aes))' {K20} 128\n");
    assert_contains(
        &error(&format!("{add}{add}")),
        &["2: line 1 has a state with dst 192.0.2.2 proto esp spi 0x00001000 already"],
    );
    assert_contains(
        &error(&format!("{add}xfrm state flush")),
        &["2: `flush`: expected only before the first"],
    );
    assert_contains(
        &error("xfrm policy add dir in\nxfrm policy add dir in priority 5"),
        &["2: line 1 has a policy for the same packets"],
    );
}

#[test]
fn wrong_states() {
    for (words, parts) in [
        ("mode", &["the command ends after `mode`: transport or tunnel was expected"][..]),
        ("mode beet", &["`mode beet` is not supported: transport or tunnel was expected"]),
        ("mode tunel", &["`tunel` after `mode`: transport or tunnel was expected"]),
        ("mode tunnel mode tunnel", &["`mode` is given twice"]),
        ("reqid x", &["`x` after `reqid`: a number from 0 to 4294967295 was expected"]),
        ("reqid 4294967296", &["a number from 0 to 4294967295"]),
        ("spi 5", &["`spi`: src, dst, proto and spi were expected to stand together"]),
        ("flag", &["ends after `flag`: esn, noecn"]),
        ("flag foo", &["`foo` after `flag`: esn, noecn, nopmtudisc, af-unspec, align4 or icmp was expected"]),
        ("flag esn decap-dscp", &["decap-dscp", "RFC 4301"]),
        ("flag wildrecv", &["`wildrecv` after `flag`"]),
        ("extra-flag oseq-may-wrap", &["RFC 4303 section 3.3.3"]),
        ("extra-flag x", &["dont-encap-dscp was expected"]),
        ("encap espinudp 0 4500 0.0.0.0", &["ports from 1 to 65535"]),
        ("encap espinudp 4500 4500", &["ends after `4500`: an original address"]),
        ("encap espinudp 4500 4500 x", &["`x` after `4500`: an IPv4 or IPv6 address was expected"]),
        ("encap espintcp 1 2 any", &["`encap espintcp` is not supported: espinudp was expected"]),
        ("encap udp 1 2 any", &["`udp` after `encap`: espinudp was expected"]),
        ("sel", &["after `sel` one of src"]),
        ("sel src 10.0.0.0/33", &["`10.0.0.0/33` after `src`: an address or a prefix"]),
        ("sel src any", &["`any` after `src`"]),
        ("sel src 10.0.0.0/8 dst fd00::/8", &["addresses of one IP version"]),
        ("sel src fd00::/8", &["`sel` of another IP version than the state: expected only in mode tunnel"]),
        ("sel dev eth0", &["`dev` is not supported in a selector"]),
        ("sel proto foo", &["`foo` after `proto`: a protocol's name"]),
        ("sel proto 256", &["its number up to 255"]),
        ("sel proto icmp sport 5", &["with proto tcp, udp, sctp or dccp only"]),
        ("sel proto tcp type 5", &["with proto icmp, ipv6-icmp or mobility-header only"]),
        ("sel type 5", &["with proto icmp, ipv6-icmp or mobility-header only"]),
        (
            "sel proto tcp src 10.0.0.1 dport 5",
            &["`dport`: proto, sport, dport, type and code were expected to stand together"],
        ),
        ("sel sport 65536", &["a number from 0 to 65535"]),
        ("sel proto tcp flag af-unspec", &["`src` or `dst` was expected, to name the IP version"]),
        ("limit", &["ends after `limit`: time-soft"]),
        ("limit byte 5", &["`byte` after `limit`: time-soft"]),
        ("limit foo-hard 5", &["`foo-hard` after `limit`: time-soft"]),
        ("limit byte-hard 10kb", &["`10kb` after `byte-hard`: a number from 0 to 18446744073709551615"]),
        ("limit packet-hard 0", &["`0` after `packet-hard`: at least 1"]),
        ("tfcpad 70000", &["a number from 0 to 65535"]),
        ("tfcpad 64", &["only with proto esp in mode tunnel"]),
        ("comp deflate", &["`comp` is not supported in a state"]),
        ("mark 5", &["`mark` is not supported in a state"]),
        ("if_id 5", &["`if_id` is not supported in a state"]),
        ("bogus", &["`bogus` is not a word of a state: src, dst"]),
        ("enc aes 0x00", &["the key of aes has 8 bits: 128 or 192 or 256 was expected"]),
        ("enc aes 0xzz", &["the key of aes is malformed"]),
        ("enc serpent 0x00", &["`serpent` after `enc`: cbc(aes), rfc3686"]),
        ("auth sha256 0x00", &["the key of sha256 has 8 bits: 256 was expected (RFC 4868 section 2.1.1"]),
        ("auth sha3 0x00", &["`sha3` after `auth`: hmac(sha256)"]),
        (
            "auth-trunc 'xcbc(aes)' 0x000102030405060708090a0b0c0d0e0f 97",
            &["a multiple of 8 from 64 to 128 bits was expected"],
        ),
        (
            "auth-trunc sha1 0x000102030405060708090a0b0c0d0e0f10111213 168",
            &["a multiple of 8 from 64 to 160 bits"],
        ),
        ("aead gcm 0x00 128", &["`gcm` after `aead`: rfc4106(gcm(aes))"]),
        (
            "aead 'rfc4309(ccm(aes))' 0x00 128",
            &["has 8 bits: 152 or 216 or 280 was expected (the key and a salt of 24 bits"],
        ),
        (
            "aead 'rfc4543(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 96",
            &["an ICV of 128 bits was expected"],
        ),
        (
            "aead 'rfc4309(ccm(aes))' 0x000102030405060708090a0b0c0d0e0f101112 80",
            &["an ICV of 64, 96 or 128 bits"],
        ),
    ] {
        let message = if words.contains("aead") { state_error(words) } else { gcm_error(words) };
        assert_contains(&message, parts);
    }
}

#[test]
fn incomplete_states() {
    let algorithm = format!("aead 'rfc4106(gcm(aes))' {K20} 128");
    for (id, part) in [
        ("dst 192.0.2.2 proto esp spi 256", "no src: src ADDRESS was expected"),
        ("src 192.0.2.1 proto esp spi 256", "no dst: dst ADDRESS was expected"),
        ("src 192.0.2.1 dst 192.0.2.2 spi 256", "no proto: proto esp or proto ah was expected"),
        ("src 192.0.2.1 dst 192.0.2.2 proto esp", "no spi: spi NUMBER was expected"),
        ("src 192.0.2.1 dst 192.0.2.2 proto esp spi 0", "`0` after `spi`: an SPI from 1"),
        (
            "src 192.0.2.1 dst 192.0.2.2 proto comp spi 1",
            "`proto comp` is not supported: esp or ah was expected",
        ),
        ("src 192.0.2.1 dst 192.0.2.2 proto 50 spi 1", "`50` after `proto`: esp or ah was expected"),
        ("src 192.0.2.1 dst fd00::1 proto esp spi 256", "two addresses of one IP version"),
        ("src 0.0.0.0 dst 192.0.2.2 proto esp spi 256", "the address of one host was expected"),
        ("src host dst 192.0.2.2 proto esp spi 256", "`host` after `src`: an IPv4 or IPv6 address"),
    ] {
        assert_contains(&error(&format!("xfrm state add {id} {algorithm}")), &[part]);
    }
    let cbc = format!("enc aes {K16}");
    let hmac = format!("auth sha1 {K20}");
    assert_contains(&state_error(""), &["no algorithms: `aead`, or `enc` and `auth`, was expected"]);
    assert_contains(&state_error(&cbc), &["encryption without integrity is refused (RFC 8221 section 4)"]);
    assert_contains(&state_error(&hmac), &["`enc` was expected beside `auth`"]);
    assert_contains(
        &state_error(&format!("{cbc} {hmac} {algorithm}")),
        &["`aead` both encrypts and authenticates"],
    );
    assert_contains(&state_error(&format!("{hmac} {hmac}")), &["`auth` is given twice"]);
    let ah = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto ah spi 256";
    assert_contains(&error(&format!("{ah} {algorithm}")), &["an AH state has one MAC"]);
    assert_contains(
        &error(&format!("{ah} {hmac} encap espinudp 1 2 any")),
        &["`encap`: expected only with proto esp"],
    );
}

#[test]
fn wrong_policies() {
    for (words, part) in [
        ("src 10.0.0.0/8", "no dir: dir in, dir out or dir fwd was expected"),
        ("dir forward", "`forward` after `dir`: in, out or fwd was expected"),
        ("dir out action drop", "`drop` after `action`: allow or block was expected"),
        (
            "src 10.0.0.0/8 dir out dst 10.0.0.0/8",
            "`dst`: the words of the selector were expected to stand together",
        ),
        ("dir out dir in", "`dir` is given twice: one was expected"),
        ("dir out prio 5", "`priority` was expected"),
        ("dir out ptype sub", "`sub` after `ptype`: main was expected"),
        ("dir out flag x", "`x` after `flag`: localok or icmp was expected"),
        ("dir out limit byte-hard 5", "`limit` is not supported in a policy"),
        ("dir out if_id 5", "`if_id` is not supported in a policy"),
        ("dir out dev eth0", "`dev` is not supported in a selector"),
        ("dir out bogus", "`bogus` is not a word of a policy"),
        ("dir out tmpl mode tunnel", "the tmpl has no protocol: proto esp or proto ah was expected"),
        ("dir out tmpl proto esp level use", "`level use` is not supported"),
        ("dir out tmpl proto esp level x", "`x` after `level`: required was expected"),
        ("dir out tmpl proto esp spi 5", "`spi` in a `tmpl` is not supported"),
        ("dir out tmpl proto esp tmpl proto ah tmpl proto ah", "3 templates: at most 2 were expected"),
        ("dir out tmpl proto esp src 10.0.0.1 dst fd00::1", "two addresses of one IP version"),
        ("dir out src fd00::/8 tmpl proto esp src 0.0.0.0", "a transport-mode `tmpl` of another IP version"),
        ("dir out tmpl proto esp dst fd00::1", "a transport-mode `tmpl` of another IP version"),
    ] {
        assert_contains(&policy_error(words), &[part]);
    }
    policy("dir out tmpl proto esp mode tunnel dst fd00::1 tmpl proto ah dst fd00::1");
}

#[test]
fn warnings() {
    let key = |byte: u8| format!("aead 'rfc4106(gcm(aes))' 0x{} 128", format!("{byte:02x}").repeat(20));
    let text = format!(
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 255 {0} reqid 1\n\
         xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 256 {0} reqid 1\n\
         xfrm state add src 192.0.2.2 dst 192.0.2.1 proto esp spi 257 {1} flag icmp esn\n\
         xfrm policy add dir out tmpl proto esp reqid 1\n\
         xfrm policy add dir in tmpl proto esp reqid 2\n\
         xfrm policy add dir fwd tmpl proto esp reqid 2\n\
         xfrm policy add dir out dst 192.0.2.9 flag icmp tmpl proto esp src 192.0.2.1 mode tunnel\n",
        key(1),
        key(2)
    );
    let file = parse(&text);
    let shown: Vec<String> = file.warnings_at(Path::new("f")).collect();
    let starts = [
        "f:1: `spi 255`: 1 to 255 are reserved",
        "f:2: the key is that of line 1",
        "f:3: `flag icmp` is ignored",
        "f:3: `flag esn` without a replay-window",
        "f:5: no state of this file matches the tmpl esp transport reqid 2",
        "f:7: `flag icmp` is ignored",
        "f:7: no state of this file matches the tmpl esp tunnel 192.0.2.1 -> any",
    ];
    assert_eq!(shown.len(), starts.len(), "{shown:#?}");
    for (line, start) in shown.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn no_message_shows_a_key() {
    let secret = "0123456789abcdef0123456789abcdef";
    for words in [
        format!("enc aes 0x{secret}77"),
        format!("enc aes 0x{secret}zz"),
        format!("enc 0x{secret} aes"),
        format!("0x{secret}"),
        format!("reqid 0x{secret}"),
        format!("enc aes 0x'{secret}'"),
        format!("enc aes '0x{secret}"),
        format!("enc aes 0x{secret}$x"),
        format!("enc aes '0x{secret}#'"),
        format!("aead 'rfc4106(gcm(aes))' 0x{secret}00000000 129"),
        format!("aead 'rfc4106(gcm(aes))' 0x{secret}00000000 1c"),
        format!("aead 'rfc4106(gcm(aes))' 0x{secret}00000000"),
        format!("aead 'rfc4106(gcm(aes))' {} 1c", &secret[..20]),
        format!("auth-trunc sha1 {}", &secret[..20]),
    ] {
        let message = error(&format!("xfrm state add {ID} {words}"));
        assert!(!message.contains(secret.get(..16).unwrap()), "{message}");
    }
}

/// Words of the grammar, and random text.
fn word() -> impl Strategy<Value = String> {
    const WORDS: &str = "ip -4 xfrm state policy add update flush src dst proto spi mode reqid replay-window replay-seq \
        replay-oseq replay-seq-hi replay-oseq-hi flag extra-flag esn icmp align4 enc auth auth-trunc aead encap espinudp sel limit \
        time-soft byte-hard tfcpad 10.0.0.1 10.0.0.0/8 fd00::1 ::/0 0 1 -1 128 0xff esp ah tunnel transport aes sha1 \
        rfc4106(gcm(aes)) dir in out fwd action allow block priority index ptype main tmpl level required use proto tcp icmp type \
        code sport dport any '' \"\" # \\ ' \n \\\n";
    let words: Vec<String> = WORDS.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    prop_oneof![8 => prop::sample::select(words), 1 => Just(K16.to_owned()), 1 => Just(K20.to_owned()), 1 => ".{0,6}"]
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = XfrmFile::parse(&bytes);
    }

    #[test]
    fn arbitrary_words_do_not_panic(words in prop::collection::vec(word(), 0..60)) {
        let text = words.join(" ");
        match XfrmFile::parse(text.as_bytes()) {
            Ok(file) => prop_assert!(file.warnings.iter().all(|w| w.line > 0)),
            Err(problems) => prop_assert!(problems.iter().all(|p| p.line > 0 && !p.text.is_empty())),
        }
    }

    #[test]
    fn arbitrary_words_after_a_state_do_not_panic(words in prop::collection::vec(word(), 0..20)) {
        let _ = XfrmFile::parse(format!("xfrm state add {ID} {}", words.join(" ")).as_bytes());
    }
}
