//! Peers that a RADIUS server authenticates: charon as the peer, Casemate as the gateway, FreeRADIUS as the
//! server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
mod freeradius;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::Program;
use charon::Charon;
use freeradius::{FreeRadius, SECRET, Settings};
use std::{fs, thread};
use testnet::{Running, Side, TestNet, eventually};

const PORT: u16 = 1_812;
const USERS: &str = "carol Cleartext-Password := \"sesame\"\n Class := 0x6775657374,\n \
                     Framed-IP-Address := 10.77.0.9\n";

/// The peer's configuration: a connection, with a child of the same name, for each method.
fn peer(methods: &[(&str, &str)]) -> String {
    let connection = |(method, keys): &(&str, &str)| {
        format!(
            "{method} {{\nversion = 2\nmobike = no\nlocal_addrs = {}\nremote_addrs = {}\nvips = 0.0.0.0\n\
             proposals = aes128gcm16-prfsha256-x25519\n\
             local {{\nauth = {method}\nid = carol\n{keys}\n}}\n\
             remote {{\nauth = psk\nid = gateway.test\n}}\n\
             children {{\n{method} {{\nremote_ts = {}/32\nesp_proposals = aes128gcm16\n}}\n}}\n}}\n",
            Side::Left.outer(true),
            Side::Right.outer(true),
            Side::Right.inner(true),
        )
    };
    let connections: String = methods.iter().map(connection).collect();
    format!(
        "connections {{\n{connections}}}\n\
         secrets {{\nike-g {{\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}}\n\
         eap-c {{\nid = carol\nsecret = sesame\n}}\n}}\n"
    )
}

/// A method without further keys.
const MSCHAPV2: &[(&str, &str)] = &[("eap-mschapv2", "")];

/// The gateway's configuration, with keys of the section `eap-radius`.
fn gateway(eap_id: &str, radius: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = %any\n pools = radius\n\
         proposals = aes128gcm16-prfsha256-x25519\n\
         local {{ auth = psk\n id = gateway.test }}\n remote {{ auth = eap-radius\n{eap_id} }}\n\
         children {{ c {{ local_ts = {}/32\n esp_proposals = aes128gcm16 }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two hosts\" }} }}\n\
         charon {{ plugins {{ eap-radius {{\n{radius}\n}} }} }}\n",
        Side::Right.outer(true),
        Side::Right.inner(true),
    )
}

/// The server of the test, with the default ports.
fn one_server(secret: &str) -> String {
    format!("servers {{ one {{ address = 127.0.0.1\n secret = \"{secret}\" }} }}\n")
}

/// The outcome of `swanctl --initiate`; an error has the log of the peer.
fn initiate(charon: &Charon<'_>, child: &str) -> Result<(), String> {
    let output = charon.swanctl.run(&["--initiate", "--child", child, "--timeout", "20"]);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{text}\n{}", charon.log())) }
}

/// Gateway, server and peer.
struct Setup<'n> {
    net: &'n TestNet,
    gateway: Running,
    server: FreeRadius,
    charon: Charon<'n>,
}

impl<'n> Setup<'n> {
    /// `radius` are keys of the section `eap-radius`.
    fn start(net: &'n TestNet, users: &str, radius: &str, methods: &[(&str, &str)]) -> Option<Self> {
        let server = FreeRadius::start(&net.right, &Settings::of_users(users))?;
        let gateway = net.right.run_config(&gateway("eap_id = %any", radius), None);
        let charon = Charon::start(&net.left, &peer(methods))?;
        Some(Self { net, gateway, server, charon })
    }

    /// Sets up a child, which must work.
    fn establish(&self, child: &str) {
        if let Err(why) = initiate(&self.charon, child) {
            panic!("{why}\n--- gateway\n{}\n--- server\n{}", self.gateway.log(), self.server.log());
        }
        assert!(self.net.left.pings(Side::Right.inner(true), 8), "{}", self.gateway.log());
    }

    /// Ends the connection from the peer's side.
    fn terminate(&self, connection: &str) {
        self.charon.swanctl.output(&["--terminate", "--ike", connection]);
        self.net.right.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    }

    /// Waits until a record of accounting has all of these lines.
    fn wait_for_record(&self, lines: &[&str]) {
        let has_all = |record: &str| lines.iter().all(|line| record.contains(line));
        eventually(&format!("a record with {lines:?}"), || self.server.records().split("\n\n").any(has_all));
    }
}

#[test]
fn each_method_of_the_server_authenticates_a_peer() {
    let Some(net) = TestNet::build("radius_methods") else { return };
    let ttls = ("eap-ttls", "aaa_id = \"CN=aaa.test\"");
    let tls = ("eap-tls", "aaa_id = \"CN=aaa.test\"\ncerts = carol.pem");
    let methods = [("eap-mschapv2", ""), ("eap-md5", ""), ttls, tls];
    let settings = Settings::of_users(USERS);
    let Some(server) = FreeRadius::start(&net.right, &settings) else { return };
    let running = net.right.run_config(&gateway("eap_id = %any", &one_server(SECRET)), None);
    let Some(charon) = Charon::start(&net.left, &peer(&[])) else { return };
    let (from, to) = (net.right.file("certificates"), &charon.swanctl.directory);
    for (file, folder) in [("ca.pem", "x509ca"), ("carol.pem", "x509"), ("carol.key", "private")] {
        fs::copy(from.join(file), to.join(folder).join(file)).unwrap();
    }
    fs::write(to.join("swanctl.conf"), peer(&methods)).unwrap();
    charon.swanctl.output(&["--load-all", "--noprompt"]);
    let setup = Setup { net: &net, gateway: running, server, charon };
    assert_eq!(capabilities(&setup.gateway), ["0000000000000000"], "packets of servers are parsed there");
    for (method, _) in methods {
        setup.establish(method);
        let status = net.right.status();
        assert_eq!(status["ike_sas"][0]["vips"][0], "10.77.0.9", "Framed-IP-Address: {status:#}");
        setup.terminate(method);
    }
}

/// The effective capabilities of the threads `radius`.
fn capabilities(gateway: &Running) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
    let read = |task: &std::path::Path, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let of_radius =
        tasks.map(|task| task.unwrap().path()).filter(|task| read(task, "comm").trim() == "radius");
    let effective = |task: std::path::PathBuf| {
        let status = read(&task, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        line.map_or(String::new(), |set| set.trim().to_owned())
    };
    of_radius.map(effective).collect()
}

#[test]
fn a_peer_is_refused_unless_server_and_secret_are_right() {
    let Some(net) = TestNet::build("radius_refused") else { return };
    let radius = format!("retransmit_tries = 1\nretransmit_timeout = 0.3\n{}", one_server(SECRET));
    let wrong_password = USERS.replace("sesame", "barley");
    let Some(setup) = Setup::start(&net, &wrong_password, &radius, MSCHAPV2) else { return };
    initiate(&setup.charon, "eap-mschapv2").unwrap_err();
    eventually("the server's refusal", || setup.gateway.log().contains("RADIUS server refuses"));
    let wrong_secret =
        format!("retransmit_tries = 1\nretransmit_timeout = 0.3\n{}", one_server("not that secret"));
    fs::write(net.right.file("conf"), gateway("eap_id = %any", &wrong_secret)).unwrap();
    assert!(net.right.casemate(&["reload"]).status.success());
    initiate(&setup.charon, "eap-mschapv2").unwrap_err();
    eventually("no answer counts", || setup.gateway.log().contains("no RADIUS server has answered"));
    let silence = "RADIUS: 127.0.0.1:1812 (one) has not answered in 0 s: check that it runs, that it knows this \
                   client (127.0.0.1), and that the secret is the same on both";
    eventually("the server is named", || setup.gateway.log().contains(silence));
    let why = net.right.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["why", "carol"]);
    assert!(why.contains("that it knows this host as a client, and that the secret is the same"), "{why}");
    assert!(net.right.status()["ike_sas"].as_array().unwrap().is_empty());
}

/// The part of FreeRADIUS in docs/manual/radius.md: its client and its user, with the addresses of the test.
#[test]
fn the_configuration_of_freeradius_in_the_manual_works() {
    let Some(net) = TestNet::build("radius_manual") else { return };
    let page = fs::read_to_string(format!("{}/../../docs/manual/radius.md", env!("CARGO_MANIFEST_DIR")));
    let page = page.unwrap();
    let blocks: Vec<&str> =
        page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [clients, users] = blocks[..] else { panic!("two blocks were expected: {blocks:?}") };
    let (clients, users) = (clients.replace("10.1.0.1", "127.0.0.1"), users.replace("10.3.0.7", "10.77.0.9"));
    let settings = Settings { clients: &clients, ..Settings::of_users(&users) };
    let Some(server) = FreeRadius::start(&net.right, &settings) else { return };
    let radius = one_server("a long secret of gateway and server");
    assert!(page.contains("secret = \"a long secret of gateway and server\""), "the same as of the gateway");
    let gateway = net.right.run_config(&gateway("eap_id = %any", &radius), None);
    let peer = peer(MSCHAPV2).replace("sesame", "\"a password for carol\"");
    let Some(charon) = Charon::start(&net.left, &peer) else { return };
    let setup = Setup { net: &net, gateway, server, charon };
    setup.establish("eap-mschapv2");
    assert_eq!(net.right.status()["ike_sas"][0]["vips"][0], "10.77.0.9");
}

#[test]
fn the_second_server_serves_if_the_first_is_dead() {
    let Some(net) = TestNet::build("radius_failover") else { return };
    let radius = format!(
        "retransmit_tries = 2\nretransmit_timeout = 0.3\n\
         servers {{ dead {{ address = 127.0.0.1\n auth_port = 1900\n secret = \"{SECRET}\"\n preference = 1 }}\n\
         live {{ address = 127.0.0.1\n auth_port = {PORT}\n secret = \"{SECRET}\" }} }}"
    );
    let Some(setup) = Setup::start(&net, USERS, &radius, MSCHAPV2) else { return };
    setup.establish("eap-mschapv2");
}

#[test]
fn a_session_is_recorded_and_ends_when_the_server_wants() {
    let Some(net) = TestNet::build("radius_accounting") else { return };
    let radius = format!(
        "accounting = yes\n dae {{ enable = yes\n listen = 127.0.0.1\n secret = \"{SECRET}\" }}\n{}",
        one_server(SECRET)
    );
    let Some(setup) = Setup::start(&net, USERS, &radius, MSCHAPV2) else { return };
    setup.establish("eap-mschapv2");
    let name = "User-Name = \"carol\"";
    let class = "Class = 0x6775657374";
    let addr = "Framed-IP-Address = 10.77.0.9";
    setup.wait_for_record(&["Acct-Status-Type = Start", name, class, addr]);
    let output = radclient(&net, "disconnect", "User-Name=mallory");
    assert!(output.contains("Disconnect-NAK") && output.contains("Session-Context-Not-Found"), "{output}");
    let output = radclient(&net, "disconnect", "User-Name=carol");
    assert!(output.contains("Received Disconnect-ACK"), "{output}");
    net.right.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    setup.wait_for_record(&[
        "Acct-Status-Type = Stop",
        name,
        class,
        addr,
        "Acct-Terminate-Cause = Admin-Reset",
        "Acct-Input-Packets = 1",
        "Acct-Output-Packets = 1",
    ]);
    // The peer closes a session right after its last packets.
    setup.establish("eap-mschapv2");
    for _ in 0..4 {
        assert!(net.left.pings(Side::Right.inner(true), 8));
    }
    setup.terminate("eap-mschapv2");
    setup.wait_for_record(&[
        "Acct-Status-Type = Stop",
        "-2\"",
        "Acct-Terminate-Cause = User-Request",
        "Acct-Input-Packets = 5",
        "Acct-Output-Packets = 5",
    ]);
    // After a reload, another thread has the same port.
    let changed = format!("nas_identifier = gateway.test\n{radius}");
    fs::write(net.right.file("conf"), gateway("eap_id = %any", &changed)).unwrap();
    let reload = net.right.casemate(&["reload"]);
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    let output = radclient(&net, "coa", "User-Name=carol");
    assert!(output.contains("Received CoA-NAK"), "{output}");
    // The record of the end of this host is not lost.
    setup.establish("eap-mschapv2");
    setup.wait_for_record(&["Acct-Status-Type = Start", "-3\"", "NAS-Identifier = \"gateway.test\""]);
    let Setup { gateway, server, .. } = setup;
    assert!(gateway.stop().success());
    assert!(server.records().contains("Acct-Terminate-Cause = NAS-Reboot"), "{}", server.records());
}

/// The output of `radclient` for a request to the gateway.
fn radclient(net: &TestNet, command: &str, attributes: &str) -> String {
    let program =
        Program::new("radclient").args(["-x", "-r", "1", "-t", "3", "127.0.0.1:3799", command, SECRET]);
    let output = net.right.output_of(program.input(format!("{attributes}\n")));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Rules of the peer that hold its last AUTH payload back: the message with number 5. The client of the test
/// uses port 4500, where the IKE header begins behind a marker of four bytes.
const WITHHELD: &str = "table inet withheld {\nchain out {\ntype filter hook output priority 0;\n\
                        udp dport 4500 @th,256,32 5 drop\n}\n}\n";

#[test]
fn a_login_whose_last_message_is_withheld_ends_when_the_server_wants() {
    let Some(net) = TestNet::build("radius_withheld") else { return };
    let dae = format!("dae {{ enable = yes\n listen = 127.0.0.1\n secret = \"{SECRET}\" }}\n");
    let radius = format!("{dae}{}", one_server(SECRET));
    let Some(setup) = Setup::start(&net, USERS, &radius, MSCHAPV2) else { return };
    let rules = net.left.file("rules");
    fs::write(&rules, WITHHELD).unwrap();
    net.left.stdout_of("nft", &["-f", rules.to_str().unwrap()]);
    let outcome = thread::scope(|scope| {
        let initiated = scope.spawn(|| initiate(&setup.charon, "eap-mschapv2"));
        eventually("the accepted login is found", || {
            radclient(&net, "disconnect", "User-Name=carol").contains("Received Disconnect-ACK")
        });
        // The peer sends its message again.
        net.left.stdout_of("nft", &["delete", "table", "inet", "withheld"]);
        initiated.join().unwrap()
    });
    outcome.unwrap_err();
    assert!(net.right.status()["ike_sas"].as_array().unwrap().is_empty());
    let log = setup.gateway.log();
    let line = "RADIUS login of `carol` from";
    assert!(log.contains(line) && log.contains("has requested its end"), "{log}");
    setup.establish("eap-mschapv2");
}

#[test]
fn a_session_ends_after_its_timeout() {
    let Some(net) = TestNet::build("radius_timeout") else { return };
    let users = USERS.replace(" Class", " Session-Timeout := 2,\n Class");
    let Some(setup) = Setup::start(&net, &users, &one_server(SECRET), MSCHAPV2) else { return };
    setup.establish("eap-mschapv2");
    net.right.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    assert!(setup.charon.swanctl.output(&["--list-sas"]).is_empty());
}

/// Carol belongs to a group by her Class, dave by a filter for the tunnel, and mallory to none: her filter
/// belongs to no tunnel.
#[test]
fn groups_of_the_server_select_the_connection() {
    let Some(net) = TestNet::build("radius_groups") else { return };
    let user = |name: &str, items: &str| format!("{name} Cleartext-Password := \"sesame\"\n {items}\n");
    let users = [
        user("carol", "Class := 0x7265736561726368,\n Framed-IP-Address := 10.77.0.9"),
        user("dave", "Filter-Id := \"Sales\",\n Tunnel-Type := ESP,\n Framed-IP-Address := 10.77.0.10"),
        user("mallory", "Class := 0x726573656172636873,\n Filter-Id := \"Sales\""),
    ]
    .concat();
    let settings = Settings::of_users(&users);
    let Some(server) = FreeRadius::start(&net.right, &settings) else { return };
    let radius = format!("class_group = yes\n filter_id = yes\n{}", one_server(SECRET));
    let research = gateway("eap_id = %any\n groups = Research", &radius);
    let sales = "sales : connections.t {\n remote {\n groups = Support, Sales\n }\n }\n";
    let conf = research.replace("connections { t {", &format!("connections {{ {sales} t {{"));
    let running = net.right.run_config(&conf, None);
    let names = ["carol", "dave", "mallory"];
    let of_user = |name: &&str| {
        format!(
            "{name} {{\nversion = 2\nlocal_addrs = {}\nremote_addrs = {}\nvips = 0.0.0.0\n\
             proposals = aes128gcm16-prfsha256-x25519\nlocal {{\nauth = eap-mschapv2\nid = {name}\n}}\n\
             remote {{\nauth = psk\nid = gateway.test\n}}\n\
             children {{\n{name} {{\nremote_ts = {}/32\nesp_proposals = aes128gcm16\n}}\n}}\n}}\n",
            Side::Left.outer(true),
            Side::Right.outer(true),
            Side::Right.inner(true),
        )
    };
    let connections: String = names.iter().map(of_user).collect();
    let password = |name: &str| format!("eap-{name} {{\nid = {name}\nsecret = sesame\n}}\n");
    let passwords: String = names.iter().map(|name| password(name)).collect();
    let secret = "ike {\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}\n";
    let conf = format!("connections {{\n{connections}}}\nsecrets {{\n{secret}{passwords}}}\n");
    let Some(charon) = Charon::start(&net.left, &conf) else { return };
    let setup = Setup { net: &net, gateway: running, server, charon };
    for (user, connection) in [("carol", "t"), ("dave", "sales")] {
        setup.establish(user);
        assert_eq!(net.right.status()["ike_sas"][0]["name"], connection, "{user}");
        setup.terminate(user);
    }
    initiate(&setup.charon, "mallory").unwrap_err();
    let expected = "the RADIUS server names no group of `mallory` that `groups` of a connection contains";
    eventually("the reason is in the log", || setup.gateway.log().contains(expected));
    assert!(net.right.status()["ike_sas"].as_array().unwrap().is_empty());
}
