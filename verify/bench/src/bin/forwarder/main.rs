//! The yardstick of `cargo xtask bench tunnels`: a tunnel without a cipher, that shares no code with the product.
//!
//! It does what every tunnel in user space has to do besides encryption, by the means that Linux offers for it: packets come
//! and go through a TUN interface as super-packets ([`tun`]); each is cut into the packets that go over the wire, with
//! headers and checksums of their own ([`cut`]); many datagrams are handed to the kernel, and taken from it, at once
//! ([`udp`]); and packets that belong together are checked and joined again ([`join`]). One thread each way. IPv4 is cut and
//! joined; all else passes as it is.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cut;
mod ipv4;
mod join;
mod tun;
mod udp;
mod virtio;

use cut::Cutter;
use join::Joiner;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tun::Tun;
use udp::Udp;

const USAGE: &str = "forwarder TUN LOCAL PEER, such as: forwarder tun0 192.0.2.1:4500 192.0.2.2:4500";

/// As many bytes wait at most before they are sent: a few super-packets.
const BATCH: usize = 256 * 1024;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match start(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forwarder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(words: &[String]) -> io::Result<()> {
    let [name, local, peer] = words else { return Err(io::Error::other(USAGE)) };
    let address = |word: &String| word.parse::<SocketAddr>().map_err(|_| io::Error::other(USAGE));
    let tun = Arc::new(Tun::create(name)?);
    let udp = Arc::new(Udp::connect(address(local)?, address(peer)?)?);
    println!("ready");
    let (tun_out, udp_out) = (tun.clone(), udp.clone());
    let out = std::thread::spawn(move || outbound(&tun_out, &udp_out));
    inbound(&tun, &udp)?;
    out.join().map_err(|_| io::Error::other("the outbound thread ended"))?
}

/// From the TUN interface to the wire, until an error.
fn outbound(tun: &Tun, udp: &Udp) -> io::Result<()> {
    let mut super_packet = vec![0; virtio::LEN + ipv4::LARGEST];
    let mut cutter = Cutter::default();
    loop {
        match tun.receive(&mut super_packet)? {
            Some(len) => cutter.push(&super_packet[..len]),
            None if cutter.is_empty() => tun.wait()?,
            None => cutter.send(udp)?,
        }
        if cutter.len() >= BATCH {
            cutter.send(udp)?;
        }
    }
}

/// From the wire to the TUN interface, until an error.
fn inbound(tun: &Tun, udp: &Udp) -> io::Result<()> {
    let mut datagrams = vec![0; ipv4::LARGEST];
    let mut joiner = Joiner::default();
    loop {
        let Some((len, size)) = udp.receive(&mut datagrams)? else {
            joiner.flush(tun)?;
            udp.wait()?;
            continue;
        };
        for packet in datagrams[..len].chunks(size) {
            joiner.push(packet, tun)?;
        }
    }
}
