//! See [`casemate_bare::selftest::run`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::selftest::run);
