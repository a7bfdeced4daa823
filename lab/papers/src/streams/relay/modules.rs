//! Modules of the relay: those of the data path, and empty ones.

use casemate_datapath::{
    Datapath, DropReason, HEAD_ROOM, Inbound, OpenBatch, Outbound, SealBatch, TAIL_ROOM,
};
use casemate_linux::process::{Clock, SystemRng};
use casemate_sa::SpdId;
use casemate_testbed::{Error, Result};
use casemate_wire::packet::Packet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

/// Processes a packet and returns whether it continues to the next module.
pub(super) type Module = Box<dyn FnMut(&mut Message) -> io::Result<bool> + Send>;

/// Modules of one direction.
pub(super) struct Chain(pub(super) Vec<Module>);

/// Data path shared by modules on different threads.
#[derive(Clone)]
pub(super) struct SharedDatapath {
    state: Arc<Mutex<DatapathState>>,
    clock: Clock,
}

struct DatapathState {
    datapath: Datapath,
    rng: SystemRng,
}

impl SharedDatapath {
    pub(super) fn new(datapath: Datapath) -> Result<Self> {
        let rng = SystemRng::new().map_err(Error::context("relay"))?;
        Ok(Self { state: Arc::new(Mutex::new(DatapathState { datapath, rng })), clock: Clock::start() })
    }

    fn lock(&self) -> MutexGuard<'_, DatapathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chain {
    /// Modules towards the network. `send` is the last one.
    pub(super) fn outbound(
        guarded: Option<SharedDatapath>,
        send: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self::of(guarded.map(|guarded| [classify(guarded.clone()), protect(), encapsulate(guarded)]), send)
    }

    /// Modules towards the host. `deliver` is the last one.
    pub(super) fn inbound(
        guarded: Option<SharedDatapath>,
        deliver: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self::of(guarded.map(|guarded| [look_up(guarded.clone()), open(), admit(guarded)]), deliver)
    }

    fn of(
        modules: Option<[Module; 3]>,
        mut last: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let modules = modules.unwrap_or_else(|| [pass_through(), pass_through(), pass_through()]);
        let last: Module = Box::new(move |message| last(message.data()).map(|()| false));
        Self(modules.into_iter().chain([last]).collect())
    }
}

fn pass_through() -> Module {
    Box::new(|_| Ok(true))
}

fn classify(guarded: SharedDatapath) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let begun = message.with_packet(|packets, work| {
            let inside = &mut *guarded.lock();
            let mut sealing = Box::new(SealBatch::new());
            inside.datapath.begin_outbound(SpdId::MAIN, now, &mut inside.rng, packets, &mut sealing);
            *work = Work::Sealing(sealing);
        });
        Ok(begun.is_some())
    })
}

fn protect() -> Module {
    Box::new(|message| {
        let sealed = message.with_packet(|packets, work| {
            if let Work::Sealing(sealing) = work {
                sealing.seal(packets);
            }
        });
        Ok(sealed.is_some())
    })
}

fn encapsulate(guarded: SharedDatapath) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let verdict = message.with_packet(|packets, work| {
            let mut verdict = [Outbound::Drop(DropReason::NoRoom)];
            if let Work::Sealing(mut sealing) = mem::replace(work, Work::Nothing) {
                guarded.lock().datapath.finish_outbound(now, packets, &mut sealing, &mut verdict);
            }
            verdict
        });
        Ok(matches!(verdict, Some([Outbound::Send(_) | Outbound::Bypass])))
    })
}

fn look_up(guarded: SharedDatapath) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let begun = message.with_packet(|packets, work| {
            let mut opening = Box::new(OpenBatch::new());
            guarded.lock().datapath.begin_inbound(now, packets, &mut opening);
            *work = Work::Opening(opening);
        });
        Ok(begun.is_some())
    })
}

fn open() -> Module {
    Box::new(|message| {
        let opened = message.with_packet(|packets, work| {
            if let Work::Opening(opening) = work {
                opening.open(packets);
            }
        });
        Ok(opened.is_some())
    })
}

fn admit(guarded: SharedDatapath) -> Module {
    Box::new(move |message| {
        let now = guarded.clock.now();
        let verdict = message.with_packet(|packets, work| {
            let mut verdict = [Inbound::Drop(DropReason::NoRoom)];
            if let Work::Opening(mut opening) = mem::replace(work, Work::Nothing) {
                guarded.lock().datapath.finish_inbound(now, packets, &mut opening, &mut verdict);
            }
            verdict
        });
        Ok(matches!(verdict, Some([Inbound::Deliver(_)])))
    })
}

/// Maximum length of a packet from an interface or the other end.
const MAX_PACKET_LEN: usize = 2_048;

/// State that one module leaves to the next.
pub(super) enum Work {
    Nothing,
    Sealing(Box<SealBatch>),
    Opening(Box<OpenBatch>),
}

/// A message in the sense of STREAMS: a packet with its state, in its own buffer. It is passed on without
/// copying.
pub(super) struct Message {
    storage: Vec<u8>,
    start: usize,
    len: usize,
    pub(super) work: Work,
}

impl Message {
    /// Creates a message without a packet.
    pub(super) fn new() -> Self {
        Self {
            storage: vec![0; HEAD_ROOM + MAX_PACKET_LEN + TAIL_ROOM],
            start: HEAD_ROOM,
            len: 0,
            work: Work::Nothing,
        }
    }

    /// Fills in the packet that `read` returns, with space around it.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
        let room = self.storage.get_mut(HEAD_ROOM..HEAD_ROOM + MAX_PACKET_LEN).unwrap_or_default();
        (self.start, self.len) = (HEAD_ROOM, read(room)?);
        Ok(())
    }

    /// The packet.
    pub(super) fn data(&self) -> &[u8] {
        self.storage.get(self.start..).and_then(|rest| rest.get(..self.len)).unwrap_or_default()
    }

    /// Modifies the packet and the state for the next module.
    pub(super) fn with_packet<T>(
        &mut self,
        act: impl FnOnce(&mut [Packet<'_>; 1], &mut Work) -> T,
    ) -> Option<T> {
        let mut packets = [Packet::new(&mut self.storage, self.start, self.len)?];
        let answer = act(&mut packets, &mut self.work);
        let [packet] = &packets;
        (self.start, self.len) = (packet.head_room(), packet.len());
        Some(answer)
    }
}
