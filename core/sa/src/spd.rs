//! Numbers of SPDs, for hosts with more than one.

use core::fmt;

/// Identifies one of several SPDs: the SPD-ID of RFC 4301 section 4.4.1.
///
/// Most hosts have one SPD, [`MAIN`](Self::MAIN). A gateway with route-based tunnels has another one for each
/// interface of a tunnel. An outgoing packet meets the policies of the SPD that belongs to the interface that
/// it enters, an incoming packet those of the SPD of its SA.
///
/// Without the Cargo feature `spds` there is no other SPD, and the type has no size: devices do not pay for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpdId {
    #[cfg(feature = "spds")]
    number: u32,
}

impl SpdId {
    /// The SPD for packets that belong to no other one.
    pub const MAIN: Self = Self {
        #[cfg(feature = "spds")]
        number: 0,
    };

    /// The SPD with this number; 0 is [`MAIN`](Self::MAIN). The caller chooses the numbers.
    #[cfg(feature = "spds")]
    pub const fn new(number: u32) -> Self {
        Self { number }
    }

    /// The number of the SPD.
    #[cfg(feature = "spds")]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Whether this is [`MAIN`](Self::MAIN).
    pub const fn is_main(self) -> bool {
        #[cfg(feature = "spds")]
        return self.number == 0;
        #[cfg(not(feature = "spds"))]
        true
    }
}

impl fmt::Display for SpdId {
    /// `main`, or the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "spds")]
        if !self.is_main() {
            return self.number.fmt(f);
        }
        f.write_str("main")
    }
}

/// The SPDs of the two directions of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SpdPair {
    /// SPD of outgoing packets.
    pub outbound: SpdId,
    /// SPD of incoming packets.
    pub inbound: SpdId,
}

impl SpdPair {
    /// The main SPD in both directions.
    pub const MAIN: Self = Self { outbound: SpdId::MAIN, inbound: SpdId::MAIN };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_main_spd_is_the_default() {
        assert!(SpdId::default().is_main() && SpdId::MAIN.is_main());
        assert_eq!(SpdPair::default(), SpdPair::MAIN);
        #[cfg(feature = "spds")]
        assert_eq!(SpdId::new(7).to_string(), "7");
        assert_eq!(SpdId::MAIN.to_string(), "main");
        #[cfg(feature = "spds")]
        assert!(SpdId::new(0).is_main() && !SpdId::new(1).is_main());
    }
}
