//! The parser against ip(8) and the kernel, with random policy lines. Lines that both accept must have
//! the same meaning, which the kernel's listing shows, and no line may be accepted by one of them only.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_app::xfrm::XfrmFile;
use casemate_test_support::Program;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const SELECTORS: [&str; 12] = [
    "src 10.0.0.0/8",
    "dst 10.1/16",
    "src 10.0.0.1 dst 10.0.0.0/255.0.0.0",
    "dst 1.2.3.4/0",
    "src fd00::/8",
    "src fd00::1 dst ::/0",
    "dst fd00::1",
    "src 10.0.0.0/8 dst fd00::/8",
    "",
    "src 10.0.0.0/33",
    "dst any",
    "src 10.9.0.0/16 src 10.10.0.0/16",
];

const UPPER: [&str; 15] = [
    "proto tcp",
    "proto UDP sport 80",
    "sport 0x50 dport 0",
    "proto tcp sport 010 dport 65535",
    "proto icmp type 8",
    "proto icmp type 0 code 0",
    "proto ipv6-icmp code 3",
    "proto 47",
    "proto any",
    "",
    "type 8",
    "proto icmp sport 5",
    "proto tcp type 5",
    "proto 256",
    "proto tcp dport 65536",
];

const OPTIONS: [&str; 9] = [
    "action allow",
    "action block",
    "priority 010",
    "priority 4294967295",
    "ptype main",
    "flag localok",
    "flag icmp localok",
    "dir out",
    "bogus",
];

const TEMPLATES: [&str; 8] = [
    "tmpl proto esp",
    "tmpl proto ah mode transport reqid 7",
    "tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel reqid 0x10",
    "tmpl mode tunnel reqid 3 src fd00::1 dst fd00::2 proto ah level required",
    "tmpl level required proto esp src 0.0.0.0",
    "tmpl proto esp reqid 5 src 10.7.0.0/16",
    "tmpl src 192.0.2.1 dst fd00::1 proto esp mode tunnel",
    "tmpl mode tunnel",
];

/// A policy line that is usually valid.
fn policy() -> impl Strategy<Value = String> {
    let direction = select(vec!["dir in", "dir out", "dir fwd", "dir out", ""]);
    let selector = (select(SELECTORS.to_vec()), select(UPPER.to_vec()));
    let options = prop::collection::vec(select(OPTIONS.to_vec()), 0..3);
    let templates = prop::collection::vec(select(TEMPLATES.to_vec()), 0..3);
    (selector, direction, options, templates, any::<Index>()).prop_map(|parts| {
        let ((addresses, upper), direction, options, templates, turn) = parts;
        let mut words = vec![direction];
        words.extend(options);
        let turn = turn.index(words.len());
        words.rotate_left(turn);
        let words: Vec<&str> = [&[addresses, upper], words.as_slice(), templates.as_slice()].concat();
        format!("xfrm policy add {}", words.join(" "))
    })
}

/// The reaction of `ip` to each line: its error message, or the kernel's listing as a policy line.
fn ask_kernel(lines: &[String]) -> Option<Vec<Result<String, String>>> {
    let mut script = String::from("ip xfrm policy flush || exit 9\n");
    for line in lines {
        script += &format!("echo '#'; ip {line} 2>&1 && ip xfrm policy list; ip xfrm policy flush\n");
    }
    let unshare = Program::new("unshare").args(["--user", "--map-root-user", "--net", "sh"]);
    let output = unshare.input(script).output();
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<_> = text.split("#\n").skip(1).map(answer).collect();
    (answers.len() == lines.len()).then_some(answers)
}

fn answer(text: &str) -> Result<String, String> {
    match text.contains("\tdir ") {
        true => Ok(format!("xfrm policy add {}", text.split_whitespace().collect::<Vec<_>>().join(" "))),
        false => Err(text.trim().to_owned()),
    }
}

/// Whether ip(8) refused a valid line: the IP version of a selector affects later words.
fn is_accident_of_ip(complaint: &str) -> bool {
    complaint.contains("prefix is expected rather than")
}

#[test]
fn policies_have_the_meaning_of_the_kernel() {
    let mut runner = TestRunner::deterministic();
    let lines: Vec<String> = (0..400).map(|_| policy().new_tree(&mut runner).unwrap().current()).collect();
    let Some(answers) = ask_kernel(&lines) else {
        casemate_test_support::skip("needs ip(8), a network namespace and a kernel with XFRM");
        return;
    };
    let mut compared = 0;
    for (line, answer) in lines.iter().zip(answers) {
        match (XfrmFile::parse(line.as_bytes()), answer) {
            (Ok(ours), Ok(listing)) => {
                let kernel = XfrmFile::parse(listing.as_bytes())
                    .unwrap_or_else(|problems| panic!("{line}\n{listing}\n{problems:?}"));
                assert_eq!(ours.policies[0].value, kernel.policies[0].value, "{line}\n{listing}");
                compared += 1;
            }
            (Err(_), Err(_)) => {}
            (Err(problems), Ok(listing)) => panic!("{line}\n{listing}\n{problems:?}"),
            (Ok(_), Err(complaint)) => assert!(is_accident_of_ip(&complaint), "{line}\n{complaint}"),
        }
    }
    assert!(compared > 60, "only {compared} policies were compared");
}
