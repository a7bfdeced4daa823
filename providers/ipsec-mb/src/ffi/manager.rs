//! A manager for each thread: the library's scratch memory, in which a burst lines up the packets of one call.
//!
//! It is made when a thread first needs it, 200 kB, and wiped when the thread ends: it may hold copies of round keys.

use super::layout::{ALIGN, ManagerHead};
use super::library::Library;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::cell::RefCell;
use zeroize::Zeroize;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Memory for a manager: stays where it is, and is wiped on drop.
pub(super) struct Memory(NonNull<[Line]>);

impl Memory {
    /// At least `size` zero bytes.
    pub(super) fn new(size: usize) -> Self {
        let lines = vec![Line([0; ALIGN]); size.div_ceil(ALIGN)].into_boxed_slice();
        Self(NonNull::from(Box::leak(lines)))
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` took the pointer out of a box, and no manager in this memory outlives it.
        let mut lines = unsafe { Box::from_raw(self.0.as_ptr()) };
        lines.iter_mut().for_each(|line| line.0.zeroize());
    }
}

/// A manager in its memory.
pub(super) struct Manager {
    pub(super) head: *mut ManagerHead,
    pub(super) _memory: Memory,
}

thread_local! {
    static MANAGER: RefCell<Option<Manager>> = const { RefCell::new(None) };
}

/// Runs `burst` with this thread's manager, which it is the only one to use. `None` if the library gave none, or while the
/// thread ends. Where `burst` answers `None` the manager is thrown away: a job may be left in it.
pub(super) fn with<T>(library: &Library, burst: impl FnOnce(*mut ManagerHead) -> Option<T>) -> Option<T> {
    let run = |slot: &RefCell<Option<Manager>>| {
        let mut slot = slot.try_borrow_mut().ok()?;
        if slot.is_none() {
            *slot = Some(library.manager().ok()?);
        }
        let answer = slot.as_ref().and_then(|manager| burst(manager.head));
        if answer.is_none() {
            *slot = None;
        }
        answer
    };
    MANAGER.try_with(run).ok().flatten()
}
