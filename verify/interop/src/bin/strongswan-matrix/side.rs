//! The two sides of a case, with their names and addresses.
//!
//! ```text
//!     left namespace               router namespace                         right namespace
//!     10.9.1.2  fd09:1::2 wire  ---  to-left      to-right (captured)  ---  wire  10.9.2.2  fd09:2::2
//!     10.99.1.1 fd99:1::1 lo         10.9.1.1     10.9.2.1           lo    10.99.2.1 fd99:2::1
//!     10.97.1.1           lo         fd09:1::1    fd09:2::1          lo    10.97.2.1
//! ```

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The program under test.
    Left,
    /// strongSwan.
    Right,
}

impl Side {
    /// Both sides, the program under test first.
    pub(crate) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// Returns the opposite side.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Returns the name of the side in paths and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Returns the IKE identity of the side, which is also the subjectAltName of its certificates.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Left => "left.test",
            Self::Right => "right.test",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
        }
    }

    /// Returns the address of the side on the wire.
    pub(crate) fn wire(self, family: Family) -> String {
        self.link(family, 2)
    }

    /// Returns the address of the router towards the side.
    pub(crate) fn router(self, family: Family) -> String {
        self.link(family, 1)
    }

    fn link(self, family: Family, host: u8) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.9.{net}.{host}"),
            Family::V6 => format!("fd09:{net}::{host}"),
        }
    }

    /// Returns the address of the side behind the tunnel.
    pub(crate) fn behind(self, family: Family) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.99.{net}.1"),
            Family::V6 => format!("fd99:{net}::1"),
        }
    }

    /// Returns the address of the side in the second network behind it.
    pub(crate) fn second(self) -> String {
        format!("10.97.{}.1", self.number())
    }

    /// Returns the network of `behind`.
    pub(crate) fn network(self, family: Family) -> String {
        let net = self.number();
        match family {
            Family::V4 => format!("10.99.{net}.0/24"),
            Family::V6 => format!("fd99:{net}::/64"),
        }
    }

    /// Returns the network of `second`.
    pub(crate) fn second_network(self) -> String {
        format!("10.97.{}.0/24", self.number())
    }
}
