//! What is measured: the handshakes, and the configuration of both sides as `swanctl.conf` has it.

/// How the two sides prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// A key that both have.
    Psk,
    /// Certificates with keys on P-256, both below one authority on P-256.
    Ecdsa,
}

/// One kind of handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) auth: Auth,
    /// The key exchange, as a proposal names it.
    pub(crate) kex: &'static str,
}

/// All of them.
pub(crate) const CASES: [Case; 4] = [
    Case { auth: Auth::Psk, kex: "x25519" },
    Case { auth: Auth::Psk, kex: "modp2048" },
    Case { auth: Auth::Ecdsa, kex: "x25519" },
    Case { auth: Auth::Ecdsa, kex: "modp2048" },
];

/// Addresses of the two sides on the link between them.
pub(crate) const INITIATOR: &str = "10.9.0.1";
pub(crate) const RESPONDER: &str = "10.9.0.2";
/// An address of the responder's network.
pub(crate) const BEHIND: &str = "10.99.2.1";

impl Case {
    /// Its name in tables.
    pub(crate) fn name(self) -> String {
        let auth = match self.auth {
            Auth::Psk => "psk",
            Auth::Ecdsa => "ecdsa",
        };
        format!("{auth} {}", self.kex)
    }

    /// `swanctl.conf` of the responder, which takes anybody.
    pub(crate) fn responder(self) -> String {
        self.conf((RESPONDER, "10.0.0.0/8"), ("responder", "%any"), ("10.99.2.0/24", "10.64.0.0/10"))
    }

    /// `swanctl.conf` of the initiator. Its traffic is another one with each handshake.
    pub(crate) fn initiator(self) -> String {
        self.conf((INITIATOR, RESPONDER), ("initiator", "responder.test"), ("10.64.0.0/10", "10.99.2.0/24"))
    }

    fn conf(self, addrs: (&str, &str), (own, peer): (&str, &str), (local, remote): (&str, &str)) -> String {
        let (auth, certs) = match self.auth {
            Auth::Psk => ("psk", String::new()),
            Auth::Ecdsa => ("pubkey", format!("certs = {own}.pem")),
        };
        format!(
            "connections {{\n t {{\n  version = 2\n  local_addrs = {}\n  remote_addrs = {}\n  mobike = no\n  \
             unique = never\n  proposals = aes128gcm16-prfsha256-{}\n  \
             local {{\n auth = {auth}\n id = {own}.test\n {certs}\n }}\n  remote {{\n auth = {auth}\n id = {peer}\n }}\n  \
             children {{\n c {{\n esp_proposals = aes128gcm16\n local_ts = {local}\n remote_ts = {remote}\n }}\n }}\n }}\n}}\n\
             secrets {{\n ike-t {{\n secret = \"a secret of the two\"\n }}\n}}\n",
            addrs.0, addrs.1, self.kex
        )
    }
}
