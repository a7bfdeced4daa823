//! Tests of watches: past and later changes, prefixes, and the order of events.

use super::{Check, Session, Subject, Tests, delete, entry, key, next, put, same};
use crate::{Entry, Outcome, Request, Revision, StoreError, WatchEvent, WatchId};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

pub(super) fn tests<S: Subject>() -> Tests<S> {
    vec![
        ("a watch reports later changes", later),
        ("a watch from a past revision", past),
        ("a watch from a revision to come", future),
        ("a watch reports its prefix only", prefix),
        ("events of a transaction", transaction),
        ("a refused transaction is not reported", refused),
        ("a watch that has ended reports nothing", ended),
        ("watches have different names", names),
        ("events are in the order of revisions", order),
    ]
}

fn put_event(watch: u64, entry: Entry) -> WatchEvent {
    WatchEvent::Put(WatchId(watch), entry)
}

fn deleted(watch: u64, name: &str, at: Revision) -> WatchEvent {
    WatchEvent::Deleted(WatchId(watch), key(name), at)
}

fn later<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let before = session.write(&[put("a", "0")])?;
    session.watch(1, "", next(before))?;
    session.expect_events(&[])?;
    let first = session.write(&[put("a", "1")])?;
    let second = session.write(&[put("b", "2")])?;
    let third = session.write(&[delete("a")])?;
    session.expect_events(&[
        put_event(1, entry("a", "1", [before, first], None)),
        put_event(1, entry("b", "2", [second, second], None)),
        deleted(1, "a", third),
    ])
}

fn past<S: Subject>(session: &mut Session<'_, S>) -> Check {
    session.write(&[put("a", "0")])?;
    let first = session.write(&[put("b", "1")])?;
    let second = session.write(&[put("b", "2")])?;
    let third = session.write(&[delete("b")])?;
    let from_first = [
        put_event(1, entry("b", "1", [first, first], None)),
        put_event(1, entry("b", "2", [first, second], None)),
        deleted(1, "b", third),
    ];
    session.watch(1, "", first)?;
    session.expect_events(&from_first)?;
    session.watch(2, "", third)?;
    session.expect_events(&[deleted(2, "b", third)])
}

fn future<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let now = session.write(&[put("a", "0")])?;
    session.watch(1, "", Revision(now.0.saturating_add(3)))?;
    let mut last = now;
    for number in ["1", "2", "3"] {
        last = session.write(&[put("a", number)])?;
    }
    same(&last, &Revision(now.0.saturating_add(3)))?;
    session.expect_events(&[put_event(1, entry("a", "3", [now, last], None))])
}

fn prefix<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let before = session.write(&[put("x", "")])?;
    session.watch(1, "a/", next(before))?;
    session.watch(2, "a/1", next(before))?;
    let at = session.write(&[put("a", "")])?;
    let first = session.write(&[put("a/2", "")])?;
    session.write(&[put("b", "")])?;
    let second = session.write(&[put("a/10", "")])?;
    same(&(at < first && first < second), &true)?;
    let events = session.wait_for_events(3)?;
    let of = |id| events.iter().filter(|event| watch_of(event) == WatchId(id)).cloned().collect::<Vec<_>>();
    let entries = [entry("a/2", "", [first, first], None), entry("a/10", "", [second, second], None)];
    same(&of(1), &entries.iter().map(|entry| put_event(1, entry.clone())).collect())?;
    same(&of(2), &entries.iter().skip(1).map(|entry| put_event(2, entry.clone())).collect())?;
    session.expect_events(&[])
}

fn watch_of(event: &WatchEvent) -> WatchId {
    match event {
        WatchEvent::Put(watch, _) | WatchEvent::Deleted(watch, _, _) | WatchEvent::Gap(watch) => *watch,
    }
}

fn transaction<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let before = session.write(&[put("gone", "")])?;
    session.watch(1, "", next(before))?;
    let at = session.write(&[put("b", "1"), delete("gone"), delete("absent"), put("a", "2")])?;
    session.expect_events(&[
        put_event(1, entry("b", "1", [at, at], None)),
        deleted(1, "gone", at),
        put_event(1, entry("a", "2", [at, at], None)),
    ])
}

fn refused<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "")])?;
    session.watch(1, "", next(at))?;
    let outcome = session.commit(&[super::created("a", Revision::ABSENT)], &[put("a", "1"), put("b", "")])?;
    same(&outcome, &Outcome::Refused(at))?;
    session.expect_events(&[])
}

fn ended<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "")])?;
    session.watch(1, "", next(at))?;
    session.watch(2, "", next(at))?;
    same(&session.run(Request::Unwatch(WatchId(1)))?, &Outcome::Ended)?;
    same(&session.run(Request::Unwatch(WatchId(1)))?, &Outcome::Ended)?;
    let later = session.write(&[delete("a")])?;
    session.expect_events(&[deleted(2, "a", later)])?;
    // The name is free again.
    session.watch(1, "", later)?;
    session.expect_events(&[deleted(1, "a", later)])
}

fn names<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "")])?;
    session.watch(1, "", next(at))?;
    let id = session.submit(Request::Watch { watch: WatchId(1), prefix: key("a"), from: next(at) })?;
    same(&session.wait(id)?, &Err(StoreError::Refused))?;
    let later = session.write(&[delete("a")])?;
    session.expect_events(&[deleted(1, "a", later)])
}

fn order<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let start = session.write(&[put("z", "")])?;
    let mut ids = Vec::new();
    for number in 0..100_u32 {
        if number == 50 {
            // A watch in the middle of the changes sees those before and after, each once.
            let watch = Request::Watch { watch: WatchId(1), prefix: key("k"), from: next(start) };
            ids.push(session.submit(watch)?);
        }
        let name = format!("k{:02}", number.wrapping_mul(37) & 31);
        ids.push(session.submit(super::commit(&[], &[put(&name, &format!("{number}"))]))?);
    }
    let mut revisions = Vec::new();
    for id in ids {
        match session.wait(id)? {
            Ok(Outcome::Committed(at)) => revisions.push(at),
            Ok(Outcome::Watching) => {}
            other => return Err(format!("{other:?}")),
        }
    }
    let mut seen = Vec::new();
    for (number, event) in session.wait_for_events(100)?.into_iter().enumerate() {
        let WatchEvent::Put(_, entry) = event else { return Err(format!("{event:?}")) };
        same(&entry.value, &format!("{number}").into_bytes())?;
        seen.push(entry.changed);
    }
    same(&seen, &revisions)?;
    session.expect_events(&[])
}
