//! The syntax, the inheritance of sections, and the locations of errors.

use super::super::files::TreeLoader;
use super::super::problem::Problem;
use super::super::resolved::Resolver;
use super::super::tree::Tree;
use super::{FILE, Memory, ok, only, parse, wrong};
use proptest::prelude::*;
use std::path::Path;

/// Text, the full name of a key, and the value that libstrongswan 5.9.8 returns for it
/// (`settings_create_string`, `get_str`); `None` is "not set".
const STRONGSWAN: &[(&str, &str, Option<&str>)] = &[
    ("a = b \"c  d\"e f # x\n", "a", Some("b c  d e f")),
    ("b = \"x\\ty\\\"z\\\nw\" q\n", "b", Some("x\ty\"zw q")),
    ("a = \nc = x=y{z", "a", None),
    ("a = \nc = x=y{z", "c", Some("x=y{z")),
    ("s { a = 1 b = 2 }\n", "s.a", Some("1 b = 2")),
    ("t\n\n{ x = 3 }", "t.x", Some("3")),
    ("s { a = 1 }\ns { b = 2\n a = 3 }", "s.a", Some("3")),
    ("s { a = 1 }\ns { b = 2\n a = 3 }", "s.b", Some("2")),
    ("d { a = 1\n z { q = 7 } }\ns : d { b = 2 }\n t : s { a = \n}", "s.a", Some("1")),
    ("d { a = 1\n z { q = 7 } }\ns : d { b = 2 }\n t : s { a = \n}", "t.a", None),
    ("d { a = 1\n z { q = 7 } }\ns : d { b = 2 }\n t : s { a = \n}", "t.b", Some("2")),
    ("d { a = 1\n z { q = 7 } }\ns : d { b = 2 }\n t : s { a = \n}", "t.z.q", Some("7")),
    ("s : \n t \n , u\n{ a=1 }\nt{b=2}\nu{c=3}", "s.c", Some("3")),
    ("include = 1", "include", Some("1")),
    ("a # x\n\n = 1\nb=2", "a", Some("1")),
    ("a\n = \n1 = 2", "1", Some("2")),
    ("a = \"x\ny\"", "a", Some("x\ny")),
    ("a { b : a { } c = 1 }", "a.b.b.b.c", Some("1")),
    ("x : p.q { }\n p : r { }\n r { q { k = 5 } }", "x.k", Some("5")),
    ("a = \"x\"y\nb=1", "a", Some("x y")),
];

/// Text that libstrongswan 5.9.8 refuses, and the line at fault.
const REFUSED: &[(&str, usize)] = &[
    ("s.x { a = 1 }\n", 1),
    ("\na.b = 1\n", 2),
    ("s { }\n}\na=1", 2),
    ("s {\n a=1\n", 1),
    ("a = one\\\n two\nb=1", 2),
    ("\"k\" = 2\n", 1),
    ("\nk = v } \n", 2),
    ("k v = 2\n", 1),
    ("a : b = 2\n", 1),
    ("a = 1\nb = \"c\n\n", 2),
];

fn tree(text: &[u8]) -> (Tree, Vec<Problem>) {
    TreeLoader::read(Path::new(FILE), text, &Memory::default())
}

fn get(tree: &Tree, path: &str) -> Option<String> {
    let resolver = Resolver::new(tree);
    let mut resolved = resolver.root();
    let (sections, key) = path.rsplit_once('.').unwrap_or(("", path));
    for part in sections.split('.').filter(|part| !part.is_empty()) {
        resolved = resolved.sections().into_iter().find(|section| section.name() == part)?;
    }
    resolved.key(key).map(|value| value.text.to_string())
}

#[test]
fn values_match_strongswan() {
    for (text, path, expected) in STRONGSWAN {
        let (tree, problems) = tree(text.as_bytes());
        assert_eq!(problems, [], "{text}");
        assert_eq!(get(&tree, path).as_deref(), *expected, "{path} of {text}");
    }
}

#[test]
fn errors_of_strongswan_are_reported_at_the_same_line() {
    for (text, line) in REFUSED {
        let (_, problems) = tree(text.as_bytes());
        assert_eq!(
            problems.first().map(|problem| problem.location.line),
            Some(*line),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn line_numbers_count_strings_and_comments() {
    let (tree, problems) = tree(b"# \xff\r\n\r\na = \"1\r\n2\\\r\n3\" # }\nb {\n c = 1\n}\n");
    assert_eq!(problems, []);
    let root = tree.get(Tree::ROOT).unwrap();
    let value = root.key("a").unwrap();
    assert_eq!((value.text.as_str(), value.location.line), ("1\n23", 3));
    let section = tree.get(root.section("b").unwrap()).unwrap();
    assert_eq!((section.location.line, section.key("c").unwrap().location.line), (6, 7));
}

#[test]
fn text_must_be_utf8() {
    for text in [&b"a = \xff"[..], b"\xff = a", b"a = \"\xff\"", b"a = b\0", b"a = \"\0\"", b"\x01"] {
        assert_eq!(tree(text).1.len(), 1, "{text:?}");
    }
}

#[test]
fn syntax_errors_contain_no_secrets() {
    for text in ["ike { mysecretkey }", "secret \"mysecretkey\"", "a = \"mysecretkey\\", "mysecretkey\n}"] {
        let (_, problems) = tree(text.as_bytes());
        assert!(!problems.is_empty(), "{text}");
        assert!(problems.iter().all(|problem| !problem.text.contains("mysecretkey")), "{problems:?}");
    }
}

#[test]
fn broken_references() {
    assert_eq!(
        only("connections {\n gw : nosuch { }\n}"),
        "swanctl.conf:2: reference to `nosuch`: there is no such section"
    );
    assert_eq!(only("connections {\n gw : a..b { }\n}").split(": ").next(), Some("swanctl.conf:2"));
    let circle = wrong("connections { a : connections.b { }\n b : connections.a { }\n}");
    assert_eq!(circle, ["swanctl.conf:1: reference to `connections.b`: the section inherits from itself"]);
    let to_itself = wrong("connections { a : connections.a { } }");
    assert_eq!(to_itself, ["swanctl.conf:1: reference to `connections.a`: the section inherits from itself"]);
}

#[test]
fn nested_references_have_a_bounded_cost() {
    // Every section inherits four times from the previous one.
    let text = |depth: usize| {
        let mut text = String::from("s0 { k { l { } } }\n");
        for n in 1..depth {
            let before = format!("s{}.k", n - 1);
            text += &format!(
                "s{n} {{ k : {before}, {before}, {before}, {before} {{ l : {before}.l {{ }} }} }}\n"
            );
        }
        format!("{text}connections {{ a : s{}.k {{ l {{ }} }} }}\n", depth - 1)
    };
    assert!(wrong(&text(14)).iter().all(|problem| problem.contains("connections.a.l: not a section")));
    assert!(wrong(&text(40))[0].contains("references are nested more than 16 deep"));
}

#[test]
fn top_level_sections_are_known_or_templates() {
    assert_eq!(
        only("conections {\n}\n"),
        "swanctl.conf:1: conections: no section inherits from it, and it is not a section of swanctl.conf; did \
         you mean `connections`?"
    );
    assert!(
        parse("base {\n foo = bar\n}\nderived : base {\n}\nconnections {\n a : derived {\n foo =\n}\n}")
            .is_ok()
    );
    // A template is checked where it is used, and errors have the location of the template.
    assert_eq!(
        only("base {\n foo = bar\n}\nconnections {\n a : base {\n}\n}").split("; ").next(),
        Some("swanctl.conf:2: connections.a.foo: not a key of swanctl.conf")
    );
    assert!(only("version = 2").contains("the key is outside of all sections"));
    assert!(
        only("connections {\n version = 2\n}").contains("connections.version: a section with a name of your")
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&String::from_utf8_lossy(&text));
        tree(&text);
    }

    #[test]
    fn arbitrary_words_do_not_panic(words in prop::collection::vec(prop::sample::select(&[
        "connections", "secrets", "a", "local", "children", "ike", "{", "}", "{\n", "}\n", "=", ":", "\n", " ", ",", ".", "\"",
        "\\", "#", "include ", "*", "id", "secret = 0x", "proposals = aes128", "-", "%any", "auth = psk", "start_action = trap",
    ][..]), 0..60)) {
        let text = words.concat();
        if let Err(problems) = parse(&text) {
            let lines = text.split('\n').count();
            prop_assert!(!problems.is_empty() && problems.is_sorted());
            prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.location.line)));
        }
    }
}

#[test]
fn an_unclosed_string_is_reported_where_it_begins() {
    let text = "secrets { eap-a {\n secret = \"one\n id = a\n } eap-b {\n secret = \"two\"\n } }";
    let problems = wrong(text);
    assert!(problems.iter().any(|one| one.contains(":2: the string is not closed")), "{problems:?}");
}

#[test]
fn a_typographic_quotation_mark_causes_a_warning() {
    let count = |secret: &str| {
        let config = ok(&format!("secrets {{ eap-a {{\n id = a\n secret = {secret}\n }} }}"));
        config.warnings.iter().filter(|one| one.text.contains("typographic")).count()
    };
    assert_eq!((count("\u{201c}word\u{201d}"), count("\"word\""), count("word")), (1, 0, 0));
}

#[test]
fn pools_that_overlap_cause_a_warning() {
    let count = |second: &str| {
        let config = ok(&format!("pools {{ a {{\n addrs = 10.3.0.0/24\n }} b {{\n addrs = {second}\n }} }}"));
        config.warnings.iter().filter(|one| one.text.contains("overlap with those of a")).count()
    };
    assert_eq!((count("10.3.0.128/25"), count("10.3.1.0/24"), count("fd00::/120")), (1, 0, 0));
}

/// A gateway for users with EAP, whose child may have a `start_action` only as a shunt.
fn users(away: &str, remote_addrs: &str) -> String {
    format!(
        "connections {{\n users {{\n {remote_addrs}\n local {{\n auth = pubkey\n certs = gw.pem\n }}\n \
         remote {{\n auth = eap-mschapv2\n eap_id = %any\n }}\n children {{\n \
         away {{\n {away}\n start_action = trap\n }}\n \
         other {{\n rekey_time = 2h\n life_time = 1h\n }}\n }}\n }}\n}}\n"
    )
}

#[test]
fn a_value_that_cannot_be_read_causes_no_other_error() {
    let contradiction =
        "swanctl.conf:19: connections.users.children.other.life_time: it ends before rekey_time";
    let errors = wrong(&users("mode = drop", ""));
    assert!(errors.len() == 1 && errors[0].starts_with(contradiction), "{errors:?}");
    // Without the mode, `start_action` would be that of a Child SA.
    let errors = wrong(&users("mode = dorp", ""));
    let [of_value, other] = &errors[..] else { panic!("{errors:#?}") };
    assert!(
        of_value.starts_with("swanctl.conf:14: connections.users.children.away.mode: `dorp`"),
        "{errors:?}"
    );
    assert!(other.starts_with(contradiction), "{errors:?}");
    // Without the address, no child has a peer to initiate to.
    for key in ["remote_addrs = 192.0.2.256", "remote_adrs = 192.0.2.1"] {
        let errors = wrong(&users("", key).replace("eap-mschapv2\n eap_id = %any", "psk"));
        assert!(errors.len() == 1 && errors[0].starts_with("swanctl.conf:3: "), "{errors:?}");
    }
    // What this host does not support changes no other value.
    let errors = wrong(&users("mode = pass\n label = a", "aggressive = yes"));
    assert_eq!(errors.len(), 3, "{errors:?}");
}
