//! The gateway keeps working when standard error is a pipe that is not read.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TUN, TestNet};

/// Timeout for the end, on a busy machine.
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

/// Fills the pipe. A thread remains that waits for room and ends with the reader.
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

/// Sends ESP packets of unknown SAs, each of which gives a log line.
fn send_bogus(host: &Host, dst: Side) {
    let socket = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(ESP)));
    let socket = host.run(socket).unwrap();
    let dst = SockAddr::from(SocketAddr::new(dst.outer(true), 0));
    for spi in 0x9000u32..0x9020 {
        socket.send_to(&[&spi.to_be_bytes()[..], &[1; 60]].concat(), &dst).unwrap();
    }
}

/// Starts the gateway with standard error in a full pipe.
fn start(host: &Host, is_full_before: bool) -> (Running, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    if is_full_before {
        fill(&writer);
    }
    let running = host.run_xfrm_with_stderr(&tunnel(host.side), writer.try_clone().unwrap());
    if !is_full_before {
        fill(&writer);
    }
    (running, reader)
}

/// Waits for the process to end with this exit status.
fn await_exit(mut running: Running, code: i32) {
    assert_eq!(running.wait_within(END).code(), Some(code));
}

#[test]
fn unread_log_blocks_neither_packets_nor_status_nor_exit() {
    let Some(net) = TestNet::build("unread_log") else { return };
    let left = net.left.run_xfrm(&tunnel(Side::Left));
    // The first start logs that the counter file is new; each start logs that others can read the keys.
    for is_full_before in [true, false] {
        let (right, reader) = start(&net.right, is_full_before);
        send_bogus(&net.left, Side::Right);
        assert!(net.left.pings(Side::Right.inner(true), 1_000), "full before: {is_full_before}");
        net.right.wait_until(|status| status["drops"]["no-sa"] == 0x20);
        assert!(net.left.pings(Side::Right.inner(true), 1_000), "full before: {is_full_before}");
        net.right.stdout_of("kill", &["-TERM", &right.pid().to_string()]);
        await_exit(right, 0);
        assert_eq!(net.right.stdout_of("nft", &["list", "tables"]), "");
        drop(reader);
    }
    assert!(left.stop().success());
}

#[test]
fn unread_error_message_does_not_block_exit() {
    let Some(net) = TestNet::build("unread_error") else { return };
    let (running, reader) = start(&net.left, false);
    net.left.stdout_of("ip", &["link", "del", TUN]);
    await_exit(running, 1);
    drop(reader);
    let (mut reader, writer) = io::pipe().unwrap();
    let running = net.left.run_xfrm_with_stderr(&tunnel(Side::Left), writer);
    net.left.stdout_of("ip", &["link", "del", TUN]);
    await_exit(running, 1);
    let mut stderr = String::new();
    reader.read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("stays blocked until") && stderr.contains(TUN), "{stderr}");
    net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
}
