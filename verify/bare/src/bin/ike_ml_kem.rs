//! See [`casemate_bare::profile::ike_ml_kem`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::profile::ike_ml_kem);
