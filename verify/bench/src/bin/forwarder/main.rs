//! Reference of `cargo xtask bench tunnels`: a tunnel without encryption that shares no code with the
//! product.
//!
//! It performs everything that a user-space tunnel has to do besides encryption, with the mechanisms that
//! Linux offers: the TUN interface exchanges super-packets ([`tun`]); each super-packet is split into the
//! packets on the wire, with their own headers and checksums ([`segment`]); one call passes many datagrams
//! to the kernel or receives many ([`segment`]); and received packets are verified and coalesced
//! ([`coalesce`]). One thread serves each direction. Only IPv4 is segmented and coalesced; other packets
//! pass unchanged.
// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod coalesce;
mod ipv4;
mod segment;
mod tun;

use coalesce::Coalescer;
use segment::{Received, Segmenter, Udp};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tun::{Tun, VIRTIO_LEN};

const USAGE: &str =
    "usage: forwarder TUN LOCAL PEER, for example: forwarder tun0 192.0.2.1:4500 192.0.2.2:4500";

/// Largest number of queued bytes: a few super-packets.
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
    out.join().map_err(|_| io::Error::other("the outbound thread panicked"))?
}

/// Forwards packets from the TUN interface to the wire, until an error.
fn outbound(tun: &Tun, udp: &Udp) -> io::Result<()> {
    let mut super_packet = vec![0; VIRTIO_LEN + ipv4::MAX_PACKET];
    let mut segmenter = Segmenter::default();
    loop {
        match tun.receive(&mut super_packet)? {
            Some(len) => segmenter.push(&super_packet[..len]),
            None if segmenter.is_empty() => tun.wait()?,
            None => segmenter.send(udp)?,
        }
        if segmenter.len() >= BATCH {
            segmenter.send(udp)?;
        }
    }
}

/// Forwards packets from the wire to the TUN interface, until an error.
fn inbound(tun: &Tun, udp: &Udp) -> io::Result<()> {
    let mut datagrams = vec![0; ipv4::MAX_PACKET];
    let mut coalescer = Coalescer::default();
    loop {
        let Some(Received { len, datagram_len: size }) = udp.receive(&mut datagrams)? else {
            coalescer.flush(tun)?;
            udp.wait()?;
            continue;
        };
        for packet in datagrams[..len].chunks(size) {
            coalescer.push(packet, tun)?;
        }
    }
}
