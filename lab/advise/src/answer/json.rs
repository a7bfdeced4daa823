//! The answer as one JSON object.

use super::Answer;
use crate::measure::{Costs, KexCost};
use crate::rank::Place;
use crate::rules::{Profile, Refusal};
use crate::thorough::Thorough;
use casemate_crypto::EspSuite;
use casemate_measure::spread::Spread;
use serde_json::{Value, json};

impl Answer {
    /// One object; with every sample if they are wanted.
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
            "ranking": self.places.iter().map(place).collect::<Vec<_>>(),
            "key_exchanges": self.kex.iter().map(|cost| self.kex(cost)).collect::<Vec<_>>(),
            "settings": {
                "proposals": settings.ike,
                "esp_proposals": settings.esp,
                "mode": settings.mode.to_string(),
                "esn": settings.esn,
                "replay_window": settings.replay_window,
            },
            "thorough": self.thorough.as_ref().map(thorough),
            "reasons": settings.reasons,
            "changes": self.changes(),
            "refused": self.sorted.refused.iter().map(refused).collect::<Vec<_>>(),
            "passed_over": self.sorted.passed_over.iter().map(|(suite, why)| json!({ "suite": suite.to_string(), "why": why })).collect::<Vec<_>>(),
            "missing": self.found.missing.iter().map(EspSuite::to_string).collect::<Vec<_>>(),
        });
        if let (true, Some(object)) = (with_samples, answer.as_object_mut()) {
            let all = |costs: &[Costs]| costs.iter().map(Costs::json).collect::<Vec<_>>();
            object.insert("first_look".into(), all(&self.found.first_look).into());
            object.insert("finalists".into(), all(&self.found.finalists).into());
            object.insert("alone".into(), all(&self.found.alone).into());
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

fn thorough(thorough: &Result<Thorough, String>) -> Value {
    match thorough {
        Ok(thorough) => thorough.json(),
        Err(why) => json!({ "not_measured": why }),
    }
}

fn profile(profile: &Profile) -> Value {
    json!({ "name": profile.name, "title": profile.title, "read": profile.read, "history": profile.is_history })
}

fn place(place: &Place) -> Value {
    let Place { spot, behind, is_tied, .. } = place;
    json!({
        "suite": spot.suite.to_string(),
        "proposal": crate::suites::spelling(spot.suite),
        "number": Spread::of(spot.scores.iter().copied()).map(Spread::json),
        "behind": behind,
        "tied": is_tied,
        "level": spot.admitted.status.words(),
        "source": spot.admitted.source,
        "note": spot.admitted.note,
        "cpu_ns_per_byte": spot.cpu,
        "air_bytes_per_byte": spot.bytes,
    })
}

fn refused((suite, refusal): &(EspSuite, Refusal)) -> Value {
    json!({ "suite": suite.to_string(), "part": refusal.part, "why": refusal.why, "source": refusal.source })
}
