//! `include/casemate.h` and `include/casemate_ike.h` match the Rust source: functions, structs and constants.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_lwip::Status;
use std::collections::BTreeSet;

const HEADER: &str =
    concat!(include_str!("../include/casemate.h"), include_str!("../include/casemate_ike.h"));
const API: &str = concat!(include_str!("../src/api.rs"), include_str!("../src/ike/api.rs"));
const TYPES: &str = concat!(include_str!("../src/types.rs"), include_str!("../src/ike/types.rs"));

/// Removes comments and repeated blanks.
fn strip_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the C type of a Rust type, as written before a name.
fn c_type(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("*const ") {
        let inner = c_type(inner);
        // `T *const *` and `T **` differ: only the outer pointer is const in Rust.
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
        "IkeCallbacks" => "struct casemate_ike_callbacks",
        "Datagram" => "struct casemate_datagram",
        "IkeEvent" => "struct casemate_event",
        "IkeCounts" => "struct casemate_ike_counts",
        "Option<SourceFn>" => "casemate_source_fn",
        "Option<WakeFn>" => "casemate_wake_fn",
        "Option<RandomFn>" => "casemate_random_fn",
        "Option<EmitFn>" => "casemate_emit_fn",
        other => panic!("no C type is known for {other}"),
    }
    .into()
}

/// Converts `name: type` to a C declaration.
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

/// Returns the C prototype of each function.
fn prototypes() -> Vec<String> {
    let functions = API.split("#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|text| {
            let signature = text.split_once("extern \"C\" fn ").unwrap().1.split_once(" {\n").unwrap().0;
            let signature = strip_comments(signature);
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
fn functions_match_the_headers() {
    let header = strip_comments(HEADER);
    let prototypes = prototypes();
    assert_eq!(prototypes.len(), 31, "{prototypes:?}");
    for prototype in &prototypes {
        assert!(header.contains(prototype.as_str()), "casemate.h lacks {prototype}");
    }
    // The header declares no other functions; casemate_panic belongs to the application.
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
        assert_eq!(name, "casemate_panic", "the header declares a function that the library does not define");
    }
}

#[test]
fn structs_match_the_headers() {
    let header = strip_comments(HEADER);
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
fn constants_match_the_headers() {
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
    for status in Status::ALL {
        let name = format!("ERR_{}", format!("{status:?}").to_uppercase());
        let name = if status == Status::Ok { "OK" } else { name.as_str() };
        assert_eq!(value(name), Some(i64::from(status as i32)), "{name}");
    }
    // The header defines no other constants.
    let known = defined.iter().filter(|(name, _)| !name.starts_with("ERR_")).map(|(name, _)| *name);
    assert_eq!(known.collect::<BTreeSet<_>>(), expected);
    assert_eq!(defined.iter().filter(|(name, _)| name.starts_with("ERR_")).count(), Status::ALL.len() - 1);
}
