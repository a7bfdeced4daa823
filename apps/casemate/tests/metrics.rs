//! Prometheus scrapes an instance: the values are exact, names are bounded, and bad clients disturb no other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod scrape;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::Program;
use scrape::{Page, get, get_over_tcp, request};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TestNet, eventually};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

/// The configuration of one side. `more` are further connections.
fn conf(side: Side, start: &str, more: &str) -> String {
    let name = |side| if side == Side::Left { "left.example.org" } else { "right.example.org" };
    let net = |side| if side == Side::Left { "10.1.0.0/16" } else { "10.2.0.0/16" };
    let other = side.other();
    format!(
        "connections {{\nhome {{\nlocal_addrs = {}\nremote_addrs = {}\n\
         local {{\nauth = psk\nid = {}\n}}\nremote {{\nauth = psk\nid = {}\n}}\n\
         children {{\nnet {{\nlocal_ts = {}\nremote_ts = {}\nstart_action = {start}\n}}\n}}\n}}\n{more}}}\n\
         secrets {{\nike-1 {{\nsecret = \"0123456789abcdef0123456789abcdef\"\n}}\n}}\n",
        side.outer(true),
        other.outer(true),
        name(side),
        name(other),
        net(side),
        net(other),
    )
}

/// Starts an instance that serves metrics at `address`.
fn start(host: &Host, conf: &str, address: &str) -> Running {
    std::fs::write(host.file("conf"), conf).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--config"]);
    host.start(program.arg(host.file("conf")).args(["--metrics", address]))
}

fn unix(host: &Host) -> String {
    format!("unix:{}", host.file("metrics").display())
}

fn scrape(host: &Host) -> Page {
    Page::parse(&get(&host.file("metrics"), "text/plain"))
}

fn wait_for(host: &Host, series: &str, value: u64) {
    eventually(&format!("{series} {value}"), || scrape(host).get(series) == Some(value));
}

/// Both hosts, with a tunnel between them.
fn established(net: &TestNet) -> [Running; 2] {
    let running = [
        start(&net.left, &conf(Side::Left, "none", ""), &unix(&net.left)),
        start(&net.right, &conf(Side::Right, "none", ""), &unix(&net.right)),
    ];
    assert!(net.left.casemate(&["initiate", "net"]).status.success());
    running
}

fn packets(direction: &str) -> String {
    format!("casemate_child_packets_total{{connection=\"home\",child=\"net\",direction=\"{direction}\"}}")
}

/// Sends echo requests through the tunnel. Each has a reply.
fn ping(net: &TestNet, count: u64) {
    for _ in 0..count {
        assert!(net.left.pings_first_time(Side::Right.inner(true), 100));
    }
}

#[test]
fn a_scrape_counts_exactly_the_packets_sent_over_rekeying_and_the_end_of_sas() {
    let Some(net) = TestNet::build("metrics") else { return };
    let _running = established(&net);
    assert_eq!(scrape(&net.left).get(&packets("out")), Some(0));
    let kex = "casemate_ike_key_exchanges{connection=\"home\",methods=\"x25519-ke1_mlkem768\",ppk=\"no\"}";
    [&net.left, &net.right].into_iter().for_each(|host| wait_for(host, kex, 1));
    let mut sent = 0;
    for (round, count) in [(1, 7), (2, 1), (3, 20)] {
        ping(&net, count);
        sent += count;
        for host in [&net.left, &net.right] {
            let page = scrape(host);
            assert_eq!((page.get(&packets("out")), page.get(&packets("in"))), (Some(sent), Some(sent)));
            // 20 bytes of IP, 8 of ICMP, and the payload.
            let bytes = packets("out").replace("packets", "bytes");
            assert_eq!(page.get(&bytes), Some(sent * 128));
        }
        assert!(net.left.casemate(&["rekey", "net"]).status.success());
        let rekeyed = "casemate_rekeyings_total{connection=\"home\",kind=\"child\",outcome=\"completed\"}";
        wait_for(&net.left, rekeyed, round);
    }
    assert!(net.left.casemate(&["rekey", "home", "--ike"]).status.success());
    wait_for(
        &net.left,
        "casemate_rekeyings_total{connection=\"home\",kind=\"ike\",outcome=\"completed\"}",
        1,
    );
    assert!(net.left.casemate(&["terminate", "home"]).status.success());
    wait_for(&net.left, "casemate_ike_sas{connection=\"home\",state=\"established\"}", 0);
    let page = scrape(&net.left);
    assert_eq!(page.get(kex), None);
    for (series, value) in [
        (packets("out").as_str(), sent),
        (packets("in").as_str(), sent),
        ("casemate_child_sas{connection=\"home\",child=\"net\"}", 0),
        ("casemate_sas_established_total{connection=\"home\",kind=\"ike\"}", 1),
        ("casemate_sas_established_total{connection=\"home\",kind=\"child\"}", 1),
        ("casemate_ike_sas_ended_total{connection=\"home\",reason=\"closed\"}", 1),
        ("casemate_ike_messages_total{direction=\"out\",exchange=\"IKE_SA_INIT\",type=\"request\"}", 1),
        ("casemate_dropped_packets_total{reason=\"icv-mismatch\"}", 0),
        ("casemate_guard_installed", 1),
        ("casemate_broken_invariants_total", 0),
    ] {
        assert_eq!(page.get(series), Some(value), "{series}");
    }
}

#[test]
fn failed_negotiations_are_counted_by_reason() {
    let Some(net) = TestNet::build("metrics_failures") else { return };
    let with = |side, proposals: &str| {
        conf(side, "none", "").replace("children", &format!("proposals = {proposals}\nchildren"))
    };
    let _running = [
        start(&net.left, &with(Side::Left, "aes128-sha256-modp2048"), &unix(&net.left)),
        start(&net.right, &with(Side::Right, "aes256-sha384-ecp384"), &unix(&net.right)),
    ];
    assert!(!net.left.casemate(&["initiate", "net", "--timeout", "10"]).status.success());
    let failure = "casemate_negotiation_failures_total{connection=\"home\",kind=\"ike\",\
                   reason=\"NO_PROPOSAL_CHOSEN\"}";
    eventually("the failure is counted", || scrape(&net.left).get(failure) >= Some(1));
    assert!(scrape(&net.right).get("casemate_ike_faults_total{fault=\"no-proposal-chosen\"}") >= Some(1));
}

/// Programs of others check the syntax: `promtool` and the parser of the Python package `prometheus_client`.
#[test]
fn other_programs_accept_the_pages() {
    let Some(net) = TestNet::build("metrics_syntax") else { return };
    let _running = [
        start(&net.left, &conf(Side::Left, "none", ""), &unix(&net.left)),
        start(&net.right, &conf(Side::Right, "none", ""), &unix(&net.right)),
    ];
    assert!(net.left.casemate(&["initiate", "net"]).status.success());
    ping(&net, 3);
    let text = get(&net.left.file("metrics"), "text/plain");
    let open_metrics = get(&net.left.file("metrics"), OPEN_METRICS);
    assert!(open_metrics.ends_with("# EOF\n") && !text.contains("EOF"));
    scrape::check_with_promtool(&text);
    scrape::check_with_python(&net.left.file("page"), &text, &open_metrics);
}

#[test]
fn a_loopback_port_serves_the_metrics_of_manual_keys() {
    let Some(net) = TestNet::build("metrics_tcp") else { return };
    let port = "127.0.0.1:9464";
    let xfrm = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel enc 'cbc(aes)' \
                0x000102030405060708090a0b0c0d0e0f auth-trunc 'hmac(sha256)' \
                0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128\n";
    let _running = net.left.run_xfrm_with_args(xfrm, &["--metrics", port]);
    let page = net.left.run(|| Ok::<_, std::io::Error>(get_over_tcp(port, "*/*"))).unwrap();
    assert_eq!(Page::parse(&page).get("casemate_manual_packets_total{direction=\"out\"}"), Some(0));
    let output = net.right.casemate(&["run", "--metrics", "192.0.2.2:9464"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("reverse proxy with TLS"), "{text}");
}

#[test]
fn bad_clients_get_errors_and_disturb_no_other_client() {
    let Some(net) = TestNet::build("metrics_clients") else { return };
    let mut running = start(&net.left, &conf(Side::Left, "none", ""), &unix(&net.left));
    let path = net.left.file("metrics");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for (sent, status) in [
        ("POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody".to_owned(), "405"),
        ("GET /other HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        (format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(100_000)), "431"),
    ] {
        let response = request(&path, &sent);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {response}");
    }
    // As many clients as are served at once send nothing. They are disconnected after five seconds.
    let started = Instant::now();
    let mut silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut drip = UnixStream::connect(&path).unwrap();
    drip.write_all(b"GET /metr").unwrap();
    assert!(net.left.status().get("pid").is_some(), "the control socket is served");
    assert!(scrape(&net.left).get("casemate_guard_installed") == Some(1));
    assert!(started.elapsed() < Duration::from_secs(60));
    silent[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0, "the first client was disconnected");
    // A client that never reads its response.
    let mut stuck = UnixStream::connect(&path).unwrap();
    stuck.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop((silent, drip));
    scrape(&net.left);
    assert!(!running.has_ended());
    assert!(running.stop().success() && !path.exists());
}

/// Names that a client of vici loads and unloads leave nothing behind.
#[test]
fn names_that_are_not_configured_any_more_are_forgotten() {
    let Some(net) = TestNet::build("metrics_names") else { return };
    let running = start(&net.left, &conf(Side::Left, "none", ""), &unix(&net.left));
    for round in 0..20 {
        let conf = conf(Side::Left, "none", "").replace("home", &format!("home{round}"));
        std::fs::write(net.left.file("conf"), conf).unwrap();
        assert!(net.left.casemate(&["reload"]).status.success());
    }
    let page = scrape(&net.left);
    let with_names: Vec<&str> = page.series().filter(|series| series.contains("connection=")).collect();
    assert!(with_names.len() < 30 && with_names.iter().all(|series| series.contains("\"home19\"")));
    drop(running);
}

/// The page of many connections is complete, and reading them does not stop the packets.
#[test]
fn thousands_of_tunnels_are_scraped_in_less_than_a_second() {
    let Some(net) = TestNet::build("metrics_many") else { return };
    let count: usize =
        std::env::var("CASEMATE_METRICS_TUNNELS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let connection = |number: usize| {
        let net = format!("10.{}.{}.0/24", 16 + number / 256, number % 256);
        format!(
            "c{number} {{\nremote_addrs = 192.0.2.2\nlocal {{\nauth = psk\n}}\nremote {{\nauth = psk\n}}\n\
             children {{\nnet {{\nlocal_ts = 10.1.0.0/16\nremote_ts = {net}\n}}\n}}\n}}\n"
        )
    };
    let more: String = (0..count).map(connection).collect();
    let running = start(&net.left, &conf(Side::Left, "none", &more), &unix(&net.left));
    let memory = || running.resident_kib();
    let timed = || {
        let started = Instant::now();
        let response = request(&net.left.file("metrics"), "GET /metrics HTTP/1.0\r\n\r\n");
        (started.elapsed(), response)
    };
    // The fastest of three: other programs may delay one.
    let (took, response) = (0..3).map(|_| timed()).min().unwrap();
    let page = Page::parse(response.split_once("\r\n\r\n").unwrap().1);
    let names = page.series().filter(|series| series.starts_with("casemate_child_sas{")).count();
    assert_eq!(names, count + 1);
    let before = memory();
    for _ in 0..10 {
        scrape(&net.left);
    }
    let after = memory();
    println!(
        "{count} tunnels: {} bytes in {took:?}, {:?} collected, {:?} s locked, {before} KiB, after ten more scrapes {after} KiB",
        response.len(),
        page.number("casemate_scrape_duration_seconds"),
        page.number("casemate_scrape_longest_lock_seconds"),
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(after < before + 4_096, "the memory grew from {before} to {after} KiB");
}

/// Rules and dashboard use only families that exist.
#[test]
fn dashboard_and_rules_use_families_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known: Vec<String> = casemate_app::metrics::families().map(|family| family.name).collect();
    for path in ["packaging/monitoring/grafana-dashboard.json", "packaging/monitoring/prometheus-rules.yml"] {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let names: Vec<&str> =
            text.split(|c| !is_name(c)).filter(|word| word.starts_with("casemate_")).collect();
        assert!(names.len() > 8, "{path}");
        for name in names {
            assert!(known.iter().any(|family| family == name), "{path}: {name}");
        }
        if path.ends_with("json") {
            let _: serde_json::Value = serde_json::from_str(&text).unwrap();
        }
    }
    let rules = root.join("packaging/monitoring/prometheus-rules.yml");
    match Command::new(scrape::promtool()).args(["check", "rules"]).arg(&rules).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => casemate_test_support::skip(format!("promtool (Debian package prometheus): {error}")),
    }
}
