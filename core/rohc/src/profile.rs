//! Profiles: which headers a context compresses.

use core::fmt;

/// Profile of a context (RFC 5795 section 5.4, RFC 5225).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Profile {
    /// Whole packets, for what no other profile compresses.
    Uncompressed = 0x0000,
    /// IP headers, UDP and RTP.
    Rtp = 0x0101,
    /// IP headers and UDP.
    Udp = 0x0102,
    /// IP headers and ESP.
    Esp = 0x0103,
    /// IP headers.
    Ip = 0x0104,
}

impl Profile {
    /// All profiles, by number.
    pub const ALL: [Self; 5] = [Self::Uncompressed, Self::Rtp, Self::Udp, Self::Esp, Self::Ip];

    /// Number of the profile.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The profile with this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.number() == number)
    }

    /// The low byte of the number, which IR headers contain.
    pub(crate) const fn octet(self) -> u8 {
        (self.number() & 0xff) as u8
    }

    /// The profile that this byte of an IR header stands for.
    pub(crate) fn from_octet(octet: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.octet() == octet)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncompressed => "uncompressed",
            Self::Rtp => "RTP",
            Self::Udp => "UDP",
            Self::Esp => "ESP",
            Self::Ip => "IP",
        })
    }
}

/// A set of profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileSet(u8);

impl ProfileSet {
    /// All profiles of this crate.
    pub const ALL: Self = Self(0b1_1111);

    /// Whether the profile is in the set.
    pub const fn contains(self, profile: Profile) -> bool {
        self.0 >> profile.octet() & 1 == 1
    }

    /// The profiles of the set, by number.
    pub fn iter(self) -> impl Iterator<Item = Profile> {
        Profile::ALL.into_iter().filter(move |profile| self.contains(*profile))
    }
}

impl FromIterator<Profile> for ProfileSet {
    fn from_iter<I: IntoIterator<Item = Profile>>(profiles: I) -> Self {
        Self(profiles.into_iter().fold(0, |set, profile| set | 1 << profile.octet()))
    }
}
