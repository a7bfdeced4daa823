//! Certificates that a host refuses.

use crate::pki::{Authority, Validity};
use crate::testnet::{Side, TestNet};
use crate::tunnel::{BrokenTunnel, Conf, set};
use std::path::PathBuf;
use std::time::Duration;

const AT_ONCE: Duration = Duration::from_secs(1);

/// What is wrong with the certificate of the left host.
struct Wrong {
    /// The domain name in it.
    dns: &'static str,
    validity: Validity,
    /// Whether another CA issued it than the one that the right host trusts.
    is_untrusted: bool,
    is_revoked: bool,
}

const NOTHING: Wrong =
    Wrong { dns: "left.test", validity: Validity::NOW, is_untrusted: false, is_revoked: false };

/// Directories with the certificates and keys of both hosts, for `swanctl.conf`.
struct Folders {
    left: PathBuf,
    right: PathBuf,
}

/// Makes the certificates and keys of both hosts.
fn make_certificates(net: &TestNet, wrong: &Wrong) -> Folders {
    let file = net.right.file("conf");
    let parent = file.parent().unwrap();
    let trusted = Authority::new(parent, "trusted");
    let other = Authority::new(parent, "other");
    let issuer = if wrong.is_untrusted { &other } else { &trusted };
    issuer.issue("left", wrong.dns, &wrong.validity);
    trusted.issue("right", "right.test", &Validity::NOW);
    if wrong.is_revoked {
        issuer.revoke("left");
    }
    let [left, right] = ["left", "right"].map(|host| parent.join(host));
    issuer.install_host("left", &left);
    trusted.install_host("right", &right);
    trusted.install_authority(&left);
    trusted.install_authority(&right);
    Folders { left, right }
}

/// Authentication with the certificate `cert` in this directory.
fn use_certificate(conf: &mut Conf, folder: PathBuf, cert: &str) {
    set(&mut conf.local, "auth", "pubkey");
    set(&mut conf.remote, "auth", "pubkey");
    set(&mut conf.local, "certs", cert);
    set(&mut conf.connection, "send_cert", "always");
    conf.secret.clear();
    conf.folder = Some(folder);
}

/// Starts two hosts with certificates.
fn start(test: &str, wrong: &Wrong, change_right: impl FnOnce(&mut Conf)) -> Option<BrokenTunnel> {
    let net = TestNet::build(test)?;
    let folders = make_certificates(&net, wrong);
    Some(BrokenTunnel::start_on(net, |left, right| {
        use_certificate(left, folders.left, "left.pem");
        use_certificate(right, folders.right, "right.pem");
        change_right(right);
    }))
}

/// The right host refuses the certificate for this reason.
fn refuses(test: &str, wrong: &Wrong, reason: &str) {
    let Some(tunnel) = start(test, wrong, |_| {}) else { return };
    tunnel.log_names(Side::Right, &["certificate of left.test", reason], AT_ONCE);
    tunnel.why_names(Side::Right, &[reason, "openssl x509"]);
    tunnel.log_names(
        Side::Left,
        &["AUTHENTICATION_FAILED", "trust in the certificate of this host"],
        AT_ONCE,
    );
}

#[test]
fn certificate_is_expired() {
    let reason = "the certificate has expired: CN=left.test, valid until 20";
    refuses("certificate_is_expired", &Wrong { validity: Validity::PAST, ..NOTHING }, reason);
}

/// As if the clock of the right host were wrong.
#[test]
fn certificate_is_not_valid_yet() {
    refuses(
        "certificate_is_not_valid_yet",
        &Wrong { validity: Validity::FUTURE, ..NOTHING },
        "the certificate is not valid yet: CN=left.test, valid from 20",
    );
}

#[test]
fn certificate_is_of_an_unknown_authority() {
    let wrong = Wrong { is_untrusted: true, ..NOTHING };
    let reason = "no path to a trusted root: the certificate of its issuer, CN=other";
    refuses("certificate_is_of_an_unknown_authority", &wrong, reason);
}

#[test]
fn this_host_trusts_no_authority() {
    let Some(net) = TestNet::build("this_host_trusts_no_authority") else { return };
    let folders = make_certificates(&net, &NOTHING);
    std::fs::remove_dir_all(folders.left.join("x509ca")).unwrap();
    let tunnel = BrokenTunnel::start_on(net, |left, right| {
        use_certificate(left, folders.left, "left.pem");
        use_certificate(right, folders.right, "right.pem");
        set(&mut right.connection, "send_cert", "ifasked");
    });
    let cause =
        "it trusts no CA for this connection: the certificate of the peer's CA was expected in x509ca";
    tunnel.log_names(Side::Left, &["certificate of right.test", cause], AT_ONCE);
    tunnel.why_names(Side::Left, &[cause]);
    let failed = tunnel.net.left.casemate(&["initiate", "gw"]);
    let shown = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && shown.contains(cause), "{shown}");
}

#[test]
fn certificate_does_not_contain_the_identity() {
    let wrong = Wrong { dns: "elsewhere.test", ..NOTHING };
    refuses("certificate_does_not_contain_the_identity", &wrong, "it does not contain this identity");
}

#[test]
fn certificate_is_revoked() {
    refuses(
        "certificate_is_revoked",
        &Wrong { is_revoked: true, ..NOTHING },
        "the certificate is revoked: CN=left.test, by CRL ",
    );
}

#[test]
fn no_revocation_list_covers_the_certificate() {
    let tunnel = start("no_revocation_list_covers_the_certificate", &NOTHING, |right| {
        set(&mut right.remote, "revocation", "strict");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "certificate of left.test: no valid CRL covers the certificate";
    tunnel.log_names(Side::Right, &[cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
}

#[test]
fn no_ocsp_responder_answers() {
    let tunnel = start("no_ocsp_responder_answers", &NOTHING, |right| {
        set(&mut right.remote, "revocation", "strict");
        right.more = "authorities { ca { cacert = ca.pem\n ocsp_uris = http://127.0.0.1:9/ } }\n".into();
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "status of CN=left.test is not known: OCSP http://127.0.0.1:9/: ";
    tunnel.log_names(Side::Right, &[cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
}

#[test]
fn the_private_key_is_missing() {
    let Some(net) = TestNet::build("the_private_key_is_missing") else { return };
    let folder = make_certificates(&net, &NOTHING).left;
    std::fs::remove_file(folder.join("private/left.key")).unwrap();
    let mut conf = Conf::of(Side::Left);
    use_certificate(&mut conf, folder.clone(), "left.pem");
    let file = folder.join("swanctl.conf");
    std::fs::write(&file, conf.text()).unwrap();
    let output = net.left.casemate(&["run", "--config", file.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.contains("x509/left.pem: no private key belongs to it"), "{error}");
}
