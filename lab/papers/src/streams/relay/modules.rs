//! The modules: those of the data path, and those that do nothing.

use super::message::{Message, Work};
use casemate_datapath::{Datapath, DropReason, Inbound, Opening, Outbound, Sealing};
use casemate_linux::clock::Clock;
use casemate_linux::rng::SystemRng;
use casemate_stage::{Error, Result};
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is done to each packet in turn. It answers whether the packet goes on to the next.
pub(super) type Module = Box<dyn FnMut(&mut Message) -> io::Result<bool> + Send>;

/// The modules of one direction.
pub(super) struct Chain(pub(super) Vec<Module>);

/// The data path, for modules in different threads.
#[derive(Clone)]
pub(super) struct Guarded {
    inside: Arc<Mutex<Inside>>,
    clock: Clock,
}

struct Inside {
    datapath: Datapath,
    rng: SystemRng,
}

impl Guarded {
    pub(super) fn new(datapath: Datapath) -> Result<Self> {
        let rng = SystemRng::new().map_err(Error::in_front("relay"))?;
        Ok(Self { inside: Arc::new(Mutex::new(Inside { datapath, rng })), clock: Clock::start() })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chain {
    /// Towards the network; `send` is the last module.
    pub(super) fn outbound(
        guarded: Option<Guarded>,
        send: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self::of(guarded.map(|guarded| [classify(guarded.clone()), protect(), encapsulate(guarded)]), send)
    }

    /// Towards the host.
    pub(super) fn inbound(
        guarded: Option<Guarded>,
        deliver: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self::of(guarded.map(|guarded| [look_up(guarded.clone()), open(), admit(guarded)]), deliver)
    }

    fn of(
        modules: Option<[Module; 3]>,
        mut last: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let modules = modules.unwrap_or_else(|| [nothing(), nothing(), nothing()]);
        let last: Module = Box::new(move |message| last(message.data()).map(|()| false));
        Self(modules.into_iter().chain([last]).collect())
    }
}

fn nothing() -> Module {
    Box::new(|_| Ok(true))
}

fn classify(guarded: Guarded) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let begun = message.change(|packets, work| {
            let inside = &mut *guarded.lock();
            let mut sealing = Box::new(Sealing::new());
            inside.datapath.begin_outbound(now, &mut inside.rng, packets, &mut sealing);
            *work = Work::Sealing(sealing);
        });
        Ok(begun.is_some())
    })
}

fn protect() -> Module {
    Box::new(|message| {
        let sealed = message.change(|packets, work| {
            if let Work::Sealing(sealing) = work {
                sealing.seal(packets);
            }
        });
        Ok(sealed.is_some())
    })
}

fn encapsulate(guarded: Guarded) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let verdict = message.change(|packets, work| {
            let mut verdict = [Outbound::Drop(DropReason::NoRoom)];
            if let Work::Sealing(mut sealing) = mem::replace(work, Work::Nothing) {
                guarded.lock().datapath.finish_outbound(now, packets, &mut sealing, &mut verdict);
            }
            verdict
        });
        Ok(matches!(verdict, Some([Outbound::Send(_) | Outbound::Bypass])))
    })
}

fn look_up(guarded: Guarded) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let begun = message.change(|packets, work| {
            let mut opening = Box::new(Opening::new());
            guarded.lock().datapath.begin_inbound(now, packets, &mut opening);
            *work = Work::Opening(opening);
        });
        Ok(begun.is_some())
    })
}

fn open() -> Module {
    Box::new(|message| {
        let opened = message.change(|packets, work| {
            if let Work::Opening(opening) = work {
                opening.open(packets);
            }
        });
        Ok(opened.is_some())
    })
}

fn admit(guarded: Guarded) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let verdict = message.change(|packets, work| {
            let mut verdict = [Inbound::Drop(DropReason::NoRoom)];
            if let Work::Opening(mut opening) = mem::replace(work, Work::Nothing) {
                guarded.lock().datapath.finish_inbound(now, packets, &mut opening, &mut verdict);
            }
            verdict
        });
        Ok(matches!(verdict, Some([Inbound::Deliver(_)])))
    })
}
