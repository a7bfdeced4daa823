//! Helpers that run `casemate inspect` on captures that a test makes.
#![allow(dead_code, reason = "each test program uses a part of it")]

use casemate_app::capture::CaptureWriter;
use casemate_test_support::Program;
pub(crate) use casemate_test_support::TempDir;
use std::path::Path;
use std::process::Output;

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(crate) fn write_capture<'a>(path: &Path, packets: impl IntoIterator<Item = &'a Vec<u8>>) {
    let mut writer = CaptureWriter::new(std::fs::File::create(path).unwrap()).unwrap();
    for packet in packets {
        writer.packet(0, packet, "").unwrap();
    }
    writer.finish().unwrap();
}

pub(crate) fn inspect(scratch: &TempDir, more: &[&str]) -> Output {
    let (capture, states) = (scratch.file("wire.pcapng"), scratch.file("states.xfrm"));
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("inspect").arg(capture);
    program.arg("--xfrm").arg(states).args(more).output()
}

pub(crate) fn stdout(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}
