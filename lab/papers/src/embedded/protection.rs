//! Protection of the packets between host and device, as files for `ip xfrm` and for the lwIP program.

use std::fmt;
use std::fmt::Write;

/// Address of the host, which uses the kernel's stack.
pub(super) const HOST: &str = "192.0.2.1";
/// Address of the device.
pub(super) const DEVICE: &str = "192.0.2.2";

/// A row of the comparison. All protections are in transport mode, as in the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// Stack without IPsec.
    Plain,
    /// Stack with IPsec but without a policy.
    Unused,
    /// AH of the paper: HMAC-MD5-96 (RFC 2403).
    AhMd5,
    /// ESP of the paper: 3DES-CBC (RFC 2451) and HMAC-MD5-96.
    EspTripleDes,
    /// AH with HMAC-SHA2-256-128 (RFC 4868).
    AhSha2,
    /// ESP with AES-128-GCM (RFC 4106).
    Gcm,
    /// ESP with ChaCha20-Poly1305 (RFC 7634).
    ChaCha,
    /// ESP with AES-128-CBC (RFC 3602) and HMAC-SHA2-256-128.
    CbcSha2,
}

/// All rows, in the order of figures and tables.
pub(super) const SUITES: [Suite; 8] = [
    Suite::Plain,
    Suite::Unused,
    Suite::AhMd5,
    Suite::EspTripleDes,
    Suite::AhSha2,
    Suite::Gcm,
    Suite::ChaCha,
    Suite::CbcSha2,
];

/// Algorithms of an SA in two syntaxes.
struct Algorithms {
    protocol: &'static str,
    /// Name in the configuration of adapters/lwip.
    lwip: &'static str,
    /// Words of `ip xfrm state` before and after a key, and the length of the key in bytes.
    cipher: Option<([&'static str; 2], usize)>,
    mac: Option<([&'static str; 2], usize)>,
}

const MD5: ([&str; 2], usize) = (["auth md5", ""], 16);
const SHA2: ([&str; 2], usize) = (["auth-trunc 'hmac(sha256)'", " 128"], 32);

impl Suite {
    const fn algorithms(self) -> Option<Algorithms> {
        let (protocol, lwip, cipher, mac) = match self {
            Self::Plain | Self::Unused => return None,
            Self::AhMd5 => ("ah", "md5", None, Some(MD5)),
            Self::EspTripleDes => ("esp", "3des-md5", Some((["enc des3_ede", ""], 24)), Some(MD5)),
            Self::AhSha2 => ("ah", "sha256", None, Some(SHA2)),
            Self::Gcm => ("esp", "aes128gcm16", Some((["aead 'rfc4106(gcm(aes))'", " 128"], 20)), None),
            Self::ChaCha => {
                let words = ["aead 'rfc7539esp(chacha20,poly1305)'", " 128"];
                ("esp", "chacha20poly1305", Some((words, 36)), None)
            }
            Self::CbcSha2 => ("esp", "aes128-sha256", Some((["enc 'cbc(aes)'", ""], 16)), Some(SHA2)),
        };
        Some(Algorithms { protocol, lwip, cipher, mac })
    }

    /// Whether packets are protected.
    pub(super) const fn protects(self) -> bool {
        self.algorithms().is_some()
    }

    /// Lines for `ip xfrm` of one side; empty without protection.
    pub(super) fn xfrm(self, side: Side) -> String {
        let Some(Algorithms { protocol, cipher, mac, .. }) = self.algorithms() else { return String::new() };
        let mut text = String::new();
        for SaDirection { src, dst, spi, from } in DIRECTIONS {
            let _ = write!(
                text,
                "ip xfrm state add src {src} dst {dst} proto {protocol} spi {spi} mode transport"
            );
            for ([before, after], len) in cipher.into_iter().chain(mac) {
                let _ = write!(text, " {before} {}{after}", key(spi, len));
            }
            let direction = if from == side { "out" } else { "in" };
            let _ = writeln!(
                text,
                "\nip xfrm policy add src {src}/32 dst {dst}/32 dir {direction} \
                 tmpl src {src} dst {dst} proto {protocol} mode transport"
            );
        }
        text
    }

    /// Configuration file of the lwIP program on the device.
    pub(super) fn lwip(self) -> String {
        let mut text = format!("address {DEVICE}/24\n");
        let Some(Algorithms { protocol, lwip, cipher, mac }) = self.algorithms() else {
            return text + "unmatched bypass\n";
        };
        text += "control-plane\n";
        for SaDirection { src, dst, spi, from } in DIRECTIONS {
            let direction = if from == Side::Device { "out" } else { "in" };
            let _ = write!(
                text,
                "sa {direction} {protocol} transport src {src} dst {dst} spi {spi} suite {lwip} window 64"
            );
            for (name, part) in [("encryption", cipher), ("integrity", mac)] {
                if let Some((_, len)) = part {
                    let _ = write!(text, " {name}-key {}", key(spi, len));
                }
            }
            let _ = writeln!(
                text,
                "\npolicy {direction} src {src} dst {dst} priority 10 protect {protocol} transport"
            );
        }
        text
    }
}

/// Side to which a file belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Device,
}

struct SaDirection {
    src: &'static str,
    dst: &'static str,
    spi: u32,
    from: Side,
}

const DIRECTIONS: [SaDirection; 2] = [
    SaDirection { src: HOST, dst: DEVICE, spi: 0x1001, from: Side::Host },
    SaDirection { src: DEVICE, dst: HOST, spi: 0x1002, from: Side::Device },
];

/// A public key, because the traffic is worthless.
fn key(spi: u32, len: usize) -> String {
    let bytes = (1..=len as u32).map(|place| format!("{:02x}", (spi + place * 7) & 0xff));
    format!("0x{}", bytes.collect::<String>())
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "no IPsec",
            Self::Unused => "compiled in, unused",
            Self::AhMd5 => "AH, MD5",
            Self::EspTripleDes => "ESP, 3DES and MD5",
            Self::AhSha2 => "AH, SHA-256",
            Self::Gcm => "ESP, AES-GCM",
            Self::ChaCha => "ESP, ChaCha20",
            Self::CbcSha2 => "ESP, AES-CBC and SHA-256",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_states_and_opposite_policies() {
        let [host, device] = [Side::Host, Side::Device].map(|side| Suite::CbcSha2.xfrm(side));
        let states = |text: &str| {
            text.lines().filter(|line| line.contains(" state ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(states(&host), states(&device));
        assert_eq!(states(&host).len(), 2);
        assert!(host.contains("src 192.0.2.1/32 dst 192.0.2.2/32 dir out"), "{host}");
        assert!(device.contains("src 192.0.2.1/32 dst 192.0.2.2/32 dir in"), "{device}");
        assert_eq!(Suite::Unused.xfrm(Side::Host), "");
    }

    #[test]
    fn lwip_and_host_have_the_same_keys() {
        for suite in SUITES.into_iter().filter(|suite| suite.protects()) {
            let (host, lwip) = (suite.xfrm(Side::Host), suite.lwip());
            let keys = |text: &str| {
                let words = text.split_whitespace().filter(|word| word.starts_with("0x") && word.len() > 10);
                words.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(keys(&host), keys(&lwip), "{suite}");
            assert!(!keys(&host).is_empty());
        }
        assert!(Suite::Unused.lwip().contains("unmatched bypass"));
    }
}
