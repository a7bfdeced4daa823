//! Names of the situations that runs count.

macro_rules! situations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// Situation that a run may contain.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Situation { $($(#[$doc])* $variant,)+ }

        impl Situation {
            /// All situations.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Plural name of the situation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

situations! {
    /// Events of virtual time.
    Step = "steps";
    /// Runs in which every packet has to arrive.
    Lossless = "lossless runs";
    /// Lossless runs under attack.
    UnderAttack = "lossless runs under attack";
    /// IKE SAs that were established. All SAs count once at each side.
    Ike = "IKE SAs";
    /// Established IKE SAs over IPv6.
    IkeOverV6 = "IKE SAs over IPv6";
    /// Established IKE SAs whose peer authenticated with a signature.
    IkeSigned = "IKE SAs with signatures";
    /// Established IKE SAs without a Child SA.
    IkeChildless = "childless IKE SAs";
    /// Established IKE SAs with a NAT on the path.
    IkeNat = "IKE SAs through NATs";
    /// Established IKE SAs with additional key exchanges.
    IkeKexes = "IKE SAs with additional key exchanges";
    /// Established IKE SAs without the additional key exchanges that one side proposed.
    IkeKexesLeftOut = "IKE SAs whose additional key exchanges were left out";
    /// Established IKE SAs whose keys depend on a post-quantum pre-shared key.
    Ppk = "IKE SAs with a PPK";
    /// Established IKE SAs without the post-quantum pre-shared key that one side has.
    PpkLeftOut = "IKE SAs whose PPK was left out";
    /// IKE SAs that resumed the session of an earlier one.
    Resumed = "IKE SAs resumed";
    /// Resumed IKE SAs whose session has additional key exchanges.
    ResumedKexes = "IKE SAs resumed with additional key exchanges";
    /// Resumed IKE SAs of connections with a post-quantum pre-shared key.
    ResumedPpk = "IKE SAs resumed with a PPK";
    /// Tickets that the peer did not accept.
    NotResumed = "tickets refused";
    /// IKE SAs that were rekeyed.
    IkeRekeyed = "IKE SAs rekeyed";
    /// IKE SAs that both sides rekeyed at once.
    IkeCollision = "collisions of IKE rekeyings";
    /// IKE SAs that were closed for reauthentication.
    Reauth = "reauthentications";
    /// IKE SAs that ended because the peer did not respond.
    Dead = "dead peers";
    /// IKE SAs that a newer IKE SA with the same peer replaced.
    NotUnique = "IKE SAs replaced as not unique";
    /// IKE SAs that were refused because one with the same peer exists.
    NotUniqueRefused = "IKE SAs refused as not unique";
    /// IKE SAs that a new configuration closed.
    IkeUnconfigured = "IKE SAs unconfigured";
    /// Authentication failures of an untrusted peer.
    UntrustedRefused = "untrusted peers refused";
    /// Peers behind a NAT whose port changed.
    Moved = "moved peers";
    /// Virtual addresses that were assigned.
    Assigned = "virtual addresses";
    /// Requests for a virtual address with an empty pool.
    PoolEmpty = "pools exhausted";
    /// Child SAs that were established.
    Child = "Child SAs";
    /// Child SAs that were rekeyed.
    ChildRekeyed = "Child SAs rekeyed";
    /// Child SAs that both sides rekeyed at once.
    ChildCollision = "collisions of Child SA rekeyings";
    /// Child SAs that a new configuration closed.
    ChildUnconfigured = "Child SAs unconfigured";
    /// Child SAs in transport mode.
    Transport = "Child SAs in transport mode";
    /// Child SAs with AH.
    Ah = "Child SAs with AH";
    /// Child SAs with extended sequence numbers.
    Extended = "Child SAs with ESN";
    /// Child SAs with header compression.
    Compressed = "Child SAs with header compression";
    /// Packets with only feedback of header compression.
    RohcFeedback = "packets with only feedback of header compression";
    /// Child SAs for IPv6.
    InnerV6 = "Child SAs for IPv6";
    /// Child SAs with UDP encapsulation.
    Encap = "Child SAs in UDP";
    /// Child SAs with a key exchange of their own.
    Pfs = "Child SAs with a key exchange";
    /// Key exchanges of Child SAs whose method had to be corrected.
    PfsCorrected = "key exchanges of Child SAs corrected";
    /// Child SAs with narrowed traffic selectors.
    Narrowed = "Child SAs narrowed";
    /// Child SAs with additional key exchanges.
    ChildKexes = "Child SAs with additional key exchanges";
    /// Child SAs without the additional key exchanges that one side proposed.
    ChildKexesLeftOut = "Child SAs whose additional key exchanges were left out";
    /// Requests for a series of key exchanges that the responder has forgotten.
    SeriesForgotten = "series of key exchanges forgotten";
    /// Child SAs whose traffic another Child SA of the connection also covers.
    Nested = "Child SAs within others";
    /// COOKIE notifications sent.
    Cookie = "cookies requested";
    /// INVALID_KE_PAYLOAD notifications sent.
    InvalidKe = "key exchanges corrected";
    /// IKE_INTERMEDIATE messages and their fragments.
    Intermediate = "IKE_INTERMEDIATE messages";
    /// IKE_FOLLOWUP_KE messages and their fragments.
    Followup = "IKE_FOLLOWUP_KE messages";
    /// Fragments of IKE messages.
    Fragment = "fragments of IKE messages";
    /// Runs over a path that drops unfragmented messages.
    NarrowPath = "runs over narrow paths";
    /// Datagrams lost.
    Lost = "datagrams lost";
    /// Packets sent by protected hosts.
    Sent = "packets";
    /// Packets delivered.
    Delivered = "packets delivered";
    /// Packets that policy passes in clear.
    Bypassed = "packets bypassed";
    /// Packets that policy drops.
    Blocked = "packets blocked";
    /// Restarts of a node.
    Restart = "restarts";
    /// Jumps of a node's clock.
    ClockJump = "jumps of clocks";
    /// Configuration reloads.
    Reload = "reloads";
    /// Jumps of the sequence number of an SA with manual keys.
    NumberJump = "jumps of sequence numbers";
    /// Losses of all NAT mappings.
    NatRebind = "NAT rebinds";
    /// Losses of all NAT mappings during an exchange.
    NatRebindMidExchange = "NAT rebinds during an exchange";
    /// Outages of a node.
    Outage = "outages";
    /// Datagrams of the attacker.
    Attack = "datagrams of the attacker";
    /// Fragments of the attacker.
    FragmentAttack = "forged fragments";
    /// IKE_SA_INIT requests of the attacker.
    Flood = "flooding requests";
    /// Ends of a process whose node keeps its state in a store.
    ProcessEnd = "ends of processes with a store";
    /// Ends of a process that writes its state first.
    OrderlyEnd = "orderly ends of processes with a store";
    /// Starts of a process while the former one goes on.
    TakeOver = "takeovers";
    /// IKE SAs that a process has restored from a store.
    Restored = "IKE SAs restored";
    /// Times in which a store loses requests or answers, or is full.
    StoreOutage = "outages of stores";
    /// Machines of a cell that became the owner after another one.
    CellTakeOver = "takeovers in cells";
    /// Processes of a cell that were stopped for a time.
    Stopped = "stopped processes";
    /// ESP packets of processes that another one has replaced.
    SentByFormer = "packets of former owners";
    /// Handovers after which the next owner knew the last numbers of the former one.
    HandedOver = "handovers in cells with last numbers";
    /// Faults of machines during handovers or just after them.
    HandoverDisturbed = "faults during handovers";
    /// ESP packets of owners that hand over.
    SentInHandover = "packets of owners that hand over";
    /// Moments in which an owner could not renew its lease in time.
    Fenced = "moments of fenced owners";
    /// Links between a machine and the store of its cell that were disturbed.
    LinkFault = "faults of links to the store of a cell";
    /// Times in which no machine reached the store of a cell.
    CellOutage = "outages of the store of a cell";
    /// Stores of a cell that returned to earlier contents.
    SetBack = "stores of a cell that were set back";
    /// Processes that have refused the contents of such a store.
    StoreRefused = "stores refused";
    /// Processes that became the owner in such a store without having seen what it has lost.
    BlindOwner = "owners that did not see the loss of a store";
    /// Steps of a wall clock.
    ClockStep = "steps of wall clocks";
}
