//! The advice as a JSON object.

use super::Advice;
use crate::end_to_end::EndToEnd;
use crate::handshake::AdditionalExchange;
use crate::measure::{Costs, KexCost};
use crate::rank::RankedSuite;
use crate::rules::{Profile, Refusal};
use crate::suites::{DominatedSuite, RefusedSuite};
use casemate_crypto::EspSuite;
use casemate_measure::stats::Spread;
use serde_json::{Value, json};

impl Advice {
    /// Returns one JSON object, optionally with every sample.
    pub fn json(&self, with_samples: bool) -> Value {
        let settings = &self.settings;
        let mut answer = json!({
            "device": self.device.json(),
            "as_if": (self.as_if != Default::default()).then(|| self.as_if.to_string()),
            "providers": self.providers,
            "goal": self.goal.word(),
            "unit": self.goal.unit(),
            "packets": self.use_case.mix.name,
            "mode": self.use_case.mode.to_string(),
            "behind_nat": self.use_case.behind_nat,
            "profiles": self.filter.profiles().iter().map(profile).collect::<Vec<_>>(),
            "ranking": self.ranking.iter().map(place).collect::<Vec<_>>(),
            "key_exchanges": self.kex.iter().map(|cost| self.kex(cost)).collect::<Vec<_>>(),
            "additional_key_exchange": settings.additional_exchange.as_ref().map(additional_exchange),
            "settings": {
                "proposals": settings.ike,
                "esp_proposals": settings.esp,
                "mode": settings.mode.to_string(),
                "esn": settings.esn,
                "replay_window": settings.replay_window,
                "rohc": settings.rohc,
                "encap": if settings.encap_auto { "auto" } else { "no" },
            },
            "encapsulation": match &self.encapsulation {
                Ok(samples) => samples.json(),
                Err(reason) => json!({ "not_measured": reason }),
            },
            "thorough": self.end_to_end.as_ref().map(thorough),
            "reasons": settings.reasons,
            "changes": self.changes(),
            "refused": self.suites.refused.iter().map(refused).collect::<Vec<_>>(),
            "passed_over": self.suites.dominated.iter().map(dominated).collect::<Vec<_>>(),
            "missing": self.measurements.unsupported.iter().map(EspSuite::to_string).collect::<Vec<_>>(),
        });
        if let (true, Some(object)) = (with_samples, answer.as_object_mut()) {
            let all = |costs: &[Costs]| costs.iter().map(Costs::json).collect::<Vec<_>>();
            object.insert("first_look".into(), all(&self.measurements.screening).into());
            object.insert("finalists".into(), all(&self.measurements.finalists).into());
            object.insert("alone".into(), all(&self.measurements.per_provider).into());
        }
        answer
    }

    fn kex(&self, cost: &KexCost) -> Value {
        let ruling = self.filter.kex(cost.method);
        json!({
            "method": cost.method.to_string(),
            "generate_us": cost.generate.json(),
            "respond_us": cost.respond.json(),
            "agree_us": cost.agree.json(),
            "initiator_bytes": cost.method.public_len(),
            "responder_bytes": cost.method.response_len(),
            "level": ruling.as_ref().ok().map(|admitted| admitted.status.words()),
            "refused": ruling.err().map(|refusal| refusal.to_string()),
        })
    }
}

fn thorough(thorough: &Result<EndToEnd, String>) -> Value {
    match thorough {
        Ok(thorough) => thorough.json(),
        Err(why) => json!({ "not_measured": why }),
    }
}

fn profile(profile: &Profile) -> Value {
    let Profile { name, title, read, is_history, unmet, .. } = profile;
    json!({ "name": name, "title": title, "read": read, "history": is_history, "unmet": unmet })
}

fn additional_exchange(exchange: &AdditionalExchange) -> Value {
    json!({
        "method": exchange.cost.method.to_string(),
        "after": exchange.first.method.to_string(),
        "required": exchange.is_required(),
        "recommended": exchange.is_recommended(),
        "initiator_us": exchange.cost.initiator_micros(),
        "responder_us": exchange.cost.responder_micros(),
        "packets": exchange.wire.packets,
        "bytes": exchange.wire.bytes,
        "bytes_a_day": exchange.bytes_a_day(),
    })
}

fn place(place: &RankedSuite) -> Value {
    let RankedSuite { scored, gap: behind, is_tied, .. } = place;
    json!({
        "suite": scored.suite.to_string(),
        "proposal": crate::suites::proposal_keyword(scored.suite),
        "number": Spread::of(scored.scores.iter().copied()).map(Spread::json),
        "behind": behind,
        "tied": is_tied,
        "level": scored.admitted.status.words(),
        "source": scored.admitted.source,
        "note": scored.admitted.note,
        "cpu_ns_per_byte": scored.cpu,
        "air_bytes_per_byte": scored.bytes,
    })
}

fn dominated(dominated: &DominatedSuite) -> Value {
    json!({ "suite": dominated.suite.to_string(), "why": dominated.why })
}

fn refused(refused: &RefusedSuite) -> Value {
    let Refusal { part, why, source } = &refused.refusal;
    json!({ "suite": refused.suite.to_string(), "part": part, "why": why, "source": source })
}
