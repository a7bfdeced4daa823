//! The session of one application.

use crate::limits::{Grant, Limits};
use crate::table::Table;
use crate::traffic::{self, Attempt};
use crate::world::World;
use crate::{open, server::Counters};
use alloc::vec::Vec;
use casemate_rings::{Answer, Answerer, Call, Error, PutError, Tag, Transport, Violation};

/// A call that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    tag: Tag,
    call: Call,
}

/// One application: its rings, its sockets, its calls that wait.
pub(crate) struct Application<T> {
    channel: Answerer<T>,
    pub(crate) grant: Grant,
    pub(crate) table: Table,
    waiting: Vec<Waiting>,
}

impl<T: Transport> Application<T> {
    pub(crate) fn new(transport: T, grant: Grant, limits: &Limits) -> Result<Self, Violation> {
        let channel = Answerer::new(transport, limits.geometry)?;
        Ok(Self { channel, grant, table: Table::default(), waiting: Vec::new() })
    }

    pub(crate) const fn transport(&self) -> &T {
        self.channel.transport()
    }

    /// Its turn: the calls that wait, then new ones. Answers whether there are more of these.
    pub(crate) fn turn(&mut self, world: &mut World<'_>, counters: &mut Counters) -> Result<bool, Violation> {
        open::sweep(&mut self.table, world);
        self.try_again(world)?;
        let mut more = true;
        for _ in 0..world.limits.turn {
            // Without room for an answer, no call: the application does not read.
            if self.channel.room(0)?.is_none() || !self.serve_one(world, counters)? {
                more = false;
                break;
            }
        }
        self.channel.wake();
        Ok(more)
    }

    fn try_again(&mut self, world: &mut World<'_>) -> Result<(), Violation> {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index).copied() {
            if self.channel.room(0)?.is_none() {
                return Ok(());
            }
            match self.attempt(waiting.tag, waiting.call, 0, world)? {
                Attempt::Answer(Err(Error::NotNow)) => index = index.saturating_add(1),
                Attempt::Answer(done) => {
                    answer(&mut self.channel, waiting.tag, done, &[])?;
                    self.waiting.remove(index);
                }
                Attempt::Answered => drop(self.waiting.remove(index)),
            }
        }
        Ok(())
    }

    /// Serves the next call; `false` if there is none.
    fn serve_one(&mut self, world: &mut World<'_>, counters: &mut Counters) -> Result<bool, Violation> {
        let Some(incoming) = self.channel.call()? else { return Ok(false) };
        counters.calls = counters.calls.saturating_add(1);
        let tag = incoming.tag;
        let done = match incoming.call {
            Ok(call) => match self.attempt(tag, call, incoming.len, world)? {
                Attempt::Answer(Err(Error::NotNow)) if is_patient(&call) => {
                    self.wait(tag, call, world.limits)
                }
                Attempt::Answer(done) => Some(done),
                Attempt::Answered => None,
            },
            Err(error) => Some(Err(error)),
        };
        self.channel.pass()?;
        if let Some(done) = done {
            if done.is_err_and(|error| error != Error::NotNow) {
                counters.refused = counters.refused.saturating_add(1);
            }
            answer(&mut self.channel, tag, done, &[])?;
        }
        Ok(true)
    }

    /// Keeps a call for later; what is to be answered if that cannot be.
    fn wait(&mut self, tag: Tag, call: Call, limits: &Limits) -> Option<Result<Answer, Error>> {
        if self.waiting.len() >= limits.calls || self.waiting.try_reserve(1).is_err() {
            return Some(Err(Error::TooManyCalls));
        }
        self.waiting.push(Waiting { tag, call });
        None
    }

    fn attempt(
        &mut self,
        tag: Tag,
        call: Call,
        len: usize,
        world: &mut World<'_>,
    ) -> Result<Attempt, Violation> {
        let Self { channel, table, .. } = self;
        Ok(match call {
            Call::Listen { local, port, backlog } => open::listen(table, world, local, port, backlog),
            Call::Connect { remote } => open::connect(table, world, remote),
            Call::Bind { local, port } => open::bind(table, world, local, port),
            Call::Accept { socket, .. } => traffic::accept(table, world, socket),
            Call::Send { socket } => traffic::send(table, world, channel, socket, len),
            Call::SendTo { socket, to } => traffic::send_to(table, world, channel, (socket, to), len),
            Call::Receive { socket, most, .. } => {
                return traffic::receive(table, world, channel, (tag, socket, most as usize));
            }
            Call::Finish { socket } => traffic::finish(table, world, socket),
            Call::Close { socket } => open::close(table, world, socket),
            Call::Poll { socket, interest, .. } => traffic::poll(table, world, socket, interest),
            Call::Cancel { call } => {
                self.cancel(call)?;
                Ok(Answer::Done)
            }
        }
        .into())
    }

    fn cancel(&mut self, call: Tag) -> Result<(), Violation> {
        let Some(index) = self.waiting.iter().position(|waiting| waiting.tag == call) else { return Ok(()) };
        self.waiting.remove(index);
        answer(&mut self.channel, call, Err(Error::Cancelled), &[])
    }
}

const fn is_patient(call: &Call) -> bool {
    matches!(
        call,
        Call::Accept { patient: true, .. }
            | Call::Receive { patient: true, .. }
            | Call::Poll { patient: true, .. }
    )
}

/// Answers a call. There was room before; if there is none now, the application has turned its ring back.
pub(crate) fn answer<T: Transport>(
    channel: &mut Answerer<T>,
    tag: Tag,
    answer: Result<Answer, Error>,
    data: &[u8],
) -> Result<(), Violation> {
    channel.answer(tag, answer, data).map_err(|error| match error {
        PutError::Violation(violation) => violation,
        PutError::Full | PutError::TooLong => Violation::Position,
    })
}
