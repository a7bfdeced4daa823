//! Revocation: Casemate asks OCSP responders and fetches CRLs for the certificate of its peer, once that has
//! proved that it has the private key. The left host is the peer, the right one checks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod ca;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../charon/mod.rs"]
mod charon;
mod eap;
mod server;
mod stapling;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../swanctl/mod.rs"]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;

use ca::Ca;
use casemate_test_support::{Process, Program};
use server::{Answer, Server};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TestNet, eventually};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The configuration of a host, with more keys of `remote` and more sections.
fn conf(side: Side, remote: &str, more: &str) -> String {
    let [own, peer] = [side, side.other()].map(|side| format!("{side:?}").to_lowercase());
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n send_cert = always\n ocsp = never\n\
         local {{ auth = pubkey\n certs = {own}.pem\n id = {own}.test }}\n\
         remote {{ auth = pubkey\n id = {peer}.test\n{remote} }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {} }} }} }} }}\n{more}",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// Without the keys that charon 5.9.8 does not know.
fn for_charon(conf: &str) -> String {
    conf.replace("ocsp = never\n", "")
}

/// A section that names these URIs for the CA.
fn authority(uris: &str) -> String {
    format!("authorities {{ ca {{ cacert = ca.pem\n {uris} }} }}\n")
}

/// The two hosts, the CA and a server on the right host.
struct Setup<'n> {
    net: &'n TestNet,
    ca: Ca,
    server: Server,
    left: Running,
    right: Running,
}

impl<'n> Setup<'n> {
    /// `remote` are keys of the right host; `uris` those of its authority, with the address of the server in
    /// place of `SERVER`.
    fn start(net: &'n TestNet, remote: &str, uris: &str, answer: Answer) -> Option<Self> {
        let ca = Ca::new(net.right.file("ca"), "")?;
        let server = Server::start(&net.right, LOOPBACK, &ca, answer);
        let uris = uris.replace("SERVER", &server.addr.to_string());
        let left = run(&net.left, &ca, "left", &conf(Side::Left, "", ""));
        let right = run(&net.right, &ca, "right", &conf(Side::Right, remote, &authority(&uris)));
        Some(Self { net, ca, server, left, right })
    }

    fn connects(&self) -> bool {
        connects(&self.net.left, &self.net.right)
    }

    fn expect_connection(&self) {
        assert!(self.connects(), "--- left\n{}\n--- right\n{}", self.left.log(), self.right.log());
    }

    /// The right host refuses the peer, and says why in its log and in `casemate why`.
    fn expect_refusal(&self, reasons: &[&str]) {
        assert!(!self.connects(), "{}", self.right.log());
        let has_all = |text: &str| reasons.iter().all(|reason| text.contains(reason));
        eventually("the reasons in the log", || has_all(&self.right.log()));
        let why = self.net.right.casemate(&["why", "t"]);
        let why = String::from_utf8_lossy(&why.stdout).into_owned();
        assert!(has_all(&why), "{reasons:?}: {why}");
    }
}

fn run(host: &Host, ca: &Ca, name: &str, conf: &str) -> Running {
    host.run_config_file(&ca.install(name, &host.file("etc"), conf))
}

/// Sets the connection up. Returns whether that works; then it is closed again.
fn connects(from: &Host, to: &Host) -> bool {
    let output = from.casemate(&["initiate", "c"]);
    if output.status.success() {
        assert!(from.casemate(&["terminate", "t"]).status.success());
        to.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    }
    output.status.success()
}

const STRICT: &str = "revocation = strict";
const OCSP: &str = "ocsp_uris = http://SERVER/";

#[test]
fn a_good_certificate_is_accepted_and_its_status_kept() {
    let Some(net) = TestNet::build("revocation_good") else { return };
    let Some(setup) = Setup::start(&net, STRICT, OCSP, Answer::ocsp("good")) else { return };
    setup.expect_connection();
    assert_eq!(setup.server.take_requests(), ["POST / HTTP/1.1"]);
    // Revoked now, but the responder has said until when its answer may be used.
    setup.server.answer_with(Answer::ocsp("revoked"));
    setup.expect_connection();
    assert!(setup.server.take_requests().is_empty(), "{}", setup.right.log());
}

/// With the responder of OpenSSL itself, and charon as the peer.
#[test]
fn the_responder_of_openssl_answers_for_charon() {
    let Some(net) = TestNet::build("revocation_openssl") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    let file = |name: &str| ca.file(name).display().to_string();
    let responder = |state: &str| -> Process {
        let program = Program::new("openssl")
            .args(["ocsp", "-port", "8880", "-index", &file(&format!("{state}.txt"))])
            .args([
                "-CA",
                &file("ca.pem"),
                "-rsigner",
                &file("responder.pem"),
                "-rkey",
                &file("responder.key"),
                "-nmin",
                "60",
            ]);
        let log = net.right.file("responder.log");
        let mut process = program.log_to(&log).start_with(|command| net.right.netns.spawn(command));
        process.wait_for_line("ocsp: waiting for OCSP client connections...", Duration::from_secs(20));
        process
    };
    let uris = authority("ocsp_uris = http://127.0.0.1:8880");
    let right = run(&net.right, &ca, "right", &conf(Side::Right, STRICT, &uris));
    let Some(charon) = charon::Charon::start(&net.left, "") else { return };
    let left = for_charon(&conf(Side::Left, "", ""));
    ca.install("left", &charon.swanctl.directory, &left);
    charon.swanctl.output(&["--load-all", "--noprompt"]);
    let initiate = || charon.swanctl.run(&["--initiate", "--child", "c", "--timeout", "20"]).status.success();
    let good = responder("good");
    assert!(initiate(), "{}\n---\n{}", charon.log(), right.log());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", right.log());
    charon.swanctl.output(&["--terminate", "--ike", "t"]);
    drop((right, good));
    // Another run knows nothing yet.
    let right = run(&net.right, &ca, "right", &conf(Side::Right, STRICT, &uris));
    let _revoked = responder("revoked");
    assert!(!initiate(), "{}", right.log());
    eventually("the refusal", || {
        right.log().contains("the certificate is revoked: CN=left, by OCSP http://127.0.0.1:8880")
    });
}

#[test]
fn revoked_and_unknown_certificates_are_refused() {
    let Some(net) = TestNet::build("revocation_revoked") else { return };
    let Some(setup) = Setup::start(&net, "", OCSP, Answer::ocsp("revoked")) else { return };
    // Even if it need not be known that the certificate is valid.
    setup.expect_refusal(&[
        "certificate of left.test: the certificate is revoked: CN=left, by OCSP http://127",
    ]);
    drop(setup);
    let Some(net) = TestNet::build("revocation_unknown") else { return };
    let Some(setup) = Setup::start(&net, STRICT, OCSP, Answer::ocsp("unknown")) else { return };
    setup.expect_refusal(&[
        "status of CN=left is not known: OCSP http://",
        "the responder does not know the certificate",
    ]);
}

/// A responder that cannot be reached: what `revocation` says decides.
#[test]
fn revocation_decides_if_nothing_answers() {
    for (policy, is_accepted) in [("strict", false), ("ifuri", false), ("relaxed", true)] {
        let Some(net) = TestNet::build(&format!("revocation_down_{policy}")) else { return };
        let uris = "ocsp_uris = http://127.0.0.1:9, http://no-such-host.invalid/";
        let remote = format!("revocation = {policy}");
        let Some(setup) = Setup::start(&net, &remote, uris, Answer::Nothing) else { return };
        let reasons =
            ["http://127.0.0.1:9: ", "refused", "http://no-such-host.invalid/: look-up of the name"];
        match is_accepted {
            true => setup.expect_connection(),
            false => setup.expect_refusal(&reasons),
        }
        eventually(&format!("the reasons ({policy})"), || {
            let log = setup.right.log();
            reasons.iter().all(|reason| log.contains(reason))
        });
    }
    // Without any URI, ifuri accepts what strict refuses.
    for (policy, is_accepted) in [("strict", false), ("ifuri", true)] {
        let Some(net) = TestNet::build(&format!("revocation_none_{policy}")) else { return };
        let remote = format!("revocation = {policy}");
        let Some(setup) = Setup::start(&net, &remote, "", Answer::Nothing) else { return };
        assert_eq!(setup.connects(), is_accepted, "{policy}: {}", setup.right.log());
    }
}

#[test]
fn answers_that_prove_nothing_are_refused() {
    let Some(net) = TestNet::build("revocation_faults") else { return };
    let Some(setup) = Setup::start(&net, STRICT, OCSP, Answer::ocsp("good")) else { return };
    // A recorded answer has another nonce.
    setup.expect_connection();
    let recorded = setup.server.last_response();
    // What the right host has found out ends with it.
    let mut right = setup.right;
    let by = |signer, more| Answer::Ocsp { state: "good", signer, more };
    let redirect = Answer::Status("302 Found");
    for (answer, reason) in [
        (Answer::Bytes(recorded), "the response has another nonce than the request"),
        (by("stranger", &[]), "the signer is not authorized by the issuer of the certificate"),
        (by("right", &[]), "the signer is not authorized by the issuer of the certificate"),
        (Answer::Bytes(b"<html></html>".into()), "not a CRL or OCSP response in DER"),
        (Answer::Bytes(vec![0x30; 100_000]), "longer than 65536 bytes"),
        (Answer::Bytes(vec![0x30, 3, 0x0A, 1, 3]), "the responder answers: try later"),
        (Answer::Status("404 Not Found"), "HTTP status 404"),
        (redirect, "HTTP status 302: redirects are not followed"),
    ] {
        right.stop();
        setup.server.answer_with(answer);
        let uris = OCSP.replace("SERVER", &setup.server.addr.to_string());
        right = run(&net.right, &setup.ca, "right", &conf(Side::Right, STRICT, &authority(&uris)));
        setup.server.take_requests();
        let output = net.left.casemate(&["initiate", "c"]);
        assert!(!output.status.success(), "{reason}: {}", right.log());
        eventually(reason, || right.log().contains(reason));
        assert_eq!(setup.server.take_requests().len(), 1, "{reason}");
    }
}

/// The peer repeats its request meanwhile.
#[test]
fn a_responder_that_is_silent_delays_the_peer_for_seconds_only() {
    let Some(net) = TestNet::build("revocation_silent") else { return };
    let Some(setup) = Setup::start(&net, "", OCSP, Answer::Nothing) else { return };
    let start = Instant::now();
    setup.expect_connection();
    assert!((3..12).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    eventually("the warning", || setup.right.log().contains("no answer in time"));
    assert_eq!(setup.server.take_requests().len(), 1);
    // The failure is remembered for a while.
    let start = Instant::now();
    setup.expect_connection();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(setup.server.take_requests().is_empty());
}

#[test]
fn crls_are_fetched_if_no_responder_answers() {
    let Some(net) = TestNet::build("revocation_crl") else { return };
    let uris = "ocsp_uris = http://127.0.0.1:9\n crl_uris = http://SERVER/ca.crl";
    let Some(setup) = Setup::start(&net, STRICT, uris, Answer::Nothing) else { return };
    let crl = |state: &str| Answer::Bytes(fs::read(setup.ca.file(state)).unwrap());
    setup.server.answer_with(crl("good.crl"));
    setup.expect_connection();
    assert_eq!(setup.server.take_requests(), ["GET /ca.crl HTTP/1.1"]);
    setup.server.answer_with(crl("revoked.crl.pem"));
    setup.expect_connection();
    assert!(setup.server.take_requests().is_empty(), "the CRL is kept");
    drop(setup.right);
    let uris = authority(&format!("crl_uris = http://{}/ca.crl", setup.server.addr));
    let right = run(&net.right, &setup.ca, "right", &conf(Side::Right, "", &uris));
    assert!(!net.left.casemate(&["initiate", "c"]).status.success(), "{}", right.log());
    eventually("the refusal", || right.log().contains("the certificate is revoked: CN=left, by CRL http://"));
}

/// The complete CRL does not list the certificate; the delta CRL that the certificate names does.
#[test]
fn delta_crls_are_fetched() {
    let Some(net) = TestNet::build("revocation_delta") else { return };
    let plain = Ca::new(net.right.file("plain"), "").unwrap();
    // URIs of certificates do not lead to the host that checks.
    let server = Server::start(&net.left, Side::Left.outer(true), &plain, Answer::Nothing);
    let uris = format!(
        "crlDistributionPoints=URI:http://{0}/ca.crl\nfreshestCRL=URI:http://{0}/delta.crl",
        server.addr
    );
    let ca = Ca::new(net.right.file("ca"), &uris).unwrap();
    let left = run(&net.left, &ca, "left", &conf(Side::Left, "", ""));
    for (delta, is_revoked) in [("good.delta.crl", false), ("revoked.delta.crl", true), ("good.crl", false)] {
        let read = |name: &str| fs::read(ca.file(name)).unwrap();
        server.answer_with(Answer::Files(vec![("/ca.crl", read("good.crl")), ("/delta.crl", read(delta))]));
        let _ = fs::remove_dir_all(net.right.file("etc"));
        let right = run(&net.right, &ca, "right", &conf(Side::Right, STRICT, ""));
        let is_up = net.left.casemate(&["initiate", "c"]).status.success();
        assert_eq!(is_up, !is_revoked, "{delta}: {}", right.log());
        assert_eq!(server.take_requests(), ["GET /ca.crl HTTP/1.1", "GET /delta.crl HTTP/1.1"]);
        if is_revoked {
            eventually("the refusal", || right.log().contains("the certificate is revoked: CN=left, by CRL"));
        }
        if delta == "good.crl" {
            eventually("the warning", || right.log().contains("alone: delta CRL http://"));
            assert!(net.left.casemate(&["terminate", "t"]).status.success());
            // A reload asks again where the last attempt failed.
            let revoked = ("/delta.crl", read("revoked.delta.crl"));
            server.answer_with(Answer::Files(vec![("/ca.crl", read("good.crl")), revoked]));
            assert!(net.right.casemate(&["reload"]).status.success());
            assert!(!net.left.casemate(&["initiate", "c"]).status.success(), "{}", right.log());
        }
        right.stop();
        net.left.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    }
    left.stop();
}

/// The initiator checks the certificate of the responder in the same way.
#[test]
fn the_initiator_checks_the_responder() {
    let Some(net) = TestNet::build("revocation_initiator") else { return };
    let Some(setup) = Setup::start(&net, "revocation = ifuri", OCSP, Answer::ocsp("good")) else { return };
    let initiate = || net.right.casemate(&["initiate", "c"]).status.success();
    assert!(initiate(), "{}", setup.right.log());
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", setup.right.log());
    assert_eq!(setup.server.take_requests().len(), 1);
    setup.right.stop();
    setup.server.answer_with(Answer::ocsp("revoked"));
    let uris = authority(&OCSP.replace("SERVER", &setup.server.addr.to_string()));
    let right = run(&net.right, &setup.ca, "right", &conf(Side::Right, "", &uris));
    assert!(!initiate(), "{}", right.log());
    eventually("the refusal", || right.log().contains("the certificate is revoked: CN=left"));
    // The peer was told.
    net.left.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
}

/// Requests have no mark, so a tunnel for all traffic would need itself. A child with `mode = pass` excepts
/// the responder, and the log says so.
#[test]
fn a_tunnel_for_all_traffic_needs_an_exception_for_the_responder() {
    let Some(net) = TestNet::build("revocation_all_traffic") else { return };
    let Some(ca) = Ca::new(net.right.file("ca"), "") else { return };
    let responder: IpAddr = [203, 0, 113, 80].into();
    net.left.stdout_of("ip", &["address", "add", &format!("{responder}/32"), "dev", "lo"]);
    let via = Side::Left.outer(true).to_string();
    net.right.stdout_of("ip", &["route", "add", "default", "via", &via]);
    let server = Server::start(&net.left, responder, &ca, Answer::ocsp("good"));
    // The left host checks nothing: it would ask itself.
    let replaced =
        |text: String, key: &str, addr: IpAddr, by: &str| text.replace(&format!("{key} = {addr}"), by);
    let [own, peer] = [Side::Right, Side::Left].map(|side| side.inner(true));
    let left = replaced(conf(Side::Left, "", ""), "local_ts", peer, "local_ts = 0.0.0.0/0");
    let left = run(&net.left, &ca, "left", &left);
    let uris = authority(&format!("ocsp_uris = http://{}/", server.addr));
    let trap = replaced(conf(Side::Right, STRICT, &uris), "remote_ts", peer, "remote_ts = 0.0.0.0/0");
    let trap = replaced(trap, "local_ts", own, "local_ts = 0.0.0.0/0\n start_action = trap");
    let initiate = || net.right.casemate(&["initiate", "c"]).status.success();
    let right = run(&net.right, &ca, "right", &trap);
    assert!(!initiate(), "{}", right.log());
    let hint = "no answer in time; packets to 203.0.113.80 are routed into casemate0: ";
    eventually("the hint", || right.log().contains(hint));
    assert!(server.take_requests().is_empty());
    right.stop();
    fs::remove_dir_all(net.right.file("etc")).unwrap();
    let pass =
        format!("children {{ ocsp {{ mode = pass\n remote_ts = {responder}\n start_action = trap }}\n");
    let right = run(&net.right, &ca, "right", &trap.replace("children {", &pass));
    assert!(initiate(), "{}{}", right.log(), left.log());
    assert_eq!(server.take_requests(), ["POST / HTTP/1.1"]);
    right.stop();
    left.stop();
}

/// CVE-2022-40617: a peer must not make this host fetch anything before it has proved who it is. It shows a
/// certificate of its own CA, which names the server. (`core/ike/tests/revocation.rs` has peers with a
/// trusted certificate and without its key.)
#[test]
fn nothing_is_fetched_for_a_peer_that_proves_nothing() {
    let Some(net) = TestNet::build("revocation_impostor") else { return };
    let Some(setup) = Setup::start(&net, STRICT, OCSP, Answer::ocsp("good")) else { return };
    // A certificate with the URI of the server, by a CA that is not trusted.
    let uri = format!("authorityInfoAccess=OCSP;URI:http://{}/", setup.server.addr);
    let impostor = Ca::new(net.left.file("impostor"), &uri).unwrap();
    drop(setup.left);
    let etc = net.left.file("etc");
    for name in ["x509ca", "x509", "private"] {
        fs::remove_dir_all(etc.join(name)).unwrap();
    }
    let file = impostor.install("left", &etc, &conf(Side::Left, "", ""));
    fs::copy(setup.ca.file("ca.pem"), etc.join("x509ca/trusted.pem")).unwrap();
    let left = net.left.run_config_file(&file);
    assert!(!net.left.casemate(&["initiate", "c"]).status.success(), "{}", setup.right.log());
    eventually("the refusal", || setup.right.log().contains("no path to a trusted root"));
    left.stop();
    assert!(setup.server.take_requests().is_empty());
}

/// URIs of a certificate are followed, but not to this host itself.
#[test]
fn uris_of_certificates_lead_to_other_hosts_only() {
    let Some(net) = TestNet::build("revocation_uris") else { return };
    let loopback6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let own = [LOOPBACK, loopback6, Side::Right.outer(true), Side::Right.outer(false)];
    let others = [true, false].map(|v4| (&net.left, Side::Left.outer(v4), true));
    for (host, addr, is_allowed) in own.map(|addr| (&net.right, addr, false)).into_iter().chain(others) {
        let plain = Ca::new(net.right.file(&format!("plain-{addr}")), "").unwrap();
        let server = Server::start(host, addr, &plain, Answer::Status("404 Not Found"));
        let uri = format!("authorityInfoAccess=OCSP;URI:http://{}/", server.addr);
        let ca = Ca::new(net.right.file(&format!("ca-{addr}")), &uri).unwrap();
        for host in [&net.left, &net.right] {
            let _ = fs::remove_dir_all(host.file("etc"));
        }
        let left = run(&net.left, &ca, "left", &conf(Side::Left, "", ""));
        let right = run(&net.right, &ca, "right", &conf(Side::Right, "revocation = ifuri", ""));
        assert!(!net.left.casemate(&["initiate", "c"]).status.success(), "{}", right.log());
        let forbidden = format!("must not lead to {addr}");
        let reason = if is_allowed { "HTTP status 404" } else { forbidden.as_str() };
        eventually(reason, || right.log().contains(reason));
        assert_eq!(server.take_requests().len(), usize::from(is_allowed));
        left.stop();
        right.stop();
    }
}
