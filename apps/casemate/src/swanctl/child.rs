//! `children`: Child SAs, and traffic that needs none.

use super::connection::Context;
use super::schema::{Keys, Rule, Schema};
use super::value::{choice, code_point, count, number, time, truth, volume};
use super::view::View;
use casemate_ike::config::{self, Child, ChildMode, ChildProposal, Lifespan, OnClose, Shunt, Start};
use casemate_ike::spelling::{self, traffic};
use casemate_ike::{Traffic, TrafficTemplate, selector};
use casemate_sa::{DfPolicy, DscpPolicy, OuterHeader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Time until rekeying where none is given.
const REKEY: Duration = Duration::from_secs(3_600);

/// Anti-replay window where none is given, in packets.
const REPLAY_WINDOW: u32 = 32;
/// The same where urgent packets overtake others: more than may wait in a socket of 8 MiB, for which the kernel counts twice as much
/// and 768 bytes a packet at least.
const OVERTAKEN: u32 = 32_768;

const NO_MARKS: &str = "netfilter marks are the kernel's";
const NO_INTERFACES: &str = "XFRM interfaces are the kernel's";
const NO_LABELS: &str = "security labels are not implemented";
const NO_SPREAD: &str = "only times are varied at random";

pub(super) const CHILD: Schema = Schema {
    keys: &[
        ("ah_proposals", Rule::Take),
        ("esp_proposals", Rule::Take),
        ("sha256_96", Rule::Off("HMAC-SHA-256 is never cut to 96 bits")),
        ("local_ts", Rule::Take),
        ("remote_ts", Rule::Take),
        ("rekey_time", Rule::Take),
        ("life_time", Rule::Take),
        ("rand_time", Rule::Take),
        ("rekey_bytes", Rule::Take),
        ("life_bytes", Rule::Take),
        ("rand_bytes", Rule::Only(&["0"], NO_SPREAD)),
        ("rekey_packets", Rule::Take),
        ("life_packets", Rule::Take),
        ("rand_packets", Rule::Only(&["0"], NO_SPREAD)),
        ("updown", Rule::Take),
        ("hostaccess", Rule::Off("no script is run")),
        ("mode", Rule::Take),
        ("policies", Rule::Take),
        ("policies_fwd_out", Rule::NoEffect),
        ("dpd_action", Rule::Take),
        ("ipcomp", Rule::Off("IPComp is not implemented")),
        ("inactivity", Rule::Only(&["0", "0s", "0m", "0h", "0d"], "Child SAs are not closed for idleness")),
        ("reqid", Rule::Take),
        ("priority", Rule::Take),
        ("interface", Rule::Never("policies are for all interfaces")),
        ("mark_in", Rule::Only(&["0", "0/0x00000000"], NO_MARKS)),
        ("mark_in_sa", Rule::Off(NO_MARKS)),
        ("mark_out", Rule::Only(&["0", "0/0x00000000"], NO_MARKS)),
        ("set_mark_in", Rule::Only(&["0", "0/0x00000000"], NO_MARKS)),
        ("set_mark_out", Rule::Only(&["0", "0/0x00000000"], NO_MARKS)),
        ("if_id_in", Rule::Only(&["0"], NO_INTERFACES)),
        ("if_id_out", Rule::Only(&["0"], NO_INTERFACES)),
        ("label", Rule::Never(NO_LABELS)),
        ("label_mode", Rule::Only(&["system"], NO_LABELS)),
        ("tfc_padding", Rule::Take),
        ("replay_window", Rule::Take),
        ("hw_offload", Rule::Only(&["no", "auto"], "hardware is not used")),
        ("copy_df", Rule::Take),
        ("copy_ecn", Rule::Take),
        ("copy_dscp", Rule::Take),
        ("dscp", Rule::Take),
        ("dscp_values", Rule::Take),
        ("start_action", Rule::Take),
        ("close_action", Rule::Take),
        ("per_cpu_sas", Rule::Off("SAs for each CPU (RFC 9611) are not implemented")),
    ],
    sections: &[],
};

/// An entry of `children`.
pub(super) enum Entry {
    /// A Child SA.
    Child(Child),
    /// Traffic without one.
    Shunt(Shunt),
}

#[derive(Clone, Copy)]
enum Mode {
    Protect(ChildMode),
    Pass,
    Drop,
}

/// Reads one entry of a connection; `peer` is the address to begin with, if there is one. What is wrong becomes a problem, and some
/// value in its place.
pub(super) fn read(view: &View<'_, '_>, peer: Option<IpAddr>, context: &Context<'_>) -> Entry {
    let keys = Keys::new(view, &CHILD, context.problems);
    if keys.get("updown", updown).is_some() {
        keys.warn("updown", "this script opens the firewall for the IPsec of the kernel; it is not run");
    }
    match keys.get("mode", mode).unwrap_or(Mode::Protect(ChildMode::Tunnel)) {
        Mode::Protect(mode) => {
            let child = child(&keys, (view.name(), mode), context.packets_overtake);
            if peer.is_none() && child.start != Start::default() {
                keys.wrong(
                    "start_action",
                    "there is nobody to begin with: a single address in `remote_addrs` was expected",
                );
            }
            check_held_traffic(&keys, &child, peer);
            if peer.is_none() {
                warn_of_clear_text(&keys, &child);
            }
            Entry::Child(child)
        }
        Mode::Pass => Entry::Shunt(shunt(&keys, view.name(), true)),
        Mode::Drop => Entry::Shunt(shunt(&keys, view.name(), false)),
    }
}

/// Refuses a trap without traffic: what it should hold would pass in clear.
fn check_held_traffic(keys: &Keys<'_>, child: &Child, peer: Option<IpAddr>) {
    const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let fill = |templates: &[TrafficTemplate], ends: &[IpAddr]| -> Vec<Traffic> {
        templates.iter().flat_map(|ts| ts.fill(ends)).collect()
    };
    // After the end of a Child SA, `dynamic` is what the peer had, which may be a virtual address.
    let ends = peer.filter(|_| child.start.on_traffic).map_or(ANY.into(), |peer| vec![peer]);
    let (local, remote) = (fill(&child.local_ts, &ANY), fill(&child.remote_ts, &ends));
    let is_any = local.iter().any(|local| remote.iter().any(|remote| selector(local, remote).is_some()));
    if !is_any && (child.start.on_traffic || child.has_action(OnClose::Trap)) {
        keys.wrong(
            if keys.has("remote_ts") { "remote_ts" } else { "local_ts" },
            "a trap would hold nothing, because no packet fits both `local_ts` and `remote_ts`: selectors of \
             the same IP version and protocol were expected",
        );
    }
}

/// Without an address to begin with, traffic is not held after the end of a Child SA.
fn warn_of_clear_text(keys: &Keys<'_>, child: &Child) {
    for (name, action) in [("close_action", child.on_close), ("dpd_action", child.on_dead_peer)] {
        if action == OnClose::Trap {
            keys.warn(
                name,
                "traffic is not held after the Child SA, because there is nobody to begin with: a single \
                 address in `remote_addrs` was expected",
            );
        }
    }
}

/// Only strongSwan's own script can be left out: it serves the kernel's IPsec.
fn updown(text: &str) -> Result<(), String> {
    let script = text.split(' ').next().unwrap_or_default();
    if script.ends_with("/ipsec/_updown") {
        return Ok(());
    }
    Err("no script is run: no value was expected, or strongSwan's own script, .../ipsec/_updown".into())
}

fn mode(text: &str) -> Result<Mode, String> {
    if text.eq_ignore_ascii_case("beet") || text.eq_ignore_ascii_case("transport_proxy") {
        return Err("this mode is not implemented: tunnel, transport, pass or drop was expected".into());
    }
    let words = [
        ("tunnel", Mode::Protect(ChildMode::Tunnel)),
        ("transport", Mode::Protect(ChildMode::Transport)),
        ("pass", Mode::Pass),
        ("drop", Mode::Drop),
    ];
    choice(&words)(text)
}

fn child(keys: &Keys<'_>, (name, mode): (&str, ChildMode), packets_overtake: bool) -> Child {
    let rekey_bytes = keys.get("rekey_bytes", volume).flatten();
    let rekey_packets = keys.get("rekey_packets", count).flatten();
    Child {
        name: name.into(),
        proposals: proposals(keys),
        local_ts: selectors(keys, "local_ts"),
        remote_ts: selectors(keys, "remote_ts"),
        mode,
        lifespan: lifespan(keys),
        rekey_bytes,
        rekey_packets,
        life_bytes: amount(keys, "life_bytes", volume, rekey_bytes),
        life_packets: amount(keys, "life_packets", count, rekey_packets),
        start: keys.get("start_action", start).unwrap_or_default(),
        on_close: keys.get("close_action", on_close).unwrap_or(OnClose::Clear),
        on_dead_peer: keys.get("dpd_action", on_close).unwrap_or(OnClose::Clear),
        reqid: keys.get("reqid", number).filter(|reqid| *reqid != 0),
        replay_window: replay_window(keys, packets_overtake),
        dscp: keys.list("dscp_values", code_point).into_iter().collect(),
        tfc_pad_to: keys.get("tfc_padding", padding).unwrap_or(0),
        outer: outer(keys),
        priority: keys.get("priority", number).filter(|priority| *priority != 0),
        policies: keys.get("policies", truth).unwrap_or(true),
    }
}

fn proposals(keys: &Keys<'_>) -> Vec<ChildProposal> {
    let ah = keys.list("ah_proposals", spelling::proposal::ah);
    let esp = keys.list("esp_proposals", spelling::proposal::esp);
    let proposals: Vec<ChildProposal> = ah.into_iter().chain(esp).flatten().collect();
    if proposals.is_empty() { config::child_proposals() } else { proposals }
}

fn selectors(keys: &Keys<'_>, name: &str) -> Vec<TrafficTemplate> {
    let selectors = keys.list(name, traffic);
    if selectors.is_empty() { vec![TrafficTemplate::DYNAMIC] } else { selectors }
}

fn lifespan(keys: &Keys<'_>) -> Lifespan {
    let rekey = keys.get("rekey_time", time).unwrap_or(Some(REKEY));
    let hard =
        keys.get("life_time", time).unwrap_or_else(|| rekey.map(|rekey| rekey.saturating_add(tenth(rekey))));
    if hard.zip(rekey).is_some_and(|(hard, rekey)| hard < rekey) {
        keys.wrong("life_time", "it is over before rekey_time: a longer time was expected");
    }
    let between = hard.unwrap_or_default().saturating_sub(rekey.unwrap_or_default());
    let random = random(keys, rekey, between.min(rekey.unwrap_or_default()));
    Lifespan { rekey, random, hard }
}

/// The value of `rand_time`, or `otherwise`.
pub(super) fn random(keys: &Keys<'_>, until: Option<Duration>, otherwise: Duration) -> Duration {
    let random = keys.get("rand_time", time).map_or(otherwise, Option::unwrap_or_default);
    if until.is_some_and(|until| random > until) {
        keys.wrong("rand_time", "it is longer than the time that it shortens: a shorter time was expected");
    }
    random
}

pub(super) fn tenth(time: Duration) -> Duration {
    time.checked_div(10).unwrap_or_default()
}

/// A hard limit, a tenth above the soft one if it is not given.
fn amount(
    keys: &Keys<'_>,
    name: &str,
    read: fn(&str) -> Result<Option<u64>, String>,
    rekey: Option<u64>,
) -> Option<u64> {
    let hard = keys.get(name, read).unwrap_or_else(|| rekey.map(|soft| soft.saturating_add(soft / 10)));
    if hard.zip(rekey).is_some_and(|(hard, soft)| hard < soft) {
        keys.wrong(name, "it is less than what rekeying begins at: a larger number was expected");
    }
    hard
}

/// Reads `none`, `start`, `trap`, or both with a `|` between.
fn start(text: &str) -> Result<Start, String> {
    let expected = || "none, start, trap or trap|start was expected".to_owned();
    let mut start = Start::default();
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

fn on_close(text: &str) -> Result<OnClose, String> {
    let words = [
        ("none", OnClose::Clear),
        ("clear", OnClose::Clear),
        ("trap", OnClose::Trap),
        ("route", OnClose::Trap),
        ("start", OnClose::Restart),
        ("restart", OnClose::Restart),
    ];
    choice(&words)(text).map_err(|_| "none, clear, trap, start or restart was expected".into())
}

fn replay_window(keys: &Keys<'_>, packets_overtake: bool) -> u32 {
    let given = keys.get("replay_window", number);
    if packets_overtake && given.is_some_and(|packets| (1..OVERTAKEN).contains(&packets)) {
        keys.warn(
            "replay_window",
            "the scheduler lets urgent packets overtake others, and those that are behind the window then are dropped as replayed: \
             32768 or more was expected, or 0",
        );
    }
    given.unwrap_or(if packets_overtake { OVERTAKEN } else { REPLAY_WINDOW })
}

fn padding(text: &str) -> Result<u16, String> {
    if text == "mtu" {
        return Err("padding to the path MTU is not implemented: a number of bytes was expected".into());
    }
    number(text)
}

fn outer(keys: &Keys<'_>) -> OuterHeader {
    OuterHeader {
        dscp: outer_dscp(keys),
        df: if keys.get("copy_df", truth).unwrap_or(true) { DfPolicy::Copy } else { DfPolicy::Clear },
        ecn: keys.get("copy_ecn", truth).unwrap_or(true),
        ..OuterHeader::default()
    }
}

/// The key `dscp` is ours: strongSwan can copy the field or clear it, and not set it.
fn outer_dscp(keys: &Keys<'_>) -> DscpPolicy {
    let copied = |text: &str| match text {
        "out" => Ok(DscpPolicy::Copy),
        // RFC 4301 section 5.1.2.1 note 5: the inner field is not to be changed by the outer one.
        "in" | "yes" => {
            Err("the DSCP of the outer header is not copied into the inner one: out or no was expected"
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
        keys.wrong(
            "dscp",
            "copy_dscp has the DSCP copied from the inner header: one of the two keys was expected",
        );
    }
    set.map(|dscp| DscpPolicy::Set(dscp.value())).or(copied).unwrap_or(DscpPolicy::Copy)
}

fn shunt(keys: &Keys<'_>, name: &str, passes: bool) -> Shunt {
    // strongSwan sets up a shunt only then.
    let start = keys.get("start_action", start).unwrap_or_default();
    if !start.on_traffic {
        keys.wrong("start_action", "pass and drop take effect with trap only, which was expected");
    }
    for name in ["ah_proposals", "esp_proposals"] {
        if keys.has(name) {
            keys.wrong(name, "pass and drop protect nothing: no proposal was expected");
        }
    }
    if keys.has("dscp_values") {
        keys.wrong("dscp_values", "pass and drop have no SA to be chosen: no DSCP was expected");
    }
    Shunt {
        name: name.into(),
        passes,
        local_ts: selectors(keys, "local_ts"),
        remote_ts: selectors(keys, "remote_ts"),
        priority: keys.get("priority", number).filter(|priority| *priority != 0),
    }
}
