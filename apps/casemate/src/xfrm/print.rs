//! Prints an SA as an `ip xfrm state add` line.

use super::algorithm::{aead_name, cipher_name, implicit_iv_name, mac_name};
use casemate_crypto::{AeadAlg, CipherAlg, EspSuite, MacAlg, SecretBytes};
use casemate_sa::{Bounds, DfPolicy, DscpPolicy, PortRange, SaParams, Selector, Transform};
use casemate_wire::ah::Align;
use casemate_wire::invariant::OrBroken;
use std::fmt::{self, Write as _};
use zeroize::Zeroizing;

/// The `ip xfrm state add` line of an SA. Parsing the line gives the SA again. The line contains the
/// keys, so it is wiped on drop and made only on demand.
///
/// Parameters that the syntax cannot express are left out: a TTL, and address ranges that are not a
/// prefix.
pub fn state_line_with_keys(sa: &SaParams) -> Zeroizing<String> {
    // The capacity suffices for every SA, because reallocating would leave keys in memory.
    let mut line = Zeroizing::new(String::with_capacity(2_048));
    write_state(&mut line, sa).or_report("writing to a string does not fail");
    line
}

fn write_state(line: &mut String, sa: &SaParams) -> fmt::Result {
    write!(
        line,
        "ip xfrm state add src {} dst {} proto {} spi {} mode {}",
        sa.src,
        sa.dst,
        sa.transform.protocol(),
        sa.spi,
        sa.mode
    )?;
    if sa.reqid != 0 {
        write!(line, " reqid {}", sa.reqid)?;
    }
    write!(line, " replay-window {}", sa.replay_window)?;
    write_sequence(line, "replay-seq", sa.last_received)?;
    write_sequence(line, "replay-oseq", sa.last_sent)?;
    write_flags(line, sa)?;
    write_transform(line, &sa.transform)?;
    if let Some(encap) = sa.encap {
        write!(line, " encap espinudp {} {} 0.0.0.0", encap.src_port, encap.dst_port)?;
    }
    if let Some(selector) = &sa.selector {
        write_selector(line, selector)?;
    }
    write_bounds(line, "soft", &sa.lifetime.soft)?;
    write_bounds(line, "hard", &sa.lifetime.hard)?;
    if sa.tfc_pad_to != 0 {
        write!(line, " tfcpad {}", sa.tfc_pad_to)?;
    }
    Ok(())
}

fn write_sequence(line: &mut String, word: &str, last: u64) -> fmt::Result {
    let (high, low) = (last >> 32, last & 0xFFFF_FFFF);
    if low != 0 {
        write!(line, " {word} {low}")?;
    }
    if high != 0 {
        write!(line, " {word}-hi {high}")?;
    }
    Ok(())
}

fn write_flags(line: &mut String, sa: &SaParams) -> fmt::Result {
    let flags = [
        (sa.esn, "esn"),
        (!sa.outer.ecn, "noecn"),
        (sa.outer.df == DfPolicy::Clear, "nopmtudisc"),
        // Without a selector the kernel would use one of the outer IP version.
        (sa.selector.is_none(), "af-unspec"),
        (sa.ah_align == Align::Four, "align4"),
    ];
    if flags.iter().any(|(set, _)| *set) {
        line.push_str(" flag");
    }
    for (_, name) in flags.iter().filter(|(set, _)| *set) {
        write!(line, " {name}")?;
    }
    if sa.outer.dscp == DscpPolicy::Set(0) {
        line.push_str(" extra-flag dont-encap-dscp");
    }
    Ok(())
}

fn write_transform(line: &mut String, transform: &Transform) -> fmt::Result {
    match transform {
        Transform::Esp { suite: EspSuite::Combined(aead), encr, .. } => {
            write_aead(line, aead_name(*aead), *aead, encr)
        }
        Transform::Esp { suite: EspSuite::ImplicitIv(alg), encr, .. } => {
            write_aead(line, implicit_iv_name(*alg), alg.aead(), encr)
        }
        Transform::Esp { suite: EspSuite::Separate(CipherAlg::Null, mac), integ, .. }
            if mac.takes_nonce() =>
        {
            write_mac(line, *mac, integ)
        }
        Transform::Esp { suite: EspSuite::Separate(cipher, mac), encr, integ } => {
            write!(line, " enc '{}' ", cipher_name(*cipher))?;
            write_key(line, encr)?;
            write_mac(line, *mac, integ)
        }
        Transform::Ah { suite, integ } => write_mac(line, suite.0, integ),
    }
}

fn write_aead(line: &mut String, name: &str, aead: AeadAlg, key: &SecretBytes) -> fmt::Result {
    write!(line, " aead '{name}' ")?;
    write_key(line, key)?;
    write!(line, " {}", aead.icv_len().saturating_mul(8))
}

fn write_mac(line: &mut String, mac: MacAlg, key: &SecretBytes) -> fmt::Result {
    let word = if mac.takes_nonce() { "aead" } else { "auth-trunc" };
    write!(line, " {word} '{}' ", mac_name(mac.kind()))?;
    write_key(line, key)?;
    write!(line, " {}", mac.tag_len().saturating_mul(8))
}

fn write_key(line: &mut String, key: &SecretBytes) -> fmt::Result {
    if key.is_empty() {
        line.push_str("''");
        return Ok(());
    }
    line.push_str("0x");
    key.expose().iter().try_for_each(|byte| write!(line, "{byte:02x}"))
}

fn write_selector(line: &mut String, selector: &Selector) -> fmt::Result {
    line.push_str(" sel");
    for (word, range) in [("src", selector.src), ("dst", selector.dst)] {
        if let Some(len) = range.prefix_len() {
            write!(line, " {word} {}/{len}", range.first())?;
        }
    }
    if let Some(proto) = selector.proto {
        write!(line, " proto {proto}")?;
    }
    let names =
        if matches!(selector.proto, Some(1 | 58 | 135)) { ["type", "code"] } else { ["sport", "dport"] };
    for (name, ports) in names.into_iter().zip([selector.src_port, selector.dst_port]) {
        if ports != PortRange::ANY && ports.first() == ports.last() {
            write!(line, " {name} {}", ports.first())?;
        }
    }
    Ok(())
}

fn write_bounds(line: &mut String, end: &str, bounds: &Bounds) -> fmt::Result {
    let values = [
        ("time", bounds.since_added.map(|time| time.as_secs())),
        ("time-use", bounds.since_used.map(|time| time.as_secs())),
        ("byte", bounds.bytes),
        ("packet", bounds.packets),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            write!(line, " limit {name}-{end} {value}")?;
        }
    }
    Ok(())
}
