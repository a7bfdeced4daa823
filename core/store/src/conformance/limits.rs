//! Tests of limits: what a store accepts, and what it returns unqueued.

use super::{Check, Session, Subject, Tests, bytes, commit, delete, holds, put, range, same};
use crate::{
    Comparison, MAX_KEY, MAX_PENDING, MAX_RANGE, MAX_VALUE, MAX_WATCHES, MAX_WRITES, Outcome, Range, Request,
    RequestId, Revision, Store, StoreError, Transaction, WatchId, Write,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

pub(super) fn tests<S: Subject>() -> Tests<S> {
    vec![
        ("the longest key and value are accepted", longest),
        ("requests beyond a limit are returned", oversize),
        ("transactions with the most comparisons and writes", largest_transaction),
        ("pending requests are limited and none is lost", pending),
        ("the number of a pending request is not accepted again", same_number),
        ("watches are limited", watches),
    ]
}

fn put_bytes(key: usize, value: usize) -> Write {
    Write::Put { key: bytes(key), value: bytes(value), lease: None }
}

fn longest<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put_bytes(MAX_KEY, MAX_VALUE)])?;
    let (entries, _) = session.read("x")?;
    let found: Vec<_> = entries.iter().map(|entry| (entry.key.len(), entry.value.len())).collect();
    same(&found, &vec![(MAX_KEY, MAX_VALUE)])?;
    let comparison = Comparison::Created(bytes(MAX_KEY), at);
    let later = session.commit(&[comparison], &[Write::Delete(bytes(MAX_KEY))])?;
    holds(matches!(later, Outcome::Committed(later) if later > at), "a deletion")
}

fn oversize<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let over = |limit: usize| limit.saturating_add(1);
    let read = |prefix, after, limit| Request::Read(Range { prefix, after, limit });
    let watch = |prefix| Request::Watch { watch: WatchId(1), prefix, from: Revision(1) };
    let many = |count: usize| (0..count).map(|number| format!("{number}")).collect::<Vec<_>>();
    let compare = |key| Comparison::Created(key, Revision::ABSENT);
    let requests = [
        commit(&[], &[put_bytes(over(MAX_KEY), 0)]),
        commit(&[], &[put_bytes(1, over(MAX_VALUE))]),
        commit(&[], &[put_bytes(0, 1)]),
        commit(&[], &[Write::Delete(bytes(over(MAX_KEY)))]),
        commit(&[], &[Write::Delete(vec![])]),
        commit(&[compare(bytes(over(MAX_KEY)))], &[]),
        commit(&[Comparison::Changed(vec![], Revision(1))], &[]),
        commit(&[], &many(over(MAX_WRITES)).iter().map(|name| put(name, "")).collect::<Vec<_>>()),
        commit(&vec![compare(bytes(1)); over(MAX_WRITES)], &[]),
        commit(&[], &[put("a", "1"), put("a", "2")]),
        commit(&[], &[put("a", "1"), delete("a")]),
        read(bytes(over(MAX_KEY)), None, 1),
        read(vec![], Some(bytes(over(MAX_KEY))), 1),
        read(vec![], None, 0),
        read(vec![], None, over(MAX_RANGE)),
        watch(bytes(over(MAX_KEY))),
        Request::NewLease(Duration::ZERO),
        Request::NewLease(Duration::from_millis(2_500)),
    ];
    for (number, request) in requests.into_iter().enumerate() {
        let id = RequestId(number as u64);
        if session.store.submit(id, request.clone()) != Err(request.clone()) {
            return Err(format!("{request:?} is accepted, or another request is returned"));
        }
    }
    // Nothing was queued: the numbers are free, and the store is empty.
    same(&session.read("")?.0, &vec![])
}

fn largest_transaction<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let names: Vec<_> = (0..MAX_WRITES).map(|number| format!("{number:02}")).collect();
    let comparisons: Vec<_> = names.iter().map(|name| super::created(name, Revision::ABSENT)).collect();
    let writes: Vec<_> = names.iter().map(|name| put(name, name)).collect();
    let outcome = session.commit(&comparisons, &writes)?;
    let Outcome::Committed(at) = outcome else { return Err(format!("{outcome:?}")) };
    let (entries, _) = session.read("")?;
    same(&entries.len(), &MAX_WRITES)?;
    holds(entries.iter().all(|entry| entry.created == at), "entries of one revision")?;
    same(&session.commit(&comparisons, &writes)?, &Outcome::Refused(at))
}

fn pending<S: Subject>(session: &mut Session<'_, S>) -> Check {
    // Completions that were not taken count as pending.
    let request = || Request::Commit(Transaction { comparisons: vec![], writes: vec![put("n", "")] });
    let mut ids = Vec::new();
    for _ in 0..MAX_PENDING {
        ids.push(session.submit(request())?);
    }
    let over = RequestId(session.next_id);
    same(&session.store.submit(over, request()), &Err(request()))?;
    let (mut last, mut seen) = (Revision::ABSENT, 0_usize);
    for id in ids {
        let Ok(Outcome::Committed(at)) = session.wait(id)? else { return Err(format!("{id:?} fails")) };
        holds(at > last, "revisions in the order of submission")?;
        last = at;
        seen = seen.saturating_add(1);
    }
    same(&seen, &MAX_PENDING)?;
    let id = session.submit(range("n", None, 1))?;
    holds(matches!(session.wait(id)?, Ok(Outcome::Entries { revision, .. }) if revision == last), "an end")
}

fn same_number<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let id = session.submit(range("", None, 1))?;
    let again = range("", None, 2);
    same(&session.store.submit(id, again.clone()), &Err(again.clone()))?;
    let outcome = session.wait(id)?;
    holds(matches!(outcome, Ok(Outcome::Entries { .. })), "entries")?;
    // After its completion, the number is free.
    same(&session.store.submit(id, again), &Ok(()))?;
    session.wait(id).map(|_| ())
}

fn watches<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "")])?;
    for number in 0..MAX_WATCHES as u64 {
        session.watch(number, "b", super::next(at))?;
    }
    let watch = WatchId(MAX_WATCHES as u64);
    let over = Request::Watch { watch, prefix: vec![], from: super::next(at) };
    let id = session.submit(over.clone())?;
    same(&session.wait(id)?, &Err(StoreError::Refused))?;
    session.run(Request::Unwatch(WatchId(0)))?;
    same(&session.run(over)?, &Outcome::Watching)
}
