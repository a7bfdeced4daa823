//! The output of the options `--json` against the schemas in docs/manual/schema, with the Python package
//! `jsonschema`. The test is stricter than the schemas: a field that a schema does not document is an error.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, TempDir};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};
use testnet::{Host, Side, TestNet};

const TRACE_TIMEOUT: Duration = Duration::from_secs(20);

/// Validates the instance in the second file; prints each error.
const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
schema, instance = (json.load(open(path)) for path in sys.argv[1:3])
Draft202012Validator.check_schema(schema)
errors = list(Draft202012Validator(schema).iter_errors(instance))
for error in errors:
    print("%s: %s" % (error.json_path, error.message[:500]))
sys.exit(len(errors) > 0)
"#;

/// A published schema without room for undocumented fields.
struct Schema {
    python: &'static str,
    path: PathBuf,
    directory: TempDir,
}

impl Schema {
    /// Notes the skipped test and returns `None` if the Python package is not installed.
    fn load(name: &str) -> Option<Self> {
        let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(|python| has_validator(python))
        else {
            casemate_test_support::skip("the Python package jsonschema (Debian package python3-jsonschema)");
            return None;
        };
        let directory = TempDir::new("json-schema").unwrap();
        let path = directory.path().join("schema.json");
        let mut schema = published(name);
        close(&mut schema);
        fs::write(&path, schema.to_string()).unwrap();
        Some(Self { python, path, directory })
    }

    /// The violations of the schema.
    fn errors(&self, instance: &Value) -> String {
        let path = self.directory.path().join("instance.json");
        fs::write(&path, instance.to_string()).unwrap();
        let output = Program::new(self.python).args(["-c", VALIDATE]).arg(&self.path).arg(&path).output();
        let errors = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
        errors
    }

    #[track_caller]
    fn accepts(&self, instance: &Value) {
        let errors = self.errors(instance);
        assert!(errors.is_empty(), "{errors}\n{instance:#}");
    }
}

fn has_validator(python: &str) -> bool {
    Command::new(python)
        .args(["-c", "import jsonschema"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn published(name: &str) -> Value {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/schema");
    serde_json::from_str(&fs::read_to_string(directory.join(name)).unwrap()).unwrap()
}

/// Forbids fields that are not listed, in every object of a schema.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.contains_key("properties") {
                fields.insert("additionalProperties".into(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The configuration of one side, with a scheduler.
fn conf(side: Side, secret: &str) -> String {
    format!(
        "connections {{ peer {{\n local_addrs = {}\n remote_addrs = {}\n local {{\n auth = psk\n }}\n remote {{\n auth = psk\n }}\n \
         children {{ net {{\n local_ts = {}\n remote_ts = {}\n start_action = trap\n }} }} }} }}\n \
         secrets {{ ike {{\n secret = \"{secret}\"\n }} }}\n scheduler {{\n}}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// The same two SAs on both sides, with lifetimes, and a policy for each direction.
fn xfrm(side: Side) -> String {
    let state = |from: Side, spi: u32| {
        let (src, dst, key) = (from.outer(true), from.other().outer(true), format!("{spi:02x}").repeat(10));
        format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} reqid 7 mode tunnel replay-window 64 aead \
             'rfc4106(gcm(aes))' 0x{key} 128 limit byte-soft 1000000 limit time-hard 3600\n"
        )
    };
    let policy = |from: Side, dir: &str| {
        let (src, dst) = (from.outer(true), from.other().outer(true));
        format!(
            "xfrm policy add src {} dst {} dir {dir} tmpl src {src} dst {dst} proto esp reqid 7 mode tunnel\n",
            from.inner(true),
            from.other().inner(true)
        )
    };
    state(Side::Left, 0x1001)
        + &state(Side::Right, 0x1002)
        + &policy(side, "out")
        + &policy(side.other(), "in")
}

fn why(host: &Host) -> Value {
    let output = host.casemate(&["why", "peer", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn status_of_manual_keys() {
    let Some(net) = TestNet::build("schema_manual") else { return };
    let Some(schema) = Schema::load("status.json") else { return };
    let _running = [net.left.run_xfrm(&xfrm(Side::Left)), net.right.run_xfrm(&xfrm(Side::Right))];
    assert!(net.left.pings(Side::Right.inner(true), 8));
    let status = net.left.status();
    assert_eq!(status["sas"].as_array().unwrap().len(), 2, "{status:#}");
    schema.accepts(&status);
}

#[test]
fn status_and_why_of_ike_with_a_scheduler() {
    let Some(net) = TestNet::build("schema_ike") else { return };
    let (Some(schema), Some(reason)) = (Schema::load("status.json"), Schema::load("why.json")) else {
        return;
    };
    let _left = net.left.run_config(&conf(Side::Left, "a secret of the two"), None);
    // Before, during and after the negotiation.
    schema.accepts(&net.left.status());
    reason.accepts(&why(&net.left));
    let right = net.right.run_config(&conf(Side::Right, "a secret of the two"), None);
    assert!(net.left.pings(Side::Right.inner(true), 8));
    let status = net.left.status();
    assert_eq!(status["ike_sas"][0]["children"].as_array().unwrap().len(), 1, "{status:#}");
    assert_eq!(status["classes"].as_array().unwrap().len(), 5, "{status:#}");
    schema.accepts(&status);
    reason.accepts(&why(&net.left));
    an_undocumented_field_is_an_error(&schema, &status);

    // A connection with an error, a pending retry, and faults of the peer.
    drop(right);
    let _right = net.right.run_config(&conf(Side::Right, "another secret"), None);
    let initiate = ["initiate", "peer", "--timeout", "3"];
    thread::scope(|scope| {
        scope.spawn(|| net.right.casemate(&initiate));
        net.right.wait_until(|status| !status["connections"][0]["last_error"].is_null());
    });
    let status = net.right.status();
    schema.accepts(&status);
    reason.accepts(&why(&net.right));
    let status = net.left.status();
    schema.accepts(&status);
    reason.accepts(&why(&net.left));
}

/// The test itself detects a field too many and one too few.
fn an_undocumented_field_is_an_error(schema: &Schema, status: &Value) {
    for (pointer, field) in [("", "news"), ("/ike_sas/0/children/0", "news"), ("/guard", "news")] {
        let mut changed = status.clone();
        changed.pointer_mut(pointer).unwrap()[field] = json!(1);
        assert!(schema.errors(&changed).contains("'news' was unexpected"), "{pointer}");
    }
    let mut changed = status.clone();
    changed["sas"][0].as_object_mut().unwrap().remove("seq");
    assert!(schema.errors(&changed).contains("'seq' is a required property"));
}

/// The packets that `casemate trace` prints while `traffic` runs.
fn traced(host: &Host, selector: &str, count: usize, traffic: impl FnOnce()) -> Vec<Value> {
    let packets = count.to_string();
    let args = ["trace", selector, "--json", "--count", &packets, "--timeout", "20"];
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(args);
    let mut trace = program.log_to(&host.file("trace")).start_with(|command| host.netns.spawn(command));
    let word = if count == 1 { "packet" } else { "packets" };
    let line = format!("tracing the next {packets} {word} for at most 20 s; Ctrl-C ends the trace");
    trace.wait_for_line(&line, TRACE_TIMEOUT);
    traffic();
    assert!(trace.wait(TRACE_TIMEOUT).success(), "{}", trace.log());
    let log = trace.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let packets: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(packets.len(), count, "{log}");
    packets
}

#[test]
fn trace() {
    let Some(net) = TestNet::build("schema_trace") else { return };
    let Some(schema) = Schema::load("trace.json") else { return };
    let _running = [net.left.run_xfrm(&xfrm(Side::Left)), net.right.run_xfrm(&xfrm(Side::Right))];
    let there = Side::Right.inner(true);
    // Sent with its route, and delivered.
    let packets = traced(&net.left, "dst 10.2.0.1 proto icmp", 2, || assert!(net.left.pings(there, 8)));
    packets.iter().for_each(|packet| schema.accepts(packet));
    let steps: Vec<&Value> = packets.iter().flat_map(|packet| packet["steps"].as_array().unwrap()).collect();
    for name in ["outgoing", "policy", "sa", "encapsulated", "sent", "route", "incoming", "delivered"] {
        assert!(steps.iter().any(|step| step["step"] == name), "no step {name} in {packets:#?}");
    }
    // Dropped with an unknown SPI.
    let unknown = "peer 192.0.2.1 dir in";
    let packets = traced(&net.right, unknown, 1, || {
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(50)));
        let socket = net.left.run(open).unwrap();
        let to = SockAddr::from(SocketAddr::new(Side::Right.outer(true), 0));
        socket.send_to(&[0x77; 40], &to).unwrap();
    });
    packets.iter().for_each(|packet| schema.accepts(packet));
    // The test itself detects a field too many.
    let mut changed = packets[0].clone();
    changed["steps"][0]["news"] = json!(1);
    assert!(!schema.errors(&changed).is_empty());
}

#[test]
fn calls() {
    let Some(schema) = Schema::load("calls.json") else { return };
    let calls = ["--line 128k", "--line 2M --payload 40", "--line 100bit --suite aes128gcm16", "--paper"];
    for args in calls {
        let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("calls").arg("--json");
        let output = program.args(args.split(' ')).output();
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        schema.accepts(&serde_json::from_slice(&output.stdout).unwrap());
    }
}

/// Programs may rely on every field, and people can read what it means.
#[test]
fn every_field_is_described_and_required() {
    fn check(name: &str, schema: &Value) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let required = schema["required"].as_array().unwrap();
            for (field, content) in properties {
                let is_described = content.get("description").is_some() || content.get("$ref").is_some();
                assert!(is_described, "{name}: {field} has no description");
                let may_be_absent =
                    ["bytes", "packets", "seconds_since_added", "seconds_since_used", "address"];
                let is_required = required.contains(&json!(field));
                assert!(is_required || may_be_absent.contains(&&**field), "{name}: {field} may be absent");
            }
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(|field| check(name, field)),
            Value::Array(items) => items.iter().for_each(|item| check(name, item)),
            _ => {}
        }
    }
    for name in ["status.json", "why.json", "trace.json", "calls.json"] {
        let schema = published(name);
        check(name, &schema);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(schema["$id"].as_str().unwrap().ends_with(":1"), "{name}");
    }
}
