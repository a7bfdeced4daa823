//! Packets on the wire: tcpdump captures them on the router, and this module reads the capture file.

use crate::packet::{IKE_SA_INIT, Ike, Packet};
use crate::path::{Path, interface};
use crate::side::{Family, Side};
use casemate_interop::{Background, Error, Result};
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);
/// Header sizes of a capture file and of each packet in it. The fields are in the byte order of this
/// machine.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Size of the headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

/// Running capture.
pub(crate) struct Capture {
    tcpdump: Background,
    file: PathBuf,
}

impl Capture {
    /// Captures the packets between the router and strongSwan to a file in `directory`.
    pub(crate) fn start(path: &Path, directory: &std::path::Path) -> Result<Self> {
        let file = directory.join("wire.pcap");
        let mut command = path.router().command("tcpdump");
        command
            .args(["-i", interface(Side::Right), "-s", "0", "-U", "--immediate-mode", "-Z", "root", "-w"])
            .arg(&file);
        let mut tcpdump = Background::start("tcpdump", command, &directory.join("tcpdump"))?;
        tcpdump.wait_until(LIMIT, |output| output.contains("listening on"))?;
        Ok(Self { tcpdump, file })
    }

    /// Ends the capture and reads its file.
    pub(crate) fn stop(self) -> Result<Wire> {
        self.tcpdump.stop(LIMIT)?;
        Wire::read(self.file)
    }

    /// Returns the packets captured so far.
    pub(crate) fn so_far(&self) -> Result<Wire> {
        Wire::read(self.file.clone())
    }
}

/// Packets of a capture.
pub(crate) struct Wire {
    file: PathBuf,
    frames: Vec<Vec<u8>>,
}

impl Wire {
    fn read(file: PathBuf) -> Result<Self> {
        let bytes = fs::read(&file).map_err(Error::context(file.display()))?;
        Ok(Self { frames: frames(&bytes), file })
    }

    /// Returns the path of the capture file.
    pub(crate) fn file(&self) -> &std::path::Path {
        &self.file
    }

    fn packets(&self) -> impl Iterator<Item = Packet> {
        self.frames.iter().map(|frame| Packet::parse(frame))
    }

    /// Returns the IKE messages.
    pub(crate) fn ike(&self) -> impl Iterator<Item = Ike> {
        self.packets().filter_map(|packet| if let Packet::Ike(ike) = packet { Some(ike) } else { None })
    }

    /// Returns the last request of IKE_SA_INIT so far, if its datagram was IPv4 without options.
    pub(crate) fn last_request(&self) -> Option<&[u8]> {
        let is_request = |frame: &&Vec<u8>| matches!(Packet::parse(frame), Packet::Ike(ike) if ike.exchange == IKE_SA_INIT && !ike.is_response);
        self.frames.iter().rfind(is_request)?.get(HEADERS..)
    }

    /// Returns the number of packets with ESP or AH.
    pub(crate) fn protected(&self) -> usize {
        self.packets().filter(|packet| matches!(packet, Packet::Esp | Packet::EspInUdp | Packet::Ah)).count()
    }

    /// Returns the number of packets of this kind.
    pub(crate) fn count(&self, kind: Packet) -> usize {
        self.packets().filter(|&packet| packet == kind).count()
    }

    /// Checks that the capture contains only IKE, ESP and AH and, if ESP encrypts, that no inner packet is
    /// readable.
    pub(crate) fn expect_no_clear_text(&self, is_encrypted: bool) -> Result<()> {
        let alien = self.packets().find(|packet| matches!(packet, Packet::Other(_)));
        if let Some(Packet::Other(protocol)) = alien {
            return Err(Error::new(format!("clear text on the wire: IP protocol {protocol}")));
        }
        let holds = |pattern: &Vec<u8>| {
            self.frames
                .iter()
                .any(|frame| frame.windows(pattern.len()).any(|window| window == pattern.as_slice()))
        };
        if is_encrypted && inner_addresses().iter().any(holds) {
            return Err(Error::new("clear text on the wire: the addresses of an inner packet"));
        }
        if is_encrypted && payloads().iter().any(holds) {
            return Err(Error::new("clear text on the wire: the payload of an echo request"));
        }
        Ok(())
    }
}

/// Returns source and destination addresses as adjacent bytes, as every IP header between the two inner
/// networks contains them.
fn inner_addresses() -> Vec<Vec<u8>> {
    let bytes = |text: String| match text.parse() {
        Ok(IpAddr::V4(address)) => address.octets().to_vec(),
        Ok(IpAddr::V6(address)) => address.octets().to_vec(),
        Err(_) => Vec::new(),
    };
    let mut patterns = Vec::new();
    for side in Side::BOTH {
        for family in [Family::V4, Family::V6] {
            patterns.push([bytes(side.behind(family)), bytes(side.other().behind(family))].concat());
        }
        patterns.push([bytes(side.second()), bytes(side.other().second())].concat());
    }
    patterns
}

/// Returns the starts of the payloads of the first echo requests that `probe ping` sends. Transport mode
/// has no inner addresses.
fn payloads() -> Vec<Vec<u8>> {
    (0..8u8).map(|sequence| (0..32u8).map(|index| index.wrapping_mul(7) ^ sequence).collect()).collect()
}

/// Returns the frames of a capture file. A truncated last frame is omitted, because tcpdump is still
/// writing it.
fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file.get(FILE_HEADER..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(PACKET_HEADER) {
        let length = header.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let Some((frame, next)) = after.split_at_checked(length as usize) else { break };
        frames.push(frame.to_vec());
        rest = next;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(frames: &[&[u8]]) -> Wire {
        let mut file = vec![0; FILE_HEADER];
        for frame in frames {
            file.extend_from_slice(&[0; 8]);
            file.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(frame);
        }
        // Part of the next packet, which tcpdump is still writing.
        file.extend_from_slice(&[0; 9]);
        Wire { file: PathBuf::new(), frames: super::frames(&file) }
    }

    /// ESP in an IPv4 packet around `payload`.
    fn esp(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        (frame[12], frame[14], frame[23]) = (0x08, 0x45, 50);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn detects_an_inner_packet_in_clear_text() {
        let inner = [&[0x45, 0, 0, 20][..], &[10, 99, 1, 1, 10, 99, 2, 1]].concat();
        let wire = wire(&[&esp(&[1, 2, 3]), &esp(&inner)]);
        assert_eq!(wire.count(Packet::Esp), 2);
        assert!(wire.expect_no_clear_text(true).is_err());
        assert!(wire.expect_no_clear_text(false).is_ok());
    }

    #[test]
    fn detects_a_payload_in_clear_text() {
        let payload: Vec<u8> = (0..64u8).map(|index| index.wrapping_mul(7) ^ 3).collect();
        assert!(wire(&[&esp(&payload)]).expect_no_clear_text(true).is_err());
        assert!(wire(&[&esp(&payload)]).expect_no_clear_text(false).is_ok());
    }

    #[test]
    fn detects_a_packet_of_another_protocol() {
        let mut ping = esp(&[8, 0]);
        ping[23] = 1;
        assert!(wire(&[&ping]).expect_no_clear_text(false).is_err());
        assert!(wire(&[&esp(&[1])]).expect_no_clear_text(true).is_ok());
    }
}
