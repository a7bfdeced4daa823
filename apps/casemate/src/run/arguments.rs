//! The arguments of `casemate run`.

use crate::log::LogOptions;
use crate::metrics::MetricsAddress;
use crate::vici::DEFAULT_SOCKET;
use clap::Args;
use std::fmt::Display;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;

/// Longest name of a network interface in bytes: IFNAMSIZ without the final zero (netdevice(7)).
const MAX_INTERFACE_NAME: usize = 15;

const RUN_EXAMPLES: &str = "\
Examples:
  casemate run                                      /etc/casemate/swanctl.conf or /etc/swanctl/swanctl.conf
  casemate run --config gw/swanctl.conf --dry-run   load all certificates and keys, change nothing
  casemate run --vici                               swanctl and other programs load the configuration
  casemate run --store /var/lib/casemate/sas        a restart or a crash loses no tunnel
  casemate run --metrics unix:/run/casemate/metrics serve metrics for Prometheus on a Unix socket
  casemate run --xfrm tunnel.xfrm --dry-run         show routes, rules and sockets, change nothing
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters
  casemate run --xfrm tunnel.xfrm --counters /var/lib/casemate/counters --dummy-packets 20

Errors in the file are shown as `file:line: problem: what was expected`. A file with an error changes nothing.

Counter-mode ciphers (GCM, CCM, CTR, GMAC, ChaCha20-Poly1305) must never use an IV twice with the same key.
Manual keys stay the same when the program restarts. SAs with such ciphers are therefore refused unless
--counters names a file that keeps their counters across restarts.";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Connections in the format of swanctl.conf(5) [default: /etc/casemate/swanctl.conf, then
    /// /etc/swanctl/swanctl.conf]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["xfrm", "counters", "dummy_packets"])]
    pub config: Option<PathBuf>,
    /// Serve clients of strongSwan's interface vici, such as swanctl, on this Unix socket. Without --config,
    /// they load the whole configuration.
    #[arg(long, value_name = "SOCKET", conflicts_with = "xfrm", num_args = 0..=1)]
    #[arg(default_missing_value = DEFAULT_SOCKET)]
    pub vici: Option<PathBuf>,
    /// Serve metrics for Prometheus on this Unix socket (unix:/PATH) or loopback port (127.0.0.1:PORT).
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<MetricsAddress>,
    /// Manual keys instead of IKE: states and policies as lines of ip-xfrm(8)
    #[arg(long, value_name = "FILE")]
    pub xfrm: Option<PathBuf>,
    /// Save the keys of all SAs in this directory in Wireshark's formats. They decrypt all
    /// traffic.
    #[arg(long, value_name = "DIR", conflicts_with = "xfrm")]
    pub save_keys: Option<PathBuf>,
    /// File that keeps the sequence numbers of counter-mode SAs across restarts.
    #[arg(long, value_name = "FILE", requires = "xfrm")]
    pub counters: Option<PathBuf>,
    /// File that keeps the IKE SAs, so that a restart or a crash loses none of them.
    ///
    /// The next run continues them without negotiation: after SIGUSR1, which `systemctl restart` sends, and
    /// after a crash. SIGTERM and SIGINT close them. The file is encrypted with keys that the wrapping key of
    /// --store-key protects.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["xfrm", "vici"])]
    pub store: Option<PathBuf>,
    /// File with the wrapping key of --store: 32 random bytes [default: the credential casemate-store-key of
    /// the service, then a file that is made beside the store, with .key at its end]
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_key: Option<PathBuf>,
    /// File with a second wrapping key, while that of --store is changed [default: the credential
    /// casemate-second-store-key of the service, if there is one]
    ///
    /// What the second key has encrypted in the store is encrypted again with the first one.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub second_store_key: Option<PathBuf>,
    /// The wrapping key is encrypted, and a token decrypts it with the private key of this section of
    /// `secrets`, such as `token-store`.
    #[arg(long, value_name = "SECTION", requires = "store")]
    pub store_key_token: Option<String>,
    /// The same for the second wrapping key.
    #[arg(long, value_name = "SECTION", requires = "store")]
    pub second_store_key_token: Option<String>,
    /// File that keeps the sequence numbers of EAP-AKA across restarts.
    #[arg(long, value_name = "FILE", conflicts_with = "xfrm")]
    pub aka_numbers: Option<PathBuf>,
    /// Show the changes to the system without making them.
    #[arg(long)]
    pub dry_run: bool,
    /// Send this many dummy packets per second through each outbound ESP SA, on average.
    ///
    /// Dummy packets hide the times and the number of real packets (RFC 4303 section 2.6). They have
    /// random times and lengths, and the peer discards them. An SA nested inside another SA gets none.
    #[arg(long, value_name = "PER_SECOND", requires = "xfrm", value_parser = positive::<NonZeroU16>)]
    pub dummy_packets: Option<NonZeroU16>,
    /// Name of the TUN interface.
    #[arg(long, value_name = "NAME", default_value = "casemate0", value_parser = interface_name)]
    pub tun: String,
    /// Maximum number of threads that process packets [default: one per processor, at most four].
    ///
    /// One thread works alone while it can keep up. When packets queue, further threads join in;
    /// otherwise they sleep. All threads serve the same SAs, and packets keep their order.
    #[arg(long, value_name = "COUNT", value_parser = positive::<NonZeroUsize>)]
    pub threads: Option<NonZeroUsize>,
    /// Format and level of the log.
    #[command(flatten)]
    pub log: LogOptions,
}

impl RunArgs {
    /// The maximum number of threads that process packets.
    pub fn threads(&self) -> NonZeroUsize {
        let four = NonZeroUsize::MIN.saturating_add(3);
        let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.threads.unwrap_or_else(|| processors().min(four))
    }
}

/// A number with a lowest value of 1.
pub(super) trait Positive: FromStr + Display {
    const MAX: Self;
}

impl Positive for NonZeroU16 {
    const MAX: Self = Self::MAX;
}

impl Positive for NonZeroUsize {
    const MAX: Self = Self::MAX;
}

/// Reads a number that is not zero.
pub(super) fn positive<T: Positive>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("a number from 1 to {} was expected", T::MAX))
}

/// Reads the name of an interface that the program creates. The kernel takes no other names; it replaces
/// `%d`, after which the interface would have another name than the rules that mention it.
pub(super) fn interface_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%');
    let is_name = (1..=MAX_INTERFACE_NAME).contains(&text.len())
        && text.bytes().all(is_allowed)
        && !matches!(text, "." | "..");
    let expected = "a name of 1 to 15 characters without spaces, `/`, `:` and `%` was expected";
    if is_name { Ok(text.to_owned()) } else { Err(expected.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_one() {
        assert_eq!(positive("65535"), Ok(NonZeroU16::MAX));
        assert_eq!(positive("1"), Ok(NonZeroUsize::MIN));
        for wrong in ["0", "65536", "-1", "", "a few"] {
            let expected = "a number from 1 to 65535 was expected".to_owned();
            assert_eq!(positive::<NonZeroU16>(wrong), Err(expected), "{wrong}");
        }
    }

    #[test]
    fn names_are_those_that_the_kernel_takes_unchanged() {
        for name in ["a", "casemate0", "fifteen.letters", "x-y_z", "..."] {
            assert_eq!(interface_name(name).as_deref(), Ok(name));
        }
        for name in ["", "sixteen..letters", ".", "..", "a/b", "a:1", "a b", "a\tb", "tun%d", "tün"] {
            assert!(interface_name(name).is_err(), "{name}");
        }
    }
}
