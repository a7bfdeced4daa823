//! See [`casemate_bare::profile::nothing`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::profile::nothing);
