//! The end after an error: the guard stays, so it is made sure that it stands.

use super::{Live, Work};
use crate::Error;
use crate::guard::Update;

/// How often the guard is put up while another program changes it.
const TRIES: usize = 3;

impl Live {
    /// Leaves the guard after an error. If it is not known to stand, it is put up once more, at once and not
    /// after a pause; if that cannot be done, the journal says so. Waits for `nft` no longer than usual.
    pub(crate) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) || !self.journal.stays() {
            return;
        }
        if let Err(error) = self.make_guard_stand() {
            self.journal.lacks_guard(error.to_string());
        }
    }

    fn make_guard_stand(&mut self) -> Result<(), Error> {
        if let Some(Work { mut job, anew }) = self.work.take() {
            // Perhaps this is what puts it up. If it fails, the kernel has the former guard.
            let done = job.wait().and_then(|()| job.result().unwrap_or(Ok(())));
            self.heed_others(done.is_ok().then_some(anew));
        }
        for _ in 0..TRIES {
            self.heed_others(None);
            if self.sentry.guard_stands()? {
                return Ok(());
            }
            // The next start may hold less than it should, which is no reason to protect nothing until then.
            let _ = self.scheme.write_promises(&mut self.journal);
            self.scheme.guard.distrust();
            if let Update::Script(script) = self.scheme.guard_update() {
                self.journal.nft().run(&script)?;
            }
            self.heed_others(Some(true));
        }
        if self.sentry.guard_stands()? { Ok(()) } else { Err(self.is_changed_again_and_again()) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.leave();
    }
}
