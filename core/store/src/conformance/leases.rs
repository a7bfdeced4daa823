//! Tests of leases: entries that end with them, renewal, and revocation.

use super::{Check, Session, Subject, Tests, commit, created, delete, entry, holds, put, put_with, same};
use crate::{Lease, Outcome, Request, Revision, Store, StoreError, WatchEvent, WatchId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use core::time::Duration;

/// Seconds after the end of a lease within which the store deletes its entries.
const LATE: usize = 10;

pub(super) fn tests<S: Subject>() -> Tests<S> {
    vec![
        ("an entry ends with its lease, and not before", ends),
        ("a renewed lease lasts", renewed),
        ("a revoked lease ends at once", revoked),
        ("a lease that does not exist", unknown),
        ("an entry has the lease of its last put", last_put),
        ("the entries of a lease end at one revision", one_revision),
        ("leases are different", different),
        ("a slot can be claimed again after its lease", claimed_again),
    ]
}

/// A lease of the shortest time, in whole seconds.
fn shortest<S: Subject>(session: &mut Session<'_, S>) -> Result<(Lease, Duration), String> {
    let shortest = session.store.shortest_lease();
    let whole = Duration::from_secs(shortest.as_secs());
    let time = if whole < shortest { whole.saturating_add(Duration::from_secs(1)) } else { whole };
    let time = time.max(Duration::from_secs(2));
    holds(time <= Duration::from_secs(60), "a shortest lease of at most a minute")?;
    Ok((session.grant(time)?, time))
}

fn pass<S: Subject>(session: &mut Session<'_, S>, time: Duration) {
    session.subject.pass(&mut session.store, time);
}

/// Waits until the store has deleted all entries below a prefix because their lease has ended.
fn wait_until_gone<S: Subject>(session: &mut Session<'_, S>, prefix: &str) -> Result<Revision, String> {
    for _ in 0..LATE {
        let (entries, revision) = session.read(prefix)?;
        if entries.is_empty() {
            return Ok(revision);
        }
        pass(session, Duration::from_secs(1));
    }
    Err(format!("entries below {prefix} exist {LATE} seconds after the end of their lease"))
}

fn ends<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let (lease, time) = shortest(session)?;
    let at = session.write(&[put_with("bound", "", lease), put("free", "")])?;
    session.watch(1, "bound", super::next(at))?;
    pass(session, time.checked_div(2).unwrap_or_default());
    same(&session.read("bound")?.0, &vec![entry("bound", "", [at, at], Some(lease))])?;
    pass(session, time);
    let deleted = wait_until_gone(session, "bound")?;
    holds(deleted > at, "a revision for the end of the lease")?;
    same(&session.read("")?.0, &vec![entry("free", "", [at, at], None)])?;
    session.expect_events(&[WatchEvent::Deleted(WatchId(1), super::key("bound"), deleted)])?;
    same(&session.run(Request::Renew(lease))?, &Outcome::Ended)?;
    same(&session.run(Request::Revoke(lease))?, &Outcome::Ended)
}

fn renewed<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let (lease, time) = shortest(session)?;
    session.write(&[put_with("bound", "", lease)])?;
    for _ in 0..4 {
        pass(session, time.checked_div(2).unwrap_or_default());
        same(&session.run(Request::Renew(lease))?, &Outcome::Renewed)?;
    }
    holds(!session.read("bound")?.0.is_empty(), "an entry whose lease was renewed")?;
    pass(session, time);
    wait_until_gone(session, "bound").map(|_| ())
}

fn revoked<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let lease = session.grant(Duration::from_secs(60))?;
    let other = session.grant(Duration::from_secs(60))?;
    let at = session.write(&[put_with("a", "", lease), put_with("b", "", other), put("c", "")])?;
    same(&session.run(Request::Revoke(lease))?, &Outcome::Ended)?;
    let (entries, revision) = session.read("")?;
    holds(revision > at, "a revision for the end of the lease")?;
    same(&entries, &vec![entry("b", "", [at, at], Some(other)), entry("c", "", [at, at], None)])?;
    same(&session.run(Request::Renew(lease))?, &Outcome::Ended)?;
    same(&session.run(Request::Revoke(lease))?, &Outcome::Ended)?;
    same(&session.run(Request::Renew(other))?, &Outcome::Renewed)?;
    // The end of a lease without entries changes nothing.
    let unused = session.grant(Duration::from_secs(60))?;
    same(&session.run(Request::Revoke(unused))?, &Outcome::Ended)?;
    same(&session.read("")?.1, &revision)?;
    same(&session.run(Request::Revoke(other))?, &Outcome::Ended)
}

fn unknown<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let lease = session.grant(Duration::from_secs(60))?;
    session.run(Request::Revoke(lease))?;
    let at = session.write(&[put("a", "1")])?;
    let id = session.submit(commit(&[], &[put("a", "2"), put_with("b", "", lease)]))?;
    same(&session.wait(id)?, &Err(StoreError::Refused))?;
    // Comparisons come first.
    let id = session.submit(commit(&[created("b", at)], &[put_with("b", "", lease)]))?;
    same(&session.wait(id)?, &Ok(Outcome::Refused(at)))?;
    same(&session.read("")?, &(vec![entry("a", "1", [at, at], None)], at))
}

fn last_put<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let first = session.grant(Duration::from_secs(60))?;
    let second = session.grant(Duration::from_secs(60))?;
    let at = session.write(&[put_with("a", "", first), put_with("b", "", first), put("c", "")])?;
    let later = session.write(&[put("a", ""), put_with("b", "", second), put_with("c", "", second)])?;
    session.run(Request::Revoke(first))?;
    let expected = vec![
        entry("a", "", [at, later], None),
        entry("b", "", [at, later], Some(second)),
        entry("c", "", [at, later], Some(second)),
    ];
    same(&session.read("")?, &(expected, later))?;
    session.run(Request::Revoke(second))?;
    same(&session.read("")?.0, &vec![entry("a", "", [at, later], None)])
}

fn one_revision<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let lease = session.grant(Duration::from_secs(60))?;
    let at =
        session.write(&[put_with("b", "", lease), put_with("a", "", lease), put_with("c", "", lease)])?;
    let last = session.write(&[delete("c")])?;
    session.watch(1, "", super::next(last))?;
    session.run(Request::Revoke(lease))?;
    let (entries, revision) = session.read("")?;
    holds(entries.is_empty() && revision > at, "a store without entries")?;
    let deleted = |name| WatchEvent::Deleted(WatchId(1), super::key(name), revision);
    session.expect_events(&[deleted("a"), deleted("b")])
}

fn different<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let mut leases = alloc::collections::BTreeSet::new();
    for _ in 0..10 {
        let lease = session.grant(Duration::from_secs(60))?;
        holds(leases.insert(lease), "a lease that was not granted before")?;
        same(&session.run(Request::Revoke(lease))?, &Outcome::Ended)?;
    }
    Ok(())
}

fn claimed_again<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let (lease, time) = shortest(session)?;
    let claim = [created("slot", Revision::ABSENT)];
    let Outcome::Committed(epoch) = session.commit(&claim, &[put_with("slot", "one", lease)])? else {
        return Err("the first claim is refused".into());
    };
    let second = session.grant(Duration::from_secs(60))?;
    same(&session.commit(&claim, &[put_with("slot", "two", second)])?, &Outcome::Refused(epoch))?;
    pass(session, time);
    wait_until_gone(session, "slot")?;
    let Outcome::Committed(later) = session.commit(&claim, &[put_with("slot", "two", second)])? else {
        return Err("the claim after the end of the lease is refused".into());
    };
    holds(later > epoch, "a later epoch")?;
    // The former owner writes nothing.
    same(&session.commit(&[created("slot", epoch)], &[put("record", "")])?, &Outcome::Refused(later))?;
    same(&session.run(Request::Revoke(second))?, &Outcome::Ended)
}
