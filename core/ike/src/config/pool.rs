//! Virtual addresses that peers get, and what else they are told (RFC 7296 section 2.19).

use alloc::string::String;
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use core::net::IpAddr;

/// A pool of virtual addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The addresses.
    pub addrs: AddrRange,
    /// Name servers for those who get one.
    pub dns: Vec<IpAddr>,
    /// Subnets behind us, as INTERNAL_IP4_SUBNET and INTERNAL_IP6_SUBNET: prefixes.
    pub subnets: Vec<AddrRange>,
}
