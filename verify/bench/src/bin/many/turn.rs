//! One turn: gateways with so many tunnels, their memory, and packets through all of them.

use crate::tunnels::{NETWORK, address, xfrm};
use casemate_interop::{Background, Error, Result};
use casemate_stage::arena::{Arena, BEHIND, WIRE};
use casemate_stage::gateway::Gateway;
use casemate_stage::meter::Meter;
use casemate_stage::paced::{self, Outcome, PORT};
use casemate_stage::sys;
use std::fs;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Bytes of a packet, IPv4 header included, and of its headers: small, for it is packets that need their SA found.
const LENGTH: usize = 256;
const HEADERS: usize = 28;

/// How long a full queue may hold the sender up.
const PATIENCE: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) traffic: Outcome,
    /// Bytes of the first gateway in memory before any packet, and after all of them.
    pub(crate) idle: u64,
    pub(crate) used: u64,
}

/// Packets go to `addresses` in turn, with one tunnel too: so only the number of tunnels differs.
pub(crate) fn run(
    gateway: &Gateway,
    (tunnels, addresses): (u32, u32),
    seconds: Duration,
    directory: &Path,
) -> Result<Turn> {
    fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
    let arena = Arena::new()?;
    let (own, via) = (BEHIND[0], WIRE[1]);
    arena.ends[0].ip(&format!("route add {NETWORK} via {via} src {own}\n"))?;
    arena.ends[1].ip(&format!("route add local {NETWORK} dev lo\nroute add {own}/32 via {}\n", WIRE[0]))?;
    let start = |end: usize| {
        let file = directory.join(format!("{end}.xfrm"));
        fs::write(&file, xfrm(end, tunnels)).map_err(Error::in_front(file.display()))?;
        let counters = directory.join(format!("{end}.counters"));
        gateway.run(&arena, end, ["--xfrm".into(), file, "--counters".into(), counters], directory)
    };
    let processes: Vec<Background> = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
    let memory = || sys::memory_of(processes[0].pid()).map_err(Error::in_front("a gateway"));
    let idle = memory()?;
    arena.wait_for_echo_of(&address(0).to_string())?;
    let traffic = paced::measure(&arena, &Meter::new(&processes), seconds, || open(addresses))?;
    Ok(Turn { traffic, idle, used: memory()? })
}

/// One packet to each address in turn.
fn open(addresses: u32) -> io::Result<impl FnMut()> {
    let socket = UdpSocket::bind((BEHIND[0], 0))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut next = 0;
    Ok(move || {
        next = (next + 1) % addresses;
        // What is not sent does not arrive.
        let _ = socket.send_to(&[0; LENGTH - HEADERS], SocketAddrV4::new(address(next), PORT));
    })
}
