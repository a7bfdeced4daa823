//! `include/casemate.h` and `include/casemate_ike.h` say the same as the Rust source: every function, struct and number.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_lwip::Code;
use std::collections::BTreeSet;

const HEADER: &str =
    concat!(include_str!("../include/casemate.h"), include_str!("../include/casemate_ike.h"));
const API: &str = concat!(include_str!("../src/api.rs"), include_str!("../src/ike/api.rs"));
const TYPES: &str = concat!(include_str!("../src/types.rs"), include_str!("../src/ike/types.rs"));

/// Text without comments, with single blanks.
fn squeezed(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The C spelling of a Rust type, before a name.
fn c_type(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("*const ") {
        let inner = c_type(inner);
        // A pointer to a pointer that may not be changed is not the same as one to a changing one.
        return if inner.ends_with('*') { format!("{inner}*") } else { format!("const {inner} *") };
    }
    if let Some(inner) = rust.strip_prefix("*mut ") {
        let inner = c_type(inner);
        return if inner.ends_with('*') { format!("{inner}*") } else { format!("{inner} *") };
    }
    match rust {
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i32" => "int32_t",
        "usize" => "size_t",
        "c_char" => "char",
        "c_void" => "void",
        "Address" => "struct casemate_address",
        "Tables" => "struct casemate_tables",
        "Costs" => "struct casemate_costs",
        "Setup" => "struct casemate_setup",
        "Sa" => "struct casemate_sa",
        "Policy" => "struct casemate_policy",
        "Template" => "struct casemate_template",
        "PacketRef" => "struct casemate_packet",
        "Host" => "struct casemate_host",
        "Bytes" => "struct casemate_bytes",
        "ChildSpec" => "struct casemate_child",
        "ConnectionSpec" => "struct casemate_connection",
        "Home" => "struct casemate_home",
        "Datagram" => "struct casemate_datagram",
        "Told" => "struct casemate_event",
        "Counts" => "struct casemate_ike_counts",
        "Option<Source>" => "casemate_source_fn",
        "Option<Wake>" => "casemate_wake_fn",
        "Option<Random>" => "casemate_random_fn",
        "Option<Emit>" => "casemate_emit_fn",
        other => panic!("{other} has no C spelling here"),
    }
    .into()
}

/// `name: type` as C declares it.
fn declared(field: &str) -> String {
    let (name, rust) = field.trim().trim_start_matches("pub ").split_once(": ").unwrap();
    if rust == "[u8; 16]" {
        return format!("uint8_t {name}[16]");
    }
    if let Some(length) = rust.strip_prefix("[c_char; ").and_then(|rest| rest.strip_suffix(']')) {
        return format!("char {name}[CASEMATE_{length}]");
    }
    let spelled = c_type(rust);
    if spelled.ends_with('*') { format!("{spelled}{name}") } else { format!("{spelled} {name}") }
}

/// The prototype of each function.
fn prototypes() -> Vec<String> {
    let functions = API.split("#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|text| {
            let signature = text.split_once("extern \"C\" fn ").unwrap().1.split_once(" {\n").unwrap().0;
            let signature = squeezed(signature);
            let (name, rest) = signature.split_once('(').unwrap();
            let (parameters, result) = rest.rsplit_once(')').unwrap();
            let parameters: Vec<_> = parameters
                .split(',')
                .filter(|parameter| !parameter.trim().is_empty())
                .map(declared)
                .collect();
            let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
            let result = result.trim().strip_prefix("-> ").map_or("void".into(), c_type);
            let blank = if result.ends_with('*') { "" } else { " " };
            format!("{result}{blank}{name}({parameters});")
        })
        .collect()
}

#[test]
fn functions_have_these_prototypes() {
    let header = squeezed(HEADER);
    let prototypes = prototypes();
    assert_eq!(prototypes.len(), 31, "{prototypes:?}");
    for prototype in &prototypes {
        assert!(header.contains(prototype.as_str()), "casemate.h lacks {prototype}");
    }
    // And none that the library has not; casemate_panic is the application's.
    let named = |text: &str| {
        let pieces =
            text.split(['(', ' ', '*']).filter(|word| word.starts_with("casemate_")).map(str::to_owned);
        pieces.collect::<BTreeSet<_>>()
    };
    let declared: BTreeSet<_> = header
        .split(';')
        .filter(|text| text.contains('(') && !text.contains("typedef") && !text.contains("#define"))
        .filter_map(|text| text.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned))
        .filter(|name| name.starts_with("casemate_"))
        .collect();
    let written: BTreeSet<_> =
        prototypes.iter().flat_map(|text| named(text.split('(').next().unwrap())).collect();
    for name in declared.difference(&written) {
        assert_eq!(name, "casemate_panic", "casemate.h declares it, and no function is called so");
    }
}

#[test]
fn structs_have_these_members() {
    let header = squeezed(HEADER);
    let mut count = 0;
    for text in TYPES.split("#[repr(C)]\npub struct ").skip(1) {
        let (name, rest) = text.split_once(" {\n").unwrap();
        let body = rest.split_once("\n}").unwrap().0;
        let members: Vec<_> = body
            .lines()
            .filter_map(|line| line.trim().strip_suffix(','))
            .filter(|line| line.starts_with("pub "))
            .map(|line| format!("{};", declared(line)))
            .collect();
        let whole = format!("{} {{ {} }};", c_type(name), members.join(" "));
        assert!(header.contains(&whole), "casemate.h lacks {whole}");
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn numbers_are_the_same() {
    let defined: Vec<(&str, i64)> = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define CASEMATE_")?.split_once(' '))
        .map(|(name, value)| (name, value.split_once("/*").map_or(value, |(value, _)| value).trim()))
        .map(|(name, value)| (name, value.trim_matches(['(', ')']).parse().unwrap()))
        .collect();
    let value = |name: &str| defined.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let mut expected: BTreeSet<&str> = ["OK", "HEAD_ROOM", "TAIL_ROOM"].into();
    assert_eq!(value("HEAD_ROOM"), Some(casemate_datapath::HEAD_ROOM as i64));
    assert_eq!(value("TAIL_ROOM"), Some(casemate_datapath::TAIL_ROOM as i64));
    for line in TYPES.lines().filter_map(|line| line.strip_prefix("pub const ")) {
        let (name, rest) = line.split_once(": ").unwrap();
        let number: i64 = rest.split_once("= ").unwrap().1.trim_end_matches(';').parse().unwrap();
        assert_eq!(value(name), Some(number), "{name}");
        expected.insert(name);
    }
    for code in Code::ALL {
        let name = format!("ERR_{}", format!("{code:?}").to_uppercase());
        let name = if code == Code::Ok { "OK" } else { name.as_str() };
        assert_eq!(value(name), Some(i64::from(code as i32)), "{name}");
    }
    // What is defined and means nothing would be a mistake too.
    let known = defined.iter().filter(|(name, _)| !name.starts_with("ERR_")).map(|(name, _)| *name);
    assert_eq!(known.collect::<BTreeSet<_>>(), expected);
    assert_eq!(defined.iter().filter(|(name, _)| name.starts_with("ERR_")).count(), Code::ALL.len() - 1);
}
