//! Requirement levels (RFC 2119, with the extensions of RFC 8221 section 2), interpreted for users.

use std::fmt;

/// A requirement level, in ascending order of preference.
///
/// RFC 8221 and RFC 8247 address implementers: peers support what must be implemented, and no peer should use
/// what must not be implemented. Algorithms that are being phased out rank below all others that are
/// permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequirementLevel {
    /// MUST NOT.
    MustNot,
    /// SHOULD NOT.
    ShouldNot,
    /// SHOULD-: a SHOULD that may become a MAY.
    ShouldMinus,
    /// MUST-: a MUST that is expected to be downgraded.
    MustMinus,
    /// MAY.
    May,
    /// SHOULD.
    Should,
    /// SHOULD+: a SHOULD that is expected to become a MUST.
    ShouldPlus,
    /// MUST.
    Must,
}

impl RequirementLevel {
    /// All levels.
    pub const ALL: [Self; 8] = [
        Self::MustNot,
        Self::ShouldNot,
        Self::ShouldMinus,
        Self::MustMinus,
        Self::May,
        Self::Should,
        Self::ShouldPlus,
        Self::Must,
    ];

    /// Whether the level is MUST NOT or SHOULD NOT.
    pub const fn forbids(self) -> bool {
        matches!(self, Self::MustNot | Self::ShouldNot)
    }

    /// Whether the algorithm is being phased out.
    pub const fn is_being_phased_out(self) -> bool {
        matches!(self, Self::ShouldMinus | Self::MustMinus)
    }

    /// Keyword of the RFCs.
    pub const fn words(self) -> &'static str {
        match self {
            Self::MustNot => "MUST NOT",
            Self::ShouldNot => "SHOULD NOT",
            Self::ShouldMinus => "SHOULD-",
            Self::MustMinus => "MUST-",
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::ShouldPlus => "SHOULD+",
            Self::Must => "MUST",
        }
    }

    /// Returns the level with this keyword.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.words() == words)
    }
}

impl fmt::Display for RequirementLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
