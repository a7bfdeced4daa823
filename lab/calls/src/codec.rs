//! Codecs: how many bytes each makes in which time, and what it does to speech.
//!
//! Frames are those of RTP (RFC 3551 section 4.5, RFC 3952, RFC 6716). Impairments are the planning values of ITU-T G.113 Appendix I for
//! narrowband telephony. A codec that stands in no such table has none here.

use crate::quality::Impairment;
use std::fmt;
use std::time::Duration;

/// One direction of a call: packets that all have as much speech in them, one after each interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of speech in a packet.
    pub payload: usize,
    /// From one packet to the next. Never zero.
    interval: Duration,
}

impl Stream {
    /// A stream of packets with `payload` bytes of speech, or none if `interval` is zero.
    pub fn new(payload: usize, interval: Duration) -> Option<Self> {
        (!interval.is_zero()).then_some(Self { payload, interval })
    }

    /// From one packet to the next.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// Packets in a second.
    pub fn packets_per_second(self) -> f64 {
        self.interval.as_secs_f64().recip()
    }
}

/// A codec at one of its bit rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec {
    /// How the command line calls it.
    pub keyword: &'static str,
    /// Its name in the field.
    pub name: &'static str,
    /// The shortest piece of speech that it encodes.
    frame: Duration,
    /// Bytes of a frame.
    frame_len: usize,
    /// How much speech a packet has if nothing else is asked for (RFC 3551 section 4.2: 20 ms, or one frame).
    usual: Duration,
    /// What it does to speech.
    pub impairment: Option<Impairment>,
    /// Where the frame is defined.
    pub source: &'static str,
}

/// A packet cannot have so much speech in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotWholeFrames {
    frame: Duration,
}

impl fmt::Display for NotWholeFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a multiple of {:?}, which is one frame, was expected", self.frame)
    }
}

impl std::error::Error for NotWholeFrames {}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// All codecs that are known here.
pub const CODECS: [Codec; 8] = [
    Codec {
        keyword: "g711",
        name: "G.711",
        frame: ms(1),
        frame_len: 8,
        usual: ms(20),
        // With the concealment of its Appendix I, for packets of 10 ms.
        impairment: Some(Impairment { ie: 0.0, bpl: 25.1, look_ahead: Duration::ZERO }),
        source: "RFC 3551 section 4.5.14",
    },
    Codec {
        keyword: "g722",
        name: "G.722 at 64 kbit/s",
        frame: ms(1),
        frame_len: 8,
        usual: ms(20),
        impairment: None,
        source: "RFC 3551 section 4.5.2",
    },
    Codec {
        keyword: "g723",
        name: "G.723.1 at 6.3 kbit/s",
        frame: ms(30),
        frame_len: 24,
        usual: ms(30),
        impairment: Some(Impairment { ie: 15.0, bpl: 16.1, look_ahead: Duration::from_micros(7500) }),
        source: "RFC 3551 section 4.5.3",
    },
    Codec {
        keyword: "g726",
        name: "G.726 at 32 kbit/s",
        frame: ms(1),
        frame_len: 4,
        usual: ms(20),
        impairment: None,
        source: "RFC 3551 section 4.5.4",
    },
    Codec {
        keyword: "g729",
        name: "G.729A",
        frame: ms(10),
        frame_len: 10,
        usual: ms(20),
        impairment: Some(Impairment { ie: 11.0, bpl: 19.0, look_ahead: ms(5) }),
        source: "RFC 3551 section 4.5.6",
    },
    Codec {
        keyword: "gsm-efr",
        name: "GSM-EFR",
        frame: ms(20),
        frame_len: 31,
        usual: ms(20),
        impairment: Some(Impairment { ie: 5.0, bpl: 10.0, look_ahead: Duration::ZERO }),
        source: "RFC 3551 section 4.5.9",
    },
    Codec {
        keyword: "ilbc",
        name: "iLBC at 13.3 kbit/s",
        frame: ms(30),
        frame_len: 50,
        usual: ms(30),
        impairment: None,
        source: "RFC 3952 section 3",
    },
    Codec {
        keyword: "opus",
        name: "Opus at 20 kbit/s",
        frame: ms(20),
        frame_len: 50,
        usual: ms(20),
        impairment: None,
        source: "RFC 6716 section 2.1.1, the upper end for wideband speech",
    },
];

impl Codec {
    /// The codec that the command line calls so.
    pub fn named(keyword: &str) -> Option<&'static Self> {
        CODECS.iter().find(|codec| codec.keyword == keyword)
    }

    /// A call with this codec, as much speech in a packet as is usual.
    ///
    /// # Errors
    /// If a packet of `interval` does not hold whole frames, or none.
    pub fn stream(&self, interval: Option<Duration>) -> Result<Stream, NotWholeFrames> {
        let interval = interval.unwrap_or(self.usual);
        let (asked, frame) = (interval.as_micros(), self.frame.as_micros());
        let is_whole = asked > 0 && asked.is_multiple_of(frame);
        let frames = usize::try_from(asked / frame).ok().filter(|_| is_whole);
        let payload = frames.and_then(|frames| frames.checked_mul(self.frame_len));
        payload.and_then(|payload| Stream::new(payload, interval)).ok_or(NotWholeFrames { frame: self.frame })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit rates are the codecs' own.
    #[test]
    fn frames_make_the_bit_rate() {
        for (keyword, rate) in [
            ("g711", 64_000.0),
            ("g722", 64_000.0),
            ("g723", 6_400.0),
            ("g726", 32_000.0),
            ("g729", 8_000.0),
            ("gsm-efr", 12_400.0),
            ("ilbc", 13_333.0),
            ("opus", 20_000.0),
        ] {
            let stream = Codec::named(keyword).unwrap().stream(None).unwrap();
            let bits = stream.payload as f64 * 8.0 * stream.packets_per_second();
            assert!((bits - rate).abs() < 1.0, "{keyword}: {bits}");
        }
    }

    #[test]
    fn a_packet_holds_whole_frames() {
        let g729 = Codec::named("g729").unwrap();
        assert_eq!(g729.stream(Some(ms(30))).unwrap(), Stream::new(30, ms(30)).unwrap());
        for wrong in [Duration::ZERO, ms(15), Duration::from_micros(10_001)] {
            let error = g729.stream(Some(wrong)).unwrap_err();
            assert_eq!(error.to_string(), "a multiple of 10ms, which is one frame, was expected");
        }
        assert_eq!(Stream::new(20, Duration::ZERO), None);
    }
}
