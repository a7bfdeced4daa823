//! Cases, and the configuration of both sides.

mod post_quantum;

use post_quantum::{CLASSICAL, HYBRID, PostQuantumSections};
pub(crate) use post_quantum::{Loss, PostQuantum};

/// QEMU machines that the image supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    Pc,
    Q35,
    Microvm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Tunnel,
    Transport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// No IPsec.
    None,
    /// Manual keys in the files of both sides.
    Manual(Mode),
    /// IKEv2 with a pre-shared key. Either the firmware or the gateway initiates.
    Ike { mode: Mode, firmware_begins: bool },
}

/// ESP suite of IKEv2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// AES-128-GCM, the firmware's first proposal by default.
    AesGcm,
    ChaCha20Poly1305,
}

/// IP version, inner and outer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Peer of the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    Casemate,
    /// Linux kernel, with manual keys.
    Kernel,
}

/// One boot of the firmware.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) peer: With,
    pub(crate) machine: Machine,
    pub(crate) family: Family,
    pub(crate) keys: Keys,
    /// Suite that the firmware proposes in IKEv2.
    pub(crate) suite: Suite,
    /// Whether both sides negotiate header compression.
    pub(crate) rohc: bool,
    pub(crate) post_quantum: Option<PostQuantum>,
    pub(crate) loss: Option<Loss>,
    /// Whether to measure requests per second.
    pub(crate) measures: bool,
}

/// An SA with manual keys.
#[derive(Clone, Copy)]
struct ManualSa {
    spi: &'static str,
    /// Value of all bytes of the cipher's key and of the MAC's key, in this order.
    key_byte: u8,
}

/// The two manual SAs, by the destination of their packets.
const TO_FIRMWARE: ManualSa = ManualSa { spi: "0x00001001", key_byte: 0x5A };
const TO_US: ManualSa = ManualSa { spi: "0x00001002", key_byte: 0xC3 };

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    let case = |machine, keys, measures| {
        let (peer, family) = (With::Casemate, Family::V4);
        let (suite, rohc, post_quantum, loss) = (Suite::AesGcm, false, None, None);
        Case { peer, machine, family, keys, suite, rohc, post_quantum, loss, measures }
    };
    let mut cases = vec![case(Machine::Pc, Keys::None, true)];
    for mode in [Mode::Tunnel, Mode::Transport] {
        cases.push(case(Machine::Pc, Keys::Manual(mode), false));
        for firmware_begins in [true, false] {
            let measures = mode == Mode::Tunnel && firmware_begins;
            cases.push(case(Machine::Pc, Keys::Ike { mode, firmware_begins }, measures));
        }
    }
    let keys = Keys::Ike { mode: Mode::Tunnel, firmware_begins: true };
    cases.push(Case { suite: Suite::ChaCha20Poly1305, ..case(Machine::Pc, keys, true) });
    for family in [Family::V4, Family::V6] {
        cases.push(Case { family, rohc: true, ..case(Machine::Pc, keys, false) });
    }
    post_quantum::add(&mut cases, case);
    for machine in [Machine::Q35, Machine::Microvm] {
        for (mode, firmware_begins) in [(Mode::Tunnel, true), (Mode::Transport, false)] {
            cases.push(case(machine, Keys::Ike { mode, firmware_begins }, false));
        }
    }
    let keys = Keys::Ike { mode: Mode::Transport, firmware_begins: true };
    cases.push(Case { family: Family::V6, ..case(Machine::Pc, keys, false) });
    for mode in [Mode::Tunnel, Mode::Transport] {
        for family in [Family::V4, Family::V6] {
            let case = case(Machine::Pc, Keys::Manual(mode), false);
            cases.push(Case { peer: With::Kernel, family, ..case });
        }
    }
    cases
}

impl Family {
    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// Our address on the link.
    pub(crate) const fn ours(self) -> &'static str {
        match self {
            Self::V4 => "10.9.0.1",
            Self::V6 => "fd09::1",
        }
    }

    /// Address of the firmware.
    pub(crate) const fn firmware(self) -> &'static str {
        match self {
            Self::V4 => "10.9.0.2",
            Self::V6 => "fd09::2",
        }
    }

    /// Length of the network prefix.
    pub(crate) const fn prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

impl Machine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pc => "pc",
            Self::Q35 => "q35",
            Self::Microvm => "microvm",
        }
    }
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Transport => "transport",
        }
    }
}

impl Suite {
    /// Firmware parameter for the suite; empty for the default.
    const fn word(self) -> &'static str {
        match self {
            Self::AesGcm => "",
            Self::ChaCha20Poly1305 => " esp=chacha20poly1305",
        }
    }

    /// Name of the suite on the firmware's console.
    const fn said(self) -> &'static str {
        match self {
            Self::AesGcm => "ENCR_AES_GCM_16-128",
            Self::ChaCha20Poly1305 => "ENCR_CHACHA20_POLY1305",
        }
    }
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let (machine, family) = (self.machine.name(), self.family.name());
        let machine = if self.peer == With::Kernel { format!("kernel/{machine}") } else { machine.into() };
        match self.keys {
            Keys::None => format!("{machine}/{family}/plain"),
            Keys::Manual(mode) => format!("{machine}/{family}/manual/{}", mode.name()),
            Keys::Ike { mode, firmware_begins } => {
                let role = if firmware_begins { "initiate" } else { "respond" };
                let suite = if self.suite == Suite::AesGcm { "" } else { "/chacha20poly1305" };
                let rohc = if self.rohc { "/rohc" } else { "" };
                let post_quantum = match self.post_quantum {
                    None => "",
                    Some(PostQuantum::Required) => "/post-quantum",
                    Some(PostQuantum::ClassicalGateway) => "/post-quantum-or-not",
                };
                let loss = self.loss.map(Loss::name).unwrap_or_default();
                format!("{machine}/{family}/ike/{}/{role}{suite}{rohc}{post_quantum}{loss}", mode.name())
            }
        }
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.keys != Keys::None
    }

    pub(crate) const fn uses_ike(&self) -> bool {
        matches!(self.keys, Keys::Ike { .. })
    }

    /// Message of the firmware about its Child SA; none without IKEv2.
    pub(crate) fn suite_said(&self) -> Option<String> {
        self.uses_ike().then(|| format!("ike: Child SA with {} ", self.suite.said()))
    }

    /// Description of the protection.
    pub(crate) const fn protection(&self) -> &'static str {
        match (self.keys, self.suite) {
            (Keys::None, _) => "plain",
            (Keys::Manual(_), _) => "AES-128-CBC",
            (_, Suite::AesGcm) => "AES-128-GCM",
            (_, Suite::ChaCha20Poly1305) => "ChaCha20-Poly1305",
        }
    }

    /// Whether the gateway has to initiate.
    pub(crate) const fn gateway_begins(&self) -> bool {
        matches!(self.keys, Keys::Ike { firmware_begins: false, .. })
    }

    /// Configuration of the firmware.
    pub(crate) fn firmware_file(&self) -> String {
        let (ours, firmware) = (self.family.ours(), self.family.firmware());
        let address = format!("address={firmware}/{}", self.family.prefix());
        match self.keys {
            Keys::None => format!("{address} keys=none\n"),
            Keys::Manual(mode) => {
                let sa = |way: &str, sa: ManualSa| {
                    format!("spi-{way}={} key-{way}={}\n", sa.spi, key(sa.key_byte, 48))
                };
                let sas = sa("in", TO_FIRMWARE) + &sa("out", TO_US);
                format!("{address} keys=manual peer={ours} mode={}\n{sas}", mode.name())
            }
            Keys::Ike { mode, firmware_begins } => {
                let role = if firmware_begins { "initiate" } else { "respond" };
                let rohc = if self.rohc { " rohc=yes" } else { "" };
                let post_quantum = self.post_quantum.map(PostQuantum::words).unwrap_or_default();
                format!(
                    "{address} keys=ike peer={ours} mode={} role={role}{}{rohc}\nid=firmware peer-id=gateway \
                     psk=a-secret-of-the-two\n{post_quantum}",
                    mode.name(),
                    self.suite.word()
                )
            }
        }
    }

    /// Proposal of the IKE SA in the status of the gateway; none without requirement.
    pub(crate) fn proposal(&self) -> Option<&'static str> {
        self.post_quantum.map(|post_quantum| match post_quantum {
            PostQuantum::Required => HYBRID,
            PostQuantum::ClassicalGateway => CLASSICAL,
        })
    }

    fn swanctl(&self, mode: Mode) -> String {
        let (ours, firmware) = (self.family.ours(), self.family.firmware());
        let rohc = if self.rohc { "rohc = yes" } else { "" };
        let PostQuantumSections { connection, child, secrets } =
            self.post_quantum.map(PostQuantum::sections).unwrap_or_default();
        format!(
            "connections {{\n  firmware {{\n    local_addrs = {ours}\n    remote_addrs = {firmware}\n{connection}    \
             local {{\n      auth = psk\n      id = gateway\n    }}\n    remote {{\n      auth = psk\n      \
             id = firmware\n    }}\n    children {{\n      all {{\n        mode = {}\n        {rohc}\n{child}      \
             }}\n    }}\n  }}\n}}\nsecrets {{\n  ike {{\n    secret = \"a-secret-of-the-two\"\n  }}\n{secrets}}}\n",
            mode.name()
        )
    }

    /// Manual keys as `ip xfrm` commands; empty without manual keys.
    pub(crate) fn xfrm_lines(&self) -> String {
        match self.keys {
            Keys::Manual(mode) => xfrm(self.family, mode),
            Keys::None | Keys::Ike { .. } => String::new(),
        }
    }

    /// Configuration of the gateway; none without protection.
    pub(crate) fn gateway_file(&self) -> Option<GatewayFile> {
        let (option, text) = match self.keys {
            Keys::None => return None,
            Keys::Manual(mode) => ("--xfrm", xfrm(self.family, mode)),
            Keys::Ike { mode, .. } => ("--config", self.swanctl(mode)),
        };
        Some(GatewayFile { option, text })
    }
}

/// Configuration file of the gateway.
pub(crate) struct GatewayFile {
    /// Option of `casemate run` that names the file.
    pub(crate) option: &'static str,
    pub(crate) text: String,
}

fn key(byte: u8, len: usize) -> String {
    format!("0x{}", format!("{byte:02x}").repeat(len))
}

fn xfrm(family: Family, mode: Mode) -> String {
    let (ours, firmware, mode) = (family.ours(), family.firmware(), mode.name());
    let mut text = String::new();
    for (from, to, sa) in [(ours, firmware, TO_FIRMWARE), (firmware, ours, TO_US)] {
        text.push_str(&format!(
            "xfrm state add src {from} dst {to} proto esp spi {} mode {mode} replay-window 256 \
             auth-trunc hmac(sha256) {} 128 enc cbc(aes) {}\n",
            sa.spi,
            key(sa.key_byte, 32),
            key(sa.key_byte, 16)
        ));
    }
    for (from, to, direction) in [(ours, firmware, "out"), (firmware, ours, "in")] {
        let ends = if mode == "tunnel" { format!(" src {from} dst {to}") } else { String::new() };
        text.push_str(&format!(
            "xfrm policy add src {from} dst {to} dir {direction} priority 100 tmpl{ends} proto esp mode {mode}\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_measured_protections_are_unique() {
        let mut names: Vec<String> = all().iter().map(Case::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(
            all().iter().filter(|case| case.measures).map(Case::protection).collect::<Vec<_>>(),
            ["plain", "AES-128-GCM", "ChaCha20-Poly1305"]
        );
    }

    #[test]
    fn both_sides_have_the_same_manual_keys() {
        let keys = Keys::Manual(Mode::Tunnel);
        let (peer, machine, family, suite) = (With::Casemate, Machine::Pc, Family::V4, Suite::AesGcm);
        let (rohc, post_quantum, loss, measures) = (false, None, None, false);
        let case = Case { peer, machine, family, keys, suite, rohc, post_quantum, loss, measures };
        let ours = case.gateway_file().unwrap().text;
        for byte in ["5a", "c3"] {
            assert!(case.firmware_file().contains(&byte.repeat(48)));
            assert!(
                ours.contains(&format!("0x{} ", byte.repeat(32)))
                    && ours.contains(&format!("0x{}\n", byte.repeat(16)))
            );
        }
    }
}
