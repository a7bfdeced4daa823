//! The sections of `children`: Child SAs, and shunts (traffic that passes or is dropped without an SA).

use super::connection::Context;
use super::lifetime;
use super::resolved::Resolved;
use super::rohc;
use super::schema::{Keys, Rule, Schema};
use super::tunnel::{self, ChildTunnel, InterfaceRequest};
use super::updown::{self, UpdownScript};
use super::value::{choice, code_point, count, parse_number, truth, volume};
use casemate_ike::config::{
    self, AddrPattern, ChildConfig, ChildMode, ChildProposal, CloseAction, Shunt, StartAction,
};
use casemate_ike::{TrafficSelector, TrafficSelectorTemplate, packet_selector};
use casemate_sa::{DfPolicy, DscpPolicy, OuterHeader, SpdRules};
use casemate_strongswan::{parse_traffic_selector, proposal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Default of `replay_window`, in packets.
const REPLAY_WINDOW: u32 = 32;
/// Default of `replay_window` with a scheduler, which reorders packets. More packets than a socket buffer
/// of 8 MiB holds: the kernel charges twice the length of a packet, and at least 768 bytes.
const SCHEDULER_REPLAY_WINDOW: u32 = 32_768;

const OWN_MARK: &str = "protected packets have the mark of the instance; a routing rule with that mark and \
                        the address of the peer selects their way";
const NO_LABELS: &str = "security labels are not implemented";
const NO_SPREAD: &str = "only times are randomised";

pub(super) const CHILD: Schema = Schema {
    keys: &[
        ("ah_proposals", Rule::Read),
        ("esp_proposals", Rule::Read),
        ("sha256_96", Rule::OnlyNo("HMAC-SHA-256 is never truncated to 96 bits")),
        ("local_ts", Rule::Read),
        ("remote_ts", Rule::Read),
        ("rekey_time", Rule::Read),
        ("life_time", Rule::Read),
        ("rand_time", Rule::Read),
        ("rekey_bytes", Rule::Read),
        ("life_bytes", Rule::Read),
        ("rand_bytes", Rule::Only(&["0"], NO_SPREAD)),
        ("rekey_packets", Rule::Read),
        ("life_packets", Rule::Read),
        ("rand_packets", Rule::Only(&["0"], NO_SPREAD)),
        ("updown", Rule::Read),
        ("hostaccess", Rule::Read),
        ("mode", Rule::Read),
        ("policies", Rule::Read),
        ("policies_fwd_out", Rule::Ignored),
        ("dpd_action", Rule::Read),
        ("ipcomp", Rule::Read),
        ("inactivity", Rule::Read),
        ("reqid", Rule::Read),
        ("priority", Rule::Read),
        ("interface", Rule::Read),
        ("mark_in", Rule::Read),
        ("mark_in_sa", Rule::OnlyNo("received packets are not selected by their marks")),
        ("mark_out", Rule::Read),
        ("set_mark_in", Rule::Read),
        ("set_mark_out", Rule::Only(&["0", "0/0x00000000"], OWN_MARK)),
        ("if_id_in", Rule::Read),
        ("if_id_out", Rule::Read),
        ("label", Rule::Refused(NO_LABELS)),
        ("label_mode", Rule::Only(&["system"], NO_LABELS)),
        ("tfc_padding", Rule::Read),
        ("replay_window", Rule::Read),
        ("hw_offload", Rule::Only(&["no", "auto"], "hardware offload is not supported")),
        ("copy_df", Rule::Read),
        ("copy_ecn", Rule::Read),
        ("copy_dscp", Rule::Read),
        ("dscp", Rule::Read),
        ("dscp_values", Rule::Read),
        ("start_action", Rule::Read),
        ("close_action", Rule::Read),
        ("rohc", Rule::Read),
        ("rohc_max_cid", Rule::Read),
        ("rohc_integrity", Rule::Read),
        ("rohc_icv_len", Rule::Read),
        ("per_cpu_sas", Rule::OnlyNo("SAs for each CPU (RFC 9611) are not implemented")),
    ],
    sections: &[],
};

/// An entry of `children`.
pub(super) enum ChildEntry {
    /// A Child SA, its script, and what it says about its interfaces.
    Child(Arc<ChildConfig>, Option<UpdownScript>, Vec<InterfaceRequest>),
    /// Traffic without a Child SA.
    Shunt(Shunt),
}

#[derive(Clone, Copy)]
enum EntryMode {
    Protect(ChildMode),
    Pass,
    Drop,
}

/// Reads one entry of `children`. `peer` is the address or host to initiate to, if the connection has one,
/// and
/// `spds` are those of the connection. An error becomes a problem, and the entry gets a default value in its
/// place.
pub(super) fn read(
    resolved: &Resolved<'_, '_>,
    peer: Option<&AddrPattern>,
    spds: SpdRules,
    context: &Context<'_>,
) -> ChildEntry {
    let keys = Keys::new(resolved, &CHILD, context.problems);
    if keys.get("ipcomp", truth) == Some(true) {
        keys.warn(
            "ipcomp",
            "IPComp is not implemented: it is neither offered nor accepted, and packets are not compressed",
        );
    }
    let mode = keys.get("mode", mode).unwrap_or(EntryMode::Protect(ChildMode::Tunnel));
    let script = updown::read(&keys, matches!(mode, EntryMode::Protect(_)));
    match mode {
        EntryMode::Protect(mode) => {
            let ChildTunnel { spds, requests } = tunnel::read(&keys, mode, spds);
            let child = ChildConfig { spds, ..child(&keys, resolved.name(), mode, context.has_scheduler) };
            let names_peer = child.mode == ChildMode::Transport && !child.start_action.at_once;
            if peer.is_none() && child.start_action != StartAction::default() && !names_peer {
                keys.error(
                    "start_action",
                    "the peer has no single address to initiate to: one address or name in `remote_addrs` \
                     was expected, or trap with mode = transport",
                );
            }
            tunnel::check_unique(&keys, &child);
            check_trap_selectors(&keys, &child, peer);
            if peer.is_none() {
                warn_of_ineffective_traps(&keys, &child);
            }
            ChildEntry::Child(Arc::new(child), script, requests)
        }
        EntryMode::Pass => ChildEntry::Shunt(shunt(&keys, resolved.name(), true)),
        EntryMode::Drop => ChildEntry::Shunt(shunt(&keys, resolved.name(), false)),
    }
}

/// Refuses a trap whose selectors match no packet: the traffic that it should block would pass in clear.
fn check_trap_selectors(keys: &Keys<'_>, child: &ChildConfig, peer: Option<&AddrPattern>) {
    const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let fill = |templates: &[TrafficSelectorTemplate], ends: &[IpAddr]| -> Vec<TrafficSelector> {
        templates.iter().flat_map(|ts| ts.fill(ends)).collect()
    };
    // When a Child SA ends, `dynamic` keeps the address that the peer had, which may be a virtual
    // address. The addresses of a host name may have either version.
    let ends = match peer {
        Some(AddrPattern::Range(peer)) if child.start_action.on_traffic => vec![peer.first()],
        _ => ANY.into(),
    };
    let (local, remote) = (fill(&child.local_ts, &ANY), fill(&child.remote_ts, &ends));
    let is_any =
        local.iter().any(|local| remote.iter().any(|remote| packet_selector(local, remote).is_some()));
    if !is_any && (child.start_action.on_traffic || child.has_action(CloseAction::Trap)) {
        keys.error(
            if keys.has("remote_ts") { "remote_ts" } else { "local_ts" },
            "a trap would block nothing, because no packet matches both `local_ts` and `remote_ts`: \
             selectors of the same IP version and protocol were expected",
        );
    }
}

/// Warns of traps that have no effect: without an address to initiate to, traffic is not blocked when a
/// Child SA ends.
fn warn_of_ineffective_traps(keys: &Keys<'_>, child: &ChildConfig) {
    for (name, action) in [("close_action", child.close_action), ("dpd_action", child.dpd_action)] {
        if action == CloseAction::Trap {
            keys.warn(
                name,
                "traffic passes in clear when the Child SA ends, because the peer has no single address to \
                 initiate to: one address or name in `remote_addrs` was expected",
            );
        }
    }
}

fn mode(text: &str) -> Result<EntryMode, String> {
    if text.eq_ignore_ascii_case("beet") || text.eq_ignore_ascii_case("transport_proxy") {
        return Err("this mode is not implemented: tunnel, transport, pass or drop was expected".into());
    }
    let words = [
        ("tunnel", EntryMode::Protect(ChildMode::Tunnel)),
        ("transport", EntryMode::Protect(ChildMode::Transport)),
        ("pass", EntryMode::Pass),
        ("drop", EntryMode::Drop),
    ];
    choice(&words)(text)
}

fn child(keys: &Keys<'_>, name: &str, mode: ChildMode, has_scheduler: bool) -> ChildConfig {
    let rekey_bytes = keys.get("rekey_bytes", volume).flatten();
    let rekey_packets = keys.get("rekey_packets", count).flatten();
    let proposals = proposals(keys);
    let lifespan = lifetime::of_child_sa(keys);
    ChildConfig {
        name: name.into(),
        rohc: rohc::read(keys, mode, &proposals),
        proposals,
        local_ts: selectors(keys, "local_ts"),
        remote_ts: selectors(keys, "remote_ts"),
        mode,
        lifespan,
        rekey_bytes,
        rekey_packets,
        life_bytes: amount(keys, "life_bytes", volume, rekey_bytes),
        life_packets: amount(keys, "life_packets", count, rekey_packets),
        inactivity: lifetime::inactivity(keys, &lifespan),
        start_action: keys.get("start_action", start).unwrap_or_default(),
        close_action: keys.get("close_action", on_close).unwrap_or(CloseAction::Clear),
        dpd_action: keys.get("dpd_action", on_close).unwrap_or(CloseAction::Clear),
        reqid: keys.get("reqid", parse_number).filter(|reqid| *reqid != 0),
        replay_window: replay_window(keys, has_scheduler),
        dscp: keys.list("dscp_values", code_point).into_iter().collect(),
        tfc_pad_to: keys.get("tfc_padding", padding).unwrap_or(0),
        outer: outer(keys),
        priority: keys.get("priority", parse_number).filter(|priority| *priority != 0),
        policies: keys.get("policies", truth).unwrap_or(true),
        spds: SpdRules::MAIN,
    }
}

fn proposals(keys: &Keys<'_>) -> Vec<ChildProposal> {
    let ah = keys.proposals("ah_proposals", proposal::parse_ah);
    let esp = keys.proposals("esp_proposals", proposal::parse_esp);
    let proposals: Vec<ChildProposal> = ah.into_iter().chain(esp).collect();
    if proposals.is_empty() { config::child_proposals() } else { proposals }
}

fn selectors(keys: &Keys<'_>, name: &str) -> Vec<TrafficSelectorTemplate> {
    let selectors = keys.list(name, parse_traffic_selector);
    if selectors.is_empty() { vec![TrafficSelectorTemplate::DYNAMIC] } else { selectors }
}

/// Reads a hard limit. The default is the soft limit plus a tenth.
fn amount(
    keys: &Keys<'_>,
    name: &str,
    read: fn(&str) -> Result<Option<u64>, String>,
    rekey: Option<u64>,
) -> Option<u64> {
    let hard = keys.get(name, read).unwrap_or_else(|| rekey.map(|soft| soft.saturating_add(soft / 10)));
    if hard.zip(rekey).is_some_and(|(hard, soft)| hard < soft) {
        keys.error(name, "it is below the rekey limit: a larger number was expected");
    }
    hard
}

/// Reads `none`, `start`, `trap`, or `trap|start`.
fn start(text: &str) -> Result<StartAction, String> {
    let expected = || "none, start, trap or trap|start was expected".to_owned();
    let mut start = StartAction::default();
    for word in text.split('|').map(str::trim) {
        match word {
            "none" | "clear" => {}
            "start" | "restart" => start.at_once = true,
            "trap" | "route" => start.on_traffic = true,
            _ => return Err(expected()),
        }
    }
    Ok(start)
}

fn on_close(text: &str) -> Result<CloseAction, String> {
    let words = [
        ("none", CloseAction::Clear),
        ("clear", CloseAction::Clear),
        ("trap", CloseAction::Trap),
        ("route", CloseAction::Trap),
        ("start", CloseAction::Restart),
        ("restart", CloseAction::Restart),
    ];
    choice(&words)(text).map_err(|_| "none, clear, trap, start or restart was expected".into())
}

fn replay_window(keys: &Keys<'_>, has_scheduler: bool) -> u32 {
    let given = keys.get("replay_window", parse_number);
    if has_scheduler && given.is_some_and(|packets| (1..SCHEDULER_REPLAY_WINDOW).contains(&packets)) {
        keys.warn(
            "replay_window",
            "the scheduler sends urgent packets ahead of others, and packets that fall behind the window \
             are dropped as replayed: 32768 or more was expected, or 0",
        );
    }
    given.unwrap_or(if has_scheduler { SCHEDULER_REPLAY_WINDOW } else { REPLAY_WINDOW })
}

fn padding(text: &str) -> Result<u16, String> {
    if text == "mtu" {
        return Err("padding to the path MTU is not implemented: a number of bytes was expected".into());
    }
    parse_number(text)
}

fn outer(keys: &Keys<'_>) -> OuterHeader {
    OuterHeader {
        dscp: outer_dscp(keys),
        df: if keys.get("copy_df", truth).unwrap_or(true) { DfPolicy::Copy } else { DfPolicy::Clear },
        ecn: keys.get("copy_ecn", truth).unwrap_or(true),
        ..OuterHeader::default()
    }
}

/// The DSCP of the outer header. The key `dscp` is an extension of Casemate: strongSwan can copy the
/// field or clear it, but not set it.
fn outer_dscp(keys: &Keys<'_>) -> DscpPolicy {
    let copied = |text: &str| match text {
        "out" => Ok(DscpPolicy::Copy),
        // RFC 4301 section 5.1.2.1 note 5: the outer field must not change the inner one.
        "in" | "yes" => {
            Err("the DSCP of the outer header is never copied to the inner header: out or no was expected"
                .to_owned())
        }
        other => match truth(other) {
            Ok(false) => Ok(DscpPolicy::Set(0)),
            _ => Err("out or no was expected".into()),
        },
    };
    let copied = keys.get("copy_dscp", copied);
    let set = keys.get("dscp", code_point);
    if set.is_some() && copied == Some(DscpPolicy::Copy) {
        keys.error(
            "dscp",
            "copy_dscp already copies the DSCP from the inner header: one of the two keys was expected",
        );
    }
    set.map(|dscp| DscpPolicy::Set(dscp.value())).or(copied).unwrap_or(DscpPolicy::Copy)
}

fn shunt(keys: &Keys<'_>, name: &str, passes: bool) -> Shunt {
    // strongSwan installs a shunt only with `trap`.
    let start = keys.get("start_action", start).unwrap_or_default();
    if !start.on_traffic {
        keys.error(
            "start_action",
            "pass and drop take effect only with a trap: start_action = trap was expected",
        );
    }
    for name in ["ah_proposals", "esp_proposals"] {
        if keys.has(name) {
            keys.error(name, "pass and drop protect nothing: no proposal was expected");
        }
    }
    if keys.has("rohc") {
        keys.error("rohc", "pass and drop have no SA: no header compression was expected");
    }
    if keys.has("dscp_values") {
        keys.error("dscp_values", "pass and drop have no SA to select: no DSCP was expected");
    }
    tunnel::refuse(keys);
    Shunt {
        name: name.into(),
        passes,
        local_ts: selectors(keys, "local_ts"),
        remote_ts: selectors(keys, "remote_ts"),
        priority: keys.get("priority", parse_number).filter(|priority| *priority != 0),
    }
}
