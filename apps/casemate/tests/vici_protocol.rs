//! Packets of vici against a running instance: order, faults, timeouts, and when changes take effect.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;
#[allow(dead_code, reason = "other tests use the rest")]
mod vici_client;

use casemate_app::vici::message::{MessageWriter, Section};
use casemate_test_support::TestRng;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use testnet::{Side, TestNet};
use vici_client::{
    COMMAND, CONFIRM, Client, EVENT, REGISTER, RESPONSE, UNKNOWN_COMMAND, UNKNOWN_EVENT, UNREGISTER,
    connection, packet, peer_connection,
};

#[test]
fn unknown_names_have_their_responses_and_packets_keep_their_order() {
    let Some(net) = TestNet::build("vici_order") else { return };
    let _running = net.left.run_vici(&[]);
    let socket = net.left.file("vici");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client::connect(&socket);
    // All packets at once, then in parts of three bytes.
    let all = [
        packet(COMMAND, "version", &[]),
        packet(COMMAND, "make-coffee", &[]),
        packet(REGISTER, "list-conn", &[]),
        packet(REGISTER, "nothing", &[]),
        packet(COMMAND, "list-conns", &[]),
        packet(UNREGISTER, "list-conn", &[]),
        packet(COMMAND, "stats", &[]),
    ]
    .concat();
    let kinds = [RESPONSE, UNKNOWN_COMMAND, CONFIRM, UNKNOWN_EVENT, RESPONSE, CONFIRM, RESPONSE];
    for step in [all.len(), 3] {
        for part in all.chunks(step) {
            client.0.write_all(part).unwrap();
        }
        let received: Vec<u8> = kinds.iter().map(|_| client.receive().unwrap().kind).collect();
        assert_eq!(received, kinds);
    }
}

#[test]
fn malformed_packets_end_their_session_alone() {
    let Some(net) = TestNet::build("vici_malformed") else { return };
    let mut running = net.left.run_vici(&[]);
    let socket = net.left.file("vici");
    let mut other = Client::connect(&socket);
    other.register("log");
    let mut hostile: Vec<Vec<u8>> = vec![
        vec![0; 4],
        [&u32::MAX.to_be_bytes()[..], &[0, 5], b"stats"].concat(),
        packet(RESPONSE, "", &[]),
        packet(EVENT, "log", &[]),
        packet(9, "x", &[]),
        packet(COMMAND, "load-conn", &[1, 1, b'a']),
        packet(COMMAND, "load-conn", &[1, 1, b'a'].repeat(1_000)),
        packet(COMMAND, "load-conn", &[3, 1, b'a', 0xff, 0xff]),
    ];
    let mut rng = TestRng::new(7);
    for _ in 0..100 {
        let len = rng.below(64);
        let body = rng.bytes(len);
        hostile.push(packet(rng.below(9) as u8, "load-conn", &body));
    }
    for bytes in &hostile {
        let mut client = Client::connect(&socket);
        // The instance may disconnect before all bytes are sent.
        let _ = client.0.write_all(bytes);
        let _ = client.0.shutdown(std::net::Shutdown::Write);
        while let Ok(packet) = client.receive() {
            assert_ne!(packet.message.text("success"), Some("yes"), "{bytes:?}");
        }
    }
    assert_eq!(other.command("version", |_| {}).message.text("daemon"), Some("casemate"));
    assert!(!running.has_ended() && !running.log().contains("panicked"), "{}", running.log());
}

#[test]
fn waiting_for_a_silent_peer_ends_after_the_timeout_and_shows_the_log() {
    let Some(net) = TestNet::build("vici_timeout") else { return };
    let _running = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    client.succeed("load-conn", |message| connection(message, "home", "10.2.0.0/16", "none"));
    let start = Instant::now();
    let failed = client.command("initiate", |message| {
        message.value("child", "net");
        message.value("timeout", "300");
    });
    let waited = start.elapsed();
    assert_eq!(failed.message.text("errmsg"), Some("CHILD_SA 'net' not established after 300ms"));
    assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    client.succeed("initiate", |message| {
        message.value("child", "net");
        message.value("timeout", "-1");
    });
    client.register("list-sa");
    client.send(COMMAND, "list-sas", &[]);
    let listed = client.event("list-sa");
    let (name, sa) = listed.sections().next().unwrap();
    assert_eq!((name, sa.text("state"), sa.text("remote-id")), ("home", Some("CONNECTING"), Some("%any")));
    assert_eq!(client.receive().unwrap().kind, RESPONSE);
    client.register("control-log");
    client.send(COMMAND, "terminate", &MessageWriter::message(|message| message.value("ike", "home")));
    for expected in ["a client of vici requests the end of 1 SA", "home"] {
        let line = client.event("control-log");
        assert!(line.text("msg").unwrap().contains(expected), "{:?}", line.text("msg"));
    }
    let ended = loop {
        let packet = client.receive().unwrap();
        if packet.kind == RESPONSE {
            break packet.message;
        }
    };
    assert_eq!((ended.text("success"), ended.text("terminated")), (Some("yes"), Some("1")));
}

/// When the response to `load-conn` arrives, traffic of the trap is blocked. After a crash it stays blocked
/// although the next instance starts without connections, and a connection for other traffic changes nothing.
#[test]
fn traffic_is_blocked_when_its_trap_is_loaded_and_after_a_crash() {
    let Some(net) = TestNet::build("vici_trap") else { return };
    let running = net.left.run_vici(&[]);
    let (socket, inner) = (net.left.file("vici"), Side::Right.inner(true));
    net.left.stdout_of("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "src", "10.1.0.1"]);
    net.right.stdout_of("ip", &["route", "add", "10.1.0.0/16", "via", "192.0.2.1"]);
    assert!(net.left.pings(inner, 8), "clear text passes before a connection is loaded");
    let mut client = Client::connect(&socket);
    client.succeed("load-conn", |message| connection(message, "home", "10.2.0.0/16", "trap"));
    assert!(!net.left.pings_at_once(inner, 8), "clear text passes beside a loaded trap");
    running.crash();
    let _running = net.left.run_vici(&[]);
    assert!(!net.left.pings_at_once(inner, 8), "clear text passes after a crash");
    let mut client = Client::connect(&socket);
    client.succeed("load-conn", |message| connection(message, "home", "10.9.0.0/16", "trap"));
    assert!(!net.left.pings_at_once(inner, 8), "clear text passes beside another connection");
}

#[test]
fn a_socket_in_use_is_reported_with_its_program() {
    let Some(net) = TestNet::build("vici_in_use") else { return };
    let running = net.left.run_vici(&[]);
    let socket = net.left.file("vici");
    let second = net.left.casemate(&["run", "--tun", "other", "--vici", socket.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = format!("another program serves this socket (casemate, pid {})", running.pid());
    assert!(second.status.code() == Some(1) && error.contains(&expected), "{error}");
    assert!(running.stop().success());
    assert!(!socket.exists(), "the socket is removed at the end");
    std::fs::write(&socket, "a file").unwrap();
    let third = net.left.casemate(&["run", "--vici", socket.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(error.contains("this is not a socket"), "{error}");
    assert_eq!(std::fs::read(&socket).unwrap(), b"a file");
}

/// What FRR's nhrpd does: three events of charon in Alpine Linux, the list of SAs, and an initiation without
/// waiting.
#[test]
fn child_states_are_reported_as_nhrpd_requires() {
    let Some(net) = TestNet::build("vici_nhrpd") else { return };
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    let mut right = Client::connect(&net.right.file("vici"));
    let mut left = Client::connect(&net.left.file("vici"));
    for (client, is_mirrored) in [(&mut left, false), (&mut right, true)] {
        client.succeed("load-conn", |message| peer_connection(message, is_mirrored));
        client.succeed("load-shared", |message| {
            message.value("type", "IKE");
            message.value("data", "a secret of more than 16 bytes");
        });
    }
    for event in ["child-state-installed", "child-state-rekeyed", "child-state-destroying", "list-sa"] {
        left.register(event);
    }
    left.send(COMMAND, "list-sas", &[]);
    assert_eq!(left.receive().unwrap().kind, RESPONSE);
    left.succeed("initiate", |message| {
        for (key, value) in [("child", "net"), ("timeout", "-1"), ("async", "1"), ("init-limits", "0")] {
            message.value(key, value);
        }
        message.value("my-host", "192.0.2.1");
        message.value("other-host", "192.0.2.2");
    });
    let child = |event: &Section| {
        let sa = event.sections().next().unwrap().1;
        assert_eq!(sa.text("remote-host"), Some("192.0.2.2"));
        let children = sa.sections().find(|(name, _)| *name == "child-sas").unwrap().1;
        let child = children.sections().next().unwrap().1;
        ["uniqueid", "state"].map(|key| child.text(key).unwrap_or("-").to_owned())
    };
    assert_eq!(child(&left.event("child-state-installed")), ["1", "INSTALLED"]);
    left.succeed("rekey", |message| message.value("child", "net"));
    assert_eq!(child(&left.event("child-state-installed")), ["2", "INSTALLED"]);
    assert_eq!(child(&left.event("child-state-rekeyed"))[0], "1");
    assert_eq!(child(&left.event("child-state-destroying")), ["1", "DELETING"]);
    left.succeed("terminate", |message| message.value("child-id", "2"));
}

/// A loaded connection replaces that of the file, an unloaded one is missing, and both end with the next
/// reading of the file.
#[test]
fn the_file_and_loaded_sections_are_one_configuration() {
    let Some(net) = TestNet::build("vici_file") else { return };
    let file = net.left.file("swanctl.conf");
    let connection_of_file = |name: &str| {
        format!(
            "connections {{\n{name} {{\nremote_addrs = 192.0.2.2\nlocal {{\nauth = psk\n}}\nremote {{\nauth = psk\n}}\nchildren {{\nnet {{\nremote_ts = 10.2.0.0/16\n}}\n}}\n}}\n}}\n"
        )
    };
    std::fs::write(&file, [connection_of_file("one"), connection_of_file("two")].concat()).unwrap();
    let _running = net.left.run_vici(&["--config", file.to_str().unwrap()]);
    let mut client = Client::connect(&net.left.file("vici"));
    let names = |client: &mut Client| {
        let listed = client.command("get-conns", |_| {}).message;
        let name = |bytes: &casemate_app::vici::message::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        listed.list("conns").iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut client), ["one", "two"]);
    client.succeed("unload-conn", |message| message.value("name", "one"));
    client.succeed("load-conn", |message| connection(message, "three", "10.3.0.0/16", "none"));
    assert_eq!(names(&mut client), ["two", "three"]);
    std::fs::write(&file, "connections {\n").unwrap();
    let failed = client.command("reload-settings", |_| {}).message;
    assert!(
        failed.text("errmsg").unwrap().contains("swanctl.conf:1: the section is never closed"),
        "{failed:?}"
    );
    assert_eq!(names(&mut client), ["two", "three"], "a file with errors changes nothing");
    std::fs::write(&file, connection_of_file("one")).unwrap();
    client.succeed("reload-settings", |_| {});
    assert_eq!(names(&mut client), ["one", "three"]);
    let reloaded = net.left.casemate(&["reload"]);
    assert!(reloaded.status.success());
    assert_eq!(names(&mut client), ["one", "three"], "what was loaded stays");
}

/// A change that is refused as a whole, because the SPD has no room for it, leaves what was loaded before.
#[test]
fn a_change_that_cannot_be_applied_is_refused_and_forgotten() {
    let Some(net) = TestNet::build("vici_full") else { return };
    let _running = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    client.succeed("load-conn", |message| connection(message, "small", "10.2.0.0/16", "trap"));
    let refused = client.command("load-conn", too_large);
    assert!(refused.message.text("errmsg").unwrap().contains("full"), "{:?}", refused.message.text("errmsg"));
    client.register("list-policy");
    assert_eq!(traps(&mut client), [("small/net".to_owned(), "10.2.0.0/16".to_owned())]);
    client.succeed("load-conn", |message| connection(message, "small", "10.9.0.0/16", "trap"));
    assert_eq!(traps(&mut client), [("small/net".to_owned(), "10.9.0.0/16".to_owned())]);
}

/// Changes that have been acknowledged before they take effect, and are then refused together: the next
/// command of each client that loaded one of them fails and says so, and nothing of them is in effect.
#[test]
fn acknowledged_changes_that_are_refused_later_are_reported() {
    let Some(net) = TestNet::build("vici_refused_later") else { return };
    let _running = net.left.run_vici(&[]);
    let connect = || Client::connect(&net.left.file("vici"));
    let [mut loader, mut other, mut observer] = [connect(), connect(), connect()];
    observer.register("list-policy");
    // After a second, the changes of a burst are acknowledged before they take effect.
    let load = |client: &mut Client, name: &str, traffic: &str| {
        client.succeed("load-conn", |message| connection(message, name, traffic, "trap"));
    };
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        load(&mut loader, "small", "10.2.0.0/16");
        load(&mut other, "of-other", "10.3.0.0/16");
    }
    let before = traps(&mut observer);
    let trap = |name: &str, traffic: &str| (format!("{name}/net"), traffic.to_owned());
    assert_eq!(before, [trap("small", "10.2.0.0/16"), trap("of-other", "10.3.0.0/16")]);

    load(&mut loader, "small", "10.8.0.0/16");
    load(&mut other, "new", "10.9.0.0/16");
    let large = loader.succeed("load-conn", too_large);
    assert_eq!(large.text("errmsg"), None);
    for client in [&mut loader, &mut other] {
        let failed = client.command("get-conns", |_| {}).message;
        let error = failed.text("errmsg").unwrap_or_default();
        assert!(error.contains("changes before it were refused: policy table is full"), "{failed:?}");
        let conns = client.command("get-conns", |_| {}).message;
        let names: Vec<&[u8]> = conns.list("conns").iter().map(|name| &***name).collect();
        assert_eq!(names, [b"small".as_slice(), b"of-other"], "the error is reported once");
    }
    assert_eq!(traps(&mut observer), before, "a client that loaded nothing gets no error");
    let mut lister = connect();
    lister.register("list-conn");
    lister.send(COMMAND, "list-conns", &[]);
    let listed = lister.event("list-conn");
    let parts = |section: &Section, name: &str| {
        section.sections().find(|(known, _)| *known == name).map(|(_, part)| part.clone()).unwrap()
    };
    let child = parts(&parts(&parts(&listed, "small"), "children"), "net");
    assert_eq!(&**child.list("remote-ts")[0], b"10.2.0.0/16");
    // What was refused can be loaded without the part that was too large.
    load(&mut loader, "small", "10.8.0.0/16");
    assert_eq!(traps(&mut observer)[0], trap("small", "10.8.0.0/16"));
}

/// Writes a connection whose trap needs more policies than the SPD takes.
fn too_large(message: &mut MessageWriter) {
    let many = |side: u8| (0..=255).map(move |number| format!("10.{side}.{number}.0/24"));
    message.section("large", |section| {
        section.list("remote_addrs", ["192.0.2.2"]);
        section.section("children", |children| {
            children.section("net", |child| {
                child.list("local_ts", many(1).chain(many(3)));
                child.list("remote_ts", many(2).chain(many(4)));
                child.value("start_action", "trap");
            });
        });
    });
}

/// The names of all traps, with their first remote traffic selector.
fn traps(client: &mut Client) -> Vec<(String, String)> {
    client.send(COMMAND, "list-policies", &MessageWriter::message(|message| message.value("trap", "yes")));
    let mut traps = Vec::new();
    loop {
        let packet = client.receive().unwrap();
        if packet.kind != EVENT {
            assert_eq!((packet.kind, packet.message.text("errmsg")), (RESPONSE, None));
            return traps;
        }
        let (name, trap) = packet.message.sections().next().unwrap();
        let remote = String::from_utf8(trap.list("remote-ts")[0].to_vec()).unwrap();
        traps.push((name.to_owned(), remote));
    }
}

/// Names are looked up for each attempt, so that no name is refused.
#[test]
fn host_names_of_loaded_connections_stay_names() {
    let Some(net) = TestNet::build("vici_names") else { return };
    let _running = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    client.succeed("load-conn", |message| {
        message
            .section("home", |section| section.list("remote_addrs", ["localhost", "no-such-host.invalid"]));
    });
    client.register("list-conn");
    client.send(COMMAND, "list-conns", &[]);
    let listed = client.event("list-conn");
    let addrs = listed.sections().next().unwrap().1.list("remote_addrs");
    let addrs: Vec<&[u8]> = addrs.iter().map(|addr| &***addr).collect();
    assert_eq!(addrs, [b"localhost".as_slice(), b"no-such-host.invalid"]);
}

/// Thousands of connections are loaded one by one, without and with a change of each one.
#[test]
fn thousands_of_connections_load() {
    const COUNT: usize = 2_000;
    let Some(net) = TestNet::build("vici_thousands") else { return };
    let _running = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    for (round, action) in ["none", "none", "trap"].into_iter().enumerate() {
        let start = Instant::now();
        for number in 0..COUNT {
            let traffic = format!("10.{}.{}.0/24", 100 + number / 256, number % 256);
            client
                .succeed("load-conn", |message| connection(message, &format!("c{number}"), &traffic, action));
        }
        let loaded = client.command("get-conns", |_| {}).message;
        assert_eq!(loaded.list("conns").len(), COUNT);
        eprintln!("round {round}: {COUNT} connections in {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
