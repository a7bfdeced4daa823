//! See [`casemate_bare::profile::smoltcp_ike`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::profile::smoltcp_ike);
