//! The configurations of both hosts: a fresh pre-shared key, and one connection for each IP version.

use super::host::Side;
use crate::failure::Failure;
use casemate_crypto::Rng;
use casemate_linux::rng::SystemRng;

/// Length of the pre-shared key in bytes, as strong as the strongest suite.
const SECRET_LEN: usize = 32;

/// Parameters that both hosts share.
pub(super) struct Shared {
    secret: String,
}

/// Names of the connections.
pub(super) const CONNECTIONS: [&str; 2] = ["over-ipv4", "over-ipv6"];

impl Shared {
    /// Generates the pre-shared key.
    pub(super) fn fresh() -> Result<Self, Failure> {
        let mut rng = SystemRng::new().map_err(Failure::failed)?;
        let mut secret = [0; SECRET_LEN];
        rng.secret(&mut secret);
        Ok(Self { secret: secret.iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    /// The swanctl.conf of one host. Both hosts have traps, so that protected traffic never leaves in
    /// clear; the right host also initiates at start.
    pub(super) fn conf_for(&self, host: Side) -> String {
        let far = host.other();
        let start = match host {
            Side::Left => "trap",
            Side::Right => "trap|start",
        };
        let connection = |name: &str, v4: bool| {
            format!(
                "  {name} {{\n    local_addrs = {}\n    remote_addrs = {}\n    \
                 local {{\n      auth = psk\n      id = {host}.demo\n    }}\n    \
                 remote {{\n      auth = psk\n      id = {far}.demo\n    }}\n    \
                 children {{\n      {name} {{\n        local_ts = {}\n        remote_ts = {}\n        \
                 esp_proposals = aes256gcm16-x25519-esn\n        start_action = {start}\n      }}\n    }}\n  }}\n",
                host.outer(v4),
                far.outer(v4),
                host.network(v4),
                far.network(v4),
            )
        };
        let [v4, v6] = CONNECTIONS;
        format!(
            "# the {host} host; the key is for one run of `casemate demo`\nconnections {{\n{}{}}}\n\
             secrets {{\n  ike {{\n    secret = 0x{}\n  }}\n}}\n",
            connection(v4, true),
            connection(v6, false),
            self.secret
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::{Config, SystemEnvironment};
    use std::path::Path;

    #[test]
    fn both_files_are_valid_and_keys_are_unique() {
        let (one, other) = (Shared::fresh().unwrap(), Shared::fresh().unwrap());
        for side in [Side::Left, Side::Right] {
            let text = one.conf_for(side);
            let config =
                Config::parse(Path::new("/nowhere/a.conf"), text.as_bytes(), &SystemEnvironment).unwrap();
            assert_eq!((config.connections.len(), config.shared_keys.len()), (2, 1));
            assert!(config.warnings.is_empty());
        }
        assert_ne!(one.secret, other.secret);
    }
}
