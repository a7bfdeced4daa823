//! Every bound of the data path in one value (contract: bounded everywhere).

/// How much the tables may hold. When a table is full the newest entry is refused; nothing grows.
///
/// Memory is what `core::mem::size_of` gives on 64-bit machines, keys of a provider not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// SAs in the SAD, both directions together. About 500 bytes each, plus the replay bitmap.
    pub sas: usize,
    /// Policies in each direction's SPD. About 450 bytes each.
    pub policies: usize,
    /// Entries in each direction's flow cache, rounded up to a power of two. 64 bytes each.
    pub flows: usize,
    /// Audit events kept until they are read. About 64 bytes each.
    pub audit_events: usize,
    /// Largest anti-replay window of one SA, in packets; one bit each.
    pub replay_window: u32,
    /// Datagrams that may be in reassembly at once.
    pub reassemblies: usize,
    /// Largest reassembled datagram, in bytes; each slot of `reassemblies` holds that much.
    pub reassembly_bytes: usize,
}

impl Limits {
    /// For a gateway on a server.
    pub const SERVER: Self = Self {
        sas: 262_144,
        policies: 131_072,
        flows: 65_536,
        audit_events: 1_024,
        replay_window: 1 << 20,
        reassemblies: 64,
        reassembly_bytes: 65_535,
    };

    /// For a device with tens of kilobytes to spare.
    pub const DEVICE: Self = Self {
        sas: 8,
        policies: 16,
        flows: 16,
        audit_events: 8,
        replay_window: 64,
        reassemblies: 2,
        reassembly_bytes: 4_096,
    };
}
