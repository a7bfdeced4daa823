//! Lifetimes of IKE SAs and Child SAs: when they are rekeyed, reauthenticated or closed.

use super::schema::Keys;
use super::value::time;
use casemate_ike::config::Lifespan;
use std::time::Duration;

/// Default of `rekey_time` of a connection.
const IKE_REKEY: Duration = Duration::from_secs(4 * 3_600);
/// Default of `rekey_time` of a child.
const CHILD_REKEY: Duration = Duration::from_secs(3_600);

/// Lifetimes of the IKE SA. The default is rekeying without reauthentication; with `reauth_time`, the SA
/// is rekeyed only if `rekey_time` is given too.
pub(super) fn of_ike_sa(keys: &Keys<'_>) -> (Lifespan, Option<Duration>) {
    let reauth = keys.get("reauth_time", time).flatten();
    let default = if reauth.is_none() { Some(IKE_REKEY) } else { None };
    let rekey = keys.get("rekey_time", time).unwrap_or(default);
    let longest = rekey.max(reauth).unwrap_or_default();
    let over = keys.get("over_time", time).map_or_else(|| tenth(longest), Option::unwrap_or_default);
    let shortest = match (rekey, reauth) {
        (Some(rekey), Some(reauth)) => Some(rekey.min(reauth)),
        (one, other) => one.or(other),
    };
    let half = shortest.unwrap_or_default() / 2;
    let random = random(keys, shortest, over.min(half));
    let hard = rekey.or(reauth).map(|time| time.saturating_add(over));
    (Lifespan { rekey, jitter: random, hard }, reauth)
}

/// Lifetimes of a Child SA in time. The default is rekeying after an hour.
pub(super) fn of_child_sa(keys: &Keys<'_>) -> Lifespan {
    let rekey = keys.get("rekey_time", time).unwrap_or(Some(CHILD_REKEY));
    let hard =
        keys.get("life_time", time).unwrap_or_else(|| rekey.map(|rekey| rekey.saturating_add(tenth(rekey))));
    if hard.zip(rekey).is_some_and(|(hard, rekey)| hard < rekey) {
        keys.error("life_time", "it ends before rekey_time: a longer time was expected");
    }
    let between = hard.unwrap_or_default().saturating_sub(rekey.unwrap_or_default());
    let random = random(keys, rekey, between.min(rekey.unwrap_or_default()));
    Lifespan { rekey, jitter: random, hard }
}

/// Reads `inactivity`. A new Child SA counts as used, so rekeying delays the end.
pub(super) fn inactivity(keys: &Keys<'_>, lifespan: &Lifespan) -> Option<Duration> {
    let limit = keys.get("inactivity", time).flatten()?;
    if lifespan.rekey.is_some_and(|rekey| rekey <= limit) {
        keys.warn("inactivity", "the Child SA is rekeyed before: a time below `rekey_time` was expected");
    }
    Some(limit)
}

/// The value of `rand_time`, or `default`. The value must not exceed `until`, the time that it shortens.
fn random(keys: &Keys<'_>, until: Option<Duration>, default: Duration) -> Duration {
    let random = keys.get("rand_time", time).map_or(default, Option::unwrap_or_default);
    if until.is_some_and(|until| random > until) {
        keys.error("rand_time", "it is longer than the time that it shortens: a shorter time was expected");
    }
    random
}

fn tenth(time: Duration) -> Duration {
    time / 10
}
