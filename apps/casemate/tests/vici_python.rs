//! The Python package `vici` of the strongSwan project, unmodified, manages an instance.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, TempDir};
use std::process::Command;
use testnet::TestNet;

/// The version that the test knows.
const PACKAGE: &str = "vici==6.0.3";

/// What the script does, on the left host, with a socket for each side.
const SCRIPT: &str = r#"
import socket, sys, threading, vici

def session(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return vici.Session(connection)

left, right = session(sys.argv[1]), session(sys.argv[2])
assert left.version()["daemon"] == b"casemate"

def connection(own, peer, local, remote, children):
    return {"home": {
        "local_addrs": [own], "remote_addrs": [peer], "version": "2", "mobike": "no",
        "local": {"auth": "psk", "id": local}, "remote": {"auth": "psk", "id": remote},
        "children": {"net": children},
    }}

nets = {"local_ts": ["10.1.0.0/16"], "remote_ts": ["10.2.0.0/16"]}
mirrored = {"local_ts": ["10.2.0.0/16"], "remote_ts": ["10.1.0.0/16"]}
left.load_conn(connection("192.0.2.1", "192.0.2.2", "l.example.org", "r.example.org", nets))
right.load_conn(connection("192.0.2.2", "192.0.2.1", "r.example.org", "l.example.org", mirrored))
for side in left, right:
    side.load_shared({"type": "ike", "id": "key", "data": b"\x00\x01binary secret \xff", "owners": ["l.example.org", "r.example.org"]})
    assert side.get_shared() == {"keys": [b"key"]}
    assert side.get_conns() == {"conns": [b"home"]}
assert [list(one) for one in left.list_conns()] == [["home"]]

# Events arrive at a session of their own.
seen, listener = [], session(sys.argv[1])
def listen():
    for name, event in listener.listen(["ike-updown", "child-updown", "ike-rekey", "child-rekey"]):
        seen.append((name, event))
        if name == b"ike-updown" and "up" not in event:
            return
def wait_for(name):
    for _ in range(200):
        if any(event == name for event, _ in seen):
            return
        threading.Event().wait(0.05)
    raise SystemExit("no event %s in %s" % (name, seen))
thread = threading.Thread(target=listen, daemon=True)
thread.start()
threading.Event().wait(0.3)

lines = [line["msg"] for line in left.initiate({"child": "net", "timeout": "20000"})]
assert any(b"established with r.example.org" in line for line in lines), lines
[listed] = left.list_sas()
sa = listed["home"]
assert (sa["state"], sa["version"], sa["local-id"]) == (b"ESTABLISHED", b"2", b"l.example.org"), sa
[child] = sa["child-sas"].values()
assert (child["state"], child["name"], child["remote-ts"]) == (b"INSTALLED", b"net", [b"10.2.0.0/16"]), child
left.rekey({"child": "net"})
wait_for(b"child-rekey")
left.rekey({"ike": "home"})
wait_for(b"ike-rekey")
[rekeyed] = [event for name, event in seen if name == b"ike-rekey"]
assert rekeyed["home"]["old"]["uniqueid"] != rekeyed["home"]["new"]["uniqueid"], rekeyed
list(left.terminate({"ike": "home", "timeout": "20000"}))
thread.join(20)
assert not thread.is_alive(), seen

for name, request, words in [
    ("load_conn", {"home": {"mediation": "yes"}}, "connections.home.mediation: `yes`: mediation is not"),
    ("load_shared", {"type": "PPK", "data": "x"}, "`id` was expected"),
    ("unload_conn", {"name": "other"}, "connection 'other' not found for unloading"),
    ("load_key", {"type": "any", "data": "no key"}, "PEM"),
]:
    try:
        getattr(left, name)(request)
        raise SystemExit(name + " was accepted")
    except vici.exception.CommandException as error:
        assert words in str(error), (name, error)
left.unload_conn({"name": "home"})
left.unload_shared({"id": "key"})
assert left.get_conns() == {"conns": []} and left.get_shared() == {"keys": []}
print("all done")
"#;

#[test]
fn the_python_package_manages_an_instance() {
    let Some(net) = TestNet::build("vici_python") else { return };
    let scratch = TempDir::new("vici-python").unwrap();
    let directory = scratch.path().display();
    let install =
        format!("python3 -m venv {directory}/venv && {directory}/venv/bin/pip install --quiet {PACKAGE}");
    let installed = Command::new("sh").arg("-c").arg(&install).output().unwrap();
    if !installed.status.success() {
        let why = String::from_utf8_lossy(&installed.stderr).into_owned();
        return casemate_test_support::skip(format!("the Python package {PACKAGE}: {why}"));
    }
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    let python = scratch.path().join("venv/bin/python");
    let sockets = [net.left.file("vici"), net.right.file("vici")];
    let output = net.left.output_of(Program::new(python).arg("-c").arg(SCRIPT).args(sockets));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("all done"), "{text}");
}
