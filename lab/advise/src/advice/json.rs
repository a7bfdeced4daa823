//! JSON form of the advice.

use super::Advice;
use crate::end_to_end::EndToEnd;
use crate::measure::{Costs, KexCost};
use crate::rank::RankedSuite;
use crate::rules::{Profile, Refusal};
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
            "settings": {
                "proposals": settings.ike,
                "esp_proposals": settings.esp,
                "mode": settings.mode.to_string(),
                "esn": settings.esn,
                "replay_window": settings.replay_window,
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
            "us": cost.micros.json(),
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
    let Profile { name, title, read, is_history, .. } = profile;
    json!({ "name": name, "title": title, "read": read, "history": is_history })
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

fn dominated((suite, why): &(EspSuite, &str)) -> Value {
    json!({ "suite": suite.to_string(), "why": why })
}

fn refused((suite, refusal): &(EspSuite, Refusal)) -> Value {
    json!({ "suite": suite.to_string(), "part": refusal.part, "why": refusal.why, "source": refusal.source })
}
