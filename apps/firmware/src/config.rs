//! Configuration: `name=value` words on the command line, and in a file loaded with the image.
//!
//! Both are parsed as one text. A missing, unknown, duplicate or invalid word is an error that names the
//! word. Errors never contain values, because keys are among them. The words are listed in
//! docs/manual/firmware.md.

mod ike;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_sa::{Mode, Spi};
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
pub use ike::{IkeKeys, Ppk};
use zeroize::Zeroizing;

/// The configuration of the machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// Local address.
    pub address: IpAddr,
    /// Prefix length of the local network.
    pub prefix: u8,
    /// Default router.
    pub gateway: Option<IpAddr>,
    /// Protection of packets.
    pub protection: Protection,
    /// Fault to cause instead of normal operation.
    pub fault: Option<Fault>,
    /// Time in seconds after the start during which nearly the whole heap is allocated, to test the
    /// behaviour without free memory.
    pub holds_heap: Option<u8>,
}

/// A fault that the processor must catch. The machine causes it on request, to test the memory protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Write to the code.
    WriteCode,
    /// Write to the constants.
    WriteConstants,
    /// Execute data in the heap.
    RunHeap,
    /// Execute data on the stack.
    RunStack,
    /// Overflow the stack by recursion.
    FillStack,
}

/// Protection of packets.
#[derive(Debug, PartialEq, Eq)]
pub enum Protection {
    /// None: all packets pass in clear text.
    None,
    /// ESP, AH or both between this machine and one peer, with manual keys.
    Manual(ManualKeys),
    /// ESP between this machine and one peer, with keys negotiated by IKEv2.
    Ike(IkeKeys),
}

/// SAs with manual keys: one per direction and protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct ManualKeys {
    /// Address of the peer.
    pub peer: IpAddr,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Protocols with their SAs.
    pub protocols: Protocols,
}

/// ESP, AH, or ESP inside AH.
#[derive(Debug, PartialEq, Eq)]
pub enum Protocols {
    /// ESP alone.
    Esp(Pair<EspSa>),
    /// AH alone.
    Ah(Pair<AhSa>),
    /// ESP, with AH around it.
    Both(Pair<EspSa>, Pair<AhSa>),
}

/// A value for each direction.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair<T> {
    /// From the peer.
    pub inbound: T,
    /// To the peer.
    pub outbound: T,
}

/// An ESP SA: AES-128-CBC with HMAC-SHA-256-128.
#[derive(Debug, PartialEq, Eq)]
pub struct EspSa {
    /// SPI.
    pub spi: Spi,
    /// Encryption key, 16 bytes.
    pub encr: SecretBytes,
    /// Integrity key, 32 bytes.
    pub integ: SecretBytes,
}

/// An AH SA: HMAC-SHA-256-128.
#[derive(Debug, PartialEq, Eq)]
pub struct AhSa {
    /// SPI.
    pub spi: Spi,
    /// Integrity key, 32 bytes.
    pub integ: SecretBytes,
}

/// An invalid word of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    word: String,
    expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration, `{}`: {}", self.word, self.expected)
    }
}

impl core::error::Error for ConfigError {}

/// Prefix of words for the device discovery (src/image/net/mmio.rs).
const MACHINE: &str = "virtio_mmio.";
/// Lengths in bytes of the manual keys.
const ENCR: usize = 16;
const INTEG: usize = 32;

impl Config {
    /// Parses the whole configuration text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut words = Words::of(text)?;
        let (address, prefix) = words.network()?;
        let gateway = words.optional("gateway", address_of_version(address), SAME_VERSION)?;
        let protection = match words.text("keys").unwrap_or("none") {
            "none" => Protection::None,
            "manual" => Protection::Manual(words.manual(address)?),
            "ike" => Protection::Ike(words.ike(address)?),
            _ => return Err(wrong("keys", "none, manual or ike was expected")),
        };
        let fault = words.optional("fault", fault, "the name of a fault was expected")?;
        let holds_heap =
            words.optional("hold-heap", |text| text.parse().ok(), "seconds were expected, at most 255")?;
        words.must_be_empty()?;
        Ok(Self { address, prefix, gateway, protection, fault, holds_heap })
    }
}

const SAME_VERSION: &str = "an address of the same IP version as the local address was expected";

fn address_of_version(own: IpAddr) -> impl Fn(&str) -> Option<IpAddr> {
    move |text| text.parse().ok().filter(|addr: &IpAddr| addr.is_ipv4() == own.is_ipv4())
}

fn fault(text: &str) -> Option<Fault> {
    Some(match text {
        "write-code" => Fault::WriteCode,
        "write-constants" => Fault::WriteConstants,
        "run-heap" => Fault::RunHeap,
        "run-stack" => Fault::RunStack,
        "fill-stack" => Fault::FillStack,
        _ => return None,
    })
}

fn wrong(word: &str, expected: &'static str) -> ConfigError {
    ConfigError { word: word.into(), expected }
}

/// The words that have not been read yet.
struct Words<'t>(BTreeMap<&'t str, &'t str>);

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Result<Self, ConfigError> {
        let mut words = BTreeMap::new();
        for word in text.split_whitespace().filter(|word| !word.starts_with(MACHINE)) {
            // A word without a name may be a key, so the error does not repeat it.
            let (name, value) =
                word.split_once('=').ok_or_else(|| wrong("...", "name=value was expected"))?;
            if words.insert(name, value).is_some() {
                return Err(wrong(name, "the word occurs twice"));
            }
        }
        Ok(Self(words))
    }

    fn text(&mut self, name: &str) -> Option<&'t str> {
        self.0.remove(name)
    }

    fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        self.text(name).map(|text| read(text).ok_or_else(|| wrong(name, expected))).transpose()
    }

    fn needed<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
        expected: &'static str,
    ) -> Result<T, ConfigError> {
        self.optional(name, read, expected)?.ok_or_else(|| wrong(name, "the word is missing"))
    }

    fn network(&mut self) -> Result<(IpAddr, u8), ConfigError> {
        let read = |text: &str| {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix) = (IpAddr::from_str(address).ok()?, prefix.parse().ok()?);
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (prefix <= longest).then_some((address, prefix))
        };
        self.needed("address", read, "an address with a prefix length was expected, such as 192.0.2.2/24")
    }

    fn peer(&mut self, own: IpAddr) -> Result<IpAddr, ConfigError> {
        self.needed("peer", address_of_version(own), SAME_VERSION)
    }

    fn mode(&mut self) -> Result<Mode, ConfigError> {
        let read = |text: &str| match text {
            "tunnel" => Some(Mode::Tunnel),
            "transport" => Some(Mode::Transport),
            _ => None,
        };
        Ok(self.optional("mode", read, "tunnel or transport was expected")?.unwrap_or(Mode::Tunnel))
    }

    fn manual(&mut self, own: IpAddr) -> Result<ManualKeys, ConfigError> {
        let (peer, mode) = (self.peer(own)?, self.mode()?);
        let esp = self.pair(["spi-in", "spi-out"], |words| {
            Ok(Pair {
                inbound: words.esp_sa("spi-in", "key-in")?,
                outbound: words.esp_sa("spi-out", "key-out")?,
            })
        })?;
        let ah = self.pair(["ah-spi-in", "ah-spi-out"], |words| {
            Ok(Pair {
                inbound: words.ah_sa("ah-spi-in", "ah-key-in")?,
                outbound: words.ah_sa("ah-spi-out", "ah-key-out")?,
            })
        })?;
        let protocols = match (esp, ah) {
            (Some(esp), None) => Protocols::Esp(esp),
            (None, Some(ah)) => Protocols::Ah(ah),
            (Some(esp), Some(ah)) => Protocols::Both(esp, ah),
            (None, None) => return Err(wrong("spi-in", "the word is missing, and so is ah-spi-in")),
        };
        Ok(ManualKeys { peer, mode, protocols })
    }

    /// Reads the pair of SAs of a protocol if at least one of these words is present.
    fn pair<T>(
        &mut self,
        words: [&str; 2],
        read: impl FnOnce(&mut Self) -> Result<Pair<T>, ConfigError>,
    ) -> Result<Option<Pair<T>>, ConfigError> {
        let is_told = words.iter().any(|word| self.0.contains_key(word));
        is_told.then(|| read(self)).transpose()
    }

    fn spi(&mut self, name: &str) -> Result<Spi, ConfigError> {
        let read = |text: &str| {
            let number = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
            Spi::new(number).filter(|spi| !spi.is_reserved())
        };
        self.needed(name, read, "a number from 0x100 to 0xffffffff was expected")
    }

    fn esp_sa(&mut self, spi: &str, key: &str) -> Result<EspSa, ConfigError> {
        let spi = self.spi(spi)?;
        let read = |text: &str| {
            let bytes = hexadecimal(text).filter(|bytes| bytes.len() == ENCR.saturating_add(INTEG))?;
            let (encr, integ) = bytes.expose().split_at_checked(ENCR)?;
            Some((SecretBytes::new(encr), SecretBytes::new(integ)))
        };
        let (encr, integ) = self.needed(key, read, "48 bytes in hexadecimal were expected")?;
        Ok(EspSa { spi, encr, integ })
    }

    fn ah_sa(&mut self, spi: &str, key: &str) -> Result<AhSa, ConfigError> {
        let spi = self.spi(spi)?;
        let read = |text: &str| hexadecimal(text).filter(|bytes| bytes.len() == INTEG);
        let integ = self.needed(key, read, "32 bytes in hexadecimal were expected")?;
        Ok(AhSa { spi, integ })
    }

    fn must_be_empty(&self) -> Result<(), ConfigError> {
        self.0
            .keys()
            .next()
            .map_or(Ok(()), |name| Err(wrong(name, "the word is unknown, or does not apply to these keys")))
    }
}

fn hexadecimal(text: &str) -> Option<SecretBytes> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes: Zeroizing<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()?
        .into();
    Some(SecretBytes::new(&bytes))
}

#[cfg(test)]
mod tests;
