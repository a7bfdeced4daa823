//! The two ends of a session.

use crate::codec::Head;
use crate::message::{Answer, Call, Error, Tag};
use crate::ring::{PutError, Reader, Violation, Writer};
use crate::{Geometry, Transport};

/// The application's end: calls out, answers in.
#[derive(Debug)]
pub struct Caller<T> {
    transport: T,
    calls: Writer,
    answers: Reader,
}

impl<T: Transport> Caller<T> {
    /// An end of a new session. Both sides have to know the same sizes, and the memory must have them.
    pub fn new(transport: T, geometry: Geometry) -> Result<Self, Violation> {
        check(&transport, geometry)?;
        let (calls, answers) = (Writer::new(geometry.calls()), Reader::new(geometry.answers()));
        Ok(Self { transport, calls, answers })
    }

    /// What the session goes over.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// Makes a call, with data where it takes some, and wakes the server.
    pub fn call(&mut self, tag: Tag, call: &Call, data: &[u8]) -> Result<(), PutError> {
        self.calls.put(self.transport.memory(), Head::from_call(tag, call), data)?;
        self.transport.ring();
        Ok(())
    }

    /// The next answer, if there is one. It stays the next until it is [passed](Self::pass).
    pub fn answer(&mut self) -> Result<Option<Outcome>, Violation> {
        let head = self.answers.peek(self.transport.memory())?;
        Ok(head.map(|head| Outcome { tag: head.tag(), answer: head.to_answer(), len: head.len as usize }))
    }

    /// Copies data of the answer; how many bytes there were.
    pub fn data(&self, out: &mut [u8]) -> usize {
        self.answers.copy(self.transport.memory(), 0, out)
    }

    /// Goes behind the answer.
    pub fn pass(&mut self) -> Result<(), Violation> {
        if self.answers.pass(self.transport.memory())? {
            self.transport.ring();
        }
        Ok(())
    }
}

/// An answer that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Number of the call.
    pub tag: Tag,
    /// What came of it.
    pub answer: Result<Answer, Error>,
    /// Bytes of data behind it.
    pub len: usize,
}

/// The server's end: calls in, answers out. It wakes the application when it is [told to](Self::wake), once for many answers.
#[derive(Debug)]
pub struct Answerer<T> {
    transport: T,
    calls: Reader,
    answers: Writer,
    /// The application is to be woken.
    news: bool,
}

/// A call that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming {
    /// Its number.
    pub tag: Tag,
    /// What it is; or why it is nothing.
    pub call: Result<Call, Error>,
    /// Bytes of data behind it.
    pub len: usize,
}

impl<T: Transport> Answerer<T> {
    /// An end of a new session. Both sides have to know the same sizes, and the memory must have them.
    pub fn new(transport: T, geometry: Geometry) -> Result<Self, Violation> {
        check(&transport, geometry)?;
        let (calls, answers) = (Reader::new(geometry.calls()), Writer::new(geometry.answers()));
        Ok(Self { transport, calls, answers, news: false })
    }

    /// What the session goes over.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// The next call, if there is one. It stays the next until it is [passed](Self::pass).
    pub fn call(&mut self) -> Result<Option<Incoming>, Violation> {
        let head = self.calls.peek(self.transport.memory())?;
        Ok(head.map(|head| Incoming { tag: head.tag(), call: head.to_call(), len: head.len as usize }))
    }

    /// Copies data of the call, from `skip` on; how many bytes there were.
    pub fn data(&self, skip: usize, out: &mut [u8]) -> usize {
        self.calls.copy(self.transport.memory(), skip, out)
    }

    /// Goes behind the call.
    pub fn pass(&mut self) -> Result<(), Violation> {
        self.news |= self.calls.pass(self.transport.memory())?;
        Ok(())
    }

    /// Bytes of data that an answer could have now, if these are `least` or more. If not, the application wakes us when it has
    /// made room.
    pub fn room(&mut self, least: usize) -> Result<Option<usize>, Violation> {
        let memory = self.transport.memory();
        let enough = |room: &usize| *room >= least;
        match self.answers.room(memory)?.filter(enough) {
            Some(room) => Ok(Some(room)),
            None => {
                self.answers.want_room(memory)?;
                // It may have made room just before it could see that.
                Ok(self.answers.room(memory)?.filter(enough))
            }
        }
    }

    /// Answers a call.
    pub fn answer(&mut self, tag: Tag, answer: Result<Answer, Error>, data: &[u8]) -> Result<(), PutError> {
        self.answers.put(self.transport.memory(), Head::from_answer(tag, answer), data)?;
        self.news = true;
        Ok(())
    }

    /// Wakes the application if it has something to look at.
    pub fn wake(&mut self) {
        if core::mem::take(&mut self.news) {
            self.transport.ring();
        }
    }
}

fn check(transport: &impl Transport, geometry: Geometry) -> Result<(), Violation> {
    if transport.memory().len() < geometry.words() { Err(Violation::Memory) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handle, Local};

    #[test]
    fn a_call_goes_and_its_answer_comes() {
        let geometry = Geometry::new(6, 6).unwrap();
        let (application, server) = Local::pair(geometry);
        let mut caller = Caller::new(application, geometry).unwrap();
        let mut answerer = Answerer::new(server, geometry).unwrap();
        let call = Call::Send { socket: Handle(7) };
        caller.call(Tag(3), &call, b"twelve bytes").unwrap();
        assert!(answerer.transport().was_rung());
        assert_eq!(answerer.call(), Ok(Some(Incoming { tag: Tag(3), call: Ok(call), len: 12 })));
        let mut data = [0; 5];
        assert_eq!((answerer.data(7, &mut data), &data), (5, b"bytes"));
        answerer.pass().unwrap();
        assert_eq!(answerer.call(), Ok(None));
        answerer.wake();
        assert!(!caller.transport().was_rung(), "there is nothing to look at yet");
        answerer.answer(Tag(3), Ok(Answer::Sent { bytes: 12 }), &[]).unwrap();
        answerer.wake();
        assert!(caller.transport().was_rung());
        let answer = Ok(Answer::Sent { bytes: 12 });
        assert_eq!(caller.answer(), Ok(Some(Outcome { tag: Tag(3), answer, len: 0 })));
        caller.pass().unwrap();
        assert_eq!(caller.answer(), Ok(None));
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let (application, server) = Local::pair(Geometry::new(6, 6).unwrap());
        let larger = Geometry::new(6, 7).unwrap();
        assert_eq!(Caller::new(application, larger).err(), Some(Violation::Memory));
        assert_eq!(Answerer::new(server, larger).err(), Some(Violation::Memory));
    }
}
