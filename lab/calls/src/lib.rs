//! Number and quality of the calls that a line carries.
//!
//! This crate is pure arithmetic: speech frames of a [`codec`], length of a [`packet`] with and without
//! IPsec, number of calls on a line ([`plan`]), waiting times in a [`queue`], and speech [`quality`] (ITU-T
//! G.107). [`scheme`] lists the common ways to send a call and reads ESP suites from their proposal keywords.
//! [`paper`] contains the numbers of a paper from 2002.
#![forbid(unsafe_code)]

pub mod codec;
pub mod packet;
pub mod paper;
pub mod plan;
pub mod quality;
pub mod queue;
pub mod scheme;
