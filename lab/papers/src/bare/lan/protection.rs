//! Protection of the packets between client and server, in the configuration syntax of each program.

use std::fmt;

/// Address of the client on the link.
pub(super) const CLIENT: &str = "10.9.0.1";

/// Protection of the packets. Each protection has a separate server address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// None.
    None,
    /// ESP in transport mode, AES-128-CBC with HMAC-SHA1-96: the paper's suite.
    Transport,
    /// ESP in tunnel mode with the paper's suite.
    Tunnel,
    /// ESP in tunnel mode, AES-128-GCM.
    Modern,
}

/// All protections.
pub(super) const ALL: [Protection; 4] =
    [Protection::None, Protection::Transport, Protection::Tunnel, Protection::Modern];

impl Protection {
    /// Index in [`ALL`].
    const fn index(self) -> usize {
        match self {
            Self::None => 0,
            Self::Transport => 1,
            Self::Tunnel => 2,
            Self::Modern => 3,
        }
    }

    /// Address of the server for this protection.
    pub(super) fn server(self) -> String {
        format!("10.9.0.{}", self.index() + 2)
    }

    pub(super) const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::None | Self::Transport => "transport",
            Self::Tunnel | Self::Modern => "tunnel",
        }
    }

    /// ESP proposal, as in `esp_proposals`.
    const fn esp(self) -> &'static str {
        match self {
            Self::None | Self::Transport | Self::Tunnel => "aes128-sha1",
            Self::Modern => "aes128gcm16",
        }
    }

    /// Algorithms with keys. The keys are public, because the traffic is worthless.
    fn xfrm_algorithms(self, spi: usize) -> String {
        let key = |len: usize| format!("0x{spi:08x}{}", "5a".repeat(len - 4));
        match self {
            Self::None | Self::Transport | Self::Tunnel => {
                format!("auth-trunc hmac(sha1) {} 96 enc cbc(aes) {}", key(20), key(16))
            }
            Self::Modern => format!("aead rfc4106(gcm(aes)) {} 128", key(20)),
        }
    }

    /// Lines for `ip xfrm` of the client or the server. Empty without protection.
    pub(super) fn xfrm(self, is_client: bool) -> String {
        let (server, mode, mut text) = (self.server(), self.mode(), String::new());
        if self.is_none() {
            return text;
        }
        for (from, to, is_to_server) in [(CLIENT, server.as_str(), true), (server.as_str(), CLIENT, false)] {
            let spi = 0x1000 + self.index() * 2 + usize::from(is_to_server);
            let direction = if is_to_server == is_client { "out" } else { "in" };
            let algorithms = self.xfrm_algorithms(spi);
            text.push_str(&format!(
                "xfrm state add src {from} dst {to} proto esp spi {spi} mode {mode} \
                 replay-window 64 {algorithms}\n\
                 xfrm policy add src {from} dst {to} dir {direction} \
                 tmpl src {from} dst {to} proto esp mode {mode}\n"
            ));
        }
        text
    }

    /// Connection of the client to the firmware, for `swanctl.conf`.
    pub(super) fn connection(self) -> String {
        let (server, mode, esp, place) = (self.server(), self.mode(), self.esp(), self.index());
        if self.is_none() {
            return String::new();
        }
        format!(
            "t{place} {{\n local_addrs = {CLIENT}\n remote_addrs = {server}\n \
             local {{\n auth = psk\n id = client\n }}\n \
             remote {{\n auth = psk\n id = firmware{place}\n }}\n \
             children {{\n c{place} {{\n mode = {mode}\n \
             esp_proposals = {esp}\n }}\n }}\n }}\n"
        )
    }

    /// Configuration of the firmware.
    pub(super) fn firmware(self) -> String {
        let (server, mode, esp, place) = (self.server(), self.mode(), self.esp(), self.index());
        if self.is_none() {
            return format!("address={server}/24 keys=none\n");
        }
        format!(
            "address={server}/24 keys=ike peer={CLIENT} mode={mode} role=initiate esp={esp}\n\
             id=firmware{place} peer-id=client psk={SECRET}\n"
        )
    }
}

const SECRET: &str = "protects-nothing";

/// `swanctl.conf` of the client for all firmware instances.
pub(super) fn swanctl() -> String {
    let connections: String = ALL.iter().map(|protection| protection.connection()).collect();
    format!("connections {{\n{connections}}}\nsecrets {{\n ike {{\n secret = \"{SECRET}\"\n }}\n}}\n")
}

/// Lines for `ip xfrm` for all protections.
pub(super) fn xfrm(is_client: bool) -> String {
    ALL.iter().map(|protection| protection.xfrm(is_client)).collect()
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no IPsec",
            Self::Transport => "transport, CBC",
            Self::Tunnel => "tunnel, CBC",
            Self::Modern => "tunnel, GCM",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let of = |is_client: bool, word: &str| -> Vec<String> {
            xfrm(is_client).lines().filter(|line| line.contains(word)).map(Into::into).collect()
        };
        assert_eq!(of(true, " state "), of(false, " state "));
        assert_eq!(of(true, " state ").len(), 6);
        assert!(of(true, " policy ").contains(&of(false, " policy ")[0].replace(" dir in ", " dir out ")));
    }

    #[test]
    fn client_and_firmware_configurations_match() {
        for protection in ALL.into_iter().filter(|protection| !protection.is_none()) {
            let (connection, firmware) = (protection.connection(), protection.firmware());
            assert!(connection.contains(&format!("esp_proposals = {}\n", protection.esp())));
            assert!(firmware.contains(&format!("esp={}\n", protection.esp())));
            let id = format!("firmware{}", protection.index());
            assert!(connection.contains(&id) && firmware.contains(&format!("id={id} ")));
        }
        assert!(swanctl().contains(SECRET));
    }
}
