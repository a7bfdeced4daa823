//! The keys of all SAs in files, for decrypting captures (`--save-keys`): `ikev2_decryption_table` and
//! `esp_sa` with rows in the format of Wireshark's preferences, and `states.xfrm`, the SAs as lines of
//! ip-xfrm(8) for `casemate inspect`.

use super::controller::RunController;
use crate::inspect::ike::wireshark;
use crate::log::level::Level;
use crate::log::message::{Message, Subject};
use crate::log::rate_limit::LogCategory;
use crate::xfrm::state_line_with_keys;
use casemate_crypto::{AeadAlg, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
use casemate_ike::{ChildUp, Event, IkeKeys};
use casemate_linux::private_file::{self, OthersAccess};
use casemate_sa::{SaParams, Transform};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The files, open for appending.
pub(super) struct KeyLog {
    ike: File,
    esp: File,
    states: File,
    directory: PathBuf,
}

impl KeyLog {
    /// Opens the files in `directory` for appending. A new directory and the files are accessible to this
    /// user only; files that others can read, symbolic links, and files of other users are refused.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let at = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| {
            at(directory, io::Error::new(error.kind(), format!("{error}: a directory was expected")))
        })?;
        private_file::check_parent(directory).map_err(|error| at(directory, error))?;
        let open = |name: &str| {
            let path = directory.join(name);
            let opened =
                private_file::open(&path, File::options().append(true).create(true), OthersAccess::None);
            opened.map_err(|error| at(&path, error))
        };
        Ok(Self {
            ike: open("ikev2_decryption_table")?,
            esp: open("esp_sa")?,
            states: open("states.xfrm")?,
            directory: directory.into(),
        })
    }

    /// The directory of the files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds the keys of an IKE SA.
    pub(super) fn add_ike(&mut self, keys: &IkeKeys) -> io::Result<()> {
        let wireshark::SuiteNames { encryption, integrity } = wireshark::names(keys.suite.sk);
        let row = format!(
            "{},{},{},{},\"{encryption}\",{},{},\"{integrity}\"\n",
            keys.spis.initiator,
            keys.spis.responder,
            hex(&keys.encr.initiator),
            hex(&keys.encr.responder),
            hex(&keys.integ.initiator),
            hex(&keys.integ.responder),
        );
        self.ike.write_all(row.as_bytes())
    }

    /// Adds both SAs of a Child SA. AH has no row for Wireshark, because it encrypts nothing, and an SA with
    /// an implicit IV has none, because Wireshark does not support it.
    pub(super) fn add_child(&mut self, up: &ChildUp) -> io::Result<()> {
        for sa in [&up.inbound, &up.outbound] {
            self.states.write_all(state_line_with_keys(sa).as_bytes())?;
            self.states.write_all(b"\n")?;
            if let Some(row) = esp_row(sa) {
                self.esp.write_all(row.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn esp_row(sa: &SaParams) -> Option<String> {
    let Transform::Esp { suite, encr, integ } = &sa.transform else { return None };
    let version = if sa.src.is_ipv4() { "IPv4" } else { "IPv6" };
    let EspNames { cipher, mac } = esp_names(*suite)?;
    Some(format!(
        "\"{version}\",\"{}\",\"{}\",\"{}\",\"{cipher}\",\"0x{}\",\"{mac}\",\"0x{}\"\n",
        sa.src,
        sa.dst,
        sa.spi,
        hex(encr),
        hex(integ),
    ))
}

/// Names of algorithms in Wireshark's `esp_sa`.
struct EspNames {
    cipher: &'static str,
    mac: String,
}

/// The names of the algorithms; `None` if Wireshark has none.
fn esp_names(suite: EspSuite) -> Option<EspNames> {
    Some(match suite {
        EspSuite::ImplicitIv(_) => return None,
        EspSuite::Combined(alg) => {
            let name = match alg {
                AeadAlg::AesGcm { icv: 8, .. } => "AES-GCM with 8 octet ICV [RFC4106]",
                AeadAlg::AesGcm { icv: 12, .. } => "AES-GCM with 12 octet ICV [RFC4106]",
                AeadAlg::AesGcm { .. } => "AES-GCM with 16 octet ICV [RFC4106]",
                AeadAlg::AesCcm { icv: 8, .. } => "AES-CCM with 8 octet ICV [RFC4309]",
                AeadAlg::AesCcm { icv: 12, .. } => "AES-CCM with 12 octet ICV [RFC4309]",
                AeadAlg::AesCcm { .. } => "AES-CCM with 16 octet ICV [RFC4309]",
                AeadAlg::ChaCha20Poly1305 => "ChaCha20 with Poly1305 [RFC7634]",
            };
            EspNames { cipher: name, mac: "NULL".into() }
        }
        EspSuite::Separate(cipher, mac) => {
            let name = match cipher {
                CipherAlg::Null => "NULL",
                CipherAlg::AesCbc(_) => "AES-CBC [RFC3602]",
                CipherAlg::AesCtr(_) => "AES-CTR [RFC3686]",
                CipherAlg::CamelliaCbc(_) => return None,
                CipherAlg::DesCbc => "DES-CBC [RFC2405]",
                CipherAlg::TripleDesCbc => "TripleDES-CBC [RFC2451]",
            };
            EspNames { cipher: name, mac: mac_name(mac) }
        }
    })
}

fn mac_name(mac: MacAlg) -> String {
    let is_standard = mac == MacAlg::standard(mac.kind());
    let name = match mac.kind() {
        _ if !is_standard => return unnamed(mac),
        MacKind::HmacMd5 => "HMAC-MD5-96 [RFC2403]",
        MacKind::HmacSha1 => "HMAC-SHA-1-96 [RFC2404]",
        MacKind::HmacSha256 => "HMAC-SHA-256-128 [RFC4868]",
        MacKind::HmacSha384 => "HMAC-SHA-384-192 [RFC4868]",
        MacKind::HmacSha512 => "HMAC-SHA-512-256 [RFC4868]",
        MacKind::AesXcbc | MacKind::AesCmac | MacKind::AesGmac(_) => return unnamed(mac),
    };
    name.into()
}

/// Wireshark has no name for the MAC; it skips the tag.
fn unnamed(mac: MacAlg) -> String {
    format!("ANY {} bit authentication [no checking]", mac.tag_len().saturating_mul(8))
}

fn hex(bytes: &SecretBytes) -> String {
    bytes.expose().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RunController {
    /// Saves the keys of a new SA.
    pub(super) fn log_keys(&mut self, event: &Event) {
        let Some(key_log) = &mut self.key_log else { return };
        let saved = match event {
            Event::Keys(keys) => key_log.add_ike(keys),
            Event::ChildUp(up) => key_log.add_child(up),
            _ => Ok(()),
        };
        if let Err(error) = saved {
            let text = format!("{}: {error}", key_log.directory().display());
            self.log.record(Message::new(Level::Error, LogCategory::SavedKeys, Subject::default(), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const FILE: &str = "esp_sa";

    fn refusal(directory: &Path) -> String {
        KeyLog::open(directory).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn key_files_are_private_to_this_user() {
        let scratch = TempDir::new("tables").unwrap();
        let directory = scratch.file("new/keys");
        KeyLog::open(&directory).unwrap();
        KeyLog::open(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(FILE))), (0o700, 0o600));
        // A file that others can read existed before.
        fs::set_permissions(directory.join(FILE), Permissions::from_mode(0o644)).unwrap();
        assert!(refusal(&directory).contains("esp_sa: its mode is 0644"), "{}", refusal(&directory));
        fs::remove_file(directory.join(FILE)).unwrap();
        symlink(scratch.file("elsewhere"), directory.join(FILE)).unwrap();
        assert!(refusal(&directory).contains("symbolic link"), "{}", refusal(&directory));
        assert!(!scratch.file("elsewhere").exists());
        fs::remove_file(directory.join(FILE)).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(&directory).contains("other users can replace"), "{}", refusal(&directory));
    }
}
