//! One Child SA between the host and the device that IKEv2 negotiates, in transport mode.

use super::protection::{DEVICE, HOST, Side};

/// Names of the connection and of its child.
pub(super) const CONNECTION: &str = "device";
pub(super) const CHILD: &str = "traffic";
/// Key exchange, unless another one is asked for.
pub(super) const METHOD: &str = "x25519";

/// `swanctl.conf` of one side. `child` is more for the child, such as `rekey_time = 1s`; `start` is its `start_action`, or nothing.
pub(super) fn configuration(side: Side, child: &str, start: &str) -> String {
    with_method(side, METHOD, child, start)
}

/// The same with a key exchange method of its own.
pub(super) fn with_method(side: Side, method: &str, child: &str, start: &str) -> String {
    let (local, remote) = if side == Side::Host { (HOST, DEVICE) } else { (DEVICE, HOST) };
    let start = if start.is_empty() { "none" } else { start };
    format!(
        "connections {{\n {CONNECTION} {{\n version = 2\n local_addrs = {local}\n remote_addrs = {remote}\n \
         proposals = aes128-sha256-{method}\n \
         local {{\n auth = psk\n id = {local}\n }}\n remote {{\n auth = psk\n id = {remote}\n }}\n \
         children {{\n {CHILD} {{\n mode = transport\n local_ts = {local}/32\n remote_ts = {remote}/32\n \
         esp_proposals = aes128gcm16\n start_action = {start}\n {child}\n }}\n }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n secret = \"protects nothing\"\n }}\n}}\n"
    )
}
