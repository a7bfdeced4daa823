//! Cleartext on the wire: none while `casemate run` is killed, starts again, fails, or waits for a peer or
//! for `nft`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{Capture, Inject};
use lab::{Host, Lab, Running, Side, TUN, WIRE, eventually};
use serde_json::Value;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MARK: &[u8] = b"never to be seen in clear";
const PATIENCE: Duration = Duration::from_secs(20);
/// EtherType for experiments (IEEE 802): of frames that say how far the cable was watched.
const TICKS: [u8; 2] = [0x88, 0xb5];

/// A thousand packets a second from the left host to the right one's address on the cable, half of them from
/// a socket that is bound to the cable and goes past all routes.
struct Traffic<'l> {
    lab: &'l Lab,
    src: IpAddr,
    dst: IpAddr,
    sent: AtomicU64,
    /// Seen on the cable as they were sent.
    clear: AtomicU64,
    /// Frames with a number that the left host has sent, and the last of them that was seen.
    ticks: AtomicU64,
    ticked: AtomicU64,
    over: AtomicBool,
}

impl Traffic<'_> {
    /// Does something while there is traffic.
    fn during(lab: &Lab, v4: bool, work: impl FnOnce(&Traffic<'_>)) {
        Self::between(lab, (Side::Left.outer(v4), Side::Right.outer(v4)), work);
    }

    /// The same with other addresses of these hosts.
    fn between(lab: &Lab, (src, dst): (IpAddr, IpAddr), work: impl FnOnce(&Traffic<'_>)) {
        let (sent, clear, ticks, ticked, over) = Default::default();
        let traffic = Traffic { lab, src, dst, sent, clear, ticks, ticked, over };
        thread::scope(|scope| {
            let _end = End(&traffic.over);
            scope.spawn(|| traffic.send());
            let capture = lab.right.run(|| Capture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
            let traffic = &traffic;
            scope.spawn(move || traffic.watch(&capture));
            work(traffic);
        });
    }

    fn send(&self) {
        let (src, dst) = (self.src, self.dst);
        let open = || UdpSocket::bind((src, 0));
        let sockets = [(); 2].map(|()| self.lab.left.run(open).unwrap());
        self.lab.left.run(|| socket2::SockRef::from(&sockets[1]).bind_device(Some(WIRE.as_bytes()))).unwrap();
        while !self.over.load(Ordering::Relaxed) {
            // What is refused does not leave.
            sockets.iter().for_each(|socket| drop(socket.send_to(MARK, (dst, 9))));
            self.sent.fetch_add(2, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn clear(&self) -> u64 {
        // What was sent before now has passed the cable when this many more were sent.
        self.wait_for(20);
        // And it was looked at when a frame that follows it was.
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &TICKS, &tick.to_be_bytes()].concat();
        let open = || Inject::open(Netlink::open()?.link(WIRE)?.index);
        self.lab.left.run(open).unwrap().send(&frame).unwrap();
        eventually("the cable is watched", || self.ticked.load(Ordering::Relaxed) >= tick);
        self.clear.load(Ordering::Relaxed)
    }

    /// Waits until so many more packets were sent.
    fn wait_for(&self, count: u64) {
        let until = self.sent.load(Ordering::Relaxed) + count;
        eventually("packets are sent", || self.sent.load(Ordering::Relaxed) >= until);
    }

    fn watch(&self, capture: &Capture) {
        let mut frame = [0; 2_000];
        while !self.over.load(Ordering::Relaxed) {
            let Some(len) = capture.next(&mut frame, Duration::from_millis(20)).unwrap() else { continue };
            if frame[..len].windows(MARK.len()).any(|window| window == MARK) {
                self.clear.fetch_add(1, Ordering::Relaxed);
            } else if frame[12..14] == TICKS {
                let tick = u64::from_be_bytes(*frame[14..].first_chunk().unwrap());
                self.ticked.store(tick, Ordering::Relaxed);
            }
        }
        assert_eq!(capture.lost().unwrap(), 0, "some frames were not looked at");
    }
}

struct End<'t>(&'t AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Manual keys between the addresses on the cable.
fn manual(side: Side, v4: bool) -> String {
    let ends = [(Side::Left, 1), (Side::Right, 2)];
    let mut text = String::new();
    for (from, spi) in ends {
        let (src, dst) = (from.outer(v4), from.other().outer(v4));
        let dir = if from == side { "out" } else { "in" };
        let key = format!("{spi:02x}").repeat(20);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x}000 mode transport aead 'rfc4106(gcm(aes))' 0x{key} 128\n\
             xfrm policy add src {src} dst {dst} dir {dir} tmpl src {src} dst {dst} proto esp mode transport\n"
        );
    }
    text
}

fn negotiated(side: Side, v4: bool, action: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = {action}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.other().outer(v4),
        side.outer(v4)
    )
}

/// Waits until the left host's packets are protected.
fn wait_until_up(lab: &Lab, v4: bool, hosts: &[&Running]) {
    let start = Instant::now();
    let carries = |sa: &Value| sa["packets"].as_u64() > Some(0);
    let is_up =
        || lab.left.status()["sas"].as_array().is_some_and(|sas| sas.len() >= 2 && sas.iter().all(carries));
    while !(lab.left.hears_at_once(Side::Right.outer(v4), 8) && is_up()) {
        let said: Vec<String> = hosts.iter().map(|host| host.said()).collect();
        assert!(start.elapsed() < PATIENCE, "no SA: {said:#?} {:#}", lab.left.status());
    }
}

#[test]
fn none_leaves_while_it_is_killed_and_starts_again() {
    let Some(lab) = Lab::build("none_leaves_while_it_is_killed_and_starts_again") else { return };
    for v4 in [true, false] {
        let left = lab.left.protect(&manual(Side::Left, v4));
        Traffic::during(&lab, v4, |traffic| {
            traffic.wait_for(100);
            left.crash();
            traffic.wait_for(200);
            let left = lab.left.protect(&manual(Side::Left, v4));
            assert!(left.said().contains("took over"), "{}", left.said());
            traffic.wait_for(200);
            lab.left.waits_until(|status| status["sas"][0]["packets"].as_u64() > Some(50));
            assert_eq!(traffic.clear(), 0, "v4 {v4}");
            assert!(left.stop().success());
            eventually("an orderly end opens the host", || traffic.clear() > 0);
        });
    }
}

#[test]
fn none_leaves_while_a_start_waits_for_a_peer_that_is_gone() {
    let Some(lab) = Lab::build("none_leaves_while_a_start_waits_for_a_peer_that_is_gone") else { return };
    // The second time the peer had begun.
    for (v4, here, there) in [(true, "start", "none"), (false, "none", "start")] {
        let start_left = || lab.left.negotiate(&negotiated(Side::Left, v4, here), None);
        let start_right = || lab.right.negotiate(&negotiated(Side::Right, v4, there), None);
        // Who begins is started last.
        let (left, right) = if here == "none" {
            let left = start_left();
            (left, start_right())
        } else {
            let right = start_right();
            (start_left(), right)
        };
        wait_until_up(&lab, v4, &[&left, &right]);
        Traffic::during(&lab, v4, |traffic| {
            traffic.wait_for(100);
            left.crash();
            assert!(right.stop().success());
            let left = lab.left.negotiate(&negotiated(Side::Left, v4, here), None);
            traffic.wait_for(1_000);
            assert_eq!(traffic.clear(), 0, "v4 {v4}: {}", left.said());
            // And once more, without an SA in between.
            left.crash();
            traffic.wait_for(100);
            let left = lab.left.negotiate(&negotiated(Side::Left, v4, here), None);
            traffic.wait_for(100);
            assert_eq!(traffic.clear(), 0, "v4 {v4}: {}", left.said());
            std::fs::write(lab.left.file("conf"), "connections {\n}\n").unwrap();
            assert!(lab.left.casemate(&["reload"]).status.success());
            eventually("the configuration says otherwise", || traffic.clear() > 0);
            assert!(left.stop().success());
        });
    }
}

/// Routing rules outlive the process, so the next start finds them.
#[test]
fn it_starts_again_after_a_crash_with_its_rules_still_there() {
    let test = "it_starts_again_after_a_crash_with_its_rules_still_there";
    let Some(lab) = Lab::build(test) else { return };
    for (v4, action) in [(true, "trap"), (false, "trap"), (true, "start"), (false, "start")] {
        let right = lab.right.negotiate(&negotiated(Side::Right, v4, "none"), None);
        let start = || lab.left.negotiate(&negotiated(Side::Left, v4, action), None);
        let rules = || lab.left.says("ip", &[if v4 { "-4" } else { "-6" }, "rule"]);
        let before = rules();
        let left = start();
        wait_until_up(&lab, v4, &[&left, &right]);
        left.crash();
        assert_ne!(rules(), before, "v4 {v4}, {action}: the crash leaves the rule");
        let left = start();
        // With `trap` a packet asks for the SA. The peer may still use the SA of the former run.
        let _ = lab.left.hears_at_once(Side::Right.outer(v4), 8);
        lab.left.waits_until(|status| status["sas"].as_array().is_some_and(|sas| sas.len() >= 2));
        let said = left.said();
        assert!(!said.contains("does not follow"), "v4 {v4}, {action}: {said}");
        assert!(left.stop().success() && right.stop().success());
        assert_eq!(rules(), before, "v4 {v4}, {action}");
    }
}

/// A start that fails must not forget what the guard of a former run protects.
#[test]
fn a_start_without_nft_forgets_nothing_that_is_held() {
    let Some(lab) = Lab::build("a_start_without_nft_forgets_nothing_that_is_held") else { return };
    let nft = lab.left.script_as_nft("echo it is broken >&2; exit 1");
    let conf = negotiated(Side::Left, true, "start");
    let right = lab.right.negotiate(&negotiated(Side::Right, true, "none"), None);
    let left = lab.left.negotiate(&conf, None);
    wait_until_up(&lab, true, &[&left, &right]);
    Traffic::during(&lab, true, |traffic| {
        left.crash();
        assert!(right.stop().success());
        let said = lab.left.fails_to_negotiate_with(&conf, &nft);
        assert!(said.contains("it is broken"), "{said}");
        let left = lab.left.negotiate(&conf, None);
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.said());
        assert!(left.stop().success());
    });
}

/// A tunnel with these children, from 10.1.0.0/24 and 10.3.0.0/24 to one remote network.
fn children_of_one_network(side: Side, children: &[u8], action: &str) -> String {
    let child = |n: &u8| {
        let (here, there) = (format!("10.{n}.0.0/24"), "10.2.0.0/16".to_owned());
        let (local, remote) = if side == Side::Left { (here, there) } else { (there, here) };
        format!("c{n} {{\n local_ts = {local}\n remote_ts = {remote}\n start_action = {action}\n }}\n")
    };
    let children: String = children.iter().map(child).collect();
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ {children} }} }} }}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        side.other().outer(true),
        side.outer(true)
    )
}

/// The route of a child that is up leads the packets of one that is not into the data path.
#[test]
fn none_leaves_by_the_route_of_another_child() {
    let Some(lab) = Lab::build("none_leaves_by_the_route_of_another_child") else { return };
    lab.left.says("ip", &["address", "add", "10.3.0.5/32", "dev", "lo"]);
    lab.left.says("ip", &["route", "add", "10.2.0.0/16", "via", "192.0.2.2", "dev", WIRE]);
    let conf = children_of_one_network(Side::Left, &[1, 3], "start");
    let right = lab.right.negotiate(&children_of_one_network(Side::Right, &[1, 3], "none"), None);
    let left = lab.left.negotiate(&conf, None);
    let has_sas = |count| {
        move |status: &Value| status["sas"].as_array().is_some_and(|sas: &Vec<Value>| sas.len() >= count)
    };
    lab.left.waits_until(has_sas(4));
    let (src, dst): (IpAddr, IpAddr) = ([10, 3, 0, 5].into(), Side::Right.inner(true));
    Traffic::between(&lab, (src, dst), |traffic| {
        left.crash();
        assert!(right.stop().success());
        let right = lab.right.negotiate(&children_of_one_network(Side::Right, &[1], "none"), None);
        let left = lab.left.negotiate(&conf, None);
        lab.left.waits_until(has_sas(2));
        eventually("the route of the child that is up", || {
            lab.left.says("ip", &["route", "show", "table", "50510"]).contains("10.2.0.0/16")
        });
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.said());
        assert!(lab.left.hears(dst, 8), "what is held is not what is up: {}", left.said());
        std::fs::write(lab.left.file("conf"), children_of_one_network(Side::Left, &[1], "start")).unwrap();
        assert!(lab.left.casemate(&["reload"]).status.success());
        eventually("the configuration says otherwise", || traffic.clear() > 0);
        assert!(left.stop().success() && right.stop().success());
    });
}

#[test]
fn none_leaves_after_an_error_until_it_is_cleaned_up() {
    let Some(lab) = Lab::build("none_leaves_after_an_error_until_it_is_cleaned_up") else { return };
    let before = lab.left.says("ip", &["rule"]);
    let mut left = lab.left.protect(&manual(Side::Left, true));
    Traffic::during(&lab, true, |traffic| {
        traffic.wait_for(100);
        let refused = lab.left.casemate(&["cleanup"]);
        assert_eq!(refused.status.code(), Some(1), "it runs");
        lab.left.says("ip", &["link", "delete", TUN]);
        let status = left.child.wait().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(left.said().contains("casemate cleanup"), "{}", left.said());
        traffic.wait_for(500);
        assert_eq!(traffic.clear(), 0);
        let cleaned = lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
        assert!(cleaned.contains("removed: guard casemate0"), "{cleaned}");
        eventually("it is cleaned up", || traffic.clear() > 0);
    });
    assert_eq!(lab.left.says("ip", &["rule"]), before);
    assert_eq!(lab.left.says("nft", &["list", "ruleset"]), "");
}

/// The guard is put up with a pause between two times, but not at the end.
#[test]
fn a_guard_that_is_down_stands_again_after_an_error() {
    let Some(lab) = Lab::build("a_guard_that_is_down_stands_again_after_an_error") else { return };
    let mut left = lab.left.protect(&manual(Side::Left, true));
    let guard = || lab.left.says("nft", &["--stateless", "list", "ruleset"]);
    let before = guard();
    let accident = format!("nft flush ruleset; sleep 0.05; nft flush ruleset; ip link delete {TUN}");
    lab.left.says("sh", &["-c", &accident]);
    assert_eq!(left.child.wait().unwrap().code(), Some(1));
    assert!(left.said().contains("stays blocked until"), "{}", left.said());
    assert_eq!(guard(), before);
    lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(guard(), "");
}

/// What a restart of the service nftables does, and smaller accidents.
#[test]
fn a_guard_that_another_program_removes_or_changes_is_put_up_again() {
    let test = "a_guard_that_another_program_removes_or_changes_is_put_up_again";
    let Some(lab) = Lab::build(test) else { return };
    let left = lab.left.protect(&manual(Side::Left, true));
    let guard = || lab.left.says("nft", &["--stateless", "list", "ruleset"]);
    let before = guard();
    let table = format!("casemate_{TUN}");
    let commands: [&[&str]; 3] = [
        &["flush", "ruleset"],
        &["delete", "table", "inet", &table],
        &["flush", "chain", "inet", &table, "sent"],
    ];
    Traffic::during(&lab, true, |traffic| {
        traffic.wait_for(100);
        assert_eq!(traffic.clear(), 0);
        for (command, count) in commands.iter().zip(1..) {
            lab.left.says("nft", command);
            let start = Instant::now();
            eventually("the guard is back", || guard() == before);
            // Usually in a fraction of a second; a machine that is busy elsewhere has more.
            assert!(start.elapsed() < Duration::from_secs(5), "{command:?}: {:?}", start.elapsed());
            lab.left.waits_until(|status| status["guard"]["restored"] == count);
            assert_eq!(lab.left.status()["guard"]["stands"], true);
            let clear = traffic.clear();
            traffic.wait_for(200);
            assert_eq!(traffic.clear(), clear, "{command:?}: {}", left.said());
            assert!(lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["status"]).contains("was put up again"));
        }
        let said = left.said();
        assert_eq!(
            said.matches("the guard was changed or removed by another program (nft)").count(),
            3,
            "{said}"
        );
        assert_eq!(said.matches("the guard stands again").count(), 3, "{said}");
    });
    assert!(left.stop().success());
    assert_eq!(guard(), "");
}

/// Another program that flushes all the time keeps nobody busy.
#[test]
fn a_guard_that_is_flushed_all_the_time_is_put_up_at_a_bounded_rate() {
    let test = "a_guard_that_is_flushed_all_the_time_is_put_up_at_a_bounded_rate";
    let Some(lab) = Lab::build(test) else { return };
    let left = lab.left.protect(&manual(Side::Left, true));
    let start = Instant::now();
    for _ in 0..100 {
        lab.left.says("nft", &["flush", "ruleset"]);
    }
    let most = start.elapsed().as_millis() / 100 + 2;
    let table = || lab.left.says("nft", &["list", "ruleset"]).contains("casemate_");
    eventually("it stands", || lab.left.status()["guard"]["stands"] == true && table());
    let restored = lab.left.status()["guard"]["restored"].as_u64().unwrap();
    assert!((1..=most).contains(&u128::from(restored)), "{restored} times, expected at most {most}");
    assert!(table(), "{}", left.said());
    assert!(left.stop().success());
}

/// A terminal that goes away sends SIGHUP.
#[test]
fn a_hangup_does_not_end_an_instance_with_manual_keys() {
    let Some(lab) = Lab::build("a_hangup_does_not_end_an_instance_with_manual_keys") else { return };
    let mut left = lab.left.protect(&manual(Side::Left, true));
    Traffic::during(&lab, true, |traffic| {
        traffic.wait_for(100);
        lab.left.says("kill", &["-HUP", &left.child.id().to_string()]);
        eventually("it says so", || left.said().contains("SIGHUP"));
        traffic.wait_for(200);
        assert_eq!(traffic.clear(), 0, "{}", left.said());
    });
    assert!(left.child.try_wait().unwrap().is_none(), "it runs on: {}", left.said());
    assert!(left.stop().success());
}

#[test]
fn without_a_guard_it_does_not_start() {
    let Some(lab) = Lab::build("without_a_guard_it_does_not_start") else { return };
    let nft = lab.left.script_as_nft("echo it is broken >&2; exit 1");
    let clean = |host: &Host| (host.says("ip", &["rule"]), host.says("nft", &["list", "ruleset"]));
    let before = clean(&lab.left);
    let said = lab.left.fails_with(&manual(Side::Left, true), &nft);
    assert!(said.contains("guard against cleartext") && said.contains("it is broken"), "{said}");
    assert_eq!(clean(&lab.left), before);
    assert!(lab.left.hears(Side::Right.outer(true), 8), "nothing is changed");
    assert!(!said.contains("casemate cleanup"), "nothing is blocked: {said}");
    // A guard that stands is not given up.
    let left = lab.left.protect(&manual(Side::Left, true));
    left.crash();
    let left_behind = clean(&lab.left);
    let said = lab.left.fails_with(&manual(Side::Left, true), &nft);
    assert!(said.contains("casemate cleanup"), "{said}");
    assert_eq!(clean(&lab.left), left_behind);
    assert!(!lab.left.hears_at_once(Side::Right.outer(true), 8));
    lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(clean(&lab.left), before);
}

#[test]
fn packets_move_while_nft_is_slow() {
    let Some(lab) = Lab::build("packets_move_while_nft_is_slow") else { return };
    let (slow, seen) = (lab.left.file("slow"), lab.left.file("seen"));
    let script =
        format!("if [ -e {} ]; then touch {}; sleep 6; fi\nexec $NFT \"$@\"", slow.display(), seen.display());
    let nft = lab.left.script_as_nft(&script);
    let right = lab.right.negotiate(&negotiated(Side::Right, true, "none"), None);
    let left = lab.left.negotiate_with_nft(&negotiated(Side::Left, true, "start"), &nft);
    wait_until_up(&lab, true, &[&left, &right]);
    std::fs::write(&slow, "").unwrap();
    // A policy of another shape is a change that needs `nft`.
    let more = negotiated(Side::Left, true, "start").replace(
        "children {",
        "children {\n more {\n mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.99.0.0/16\n start_action = trap\n }",
    );
    std::fs::write(lab.left.file("conf"), more).unwrap();
    let dst: IpAddr = Side::Right.outer(true);
    thread::scope(|scope| {
        let reload = scope.spawn(|| lab.left.casemate(&["reload"]));
        eventually("nft is at work", || seen.exists());
        let start = Instant::now();
        let (mut answers, mut longest) = (0, Duration::ZERO);
        while !reload.is_finished() {
            let asked = Instant::now();
            assert!(lab.left.hears_first(dst, 8), "{}", left.said());
            (answers, longest) = (answers + 1, longest.max(asked.elapsed()));
        }
        let (took, output) = (start.elapsed(), reload.join().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // It is told when the guard stands, and not before.
        assert!(took > Duration::from_secs(5), "{took:?}");
        assert!(answers > 3 && longest < Duration::from_secs(4), "{answers} answers, longest {longest:?}");
    });
    assert!(lab.left.says("nft", &["list", "ruleset"]).contains("10.99.0.0/16"));
    std::fs::remove_file(&slow).unwrap();
    assert!(left.stop().success() && right.stop().success());
}

/// Fails closed: neither routes nor IKE go on until the guard stands. SAs that are up do.
#[test]
fn a_guard_that_cannot_be_made_is_tried_again_before_anything_else_goes_on() {
    let test = "a_guard_that_cannot_be_made_is_tried_again_before_anything_else_goes_on";
    let Some(lab) = Lab::build(test) else { return };
    let broken = lab.left.file("broken");
    let nft =
        lab.left.script_as_nft(&format!("if [ -e {} ]; then exit 1; fi\nexec $NFT \"$@\"", broken.display()));
    let right = lab.right.negotiate(&negotiated(Side::Right, true, "none"), None);
    let left = lab.left.negotiate_with_nft(&negotiated(Side::Left, true, "start"), &nft);
    wait_until_up(&lab, true, &[&left, &right]);
    std::fs::write(&broken, "").unwrap();
    let more = negotiated(Side::Left, true, "start").replace(
        "children {",
        "children {\n more {\n local_ts = 10.0.0.0/8\n remote_ts = 10.99.0.0/16\n start_action = trap\n }",
    );
    std::fs::write(lab.left.file("conf"), more).unwrap();
    let routes = || lab.left.says("ip", &["route", "show", "table", "50510"]);
    thread::scope(|scope| {
        let reload = scope.spawn(|| lab.left.casemate(&["reload"]));
        eventually("it is tried twice", || left.said().matches("does not follow the policies").count() > 1);
        assert!(!reload.is_finished() && !routes().contains("10.99"), "{}", left.said());
        assert!(lab.left.hears_first(Side::Right.outer(true), 8), "{}", left.said());
        std::fs::remove_file(&broken).unwrap();
        assert!(reload.join().unwrap().status.success());
    });
    assert!(routes().contains("10.99"));
    assert!(lab.left.says("nft", &["list", "ruleset"]).contains("10.99.0.0"));
    assert!(left.stop().success() && right.stop().success());
}

/// Whoever may set PATH must not choose what runs as root.
#[test]
fn nft_is_not_looked_for_in_path() {
    let Some(lab) = Lab::build("nft_is_not_looked_for_in_path") else { return };
    let (directory, seen) = (lab.left.file("bin"), lab.left.file("seen"));
    std::fs::create_dir(&directory).unwrap();
    let fake = directory.join("nft");
    casemate_scratch::write_program(&fake, format!("#!/bin/sh\ntouch {}\n", seen.display()).as_bytes());
    let path = directory.display().to_string();
    let left = lab.left.negotiate(&negotiated(Side::Left, true, "trap"), Some(("PATH", &path)));
    assert!(!lab.left.hears_at_once(Side::Right.outer(true), 8));
    assert!(left.stop().success());
    assert!(!seen.exists());
}
