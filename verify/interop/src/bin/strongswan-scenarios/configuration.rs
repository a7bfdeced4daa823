//! Files of a host in a scenario: those of the test suite, with addresses in place of their placeholders,
//! and settings of charon for this machine.

use crate::source::{Source, copy_all};
use casemate_interop::{Error, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Placeholders in configurations. A name precedes those that begin with it.
const ADDRESSES: [(&str, &str); 13] = [
    ("PH_IP_ALICE1", "192.168.0.50"),
    ("PH_IP_ALICE", "10.1.0.10"),
    ("PH_IP_VENUS", "10.1.0.20"),
    ("PH_IP_MOON1", "10.1.0.1"),
    ("PH_IP_MOON", "192.168.0.1"),
    ("PH_IP_CAROL1", "10.3.0.1"),
    ("PH_IP_CAROL", "192.168.0.100"),
    ("PH_IP_WINNETOU", "192.168.0.150"),
    ("PH_IP_DAVE1", "10.3.0.2"),
    ("PH_IP_DAVE", "192.168.0.200"),
    ("PH_IP_SUN1", "10.2.0.1"),
    ("PH_IP_SUN", "192.168.0.2"),
    ("PH_IP_BOB", "10.2.0.10"),
];

/// Short times of retransmission, as on the machines of the test suite.
const RETRANSMISSION: &str = " retransmit_tries = 2\n retransmit_timeout = 1.0\n retransmit_base = 1\n";

/// Plugins that charon loads in every scenario.
const PLUGINS: &str = "random nonce kdf aes sha1 sha2 md5 hmac mgf1 pem pkcs1 pkcs8 pkcs12 x509 pubkey \
                       constraints curve25519 \
     gcm ccm cmac xcbc ctr gmp openssl chapoly kernel-libipsec kernel-netlink socket-default vici updown";

/// Plugins that change what charon does. It loads them in the scenarios that name them.
const OPTIONAL_PLUGINS: &str = "addrblock attr counters curl dhcp dnskey eap-aka eap-gtc eap-identity \
                                eap-md5 eap-mschapv2 \
     eap-radius eap-tls eap-ttls error-notify farp forecast fips-prf ldap resolve revocation unity \
     xauth-generic";

/// Plugins that Debian's charon lacks.
const MISSING_PLUGINS: &str = "acert attr-sql bliss coupling dnscert eap-aka-3gpp2 eap-dynamic eap-peap \
                               eap-sim eap-sim-file eap-simaka-sql \
     ext-auth ipseckey mysql newhope ntru radattr sql sqlite unbound whitelist";

/// Writes the files of a host to `directory`: `swanctl.conf`, credentials and `strongswan.conf`.
pub(crate) fn write(source: &Source, scenario: &str, host: &str, directory: &Path) -> Result<()> {
    let defaults = source.host_defaults(host);
    if defaults.is_dir() {
        copy_all(&defaults, directory)?;
    }
    let etc = source.scenario(scenario).join("hosts").join(host).join("etc");
    copy_all(&etc.join("swanctl"), directory)?;
    for entry in fs::read_dir(directory).map_err(Error::context(directory.display()))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            let text = fs::read_to_string(&path).map_err(Error::context(path.display()))?;
            fs::write(&path, with_addresses(&text)).map_err(Error::context(path.display()))?;
        }
    }
    let original = fs::read_to_string(etc.join("strongswan.conf")).unwrap_or_default();
    add_charon_section(directory, &with_addresses(&original))?;
    let included = directory.join("scenario-strongswan.conf");
    fs::write(&included, with_addresses(&original)).map_err(Error::context(included.display()))?;
    let settings = settings(&original, &included, directory);
    let path = directory.join("strongswan.conf");
    fs::write(&path, settings).map_err(Error::context(path.display()))
}

/// Copies a script of the scenario, such as `etc/updown`, to the directory of the host, and lets
/// `swanctl.conf` name the copy. Every user may run it.
pub(crate) fn add_script(
    source: &Source,
    scenario: &str,
    host: &str,
    path: &str,
    directory: &Path,
) -> Result<()> {
    let original = source.scenario(scenario).join("hosts").join(host).join(path);
    let copy = directory.join(path.replace('/', "-"));
    fs::copy(&original, &copy).map_err(Error::context(original.display()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(Error::context(copy.display()))?;
    let conf = directory.join("swanctl.conf");
    let text = fs::read_to_string(&conf).map_err(Error::context(conf.display()))?;
    let text = text.replace(&format!("/{path}"), &copy.display().to_string());
    fs::write(&conf, text).map_err(Error::context(conf.display()))
}

/// Appends to `swanctl.conf` what Casemate reads there and charon in `strongswan.conf`: times of
/// retransmission, and RADIUS servers. swanctl ignores the section.
fn add_charon_section(directory: &Path, strongswan_conf: &str) -> Result<()> {
    let radius = section(strongswan_conf, "eap-radius {").unwrap_or_default();
    let path = directory.join("swanctl.conf");
    let text = fs::read_to_string(&path).map_err(Error::context(path.display()))?;
    let text = format!("{text}\ncharon {{\n{RETRANSMISSION} plugins {{\n {radius}\n }}\n}}\n");
    fs::write(&path, text).map_err(Error::context(path.display()))
}

/// Returns the section that begins with these words, up to its closing brace.
fn section<'t>(conf: &'t str, beginning: &str) -> Option<&'t str> {
    let (_, rest) = conf.split_at_checked(conf.find(beginning)?)?;
    let mut depth = 0_usize;
    for (index, character) in rest.char_indices() {
        match character {
            '{' => depth = depth.saturating_add(1),
            '}' if depth == 1 => return rest.get(..=index),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn with_addresses(text: &str) -> String {
    ADDRESSES.iter().fold(text.to_owned(), |text, (name, address)| text.replace(name, address))
}

/// Settings around those of the scenario: short retransmission as on the machines of the test suite, other
/// plugins, the socket, the log, and marks that keep the packets of charon itself out of its tunnels.
fn settings(original: &str, included: &Path, directory: &Path) -> String {
    let optional = OPTIONAL_PLUGINS.split_whitespace().filter(|plugin| names(original, plugin));
    let plugins: Vec<&str> = PLUGINS.split_whitespace().chain(optional).collect();
    let (plugins, directory) = (plugins.join(" "), directory.display());
    format!(
        "charon {{\n{RETRANSMISSION}}}\n\
         include {}\n\
         charon-systemd {{\n load = {plugins}\n integrity_test = no\n crypto_test {{\n required = no\n \
         on_add = no\n }}\n plugins {{\n\
         vici {{\n socket = unix://{directory}/charon.vici\n }}\n\
         kernel-libipsec {{\n allow_peer_ts = yes\n }}\n\
         kernel-netlink {{\n fwmark = !0x42\n }}\n socket-default {{\n fwmark = 0x42\n }}\n\
         resolve {{\n file = {directory}/resolv.conf\n }}\n }}\n\
         journal {{\n default = -1\n }}\n syslog {{\n daemon {{\n default = -1\n }}\n auth {{\n default = \
         -1\n }}\n }}\n\
         filelog {{\n file {{\n path = {directory}/log\n flush_line = yes\n default = 1\n cfg = 2\n }}\n \
         }}\n}}\n\
         swanctl {{\n load = random pem pkcs1 pkcs8 pkcs12 x509 pubkey openssl curve25519 revocation \
         constraints\n}}\n",
        included.display()
    )
}

/// Whether a list of plugins contains the name.
fn names(conf: &str, plugin: &str) -> bool {
    let lists = conf.lines().filter_map(|line| line.trim().strip_prefix("load ="));
    lists.flat_map(str::split_whitespace).any(|word| word.trim_end_matches('!') == plugin)
}

/// Plugins that the hosts of a scenario name and Debian's charon lacks.
pub(crate) fn missing_plugins(source: &Source, scenario: &str, hosts: &[&str]) -> Vec<&'static str> {
    let hosts_directory = source.scenario(scenario).join("hosts");
    let read = |host: &&str| fs::read_to_string(hosts_directory.join(host).join("etc/strongswan.conf"));
    let texts: Vec<String> = hosts.iter().filter_map(|host| read(host).ok()).collect();
    let is_named = |plugin: &&str| texts.iter().any(|text| names(text, plugin));
    MISSING_PLUGINS.split_whitespace().filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_addresses() {
        assert_eq!(
            with_addresses("PH_IP_MOON1/32 PH_IP_MOON PH_IP_CAROL10"),
            "10.1.0.1/32 192.168.0.1 10.3.0.10"
        );
    }

    #[test]
    fn a_section_ends_at_its_brace() {
        let conf = "charon {\n load = eap-radius\n plugins {\n eap-radius {\n a {\n }\n }\n x {\n }\n }\n}";
        assert_eq!(section(conf, "eap-radius {"), Some("eap-radius {\n a {\n }\n }"));
        assert_eq!(section(conf, "eap-tls {"), None);
    }

    #[test]
    fn plugins_are_those_of_this_machine_and_of_the_scenario() {
        let original = "charon-systemd {\n load = random ntru eap-md5 revocation\n}\n";
        let text = settings(original, Path::new("/s"), Path::new("/d"));
        let load = text.lines().find(|line| line.contains("load =")).unwrap();
        assert!(load.ends_with("updown eap-md5 revocation"), "{load}");
        assert!(names(original, "ntru") && !names(original, "eap-tls"));
    }
}
