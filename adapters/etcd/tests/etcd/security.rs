//! TLS with client certificates, and users with roles.

use crate::user::{User, commit, endpoints, put, range};
use casemate_crypto::SecretBytes;
use casemate_etcd::{Config, ConfigError, Endpoint, Login, Tls};
use casemate_store::{Outcome, Request, Revision, StoreError, WatchId};
use casemate_test_support::etcd::{Certificate, Cluster, ServerFiles};
use casemate_test_support::{TempDir, eventually, skip};
use std::path::Path;
use std::time::Duration;

fn tls(authority: &Certificate, own: Option<&Certificate>) -> Tls {
    let own = own.map(|own| (own.certificate.as_path(), own.key.as_path()));
    Tls::from_files(&authority.certificate, own).unwrap()
}

#[test]
fn both_sides_need_certificates_of_the_authority() {
    if !Path::new("/usr/bin/openssl").exists() {
        return skip("openssl (Debian package openssl)");
    }
    let directory = TempDir::new("etcd-tls").unwrap();
    let authority = Certificate::new(&directory, "authority", None);
    let server = Certificate::new(&directory, "server", Some(&authority));
    let client = Certificate::new(&directory, "client", Some(&authority));
    let stranger_authority = Certificate::new(&directory, "stranger-authority", None);
    let stranger = Certificate::new(&directory, "stranger", Some(&stranger_authority));
    let files = ServerFiles {
        authority: authority.certificate.clone(),
        certificate: server.certificate,
        key: server.key,
    };
    let Some(mut cluster) = Cluster::start("tls", Some(files), &[]) else { return };

    let base =
        Config { deadline: Duration::from_millis(1_500), ..Config::new(endpoints(&cluster, 0), "cell/") };
    let with = |tls: Tls| Config { tls: Some(tls), ..base.clone() };
    let mut user = User::new(with(tls(&authority, Some(&client))));
    let at = user.write(&[put("a", "1")]);
    assert_eq!(user.read("a")[0].changed, at);
    let lease = user.grant(5);
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    assert_eq!(user.watch(1, "a", at), Ok(Outcome::Watching));
    user.event();
    // The certificate also contains this name, but no other one.
    let named = |name: &str| {
        let name = |endpoint: Endpoint| Endpoint { server_name: Some(name.into()), ..endpoint };
        let endpoints = endpoints(&cluster, 0).into_iter().map(name).collect();
        Config { endpoints, ..with(tls(&authority, Some(&client))) }
    };
    assert!(User::new(named("etcd.example")).run(range("")).is_ok());

    let refused = [
        ("no client certificate", with(tls(&authority, None)), "ertificate"),
        ("client certificate of another authority", with(tls(&authority, Some(&stranger))), "alert"),
        ("server of another authority", with(tls(&stranger_authority, Some(&client))), "UnknownIssuer"),
        ("server with another name", named("other.example"), "not valid for name"),
        ("clear text", base.clone(), ""),
    ];
    for (what, config, cause) in refused {
        let mut user = User::new(config);
        assert_eq!(user.run(commit(&[], &[put("b", "")])), Err(StoreError::Unavailable), "{what}");
        assert_eq!(user.run(range("")), Err(StoreError::Unavailable), "{what}");
        // On a busy machine, a request may end before a server has refused it.
        eventually(what, || {
            if user.store.monitor().last_failure().unwrap().contains(cause) {
                return Some(());
            }
            assert_eq!(user.run(range("")), Err(StoreError::Unavailable), "{what}");
            None
        });
    }
    assert_eq!(user.read("b"), [], "nothing was written");

    let mismatch = Tls::from_files(&authority.certificate, Some((&client.certificate, &stranger.key)));
    assert!(matches!(mismatch, Err(ConfigError::File { .. })), "{mismatch:?}");
    let no_certificate = Tls::from_files(&client.key, None);
    assert!(matches!(no_certificate, Err(ConfigError::File { .. })), "{no_certificate:?}");

    // With users, etcd refuses certificates with a common name: the gateway would not take it for the user.
    for arguments in
        [&["user", "add", "root:top"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        cluster.control(Some(0), arguments).unwrap();
    }
    let login = Some(Login { user: "root".into(), password: SecretBytes::new(b"top") });
    let named = Certificate::with_subject(&directory, "named", "/CN=named", Some(&authority));
    let mut user = User::new(Config { login: login.clone(), ..with(tls(&authority, Some(&named))) });
    assert_eq!(user.run(range("")), Err(StoreError::Unavailable));
    let why = user.store.monitor().last_failure().unwrap();
    assert!(why.contains("status 400: JSON was expected, not `CommonName of client"), "{why}");
    let mut user = User::new(Config { login, ..with(tls(&authority, Some(&client))) });
    assert_eq!(user.read("a")[0].changed, at);
    cluster.stop();
}

#[test]
fn user_may_do_what_its_role_permits() {
    // Tokens end quickly, so that the store has to log in again.
    let Some(mut cluster) = Cluster::start("users", None, &["--auth-token-ttl", "2"]) else { return };
    for arguments in [
        &["user", "add", "root:top"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "cell"],
        &["role", "grant-permission", "cell", "readwrite", "cell/", "--prefix"],
        &["user", "add", "gateway:\"secret\""],
        &["user", "grant-role", "gateway", "cell"],
        &["auth", "enable"],
    ] {
        cluster.control(Some(0), arguments).unwrap();
    }
    let login = |password: &str| {
        Some(Login { user: "gateway".into(), password: SecretBytes::new(password.as_bytes()) })
    };
    let config = |prefix: &str, login| Config { login, ..Config::new(endpoints(&cluster, 0), prefix) };
    let mut user = User::new(config("cell/", login("\"secret\"")));
    let at = user.write(&[put("a", "1")]);
    let only_compares = commit(&[casemate_store::Comparison::Changed(b"a".to_vec(), at)], &[]);
    assert_eq!(user.run(only_compares), Ok(Outcome::Committed(at)));
    assert_eq!(user.watch(1, "a", at), Ok(Outcome::Watching));
    user.event();
    let lease = user.grant(20);
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    // The token has ended on the servers after this time.
    std::thread::sleep(Duration::from_secs(4));
    let later = user.write(&[put("a", "2")]);
    assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    assert_eq!(user.watch(2, "a", later), Ok(Outcome::Watching));

    let refused = [
        ("another prefix", config("other/", login("\"secret\""))),
        ("wrong password", config("cell/", login("wrong"))),
        ("no login", config("cell/", None)),
    ];
    for (what, config) in refused {
        let mut user = User::new(config);
        assert_eq!(user.run(commit(&[], &[put("b", "")])), Err(StoreError::Refused), "{what}");
        assert_eq!(user.run(range("")), Err(StoreError::Refused), "{what}");
        let watch = Request::Watch { watch: WatchId(1), prefix: Vec::new(), from: Revision(1) };
        let outcome = user.run(watch);
        let expected = [Err(StoreError::Refused), Err(StoreError::Unavailable)];
        assert!(expected.contains(&outcome), "{what}: {outcome:?}");
        let failure = user.store.monitor().last_failure().unwrap();
        assert!(!failure.contains("secret") && !failure.contains("wrong"), "{failure}");
    }
    cluster.stop();
}
