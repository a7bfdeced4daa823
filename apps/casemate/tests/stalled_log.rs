//! Standard error is a pipe that nobody reads: the gateway works on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use lab::{Host, Lab, Running, Side, TUN};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the end may take, on a busy machine.
const END: Duration = Duration::from_secs(10);
const ESP: i32 = 50;

fn tunnel(side: Side) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(true), from.other().outer(true));
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 64 \
             aead 'rfc4106(gcm(aes))' 0x{} 128\n\
             xfrm policy add src {} dst {} dir {} tmpl src {src} dst {dst} proto esp mode tunnel\n",
            format!("{spi:08x}").repeat(5),
            from.inner(true),
            from.other().inner(true),
            if from == side { "out" } else { "in" },
        );
    }
    text
}

/// Writes into the pipe until nothing more fits. A thread is left that waits for room, and ends with the reader.
fn fill(writer: &PipeWriter) {
    let (mut writer, count) = (writer.try_clone().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    thread::spawn(move || {
        while writer.write(&[b'.'; 64]).is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let start = Instant::now();
    let mut before = 0;
    loop {
        assert!(start.elapsed() < END, "the pipe is never full");
        thread::sleep(Duration::from_millis(200));
        let now = count.load(Ordering::Relaxed);
        if now > 0 && now == before {
            return;
        }
        before = now;
    }
}

/// ESP packets of SAs that there are not, each of them worth a line.
fn send_bogus(host: &Host, dst: Side) {
    let socket = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(ESP)));
    let socket = host.run(socket).unwrap();
    let dst = SockAddr::from(SocketAddr::new(dst.outer(true), 0));
    for spi in 0x9000u32..0x9020 {
        socket.send_to(&[&spi.to_be_bytes()[..], &[1; 60]].concat(), &dst).unwrap();
    }
}

/// The gateway with standard error in a pipe, which is full.
fn start(host: &Host, is_full_before: bool) -> (Running, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    if is_full_before {
        fill(&writer);
    }
    let running = host.protect_with_stderr(&tunnel(host.side), writer.try_clone().unwrap());
    if !is_full_before {
        fill(&writer);
    }
    (running, reader)
}

/// Ends within seconds, with this exit status.
fn ends(mut running: Running, code: i32) {
    let start = Instant::now();
    loop {
        if let Some(status) = running.child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(code));
            return;
        }
        assert!(start.elapsed() < END, "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_that_nobody_reads_stops_neither_packets_nor_status_nor_the_end() {
    let Some(lab) = Lab::build("a_log_that_nobody_reads") else { return };
    let left = lab.left.protect(&tunnel(Side::Left));
    // The first start says that the counter file is new, each one that others can read the keys.
    for is_full_before in [true, false] {
        let (right, reader) = start(&lab.right, is_full_before);
        send_bogus(&lab.left, Side::Right);
        assert!(lab.left.hears(Side::Right.inner(true), 1_000), "full before: {is_full_before}");
        lab.right.waits_until(|status| status["drops"]["no-sa"] == 0x20);
        assert!(lab.left.hears(Side::Right.inner(true), 1_000), "full before: {is_full_before}");
        lab.right.says("kill", &["-TERM", &right.child.id().to_string()]);
        ends(right, 0);
        assert_eq!(lab.right.says("nft", &["list", "tables"]), "");
        drop(reader);
    }
    assert!(left.stop().success());
}

#[test]
fn an_error_that_nobody_reads_ends_the_instance_and_one_that_is_read_is_whole() {
    let Some(lab) = Lab::build("an_error_that_nobody_reads") else { return };
    let (running, reader) = start(&lab.left, false);
    lab.left.says("ip", &["link", "del", TUN]);
    ends(running, 1);
    drop(reader);
    let (mut reader, writer) = io::pipe().unwrap();
    let running = lab.left.protect_with_stderr(&tunnel(Side::Left), writer);
    lab.left.says("ip", &["link", "del", TUN]);
    ends(running, 1);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("stays blocked until") && said.contains(TUN), "{said}");
    lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
}
