//! How often what happened: a situation that never comes up would be a hole that nobody sees.

use std::fmt;

macro_rules! situations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// Something that a run may go through.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Seen { $($(#[$doc])* $variant,)+ }

        impl Seen {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// What it is, in the plural.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

situations! {
    /// Steps of virtual time.
    Step = "steps";
    /// Runs in which no packet may be lost.
    Lossless = "lossless runs";
    /// Such runs, under attack.
    Siege = "sieges";
    /// IKE SAs that came up, counted at both sides, as everything here.
    Ike = "IKE SAs";
    /// IKE SAs over IPv6.
    IkeOverV6 = "IKE SAs over IPv6";
    /// IKE SAs of peers that signed.
    IkeSigned = "IKE SAs with signatures";
    /// IKE SAs that began without a Child SA.
    IkeChildless = "childless IKE SAs";
    /// IKE SAs with a NAT in between.
    IkeNat = "IKE SAs through NATs";
    /// IKE SAs that took the place of others.
    IkeRekeyed = "IKE SAs rekeyed";
    /// IKE SAs that were rekeyed by both sides at once.
    IkeCollision = "collisions of IKE rekeyings";
    /// IKE SAs that were closed to authenticate anew.
    Reauth = "reauthentications";
    /// IKE SAs that ended because the peer did not answer.
    Dead = "dead peers";
    /// IKE SAs that made room for another with the same peer.
    NotUnique = "IKE SAs replaced as not unique";
    /// IKE SAs that were refused because there is one with the same peer.
    NotUniqueRefused = "IKE SAs refused as not unique";
    /// IKE SAs that a new configuration closed.
    IkeUnconfigured = "IKE SAs unconfigured";
    /// Attempts of somebody without the right keys.
    StrangerRefused = "strangers refused";
    /// A peer behind a NAT was found at another port.
    Moved = "moved peers";
    /// Virtual addresses that were given.
    Assigned = "virtual addresses";
    /// Virtual addresses that were not to be had.
    PoolEmpty = "pools exhausted";
    /// Child SAs that came up.
    Child = "Child SAs";
    /// Child SAs in the place of others.
    ChildRekeyed = "Child SAs rekeyed";
    /// Child SAs that were replaced by both sides at once.
    ChildCollision = "collisions of Child SA rekeyings";
    /// Child SAs that a new configuration closed.
    ChildUnconfigured = "Child SAs unconfigured";
    /// Child SAs in transport mode.
    Transport = "Child SAs in transport mode";
    /// Child SAs with AH.
    Ah = "Child SAs with AH";
    /// Child SAs with extended sequence numbers.
    Extended = "Child SAs with ESN";
    /// Child SAs for IPv6.
    InnerV6 = "Child SAs for IPv6";
    /// Child SAs with UDP encapsulation.
    Encap = "Child SAs in UDP";
    /// Child SAs with a key exchange of their own.
    Pfs = "Child SAs with a key exchange";
    /// Child SAs whose key exchange was guessed wrong.
    PfsCorrected = "key exchanges of Child SAs corrected";
    /// Child SAs with less traffic than was asked for.
    Narrowed = "Child SAs narrowed";
    /// Child SAs whose traffic another one of the same connection has, too.
    Nested = "Child SAs within others";
    /// Requests that were answered with a cookie.
    Cookie = "cookies asked for";
    /// First requests that were answered with another key exchange method.
    InvalidKe = "key exchanges corrected";
    /// IKE messages that were cut.
    Fragment = "fragments of IKE messages";
    /// Runs over a path that only cut messages pass.
    NarrowPath = "runs over narrow paths";
    /// Datagrams that were lost.
    Lost = "datagrams lost";
    /// Packets that were offered.
    Offered = "packets";
    /// Packets that were delivered.
    Delivered = "packets delivered";
    /// Packets that passed in clear, as they may.
    Bypassed = "packets bypassed";
    /// Packets that went nowhere, as policy says.
    Barred = "packets barred";
    /// A node lost its memory.
    Restart = "restarts";
    /// A clock jumped.
    Jump = "jumps of clocks";
    /// Another configuration.
    Reload = "reloads";
    /// Sequence numbers of an SA with manual keys jumped.
    NumberJump = "jumps of sequence numbers";
    /// A NAT gave all flows other ports.
    Forgotten = "forgetful NATs";
    /// It did so while an exchange was on its way.
    ForgottenMidway = "forgetful NATs in mid-exchange";
    /// A node was cut off.
    Outage = "outages";
    /// Datagrams that the attacker sent.
    Attack = "datagrams of the attacker";
    /// Fragments among them.
    FragmentAttack = "forged fragments";
    /// First requests among them.
    Flood = "flooding requests";
}

/// How often each happened in a run that kept all invariants, or in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally([u64; Seen::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Seen::ALL.len()])
    }
}

impl Tally {
    /// How often it happened.
    pub fn of(&self, what: Seen) -> u64 {
        self.0[what as usize]
    }

    /// What never happened.
    pub fn unseen(&self) -> Vec<&'static str> {
        Seen::ALL.iter().filter(|what| self.of(**what) == 0).map(|what| what.name()).collect()
    }

    /// It happened.
    pub(crate) fn count(&mut self, what: Seen) {
        self.add(what, 1);
    }

    /// It happened so often.
    pub(crate) fn add(&mut self, what: Seen, times: usize) {
        self.0[what as usize] += times as u64;
    }

    /// With another run.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Seen::ALL.iter().try_for_each(|what| writeln!(f, "{:>12}  {}", self.of(*what), what.name()))
    }
}
