//! IKE messages in captures, compared with the output of two strongSwan hosts and of tshark
//! (tests/data/ikev2).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ikev2").join(name)
}

fn inspect(capture: &Path, keys: &Path, more: &[&str]) -> Output {
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("inspect").arg(capture);
    program.arg("--ike-keys").arg(keys).args(more).output()
}

/// The messages as `inspect --json` shows them.
fn messages(capture: &str, keys: &Path) -> Vec<Value> {
    let output = inspect(&data(&format!("{capture}.pcap")), keys, &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let message = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["verdict"], "ike", "{line}");
        line["ike"].take()
    };
    lines.lines().map(message).collect()
}

fn with_own_keys(capture: &str) -> Vec<Value> {
    messages(capture, &data(&format!("{capture}.keys")))
}

/// Writes a key file.
fn keys_file(scratch: &TempDir, text: &str) -> PathBuf {
    let path = scratch.file("keys");
    fs::write(&path, text).unwrap();
    path
}

const CAPTURES: [&str; 7] = ["gcm", "cbc", "sha1", "chacha", "ccm", "ctr", "cmac"];

#[test]
fn every_suite_decrypts_and_every_payload_parses() {
    for capture in CAPTURES {
        let messages = with_own_keys(capture);
        let text = serde_json::to_string(&messages).unwrap();
        for trouble in ["\"fault\"", "no-key", "icv-mismatch"] {
            assert!(!text.contains(trouble), "{capture}: {text}");
        }
        let (opened, held) = (text.matches("\"opened\"").count(), text.matches("\"held\"").count());
        // Twelve messages after IKE_SA_INIT. In one capture, five fragments wait for the last fragment of
        // their message.
        assert_eq!((opened, held), (12, if capture == "cbc" { 5 } else { 0 }), "{capture}");
        assert_eq!(messages.len(), 2 + opened + held, "{capture}");
    }
}

/// Collects the types of payloads, with proposals (2) and transforms (3), and of notifications, in the
/// order of the message.
fn numbers(payloads: &Value, types: &mut Vec<String>, notifies: &mut Vec<String>) {
    for payload in payloads.as_array().into_iter().flatten() {
        let kind = PayloadType::ALL.iter().find(|kind| payload["type"] == kind.to_string()).unwrap();
        types.push(kind.0.to_string());
        for proposal in payload["proposals"].as_array().into_iter().flatten() {
            types.push("2".into());
            types.extend(proposal["transforms"].as_array().unwrap().iter().map(|_| "3".to_owned()));
        }
        if let Some(notify) = payload["notify"].as_str() {
            let known = NotifyType::ALL.iter().find(|known| known.to_string() == notify);
            notifies.push(known.map_or(notify.to_owned(), |known| known.0.to_string()));
        }
        numbers(&payload["payloads"], types, notifies);
    }
}

#[test]
fn tshark_agrees() {
    for name in ["gcm", "cbc", "sha1", "ccm", "ctr-any", "cmac-any", "mlkem"] {
        let seen = fs::read_to_string(data(&format!("{name}.tshark"))).unwrap();
        let capture = name.trim_end_matches("-any");
        let messages = messages(capture, &data(&format!("{name}.keys")));
        assert_eq!(messages.len(), seen.lines().count(), "{capture}");
        for (n, (line, message)) in (1..).zip(seen.lines().zip(&messages)) {
            let exchange = ExchangeType::ALL.iter().find(|kind| message["exchange"] == kind.to_string());
            let (mut types, mut notifies) = (vec![], vec![]);
            numbers(&message["payloads"], &mut types, &mut notifies);
            let ours = [
                n.to_string(),
                exchange.unwrap().0.to_string(),
                format!("{:#010x}", message["message_id"].as_u64().unwrap()),
                types.join(","),
                notifies.join(","),
            ];
            assert_eq!(ours.join("\t"), line, "{capture}");
        }
    }
}

#[test]
fn payload_fields() {
    let messages = with_own_keys("gcm");
    let inner = |n: usize, at: usize| &messages[n]["payloads"][0]["payloads"][at];
    assert_eq!(messages[0]["payloads"][0]["proposals"][0]["transforms"][0]["id"], "ENCR_AES_GCM_16");
    assert_eq!(messages[0]["payloads"][0]["proposals"][0]["transforms"][0]["key_length"], 128);
    assert_eq!(messages[0]["payloads"][2]["data"].as_str().unwrap().len(), 64, "a nonce of 32 bytes");
    assert_eq!((&inner(2, 0)["type"], &inner(2, 0)["value"]), (&"IDi".into(), &"left.test".into()));
    let ts = &inner(2, 5)["selectors"][0];
    assert_eq!((&ts["first"], &ts["last"]), (&"10.1.0.0".into(), &"10.1.255.255".into()));
    assert_eq!(messages[2]["from"], "initiator");
    assert_eq!((&messages[3]["from"], &messages[3]["response"]), (&"responder".into(), &true.into()));
    // The Delete payload of the rekeyed Child SA has the SPI of its creation.
    assert_eq!(inner(6, 0)["spis"][0], inner(2, 4)["proposals"][0]["spi"]);
}

/// The payloads in an encrypted payload.
fn inner(message: &Value) -> &Vec<Value> {
    message["payloads"][0]["payloads"].as_array().unwrap_or_else(|| panic!("not opened: {message}"))
}

#[test]
fn additional_key_exchanges_have_keys_of_their_own() {
    let messages = with_own_keys("mlkem");
    let text = serde_json::to_string(&messages).unwrap();
    assert!(!text.contains("icv-mismatch") && !text.contains("\"fault\""), "{text}");
    // ML-KEM-768, its ciphertext, and ECP-384 of both sides; the encapsulation key is in fragments.
    for (n, exchange, method, len) in [
        (3, "IKE_INTERMEDIATE", "ml-kem-768", 1_184),
        (6, "IKE_INTERMEDIATE", "ml-kem-768", 1_088),
        (7, "IKE_INTERMEDIATE", "384-bit random ECP group", 96),
        (21, "IKE_FOLLOWUP_KE", "ml-kem-768", 1_184),
        (24, "IKE_FOLLOWUP_KE", "384-bit random ECP group", 96),
    ] {
        assert_eq!(messages[n]["exchange"], exchange);
        let ke = &inner(&messages[n])[0];
        assert_eq!((&ke["type"], &ke["method"]), (&"KE".into(), &method.into()), "{n}");
        assert_eq!(ke["data"].as_str().unwrap().len(), 2 * len, "{n}");
    }
    // Without the keys after the first additional key exchange, the messages of the second one stay closed.
    let scratch = TempDir::new("rows").unwrap();
    let keys = fs::read_to_string(data("mlkem.keys")).unwrap();
    let rows: Vec<&str> = keys.lines().collect();
    let fewer = keys_file(&scratch, &[rows[3], rows[2], rows[0]].join("\n"));
    let states = self::messages("mlkem", &fewer);
    let closed = |message: &Value| message["payloads"][0]["state"] == "icv-mismatch";
    let closed: Vec<usize> =
        (1..).zip(&states).filter(|(_, message)| closed(message)).map(|(n, _)| n).collect();
    assert_eq!(closed, [8, 9]);
}

#[test]
fn transforms_and_notifications_of_additional_key_exchanges_and_ppks() {
    let messages = with_own_keys("mlkem");
    let transforms = messages[0]["payloads"][0]["proposals"][0]["transforms"].as_array().unwrap();
    let ids = |kind: &str| {
        let of_kind = transforms.iter().filter(|transform| transform["type"] == kind);
        of_kind.map(|transform| transform["id"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("ADDKE1"), ["ml-kem-768"]);
    assert_eq!(ids("ADDKE2"), ["384-bit random ECP group"]);
    let notify = |payloads: &Vec<Value>, name: &str| {
        let payload = payloads.iter().find(|payload| payload["notify"] == name);
        payload.unwrap_or_else(|| panic!("no {name}: {payloads:?}")).clone()
    };
    for message in &messages[..2] {
        let payloads = message["payloads"].as_array().unwrap();
        notify(payloads, "INTERMEDIATE_EXCHANGE_SUPPORTED");
        notify(payloads, "USE_PPK");
    }
    let request = inner(&messages[9]);
    let ppk = notify(request, "PPK_IDENTITY");
    assert_eq!(ppk["ppk_id"], serde_json::json!({ "type": "PPK_ID_FIXED", "value": "ppk.test" }));
    assert!(!notify(request, "NO_PPK_AUTH")["data"].as_str().unwrap().is_empty());
    assert!(notify(inner(&messages[10]), "PPK_IDENTITY")["ppk_id"].is_null());
    let link = |n: usize| notify(inner(&messages[n]), "ADDITIONAL_KEY_EXCHANGE")["data"].clone();
    // The request after an exchange returns the link of its response.
    assert_eq!((link(18), link(22), link(28)), (link(21), link(23), link(31)));
}

#[test]
fn text_output_has_one_line_per_message() {
    let output = inspect(&data("cbc.pcap"), &data("cbc.keys"), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "192.0.2.1 > 192.0.2.2 udp: IKE_AUTH request 1: SKF 1/2 (held)",
        "CREATE_CHILD_SA request 2: SK { REKEY_SA SA Nonce TSi TSr }",
        "INFORMATIONAL response 5: SK { }",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(String::from_utf8(output.stderr).unwrap().contains("19 packets: 19 ike"));
    let output = inspect(&data("mlkem.pcap"), &data("mlkem.keys"), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "IKE_INTERMEDIATE request 1: SKF 2/2 { KE(ml-kem-768) }",
        "IKE_AUTH response 3: SK { IDr AUTH SA TSi TSr PPK_IDENTITY }",
        "IKE_FOLLOWUP_KE request 1: SKF 3/3 { KE(ml-kem-768) ADDITIONAL_KEY_EXCHANGE }",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn nothing_decrypts_without_the_right_key() {
    let scratch = TempDir::new("ike-keys").unwrap();
    let none = keys_file(&scratch, "# nothing\n");
    let text = serde_json::to_string(&messages("gcm", &none)).unwrap();
    assert_eq!((text.matches("\"no-key\"").count(), text.matches("\"opened\"").count()), (12, 0));
    for capture in CAPTURES {
        let keys = fs::read_to_string(data(&format!("{capture}.keys"))).unwrap();
        // A wrong key for the initiator's messages: one digit of the authentication key differs.
        let wrong: String = keys.lines().map(|row| format!("{}\n", spoil(row))).collect();
        let messages = messages(capture, &keys_file(&scratch, &wrong));
        for message in messages.iter().skip(2) {
            let state = &message["payloads"][0]["state"];
            let expected = if message["from"] == "initiator" { "icv-mismatch" } else { "opened" };
            assert!(state == expected || state == "held" && expected == "opened", "{capture}: {message}");
        }
    }
}

/// Changes SK_ai, or SK_ei if there is no SK_ai.
fn spoil(row: &str) -> String {
    let mut columns: Vec<String> = row.split(',').map(str::to_owned).collect();
    let at = if columns[5].is_empty() { 2 } else { 5 };
    let first = if columns[at].starts_with('0') { "1" } else { "0" };
    columns[at].replace_range(..1, first);
    columns.join(",")
}

#[test]
fn unchecked_icv_is_reported() {
    for (keys, expected) in [("ctr", 0), ("ctr-any", 12)] {
        let text = serde_json::to_string(&messages("ctr", &data(&format!("{keys}.keys")))).unwrap();
        assert_eq!(text.matches("\"icv\":\"not-checked\"").count(), expected, "{keys}");
    }
}

#[test]
fn unknown_row_is_reported_and_skipped() {
    let scratch = TempDir::new("ike-rows").unwrap();
    let own = fs::read_to_string(data("gcm.keys")).unwrap();
    let unknown = own.lines().next().unwrap().replace("AES-GCM-128", "ROT-13");
    let keys = keys_file(&scratch, &format!("# keys\n{unknown}\n{own}"));
    let output = inspect(&data("gcm.pcap"), &keys, &["--json"]);
    let (lines, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stderr}");
    assert_eq!(lines.matches("\"opened\"").count(), 12, "{lines}");
    let start = format!("casemate: warning: {}:2: encryption `ROT-13 with 16 octet ICV", keys.display());
    assert!(stderr.contains(&start) && stderr.contains("; the row is skipped"), "{stderr}");
    assert_eq!(stderr.matches("warning").count(), 1, "{stderr}");
}

#[test]
fn file_without_a_valid_row_is_refused() {
    let scratch = TempDir::new("ike-wrong").unwrap();
    let keys = keys_file(&scratch, "\n0102,0304\n");
    let output = inspect(&data("gcm.pcap"), &keys, &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&format!("{}:2: 2 columns: 8 were expected", keys.display())), "{stderr}");
    let program = Program::new(env!("CARGO_BIN_EXE_casemate"));
    let output = program.arg("inspect").arg(data("gcm.pcap")).output();
    assert_eq!(output.status.code(), Some(2), "neither states nor keys");
}
