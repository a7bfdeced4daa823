//! Voice codecs: frame length, frame duration and effect on the speech quality.
//!
//! Frames are those of RTP (RFC 3551 section 4.5, RFC 3952, RFC 6716). Impairments are the planning values of
//! ITU-T G.113 Appendix I for narrowband telephony. Codecs without such a value have none here.

use crate::quality::Impairment;
use std::fmt;
use std::time::Duration;

/// One direction of a call: packets of equal length at a constant interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of speech per packet.
    pub payload: usize,
    /// Time between two packets. Never zero.
    interval: Duration,
}

impl Stream {
    /// Creates a stream with `payload` bytes of speech per packet; `None` if `interval` is zero.
    pub fn new(payload: usize, interval: Duration) -> Option<Self> {
        (!interval.is_zero()).then_some(Self { payload, interval })
    }

    /// Time between two packets.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// Packets per second.
    pub fn packets_per_second(self) -> f64 {
        self.interval.as_secs_f64().recip()
    }
}

/// A codec at one of its bit rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec {
    /// Keyword on the command line.
    pub keyword: &'static str,
    /// Usual name.
    pub name: &'static str,
    /// Duration of a frame.
    frame: Duration,
    /// Length of a frame in bytes.
    frame_len: usize,
    /// Default duration of speech per packet (RFC 3551 section 4.2: 20 ms, or one frame).
    default_interval: Duration,
    /// Effect on the speech quality.
    pub impairment: Option<Impairment>,
    /// Definition of the frame.
    pub source: &'static str,
}

/// A packet would not hold a whole number of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialFrame {
    frame: Duration,
}

impl fmt::Display for PartialFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a multiple of {:?}, which is one frame, was expected", self.frame)
    }
}

impl std::error::Error for PartialFrame {}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// All known codecs.
pub const CODECS: [Codec; 8] = [
    Codec {
        keyword: "g711",
        name: "G.711",
        frame: ms(1),
        frame_len: 8,
        default_interval: ms(20),
        // With the packet loss concealment of its Appendix I, for packets of 10 ms.
        impairment: Some(Impairment { ie: 0.0, bpl: 25.1, look_ahead: Duration::ZERO }),
        source: "RFC 3551 section 4.5.14",
    },
    Codec {
        keyword: "g722",
        name: "G.722 at 64 kbit/s",
        frame: ms(1),
        frame_len: 8,
        default_interval: ms(20),
        impairment: None,
        source: "RFC 3551 section 4.5.2",
    },
    Codec {
        keyword: "g723",
        name: "G.723.1 at 6.3 kbit/s",
        frame: ms(30),
        frame_len: 24,
        default_interval: ms(30),
        impairment: Some(Impairment { ie: 15.0, bpl: 16.1, look_ahead: Duration::from_micros(7500) }),
        source: "RFC 3551 section 4.5.3",
    },
    Codec {
        keyword: "g726",
        name: "G.726 at 32 kbit/s",
        frame: ms(1),
        frame_len: 4,
        default_interval: ms(20),
        impairment: None,
        source: "RFC 3551 section 4.5.4",
    },
    Codec {
        keyword: "g729",
        name: "G.729A",
        frame: ms(10),
        frame_len: 10,
        default_interval: ms(20),
        impairment: Some(Impairment { ie: 11.0, bpl: 19.0, look_ahead: ms(5) }),
        source: "RFC 3551 section 4.5.6",
    },
    Codec {
        keyword: "gsm-efr",
        name: "GSM-EFR",
        frame: ms(20),
        frame_len: 31,
        default_interval: ms(20),
        impairment: Some(Impairment { ie: 5.0, bpl: 10.0, look_ahead: Duration::ZERO }),
        source: "RFC 3551 section 4.5.9",
    },
    Codec {
        keyword: "ilbc",
        name: "iLBC at 13.3 kbit/s",
        frame: ms(30),
        frame_len: 50,
        default_interval: ms(30),
        impairment: None,
        source: "RFC 3952 section 3",
    },
    Codec {
        keyword: "opus",
        name: "Opus at 20 kbit/s",
        frame: ms(20),
        frame_len: 50,
        default_interval: ms(20),
        impairment: None,
        source: "RFC 6716 section 2.1.1, upper end for wideband speech",
    },
];

impl Codec {
    /// Returns the codec with this keyword.
    pub fn named(keyword: &str) -> Option<&'static Self> {
        CODECS.iter().find(|codec| codec.keyword == keyword)
    }

    /// Returns a call with this codec, with the default duration per packet unless `interval` is given.
    ///
    /// # Errors
    /// Fails if `interval` is zero or no multiple of the frame duration.
    pub fn stream(&self, interval: Option<Duration>) -> Result<Stream, PartialFrame> {
        let interval = interval.unwrap_or(self.default_interval);
        let (asked, frame) = (interval.as_micros(), self.frame.as_micros());
        let is_whole = asked > 0 && asked.is_multiple_of(frame);
        let frames = usize::try_from(asked / frame).ok().filter(|_| is_whole);
        let payload = frames.and_then(|frames| frames.checked_mul(self.frame_len));
        payload.and_then(|payload| Stream::new(payload, interval)).ok_or(PartialFrame { frame: self.frame })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bit rates are those of the codecs.
    #[test]
    fn frames_match_the_bit_rate() {
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
