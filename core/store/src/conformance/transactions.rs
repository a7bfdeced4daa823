//! Tests of transactions: comparisons by revision, writes, and revisions.

use super::{Check, Session, Subject, Tests, changed, commit, created, delete, entry, put, same};
use crate::{Comparison, Outcome, Revision, WatchId, Write};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

pub(super) fn tests<S: Subject>() -> Tests<S> {
    vec![
        ("a put creates an entry", put_creates),
        ("a put changes an entry", put_changes),
        ("a transaction has one revision", one_revision),
        ("a key that is put again has another creation", created_again),
        ("comparisons by creation", by_creation),
        ("comparisons by change", by_change),
        ("one false comparison refuses all writes", all_or_nothing),
        ("a transaction that changes nothing keeps the revision", no_change),
        ("requests are executed in the order of submission", in_order),
        ("of two claims of a key one succeeds", one_claim),
        ("values are bytes", any_bytes),
    ]
}

fn put_creates<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let (entries, before) = session.read("")?;
    same(&entries, &vec![])?;
    let at = session.write(&[put("a", "1")])?;
    super::holds(at > before, "a revision above that of the empty store")?;
    let (entries, revision) = session.read("")?;
    same(&entries, &vec![entry("a", "1", [at, at], None)])?;
    same(&revision, &at)
}

fn put_changes<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let first = session.write(&[put("a", "1")])?;
    let second = session.write(&[put("a", "")])?;
    super::holds(second > first, "a revision above the former one")?;
    same(&session.read("a")?.0, &vec![entry("a", "", [first, second], None)])
}

fn one_revision<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let first = session.write(&[put("c", "0")])?;
    let at = session.write(&[put("b", "1"), put("a", "2"), delete("c")])?;
    super::holds(at > first, "a revision above the former one")?;
    let expected = vec![entry("a", "2", [at, at], None), entry("b", "1", [at, at], None)];
    same(&session.read("")?, &(expected, at))
}

fn created_again<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let first = session.write(&[put("a", "1")])?;
    let deleted = session.write(&[delete("a")])?;
    same(&session.read("")?, &(vec![], deleted))?;
    let again = session.write(&[put("a", "1")])?;
    super::holds(first < deleted && deleted < again, "three rising revisions")?;
    same(&session.read("")?.0, &vec![entry("a", "1", [again, again], None)])
}

/// Whether a transaction with this comparison is committed; its write is on another key.
fn is_true<S: Subject>(
    session: &mut Session<'_, S>,
    comparison: Comparison,
) -> Result<bool, alloc::string::String> {
    let (_, revision) = session.read("")?;
    match session.commit(&[comparison], &[put("other", "")])? {
        Outcome::Committed(at) if at > revision => Ok(true),
        Outcome::Refused(at) if at == revision && session.read("")?.1 == revision => Ok(false),
        other => Err(format!("{other:?} at {revision:?}")),
    }
}

fn by_creation<S: Subject>(session: &mut Session<'_, S>) -> Check {
    same(&is_true(session, created("a", Revision::ABSENT))?, &true)?;
    same(&is_true(session, created("a", Revision(1)))?, &false)?;
    let first = session.write(&[put("a", "1")])?;
    let second = session.write(&[put("a", "2")])?;
    same(&is_true(session, created("a", first))?, &true)?;
    same(&is_true(session, created("a", second))?, &false)?;
    same(&is_true(session, created("a", Revision::ABSENT))?, &false)?;
    session.write(&[delete("a")])?;
    same(&is_true(session, created("a", first))?, &false)?;
    same(&is_true(session, created("a", Revision::ABSENT))?, &true)
}

fn by_change<S: Subject>(session: &mut Session<'_, S>) -> Check {
    same(&is_true(session, changed("a", Revision::ABSENT))?, &true)?;
    same(&is_true(session, changed("a", Revision(1)))?, &false)?;
    let first = session.write(&[put("a", "1")])?;
    let second = session.write(&[put("a", "1")])?;
    same(&is_true(session, changed("a", second))?, &true)?;
    same(&is_true(session, changed("a", first))?, &false)?;
    same(&is_true(session, changed("a", Revision::ABSENT))?, &false)?;
    session.write(&[delete("a")])?;
    same(&is_true(session, changed("a", second))?, &false)?;
    same(&is_true(session, changed("a", Revision::ABSENT))?, &true)
}

fn all_or_nothing<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "1"), put("b", "1")])?;
    let before = session.read("")?;
    let comparisons = [created("a", at), changed("b", at), created("c", at)];
    let outcome = session.commit(&comparisons, &[put("a", "2"), delete("b"), put("c", "2")])?;
    same(&outcome, &Outcome::Refused(at))?;
    same(&session.read("")?, &before)?;
    // Comparisons see the store before the writes.
    let comparisons = [created("a", at), changed("b", at), created("c", Revision::ABSENT)];
    let outcome = session.commit(&comparisons, &[put("a", "2"), delete("b"), put("c", "2")])?;
    let Outcome::Committed(later) = outcome else { return Err(format!("{outcome:?}")) };
    same(
        &session.read("")?.0,
        &vec![entry("a", "2", [at, later], None), entry("c", "2", [later, later], None)],
    )
}

fn no_change<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let at = session.write(&[put("a", "1")])?;
    same(&session.commit(&[created("a", at)], &[])?, &Outcome::Committed(at))?;
    same(&session.commit(&[], &[delete("b")])?, &Outcome::Committed(at))?;
    same(&session.read("")?.1, &at)
}

fn in_order<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let mut ids = Vec::new();
    for number in 0..50_u32 {
        ids.push(session.submit(commit(&[], &[put("a", &format!("{number}"))]))?);
        ids.push(session.submit(super::range("a", None, 1))?);
    }
    let mut last = Revision::ABSENT;
    for (number, id) in ids.into_iter().enumerate() {
        match session.wait(id)?.map_err(|error| format!("{error}"))? {
            Outcome::Committed(at) if at > last => last = at,
            Outcome::Entries { entries, revision, .. } => {
                let value = format!("{}", number >> 1).into_bytes();
                let seen: Vec<_> = entries.into_iter().map(|entry| (entry.value, entry.changed)).collect();
                same(&seen, &vec![(value, last)])?;
                same(&revision, &last)?;
            }
            other => return Err(format!("{other:?} after {last:?}")),
        }
    }
    Ok(())
}

fn one_claim<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let claim = |owner| commit(&[created("slot", Revision::ABSENT)], &[put("slot", owner)]);
    let (first, second) = (session.submit(claim("one"))?, session.submit(claim("two"))?);
    let Ok(Outcome::Committed(at)) = session.wait(first)? else { return Err("the first claim fails".into()) };
    same(&session.wait(second)?, &Ok(Outcome::Refused(at)))?;
    same(&session.read("")?.0, &vec![entry("slot", "one", [at, at], None)])
}

fn any_bytes<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let key = all.get(1..).unwrap_or_default().to_vec();
    let at = session.write(&[Write::Put { key: key.clone(), value: all.clone(), lease: None }])?;
    let watch = WatchId(1);
    session.run(crate::Request::Watch { watch, prefix: key.clone(), from: at })?;
    let (entries, _) = session.read("")?;
    let expected = crate::Entry { key, value: all, created: at, changed: at, lease: None };
    same(&entries, &vec![expected.clone()])?;
    session.expect_events(&[crate::WatchEvent::Put(watch, expected)])
}
