//! `limit ...`: lifetimes.

use super::cursor::Cursor;
use super::problem::Problem;
use casemate_sa::Lifetime;
use std::time::Duration;

const EXPECTED: &str =
    "time-soft, time-hard, time-use-soft, time-use-hard, byte-soft, byte-hard, packet-soft or packet-hard";

/// Takes one bound after `limit` into `lifetime`.
pub(super) fn take_limit(cursor: &mut Cursor<'_>, lifetime: &mut Lifetime) -> Result<(), Problem> {
    let key = cursor.value(EXPECTED)?;
    let (bounds, kind) = match key.rsplit_once('-') {
        Some((kind, "soft")) => (&mut lifetime.soft, kind),
        Some((kind, "hard")) => (&mut lifetime.hard, kind),
        _ => return Err(cursor.bad(EXPECTED)),
    };
    match kind {
        "time" => bounds.since_added = seconds(cursor)?,
        "time-use" => bounds.since_used = seconds(cursor)?,
        "byte" => bounds.bytes = count(cursor)?,
        "packet" => bounds.packets = count(cursor)?,
        _ => return Err(cursor.bad(EXPECTED)),
    }
    Ok(())
}

/// Seconds; 0 is no bound, as in the kernel.
fn seconds(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, Problem> {
    let seconds = cursor.number()?;
    Ok((seconds != 0).then_some(Duration::from_secs(seconds)))
}

/// Bytes or packets; the largest number is no bound, as in the kernel (XFRM_INF).
fn count(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Problem> {
    match cursor.number()? {
        0 => Err(cursor.bad("at least 1 (0 would end the SA before its first packet)")),
        u64::MAX => Ok(None),
        count => Ok(Some(count)),
    }
}
