//! Wireshark's key tables, and decryption of captures with them: a check that is independent of both peers.

use casemate_interop::{Error, Result};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the `field` of each packet in the capture that matches `filter`, as tshark decrypts it with the
/// tables in `keys`.
pub(crate) fn decrypt(capture: &Path, keys: &Path, filter: &str, field: &str) -> Result<Vec<String>> {
    let mut command = Command::new("timeout");
    command.args(["60", "tshark", "-n", "-r"]).arg(capture);
    command.args([
        "-o",
        "esp.enable_encryption_decode:TRUE",
        "-o",
        "esp.enable_null_encryption_decode_heuristic:FALSE",
    ]);
    command.args(["-Y", filter, "-T", "fields", "-e", field]);
    // Without the tables and settings of the user.
    command.env("WIRESHARK_CONFIG_DIR", keys).stdin(Stdio::null());
    let output = command.output().map_err(Error::context("tshark"))?;
    if !output.status.success() {
        return Err(Error::new(format!("tshark: {}", String::from_utf8_lossy(&output.stderr).trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect())
}

/// Writes `ikev2_decryption_table` and `esp_sa` from the keys in charon's log. Supports only an IKE SA with
/// AES-128-CBC and HMAC-SHA2-256-128 and Child SAs with AES-128-GCM and an ICV of 16 bytes, the suites of
/// `Plan::new`.
pub(crate) fn from_log(log: &str, directory: &Path, spis: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let write = |name: &str, rows: String| {
        let file = directory.join(name);
        fs::write(&file, rows).map_err(Error::context(file.display()))
    };
    let keys = |name: &str| dumps(log, name);
    let mut rows = String::new();
    let ike = [keys("Sk_ei secret"), keys("Sk_er secret"), keys("Sk_ai secret"), keys("Sk_ar secret")];
    for (index, (initiator, responder)) in spis.iter().enumerate() {
        let key = |which: usize| ike.get(which).and_then(|keys| keys.get(index)).cloned().unwrap_or_default();
        rows.push_str(&format!(
            "{initiator},{responder},{},{},\"AES-CBC-128 [RFC3602]\",{},{},\"HMAC_SHA2_256_128 [RFC4868]\"\n",
            key(0),
            key(1),
            key(2),
            key(3)
        ));
    }
    write("ikev2_decryption_table", rows)?;
    write("esp_sa", esp_rows(log))
}

/// Returns the rows of `esp_sa`. For each Child SA, charon logs both keys, then the SPIs in the order of
/// installation: inbound, outbound. The direction of a key depends on the side that requested the Child SA;
/// here, that is always the initiator of the IKE SA.
fn esp_rows(log: &str) -> String {
    let initiated = log.contains("initiating IKE_SA");
    let (initiators, responders) =
        (dumps(log, "encryption initiator key"), dumps(log, "encryption responder key"));
    let (inbound, outbound) = if initiated { (responders, initiators) } else { (initiators, responders) };
    let spi_after = |what: &str| {
        let mut lines = log.lines();
        let mut spis = Vec::new();
        while lines.any(|line| line.ends_with(what)) {
            spis.extend(lines.next().and_then(|line| line.split_once("SPI 0x")?.1.get(..8)));
        }
        spis
    };
    let rows = spi_after("adding inbound ESP SA").into_iter().zip(inbound);
    let rows = rows.chain(spi_after("adding outbound ESP SA").into_iter().zip(outbound));
    rows.map(|(spi, key)| {
        format!("\"IPv4\",\"*\",\"*\",\"0x{spi}\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\"\n")
    })
    .collect()
}

/// Returns the bytes that charon dumps after every line with this name, as hexadecimal digits.
fn dumps(log: &str, name: &str) -> Vec<String> {
    let mut dumps = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.contains(&format!("] {name} =>")) {
            continue;
        }
        let mut digits = String::new();
        while let Some(row) = lines.next_if(|row| row.contains(": ")) {
            // Each line has the offset, sixteen bytes, and the same bytes as text.
            let bytes = row.split_once(": ").map_or("", |(_, bytes)| bytes);
            let bytes = bytes.get(..47).unwrap_or(bytes);
            digits.extend(bytes.split_whitespace().take(16).filter(|word| word.len() == 2));
        }
        dumps.push(digits.to_ascii_lowercase());
    }
    dumps
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
01[IKE] initiating IKE_SA t[1] to 10.9.2.2
16[IKE] Sk_ei secret => 16 bytes @ 0x7f5f3c000f10
16[IKE]    0: 75 1C 80 7A AA F2 E5 D6 74 3D CA AD 47 E8 65 0E  u..z....t=..G.e.
16[IKE] Sk_er secret => 16 bytes @ 0x7f5f3c000f20
16[IKE]    0: 36 A0 C6 4D 0F 7A 04 27 C3 19 88 46 AA 98 26 C0  6..M.z.'...F..&.
16[CHD] encryption initiator key => 20 bytes @ 0x7f5f3c003ab0
16[CHD]    0: F2 FF C3 58 EE B0 E8 37 17 9F 18 E5 DD C8 A0 AE  ...X...7........
16[CHD]   16: 1B 99 06 7A                                      ab c
16[CHD] encryption responder key => 20 bytes @ 0x7f5f3c003430
16[CHD]    0: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
16[CHD]   16: 01 02 03 04                                      ....
16[CHD] adding inbound ESP SA
16[CHD]   SPI 0x1deae3c2, src 10.9.2.2 dst 10.9.1.2
16[CHD] adding outbound ESP SA
16[CHD]   SPI 0x48e12f84, src 10.9.1.2 dst 10.9.2.2
";

    #[test]
    fn dumps_exclude_the_text_column() {
        assert_eq!(dumps(LOG, "Sk_ei secret"), ["751c807aaaf2e5d6743dcaad47e8650e"]);
        assert_eq!(dumps(LOG, "encryption initiator key"), ["f2ffc358eeb0e837179f18e5ddc8a0ae1b99067a"]);
    }

    #[test]
    fn outbound_sa_of_the_initiator_has_the_initiator_key() {
        let rows = esp_rows(LOG);
        let row = rows.lines().find(|row| row.contains("0x48e12f84")).unwrap();
        assert!(row.contains("0xf2ffc358eeb0e837179f18e5ddc8a0ae1b99067a"));
        assert_eq!(rows.lines().count(), 2);
    }
}
