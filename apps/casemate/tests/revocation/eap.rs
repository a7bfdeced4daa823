//! The certificates of EAP-TLS, EAP-TTLS and PEAP, which the right host checks as server and as client.

use crate::ca::Ca;
use crate::charon::Charon;
use crate::server::{Answer, Server};
use crate::testnet::{Host, Running, Side, TestNet, eventually};
use crate::{LOOPBACK, OCSP, STRICT, authority, connects, for_charon, run};
use std::fs;

/// The configuration of a host: the keys of both sides of its connection, and more sections.
fn conf(side: Side, local: &str, remote: &str, more: &str) -> String {
    let [own, peer] = [side, side.other()].map(|side| format!("{side:?}").to_lowercase());
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n send_cert = always\n ocsp = never\n\
         local {{ certs = {own}.pem\n id = {own}.test\n {local} }}\n\
         remote {{ id = {peer}.test\n {remote} }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {} }} }} }} }}\n\
         secrets {{ eap {{ id = right.test\n secret = sesame }} }}\n{more}",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// The left host is a client, the right one a server that checks the client's certificate.
const CLIENT: [&str; 2] = ["auth = eap-tls", "auth = pubkey"];
const SERVER: [&str; 2] = ["auth = pubkey", "auth = eap-tls\n eap_id = %any"];

/// The left host is a server that proves its identity by EAP alone, the right one its client.
fn roles(method: &str) -> [[String; 2]; 2] {
    let auth = format!("auth = {method}");
    [[auth.clone(), auth.clone()], [auth.clone(), auth]]
}

struct Setup<'n> {
    net: &'n TestNet,
    ca: Ca,
    server: Server,
    left: Running,
    right: Running,
}

impl<'n> Setup<'n> {
    fn start(
        net: &'n TestNet,
        left: [&str; 2],
        right: [&str; 2],
        policy: &str,
        answer: Answer,
    ) -> Option<Self> {
        let ca = Ca::new(net.right.file("ca"), "")?;
        let server = Server::start(&net.right, LOOPBACK, &ca, answer);
        let left = run(&net.left, &ca, "left", &conf(Side::Left, left[0], left[1], ""));
        let right = start_right(&net.right, &ca, &server, right, policy);
        Some(Self { net, ca, server, left, right })
    }

    fn logs(&self) -> String {
        format!("--- left\n{}\n--- right\n{}", self.left.log(), self.right.log())
    }
}

fn start_right(host: &Host, ca: &Ca, server: &Server, right: [&str; 2], policy: &str) -> Running {
    let uris = authority(&OCSP.replace("SERVER", &server.addr.to_string()));
    let remote = format!("{}\n {policy}", right[1]);
    run(host, ca, "right", &conf(Side::Right, right[0], &remote, &uris))
}

#[test]
fn the_server_of_eap_tls_asks_for_the_status_of_its_client() {
    let Some(net) = TestNet::build("revocation_eap_server") else { return };
    let Some(setup) = Setup::start(&net, CLIENT, SERVER, STRICT, Answer::ocsp("good")) else { return };
    let connects = || connects(&net.left, &net.right);
    assert!(connects(), "{}", setup.logs());
    assert_eq!(setup.server.take_requests(), ["POST / HTTP/1.1"]);
    assert!(connects(), "{}", setup.logs());
    assert!(setup.server.take_requests().is_empty(), "the answer is kept");
    let mut right = setup.right;
    for (state, reason) in [
        ("revoked", "TLS certificate of left.test: the certificate is revoked: CN=left, by OCSP http://127"),
        ("unknown", "TLS certificate of left.test: status of CN=left is not known: OCSP http://"),
    ] {
        right.stop();
        setup.server.answer_with(Answer::ocsp(state));
        right = start_right(&setup.net.right, &setup.ca, &setup.server, SERVER, STRICT);
        assert!(!connects(), "{}", right.log());
        eventually(reason, || right.log().contains(reason));
        assert!(right.log().contains("the certificate of the other side of TLS is missing or refused"));
    }
}

/// The client learns that the certificate is revoked before it sends its password into the tunnel.
#[test]
fn clients_ask_for_the_status_of_their_server() {
    for method in ["eap-tls", "eap-ttls", "eap-peap"] {
        let Some(net) = TestNet::build(&format!("revocation_{method}")) else { return };
        let roles = roles(method);
        let [left, right] = roles.each_ref().map(|role| role.each_ref().map(String::as_str));
        let Some(setup) = Setup::start(&net, left, right, STRICT, Answer::ocsp("good")) else { return };
        let connects = || connects(&net.right, &net.left);
        assert!(connects(), "{method}: {}", setup.logs());
        assert_eq!(setup.server.take_requests().len(), 1, "{method}");
        setup.right.stop();
        setup.server.answer_with(Answer::ocsp("revoked"));
        // Even if it need not be known that the certificate is valid.
        let restarted = start_right(&net.right, &setup.ca, &setup.server, right, "");
        assert!(!connects(), "{method}: {}", restarted.log());
        let reason = "TLS certificate of left.test: the certificate is revoked: CN=left, by OCSP http://";
        eventually(reason, || restarted.log().contains(reason));
        net.left.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
        eventually("the refusal", || setup.left.log().contains("refused by the peer: AUTHENTICATION_FAILED"));
    }
}

/// What `revocation` says decides if the responder does not answer. The other side repeats its message
/// meanwhile.
#[test]
fn a_silent_responder_delays_eap_for_seconds_only() {
    for (policy, is_accepted) in [("strict", false), ("ifuri", false), ("relaxed", true)] {
        let Some(net) = TestNet::build(&format!("revocation_eap_{policy}")) else { return };
        let remote = format!("revocation = {policy}");
        let Some(setup) = Setup::start(&net, CLIENT, SERVER, &remote, Answer::Nothing) else { return };
        assert_eq!(connects(&net.left, &net.right), is_accepted, "{policy}: {}", setup.logs());
        eventually("the warning", || setup.right.log().contains("no answer in time"));
        assert_eq!(setup.server.take_requests().len(), 1, "{policy}");
    }
}

/// CVE-2022-40617, in TLS: a client of another CA must not make this host fetch anything.
#[test]
fn nothing_is_fetched_for_a_client_without_a_trusted_certificate() {
    let Some(net) = TestNet::build("revocation_eap_impostor") else { return };
    let Some(setup) = Setup::start(&net, CLIENT, SERVER, STRICT, Answer::ocsp("good")) else { return };
    let uri = format!("authorityInfoAccess=OCSP;URI:http://{}/", setup.server.addr);
    let impostor = Ca::new(net.left.file("impostor"), &uri).unwrap();
    drop(setup.left);
    let etc = net.left.file("etc");
    for name in ["x509ca", "x509", "private"] {
        fs::remove_dir_all(etc.join(name)).unwrap();
    }
    let file = impostor.install("left", &etc, &conf(Side::Left, CLIENT[0], CLIENT[1], ""));
    fs::copy(setup.ca.file("ca.pem"), etc.join("x509ca/trusted.pem")).unwrap();
    let left = net.left.run_config_file(&file);
    assert!(!connects(&net.left, &net.right), "{}", setup.right.log());
    eventually("the refusal", || setup.right.log().contains("TLS certificate of left.test"));
    left.stop();
    assert!(setup.server.take_requests().is_empty());
}

/// charon as the client of EAP-TLS.
#[test]
fn the_server_of_eap_tls_asks_for_the_status_of_charon() {
    let Some(net) = TestNet::build("revocation_eap_charon") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    let server = Server::start(&net.right, LOOPBACK, &ca, Answer::ocsp("good"));
    let right = start_right(&net.right, &ca, &server, SERVER, STRICT);
    let Some(charon) = Charon::start(&net.left, "") else { return };
    let left = for_charon(&conf(Side::Left, CLIENT[0], CLIENT[1], ""));
    ca.install("left", &charon.swanctl.directory, &left);
    charon.swanctl.output(&["--load-all", "--noprompt"]);
    let initiate = || charon.swanctl.run(&["--initiate", "--child", "c", "--timeout", "20"]).status.success();
    assert!(initiate(), "{}\n---\n{}", charon.log(), right.log());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", right.log());
    assert_eq!(server.take_requests().len(), 1);
    charon.swanctl.output(&["--terminate", "--ike", "t"]);
    right.stop();
    server.answer_with(Answer::ocsp("revoked"));
    let right = start_right(&net.right, &ca, &server, SERVER, STRICT);
    assert!(!initiate(), "{}", right.log());
    eventually("the refusal", || {
        right.log().contains("the certificate is revoked: CN=left, by OCSP http://")
    });
}
