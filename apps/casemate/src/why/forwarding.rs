//! Whether this host forwards the packets of the networks behind it, as `local_ts` demands.

use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Kernel parameters of this network namespace.
const SYSCTLS: &str = "/proc/sys/net";
/// Maximum number of selectors in a finding.
const MAX_SHOWN: usize = 4;

/// A finding and what to try.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forwarding {
    pub(super) cause: String,
    pub(super) advice: String,
}

/// Reads from the report which networks `local_ts` names, and reports each IP version whose packets this host
/// does not forward. `own` are the addresses of this host.
pub(super) fn findings(report: &Value, own: &[IpAddr]) -> Vec<Forwarding> {
    let networks = report.get("local_networks").and_then(Value::as_array);
    let networks: Vec<Network<'_>> = networks.into_iter().flatten().filter_map(Network::of).collect();
    let of = |v4| finding(v4, &networks, own, || forwards(Path::new(SYSCTLS), v4));
    [true, false].into_iter().filter_map(of).collect()
}

fn finding(
    v4: bool,
    networks: &[Network<'_>],
    own: &[IpAddr],
    forwards: impl FnOnce() -> Option<bool>,
) -> Option<Forwarding> {
    let is_behind = |network: &&Network<'_>| network.first.is_ipv4() == v4 && network.has_others(own);
    let behind: Vec<&str> = networks.iter().filter(is_behind).map(|network| network.selector).collect();
    if behind.is_empty() || forwards()? {
        return None;
    }
    let parameter = if v4 { "net.ipv4.ip_forward" } else { "net.ipv6.conf.all.forwarding" };
    let shown = behind.get(..MAX_SHOWN).unwrap_or(&behind).join(", ");
    Some(Forwarding {
        cause: format!(
            "{parameter} = 0: this host forwards no packets, and local_ts = {shown} has more addresses than its own"
        ),
        advice: format!("`sysctl -w {parameter}=1`, if hosts behind this one use the tunnel"),
    })
}

/// A range of addresses in `local_ts`.
struct Network<'r> {
    /// As the configuration file names it.
    selector: &'r str,
    first: IpAddr,
    last: IpAddr,
}

impl<'r> Network<'r> {
    fn of(entry: &'r Value) -> Option<Self> {
        let text = |name| entry.get(name).and_then(Value::as_str);
        let addr = |name| text(name)?.parse().ok();
        Some(Self { selector: text("selector")?, first: addr("first")?, last: addr("last")? })
    }

    /// Whether the range has addresses of other hosts.
    fn has_others(&self, own: &[IpAddr]) -> bool {
        let size = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                u128::from(last.to_bits()).saturating_sub(first.to_bits().into())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().saturating_sub(first.to_bits()),
            _ => return false,
        };
        let mut inside: Vec<&IpAddr> =
            own.iter().filter(|addr| (self.first..=self.last).contains(*addr)).collect();
        inside.sort_unstable();
        inside.dedup();
        // A range that ends with its first address has one address.
        size >= inside.len() as u128
    }
}

/// Whether the kernel forwards packets of an IP version, on any interface; `None` if it does not say so.
fn forwards(sysctls: &Path, v4: bool) -> Option<bool> {
    let is_on = |path: &Path| Some(fs::read_to_string(path).ok()?.trim() != "0");
    if !v4 {
        // The kernel asks this parameter, whatever those of the interfaces say.
        return is_on(&sysctls.join("ipv6/conf/all/forwarding"));
    }
    if is_on(&sysctls.join("ipv4/ip_forward"))? {
        return Some(true);
    }
    // An interface may forward on its own; `default` is for those that do not exist yet.
    let interfaces = fs::read_dir(sysctls.join("ipv4/conf")).ok()?.filter_map(Result::ok);
    let mut others = interfaces.filter(|entry| entry.file_name() != "default");
    Some(others.any(|entry| is_on(&entry.path().join("forwarding")) == Some(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use serde_json::json;

    fn network(first: &str, last: &str) -> Value {
        json!({"selector": format!("{first}-{last}"), "first": first, "last": last})
    }

    #[test]
    fn a_network_has_addresses_of_other_hosts() {
        let own: Vec<IpAddr> =
            ["10.1.0.1", "10.1.0.1", "10.1.0.2", "fd00::1"].map(|addr| addr.parse().unwrap()).into();
        for (first, last, others) in [
            ("10.1.0.1", "10.1.0.1", false),
            ("10.1.0.1", "10.1.0.2", false),
            ("10.1.0.1", "10.1.0.3", true),
            ("10.9.0.1", "10.9.0.1", true),
            ("0.0.0.0", "255.255.255.255", true),
            ("fd00::1", "fd00::1", false),
            ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
        ] {
            let entry = network(first, last);
            assert_eq!(Network::of(&entry).unwrap().has_others(&own), others, "{first} {last}");
        }
    }

    #[test]
    fn each_ip_version_has_its_parameter() {
        let (v4, v6) = (network("10.1.0.0", "10.1.255.255"), network("fd00::", "fd00::ff"));
        let networks = [Network::of(&v4).unwrap(), Network::of(&v6).unwrap()];
        let cause = |v4| finding(v4, &networks, &[], || Some(false)).unwrap().cause;
        assert!(
            cause(true).starts_with("net.ipv4.ip_forward = 0: ")
                && cause(true).contains("10.1.0.0-10.1.255.255")
        );
        assert!(
            cause(false).starts_with("net.ipv6.conf.all.forwarding = 0: ") && !cause(false).contains("10.1")
        );
        for forwards in [Some(true), None] {
            assert_eq!(finding(true, &networks, &[], || forwards), None);
        }
    }

    #[test]
    fn an_interface_may_forward_on_its_own() {
        let directory = TempDir::new("forwarding").unwrap();
        let write = |name: &str, value: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        };
        assert_eq!(forwards(directory.path(), true), None);
        write("ipv4/ip_forward", "0\n");
        write("ipv4/conf/all/forwarding", "0\n");
        write("ipv4/conf/default/forwarding", "1\n");
        write("ipv4/conf/eth0/forwarding", "0\n");
        assert_eq!(forwards(directory.path(), true), Some(false));
        write("ipv4/conf/eth0/forwarding", "1\n");
        assert_eq!(forwards(directory.path(), true), Some(true));
        write("ipv6/conf/all/forwarding", "0\n");
        assert_eq!(forwards(directory.path(), false), Some(false));
    }
}
