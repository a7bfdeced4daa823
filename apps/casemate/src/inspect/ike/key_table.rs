//! Keys of IKE SAs, from Wireshark's file `ikev2_decryption_table`.
//!
//! Each line is one SA: initiator SPI, responder SPI, SK_ei, SK_er, encryption, SK_ai, SK_ar, integrity;
//! separated by commas, keys in hexadecimal, names in quotes. SK_ei and SK_er end with the salt or nonce
//! if the algorithm has one. `#` begins a comment. A malformed row is reported and skipped. An SA with
//! additional key exchanges before IKE_AUTH (RFC 9370) has a row for its keys after each of them.

use super::message_key::{MessageKey, RowSuite};
use super::wireshark;
use crate::xfrm::{LineProblem, LoadError, problem_at};
use casemate_crypto::SecretBytes;
use casemate_ike::IkeSpis;
use casemate_wire::ike::IkeSpi;
use casemate_wire::invariant::OrBroken;
use std::collections::BTreeMap;
use std::path::Path;
use zeroize::Zeroizing;

/// Number of columns in a row.
const COLUMNS: usize = 8;

/// Limits for a column in a message: no algorithm name is longer, and none contains a longer number.
const LONGEST_NAME: usize = 48;
const LONGEST_NUMBER: usize = 8;

/// The keys of one IKE SA, from one row.
pub struct SaKeys {
    /// Keys of messages from the original initiator of the SA.
    pub initiator: MessageKey,
    /// Keys of messages from the original responder of the SA.
    pub responder: MessageKey,
}

impl SaKeys {
    /// Whether the ICV distinguishes these keys from others.
    const fn are_checked(&self) -> bool {
        self.initiator.is_checked() && self.responder.is_checked()
    }
}

/// All keys of a file.
#[derive(Default)]
pub struct KeyTable {
    rows: BTreeMap<IkeSpis, Vec<SaKeys>>,
    /// The skipped rows, with the reasons.
    problems: Vec<LineProblem>,
}

impl KeyTable {
    /// Reads the file at `path`. It is an error if the file has rows and none of them is valid.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let expected = "--ike-keys FILE in the format of Wireshark's ikev2_decryption_table";
        let text = std::fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error, expected))?;
        let table = Self::parse(&Zeroizing::new(text));
        if table.rows.is_empty() && !table.problems.is_empty() {
            return Err(LoadError::Invalid(path.to_owned(), table.problems));
        }
        Ok(table)
    }

    /// Parses the rows in `bytes`.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if let Err(text) = table.add(line) {
                table.problems.push(LineProblem::new(number, text));
            }
        }
        table
    }

    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(Row { spis, keys }) = row(line)? else { return Ok(()) };
        let of_sa = self.rows.entry(spis).or_default();
        let are_distinguished = keys.are_checked() && of_sa.iter().all(SaKeys::are_checked);
        if !of_sa.is_empty() && !are_distinguished {
            return Err("duplicate SPIs: the keys of an earlier line are used, because an ICV that is not \
                        checked does not show which of the keys are right"
                .into());
        }
        of_sa.push(keys);
        Ok(())
    }

    /// The keys of the SA with these SPIs, in the order of their lines; empty if there are none.
    pub fn get(&self, spis: &IkeSpis) -> &[SaKeys] {
        self.rows.get(spis).map_or(&[], Vec::as_slice)
    }

    /// The skipped rows, in the order of the lines. No text contains a key.
    pub fn problems(&self) -> &[LineProblem] {
        &self.problems
    }

    /// The skipped rows as `file:line: text`, for the file at `path`.
    pub fn warnings_at(&self, path: &Path) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| format!("{}; the row is skipped", problem_at(path, problem)))
    }
}

struct Row {
    spis: IkeSpis,
    keys: SaKeys,
}

/// Parses a line; `None` if it is empty or a comment.
fn row(line: &[u8]) -> Result<Option<Row>, String> {
    let line = str::from_utf8(line).map_err(|_| "the line is not text: UTF-8 was expected")?.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let columns = columns(line)?;
    let [spi_i, spi_r, ei, er, encryption, ai, ar, integrity] = <[&str; COLUMNS]>::try_from(columns)
        .map_err(|columns| {
            format!(
                "{} columns: {COLUMNS} were expected, both SPIs, SK_ei, SK_er, encryption, SK_ai, SK_ar, \
                 integrity",
                columns.len()
            )
        })?;
    let spis = IkeSpis { initiator: spi("the initiator", spi_i)?, responder: spi("the responder", spi_r)? };
    let suite = suite(encryption, integrity)?;
    let (encr_len, integ_len) = (suite.encr_key_len(), suite.integ_key_len());
    // The key of an unchecked ICV is ignored.
    let integ = |name, text| integ_len.map_or(Ok(SecretBytes::new(&[])), |len| secret(name, text, len));
    let key = |encr: SecretBytes, integ: SecretBytes| {
        MessageKey::new(suite, &encr, &integ).map_err(|error| error.to_string())
    };
    let initiator = key(secret("SK_ei", ei, encr_len)?, integ("SK_ai", ai)?)?;
    let responder = key(secret("SK_er", er, encr_len)?, integ("SK_ar", ar)?)?;
    Ok(Some(Row { spis, keys: SaKeys { initiator, responder } }))
}

/// Splits a line at its commas and removes quotes around columns.
fn columns(line: &str) -> Result<Vec<&str>, String> {
    let (mut columns, mut rest) = (Vec::new(), line);
    loop {
        let column = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (column, after) =
                    quoted.split_once('"').ok_or("a quoted name does not end: a second \" was expected")?;
                rest = after.trim_start();
                column
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (column, after) =
                    rest.split_at_checked(end).or_broken("a comma is a boundary", (rest, ""));
                rest = after;
                column.trim()
            }
        };
        columns.push(column);
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None if rest.is_empty() => return Ok(columns),
            None => return Err("a comma was expected after a quoted name".into()),
        }
    }
}

fn spi(whose: &str, text: &str) -> Result<IkeSpi, String> {
    let bytes = hex(text).and_then(|bytes| <[u8; 8]>::try_from(&bytes[..]).ok());
    let bytes = bytes.ok_or_else(|| format!("the SPI of {whose}: 16 hexadecimal digits were expected"))?;
    Ok(IkeSpi(u64::from_be_bytes(bytes)))
}

fn suite(encryption: &str, integrity: &str) -> Result<RowSuite, String> {
    let (encr_shown, integ_shown) = (shown(encryption), shown(integrity));
    let encr = wireshark::encryption(encryption).ok_or_else(|| {
        format!("encryption {encr_shown}: a name of Wireshark was expected, such as `AES-CBC-128 [RFC3602]`")
    })?;
    let integ = wireshark::integrity(integrity).ok_or_else(|| {
        format!("integrity {integ_shown}: a name of Wireshark was expected, such as `HMAC_SHA1_96 [RFC2404]`")
    })?;
    RowSuite::new(encr, integ).ok_or_else(|| {
        format!(
            "{encr_shown} with {integ_shown}: a combined mode (GCM, CCM, ChaCha20-Poly1305) has integrity \
             `NONE [RFC4306]`, every other cipher except NULL a separate algorithm"
        )
    })
}

/// The column for a message, unless it may be a key in the wrong place: longer than any name, or with a
/// long number.
fn shown(column: &str) -> String {
    let longest = column.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap_or(0);
    if column.len() > LONGEST_NAME || longest > LONGEST_NUMBER {
        return format!("of {} characters", column.len());
    }
    format!("`{column}`")
}

/// Decodes the key in the column `name`, which has `len` bytes.
fn secret(name: &str, text: &str, len: usize) -> Result<SecretBytes, String> {
    let bytes =
        hex(text).ok_or_else(|| format!("{name}: an even number of hexadecimal digits was expected"))?;
    if bytes.len() != len {
        return Err(format!("{name} has {} bytes: {len} were expected", bytes.len()));
    }
    Ok(SecretBytes::new(&bytes))
}

/// Decodes hexadecimal, with or without a leading `0x`.
fn hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| rest.is_empty()).map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spis(initiator: u64, responder: u64) -> IkeSpis {
        IkeSpis { initiator: IkeSpi(initiator), responder: IkeSpi(responder) }
    }

    const ROW: &str = "0102030405060708,1112131415161718,00112233445566778899aabbccddeeff,\
        ffeeddccbbaa99887766554433221100,\"AES-CBC-128 [RFC3602]\",0123456789012345678901234567890123456789,\
        9876543210987654321098765432109876543210,\"HMAC_SHA1_96 [RFC2404]\"";

    fn problems(text: &str) -> String {
        let table = KeyTable::parse(text.as_bytes());
        let problems = table.problems();
        assert!(!problems.is_empty(), "something is wrong");
        let lines: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.line, p.text)).collect();
        lines.join("\n")
    }

    #[test]
    fn rows_comments_and_empty_lines() {
        let table = KeyTable::parse(format!("# mine\n\n{ROW}\r\n").as_bytes());
        assert!(table.problems().is_empty());
        assert_eq!(table.get(&spis(0x0102_0304_0506_0708, 0x1112_1314_1516_1718)).len(), 1);
        assert!(table.get(&spis(0x1112_1314_1516_1718, 0x0102_0304_0506_0708)).is_empty());
    }

    #[test]
    fn rows_with_the_same_spis_need_a_checked_icv() {
        let count = |rows: &[&str]| {
            let table = KeyTable::parse(rows.join("\n").as_bytes());
            let keys = table.get(&spis(0x0102_0304_0506_0708, 0x1112_1314_1516_1718)).len();
            (keys, table.problems().len())
        };
        let unchecked = ROW.replace("HMAC_SHA1_96 [RFC2404]", "ANY 96-bits of Authentication [No Checking]");
        assert_eq!(count(&[ROW, ROW]), (2, 0));
        assert_eq!(count(&[ROW, &unchecked]), (1, 1));
        assert_eq!(count(&[&unchecked, ROW, ROW]), (1, 2));
    }

    #[test]
    fn messages_contain_no_keys() {
        let wrong = |from: &str, to: &str| problems(&format!("\n{}", ROW.replace(from, to)));
        for (from, to, expected) in [
            ("01020304", "0102", "2: the SPI of the initiator: 16 hexadecimal digits were expected"),
            ("1112131415161718", "x", "2: the SPI of the responder"),
            ("\"AES", "\"DES", "2: encryption `DES-CBC-128 [RFC3602]`: a name of Wireshark was expected"),
            ("SHA1", "SHA0", "2: integrity `HMAC_SHA0_96 [RFC2404]`"),
            ("HMAC_SHA1_96 [RFC2404]", "NONE", "2: `AES-CBC-128 [RFC3602]` with `NONE`: a combined mode"),
            ("00112233", "001122", "2: SK_ei has 15 bytes: 16 were expected"),
            (",9876", ",76", "2: SK_ar has 19 bytes: 20 were expected"),
            ("0011", "001", "2: SK_ei: an even number of hexadecimal digits was expected"),
            ("RFC3602]\"", "RFC3602]", "2: a comma was expected after a quoted name"),
            ("[RFC2404]\"", "", "2: a quoted name does not end"),
            ("AES-CBC", "0123456789012345678901234567890123456789", "2: encryption of 54 characters: a name"),
            (",\"HMAC_SHA1_96 [RFC2404]\"", "", "2: 7 columns: 8 were expected"),
        ] {
            let error = wrong(from, to);
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("445566") && !error.contains("0123456789"), "{error}");
        }
        assert_eq!(problems("a\nb").lines().count(), 2);
    }

    /// The kinds of rows in Wireshark's own table for its IKEv2 tests, with other SPIs and keys.
    #[test]
    fn rows_of_every_kind_and_an_unknown_one() {
        let key = |bytes: usize| "5a".repeat(bytes);
        let suites = [
            (0, "NULL [RFC2410]", 0, "NONE [RFC4306]"),
            (24, "3DES [RFC2451]", 20, "HMAC_SHA1_160 [RFC4595]"),
            (19, "AES-CCM-128 with 12 octet ICV [RFC5282]", 0, "NONE [RFC4306]"),
            (20, "AES-CTR-128 [RFC5930]", 0, "ANY 96-bits of Authentication [No Checking]"),
            (20, "AES-CTR-128 [RFC5930]", 16, "ANY 96-bits of Authentication [No Checking]"),
            (16, "ROT-13 [RFC0]", 20, "HMAC_SHA1_96 [RFC2404]"),
            (32, "AES-CBC-256 [RFC3602]", 32, "HMAC_SHA2_256_96 [draft-ietf-ipsec-ciph-sha-256-00]"),
            (0, "NULL [RFC2410]", 16, "HMAC_MD5_128 [RFC4595]"),
            (36, "AES-GCM-256 with 8 octet ICV [RFC5282]", 0, "NONE [RFC4306]"),
        ];
        let rows = (1u64..).zip(suites).map(|(spi, (encr_len, encr, integ_len, integ))| {
            let (encr_key, integ_key) = (key(encr_len), key(integ_len));
            format!(
                "{spi:016x},{spi:016x},{encr_key},{encr_key},\"{encr}\",{integ_key},{integ_key},\"{integ}\"\n"
            )
        });
        let table = KeyTable::parse(rows.collect::<String>().as_bytes());
        let lines: Vec<usize> = table.problems().iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [6], "{:?}", table.problems());
        let checked: Vec<Option<bool>> =
            (1..=9).map(|spi| table.get(&spis(spi, spi)).first().map(SaKeys::are_checked)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(checked, [no, yes, yes, no, no, None, yes, yes, yes]);
        let warning = table.warnings_at(Path::new("f")).next().unwrap();
        assert!(
            warning.starts_with("f:6: encryption `ROT-13 [RFC0]`: a name of Wireshark was expected"),
            "{warning}"
        );
    }
}
