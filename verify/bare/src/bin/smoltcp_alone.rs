//! See [`casemate_bare::profile::smoltcp_alone`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::profile::smoltcp_alone);
