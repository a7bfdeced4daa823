//! Warnings about a file as a whole, after each line has been found valid.

use super::LineProblem;
use super::policy::{DirectedPolicy, Direction};
use super::{Located, XfrmFile};
use casemate_datapath::spd::{Action, Template};
use casemate_sa::{Mode, Protocol, SaParams};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Adds the warnings about a whole file.
pub(super) fn warn(file: &mut XfrmFile) {
    let mut warnings = Vec::new();
    reserved_spis(&file.states, &mut warnings);
    shared_counter_keys(&file.states, &mut warnings);
    unserved_templates(&file.states, &file.policies, &mut warnings);
    file.warnings.append(&mut warnings);
}

fn reserved_spis(states: &[Located<SaParams>], warnings: &mut Vec<LineProblem>) {
    for state in states.iter().filter(|state| state.value.spi.is_reserved()) {
        let spi = state.value.spi.get();
        let text = format!(
            "`spi {spi}`: 1 to 255 are reserved by IANA (RFC 4303 section 2.1); 256 or more was expected"
        );
        warnings.push(LineProblem::new(state.line, text));
    }
}

/// Two senders with the same counter-mode key repeat each other's IVs (RFC 4106 section 3, RFC 3686
/// section 2.1).
fn shared_counter_keys(states: &[Located<SaParams>], warnings: &mut Vec<LineProblem>) {
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    for state in states {
        let Some(key) = state.value.transform.counter_key() else { continue };
        let first = *seen.entry(key.expose()).or_insert(state.line);
        if first != state.line {
            let text = format!(
                "the key is that of line {first}: two SAs with the same counter-mode key repeat IVs, which \
                 reveals the plaintext; a separate key was expected"
            );
            warnings.push(LineProblem::new(state.line, text));
        }
    }
}

/// The fields by which a template selects a state; `None` is a field that the template leaves open.
#[derive(PartialEq, Eq, Hash)]
struct TemplateKey {
    protocol: Protocol,
    mode: Mode,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    reqid: Option<u32>,
}

fn unserved_templates(
    states: &[Located<SaParams>],
    policies: &[Located<DirectedPolicy>],
    warnings: &mut Vec<LineProblem>,
) {
    let served: HashSet<TemplateKey> = states.iter().flat_map(|state| keys_served_by(&state.value)).collect();
    for policy in policies.iter().filter(|policy| policy.value.direction != Direction::Forward) {
        let Action::Protect(bundle) = &policy.value.policy.action else { continue };
        for template in bundle.templates().iter().filter(|template| !served.contains(&template_key(template)))
        {
            let text = format!(
                "no state of this file matches the tmpl {template}: a state with the same values was expected"
            );
            warnings.push(LineProblem::new(policy.line, text));
        }
    }
}

/// All templates that a state serves, so that one look-up replaces a search through all states.
fn keys_served_by(sa: &SaParams) -> impl Iterator<Item = TemplateKey> {
    (0u8..8).map(|open| TemplateKey {
        protocol: sa.transform.protocol(),
        mode: sa.mode,
        src: (open & 1 == 0).then_some(sa.src),
        dst: (open & 2 == 0).then_some(sa.dst),
        reqid: (open & 4 == 0).then_some(sa.reqid),
    })
}

fn template_key(template: &Template) -> TemplateKey {
    TemplateKey {
        protocol: template.protocol,
        mode: template.mode,
        src: template.src,
        dst: template.dst,
        reqid: (template.reqid != 0).then_some(template.reqid),
    }
}
