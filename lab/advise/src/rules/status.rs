//! Requirement levels (RFC 2119, with the marks of RFC 8221 section 2), as advice for use.

use std::fmt;

/// A requirement level. Later ones are preferred.
///
/// RFC 8221 and RFC 8247 write for implementers, and say so: what must be implemented is what peers have, and what must not be
/// is what nobody should use. What is on its way out comes after what stays, whatever it still must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// MUST NOT.
    MustNot,
    /// SHOULD NOT.
    ShouldNot,
    /// SHOULD-: a SHOULD that may become a MAY.
    ShouldMinus,
    /// MUST-: a MUST that is expected to be none any more.
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

impl Status {
    /// All of them.
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

    /// Whether it forbids: MUST NOT or SHOULD NOT.
    pub const fn forbids(self) -> bool {
        matches!(self, Self::MustNot | Self::ShouldNot)
    }

    /// Whether what has it is on its way out.
    pub const fn is_leaving(self) -> bool {
        matches!(self, Self::ShouldMinus | Self::MustMinus)
    }

    /// The words of the RFCs.
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

    /// The level with these words.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.words() == words)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
