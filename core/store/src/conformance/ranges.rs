//! Tests of ranges: prefixes, the order of entries, and pages.

use super::{Check, Session, Subject, Tests, delete, holds, put, range, same};
use crate::{Key, MAX_RANGE, MAX_WRITES, Outcome, Write};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

pub(super) fn tests<S: Subject>() -> Tests<S> {
    vec![
        ("a prefix selects its entries, in the order of keys", prefixes),
        ("a prefix that ends with the highest bytes", high_prefix),
        ("pages have all entries once", pages),
        ("a page at the limit says whether there are more", exact_limit),
        ("a page may begin outside the prefix", after_outside),
        ("more entries than a range may have", many),
    ]
}

/// Keys of a page, and whether there are more.
fn page<S: Subject>(
    session: &mut Session<'_, S>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<String>, bool), String> {
    match session.run(range(prefix, after, limit))? {
        Outcome::Entries { entries, more, .. } => {
            let keys = entries.into_iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
            Ok((keys.collect(), more))
        }
        other => Err(format!("{other:?} where Entries were expected")),
    }
}

fn expect<S: Subject>(
    session: &mut Session<'_, S>,
    (prefix, after, limit): (&str, Option<&str>, usize),
    keys: &[&str],
    more: bool,
) -> Check {
    let keys = keys.iter().map(|&key| key.into()).collect();
    same(&page(session, prefix, after, limit)?, &(keys, more))
}

fn prefixes<S: Subject>(session: &mut Session<'_, S>) -> Check {
    for name in ["b/2", "a", "b", "b/10", "c", "b/1", "B/1"] {
        session.write(&[put(name, name)])?;
    }
    expect(session, ("", None, 100), &["B/1", "a", "b", "b/1", "b/10", "b/2", "c"], false)?;
    expect(session, ("b/", None, 100), &["b/1", "b/10", "b/2"], false)?;
    expect(session, ("b/1", None, 100), &["b/1", "b/10"], false)?;
    expect(session, ("b/1x", None, 100), &[], false)?;
    expect(session, ("d", None, 100), &[], false)?;
    session.write(&[delete("b/10")])?;
    expect(session, ("b/1", None, 100), &["b/1"], false)
}

fn high_prefix<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let keys: [Key; 5] = [vec![1, 0xFE], vec![1, 0xFF], vec![1, 0xFF, 0xFF, 7], vec![2], vec![0xFF, 0xFF]];
    let writes = keys.iter().map(|key| Write::Put { key: key.clone(), value: vec![], lease: None });
    session.write(&writes.collect::<Vec<_>>())?;
    for (prefix, expected) in [
        (vec![1, 0xFF], keys.get(1..3)),
        (vec![1, 0xFF, 0xFF], keys.get(2..3)),
        (vec![0xFF], keys.get(4..)),
        (vec![0xFF, 0xFF, 0xFF], Some(&[][..])),
    ] {
        let outcome = session.run(crate::Request::Read(crate::Range { prefix, after: None, limit: 10 }))?;
        let Outcome::Entries { entries, more: false, .. } = outcome else {
            return Err(format!("{outcome:?}"));
        };
        let found: Vec<Key> = entries.into_iter().map(|entry| entry.key).collect();
        same(&Some(found.as_slice()), &expected)?;
    }
    Ok(())
}

fn pages<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let names: Vec<String> = (0..23).map(|number| format!("p/{number:02}")).collect();
    session.write(&names.iter().rev().map(|name| put(name, "")).collect::<Vec<_>>())?;
    session.write(&[put("o", ""), put("q", "")])?;
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..names.len() {
        let (keys, more) = page(session, "p/", after.as_deref(), 5)?;
        holds(keys.len() == 5 || !more, "5 entries in each page but the last")?;
        found.extend(keys);
        after = found.last().cloned();
        if !more {
            break;
        }
    }
    same(&found, &names)
}

fn exact_limit<S: Subject>(session: &mut Session<'_, S>) -> Check {
    session.write(&[put("a/1", ""), put("a/2", ""), put("b", "")])?;
    expect(session, ("a/", None, 1), &["a/1"], true)?;
    expect(session, ("a/", None, 2), &["a/1", "a/2"], false)?;
    expect(session, ("a/", Some("a/1"), 1), &["a/2"], false)?;
    expect(session, ("a/", Some("a/2"), 1), &[], false)
}

fn after_outside<S: Subject>(session: &mut Session<'_, S>) -> Check {
    session.write(&[put("a", ""), put("b/1", ""), put("b/2", ""), put("c", "")])?;
    expect(session, ("b/", Some("a"), 10), &["b/1", "b/2"], false)?;
    expect(session, ("b/", Some("b"), 10), &["b/1", "b/2"], false)?;
    expect(session, ("b/", Some("b/"), 10), &["b/1", "b/2"], false)?;
    expect(session, ("b/", Some("b/11"), 10), &["b/2"], false)?;
    expect(session, ("b/", Some("c"), 10), &[], false)?;
    expect(session, ("", Some("b/2"), 10), &["c"], false)
}

fn many<S: Subject>(session: &mut Session<'_, S>) -> Check {
    let names: Vec<String> = (0..MAX_RANGE.saturating_add(1)).map(|number| format!("{number:04}")).collect();
    for names in names.chunks(MAX_WRITES) {
        session.write(&names.iter().map(|name| put(name, "")).collect::<Vec<_>>())?;
    }
    let (keys, more) = page(session, "", None, MAX_RANGE)?;
    same(&(Some(keys.as_slice()), more), &(names.get(..MAX_RANGE), true))?;
    let (keys, more) = page(session, "", keys.last().map(String::as_str), MAX_RANGE)?;
    same(&(Some(keys.as_slice()), more), &(names.get(MAX_RANGE..), false))
}
