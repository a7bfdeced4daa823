//! Small packets of many flows: how many arrive in a second.
//!
//! iperf3 is too slow for this. The packets of the flows take turns, so that no two that follow each other are of one flow or
//! of one length.

use super::Meter;
use casemate_interop::Result;
use casemate_stage::arena::{Arena, BEHIND};
pub(crate) use casemate_stage::paced::Outcome;
use casemate_stage::paced::{self, PORT};
use std::io;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Lengths of the packets, IPv4 header included; each is one flow.
const LENGTHS: RangeInclusive<usize> = 64..=256;
/// From one of them to the next.
const STEP: usize = 4;
/// Of IPv4 and UDP.
const HEADERS: usize = 28;
/// How long a full queue may hold the sender up.
const PATIENCE: Duration = Duration::from_millis(20);

pub(crate) fn measure(arena: &Arena, meter: &Meter<'_>, seconds: Duration) -> Result<Outcome> {
    paced::measure(arena, meter, seconds, open)
}

fn open() -> io::Result<impl FnMut()> {
    let flow = |length| {
        let socket = UdpSocket::bind((BEHIND[0], 0))?;
        socket.connect((BEHIND[1], PORT))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok((socket, vec![0; length - HEADERS]))
    };
    let flows: Vec<(UdpSocket, Vec<u8>)> = LENGTHS.step_by(STEP).map(flow).collect::<io::Result<_>>()?;
    let mut turn = 0;
    Ok(move || {
        let (socket, bytes) = &flows[turn % flows.len()];
        turn += 1;
        // What is not sent does not arrive.
        let _ = socket.send(bytes);
    })
}
