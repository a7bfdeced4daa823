//! Capture files: pcap and pcapng.

use crate::Target;
use casemate_app::capture::{CaptureError, CaptureReader, CaptureWriter, ip_packet};
use casemate_test_support::hosts::{Ends, packets};
use std::io::{self, Read};

pub(crate) const TARGET: Target = Target {
    name: "capture",
    about: "pcap and pcapng files: frames do not depend on the size of reads, written files are read back unchanged",
    max_len: 4_096,
    run,
    seeds,
    dictionary: &[
        "\\x0a\\x0d\\x0d\\x0a",
        "\\x4d\\x3c\\x2b\\x1a",
        "\\xd4\\xc3\\xb2\\xa1",
        "\\xa1\\xb2\\x3c\\x4d",
    ],
};

/// Owned copy of a frame.
#[derive(Debug, PartialEq)]
struct Frame {
    nanos: u64,
    link: u16,
    data: Vec<u8>,
    wire_len: usize,
}

fn run(bytes: &[u8]) {
    let (frames, end) = read(bytes);
    assert_eq!(
        (&frames, &end),
        (&read(OneByteReader(bytes)).0, &read(OneByteReader(bytes)).1),
        "reads of one byte give another result"
    );
    assert!(frames.iter().map(|frame| frame.data.len()).sum::<usize>() <= bytes.len());
    for frame in &frames {
        if let Ok(packet) = ip_packet(frame.link, &frame.data) {
            let range = frame.data.as_ptr_range();
            assert!(range.start <= packet.as_ptr() && packet.as_ptr_range().end <= range.end);
        }
    }
    let written = write(&frames).expect("writing to memory works");
    let (again, end) = read(&written[..]);
    assert_eq!(end, None);
    assert_eq!(again.len(), frames.len());
    for (again, frame) in again.iter().zip(&frames) {
        assert_eq!((again.nanos, &again.data, again.link), (frame.nanos, &frame.data, 101));
    }
}

/// All frames of a file, and the error that ends it; no error at a regular end.
fn read(source: impl Read) -> (Vec<Frame>, Option<String>) {
    let (mut frames, mut number) = (Vec::new(), 0);
    let end = match CaptureReader::new(source) {
        Err(error) => Err(error),
        Ok(mut reader) => loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    number += 1;
                    assert_eq!(frame.number, number);
                    let data = frame.data.to_vec();
                    frames.push(Frame {
                        nanos: frame.nanos,
                        link: frame.link,
                        data,
                        wire_len: frame.wire_len,
                    });
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        },
    };
    if let Err(error @ CaptureError::Io(_)) = end {
        panic!("{error}");
    }
    (frames, end.err().map(|error| error.to_string()))
}

/// CaptureReader that returns one byte per call.
struct OneByteReader<'a>(&'a [u8]);

impl Read for OneByteReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(1);
        self.0.read(&mut out[..len])
    }
}

fn write(frames: &[Frame]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut writer = CaptureWriter::new(&mut out)?;
    for frame in frames {
        writer.packet(frame.nanos, &frame.data, "comment")?;
    }
    writer.finish()?;
    Ok(out)
}

fn seeds() -> Vec<Vec<u8>> {
    let packet = |len: usize| {
        let (src, dst) = Ends::tunnel(4, 4).inner;
        packets::udp(src, dst, (1, 2), &vec![7; len], false)
    };
    let frame =
        |len: usize| Frame { nanos: 1_700_000_000_123_456_789, link: 101, data: packet(len), wire_len: 0 };
    let ng = write(&[frame(3), frame(60)]).unwrap();
    let mut seeds = vec![ng.clone(), [ng.clone(), ng].concat()];
    for magic in [[0xA1, 0xB2, 0xC3, 0xD4], [0xD4, 0xC3, 0xB2, 0xA1], [0xA1, 0xB2, 0x3C, 0x4D]] {
        let number = |n: u32| if magic[0] == 0xA1 { n.to_be_bytes() } else { n.to_le_bytes() };
        for (link, front) in [(101, vec![]), (1, [&[2; 12][..], &[8, 0]].concat()), (113, vec![0; 16])] {
            let data = [front, packet(9)].concat();
            let header = [[0, 2, 0, 4], [0; 4], [0; 4], number(65_535), number(link)].concat();
            let record = [number(1), number(2), number(data.len() as u32), number(99)].concat();
            seeds.push([&magic[..], &header, &record, &data].concat());
        }
    }
    seeds
}
