//! Speech quality of a call: the E-model of ITU-T G.107.
//!
//! The telephones have the default values (Table 3: TELR 65 dB, WEPL 110 dB and so on). Three inputs remain:
//! codec, mouth-to-ear delay and packet loss. Losses are assumed to be random. The model applies to
//! narrowband telephony, not to wideband codecs.

use std::time::Duration;

/// Effect of a codec on the speech quality (ITU-T G.113 Appendix I).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Equipment impairment factor Ie.
    pub ie: f64,
    /// Packet-loss robustness factor Bpl.
    pub bpl: f64,
    /// Time that the encoder waits after the end of a frame.
    pub look_ahead: Duration,
}

/// Transmission rating factor R, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rating(f64);

/// Ro, the basic signal-to-noise ratio with default values (G.107 section 7.2).
const BASIC_SNR: f64 = 94.769;
/// Is, the simultaneous impairment with default values (section 7.3).
const SIMULTANEOUS_IMPAIRMENT: f64 = 1.414;
/// TELR, the talker echo loudness rating, in dB.
const TALKER_ECHO: f64 = 65.0;
/// WEPL, the weighted echo path loss, in dB.
const ECHO_PATH_LOSS: f64 = 110.0;
/// Delay in ms up to which the delay itself does no harm.
const HARMLESS_DELAY_MS: f64 = 100.0;

impl Rating {
    /// Computes the rating from the codec, the mouth-to-ear delay and the share of lost packets (0 to 1).
    pub fn of(impairment: Impairment, mouth_to_ear: Duration, loss: f64) -> Self {
        let delay = mouth_to_ear.as_secs_f64() * 1000.0;
        let harm = delay_impairment(delay) + effective_impairment(impairment, loss);
        Self((BASIC_SNR - SIMULTANEOUS_IMPAIRMENT - harm).clamp(0.0, 100.0))
    }

    /// Value of R.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Mean opinion score (Annex B), from 1 to 4.5.
    pub fn mos(self) -> f64 {
        let r = self.0;
        (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0)
    }

    /// User satisfaction (Annex B, Table B.1).
    pub fn opinion(self) -> &'static str {
        match self.0 {
            r if r >= 90.0 => "very satisfied",
            r if r >= 80.0 => "satisfied",
            r if r >= 70.0 => "some users dissatisfied",
            r if r >= 60.0 => "many users dissatisfied",
            r if r >= 50.0 => "nearly all users dissatisfied",
            _ => "not recommended",
        }
    }
}

/// Ie-eff (section 7.5) for random losses.
fn effective_impairment(impairment: Impairment, loss: f64) -> f64 {
    let percent = loss.clamp(0.0, 1.0) * 100.0;
    impairment.ie + (95.0 - impairment.ie) * percent / (percent + impairment.bpl)
}

/// Id (section 7.4) for a delay in ms that is the same in both directions.
fn delay_impairment(delay: f64) -> f64 {
    talker_echo(delay) + listener_echo(2.0 * delay) + absolute_delay(delay)
}

/// Idte: impairment by talker echo.
fn talker_echo(delay: f64) -> f64 {
    let damped = 40.0 * ((1.0 + delay / 10.0) / (1.0 + delay / 150.0)).log10();
    let rating = TALKER_ECHO - damped + 6.0 * (-0.3 * delay * delay).exp();
    let half = (BASIC_SNR - (80.0 + 2.5 * (rating - 14.0))) / 2.0;
    (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - (-delay).exp())
}

/// Idle: impairment by listener echo.
fn listener_echo(round_trip: f64) -> f64 {
    let rating = 10.5 * (ECHO_PATH_LOSS + 7.0) * (round_trip + 1.0).powf(-0.25);
    let half = (BASIC_SNR - rating) / 2.0;
    half + (half * half + 169.0).sqrt()
}

/// Idd: impairment by a delay that makes both parties speak at once.
fn absolute_delay(delay: f64) -> f64 {
    if delay <= HARMLESS_DELAY_MS {
        return 0.0;
    }
    let x = (delay / HARMLESS_DELAY_MS).log2();
    let sixth = |x: f64| (1.0 + x.powi(6)).powf(1.0 / 6.0);
    25.0 * (sixth(x) - 3.0 * sixth(x / 3.0) + 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    fn rating(keyword: &str, delay: u64, loss: f64) -> Rating {
        Rating::of(Codec::named(keyword).unwrap().impairment.unwrap(), Duration::from_millis(delay), loss)
    }

    /// G.107 section 7.7: the default values give R = 93.2, and Annex B converts it to MOS 4.41.
    #[test]
    fn the_default_values_give_the_default_rating() {
        let best = rating("g711", 0, 0.0);
        assert_eq!(format!("{:.1} {:.2}", best.value(), best.mos()), "93.2 4.41");
        assert_eq!(best.opinion(), "very satisfied");
    }

    /// Annex B, Table B.1: R 90, 80, 70, 60 and 50 are MOS 4.34, 4.03, 3.60, 3.10 and 2.58.
    #[test]
    fn opinions_follow_the_table() {
        for (r, mos) in [(90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)] {
            assert!((Rating(r).mos() - mos).abs() < 0.01, "{r}");
        }
        assert_eq!(Rating(0.0).mos(), 1.0);
        assert_eq!(Rating(100.0).mos(), 4.5);
    }

    /// Cole and Rosenbluth (2001) approximate Id by 0.024 d + 0.11 (d - 177.3). Beyond 300 ms the
    /// approximation is too steep.
    #[test]
    fn delay_impairment_matches_the_published_approximation() {
        for delay in (0..=300).step_by(20) {
            let d = f64::from(delay);
            let approximated = 0.024 * d + 0.11 * (d - 177.3).max(0.0);
            assert!((delay_impairment(d) - approximated).abs() < 2.5, "{d}: {}", delay_impairment(d));
        }
    }

    #[test]
    fn loss_and_delay_reduce_the_rating() {
        // Ie-eff = 11 + 84 * 1 / 20.
        assert!((rating("g729", 0, 0.0).value() - rating("g729", 0, 0.01).value() - 4.2).abs() < 1e-9);
        assert!((rating("g711", 0, 0.0).value() - rating("g729", 0, 0.0).value() - 11.0).abs() < 1e-9);
        assert!(rating("g711", 300, 0.0) < rating("g711", 150, 0.0));
        assert_eq!(rating("g711", 5000, 1.0).opinion(), "not recommended");
    }
}
