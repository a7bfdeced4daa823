//! See [`casemate_bare::profile::esp_rohc`].
#![no_std]
#![no_main]

casemate_bare::program!(casemate_bare::profile::esp_rohc);
