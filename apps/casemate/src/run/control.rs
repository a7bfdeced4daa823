//! The control socket: a client sends one line that says what it wants, and receives the answer.
//!
//! One thread serves all clients and never blocks on one of them; the engine's loop only hands answers over. The number of clients is
//! bounded for each thing that they can wait for, so that clients which follow the log, or wait for a peer, leave room for a
//! `status`. `client` is one of them.

use super::client::{Client, Place};
use crate::control::Request;
use casemate_linux::Error;
use casemate_linux::confine;
use casemate_linux::instance::Instance;
use casemate_linux::local::{self, Polled};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Clients that may be sending a request or receiving an answer; more are turned away.
const MAX_ASKING: usize = 32;
/// Clients that may follow the log, and that may wait for a peer. One more ends the oldest.
const MAX_FOLLOWING: usize = 16;
const MAX_WAITING: usize = 32;
/// How long no client is accepted after that has failed, as it does without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait. Nothing needs it; it bounds what a mistake in a computed time could do.
const IDLE: Duration = Duration::from_secs(60);

/// Where the answer to a client goes: lines, until it is dropped.
pub(super) struct Reply {
    client: u64,
    place: Arc<Place>,
    answers: Sender<Answer>,
    bell: Arc<UnixStream>,
}

impl Reply {
    /// Hands a line over; `false` if the client is gone, or too slow.
    pub(super) fn send(&self, line: String) -> bool {
        let is_taken = self.place.take_line() && self.answers.send(Answer::Line(self.client, line)).is_ok();
        if is_taken {
            ring(&self.bell);
        }
        is_taken
    }

    /// Whether the client is still there, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        self.place.is_open()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.answers.send(Answer::End(self.client)).is_ok() {
            ring(&self.bell);
        }
    }
}

/// From the loop to the thread.
enum Answer {
    /// A line for this client.
    Line(u64, String),
    /// There is no more for this client.
    End(u64),
}

/// Wakes the loop when it is dropped.
pub(super) struct Bell(UnixStream);

impl Drop for Bell {
    fn drop(&mut self) {
        ring(&self.0);
    }
}

/// Makes the other end readable. If no more fits, it is.
fn ring(mut bell: &UnixStream) {
    let _ = bell.write(b"!");
}

/// The loop's end of the control socket.
pub(super) struct Control {
    wake: UnixStream,
    bell: UnixStream,
    requests: Receiver<(Request, Reply)>,
    path: PathBuf,
}

impl Control {
    /// Opens the socket and starts the thread behind it. The journal's lock says that nobody else uses the path.
    pub(super) fn open(instance: &Instance) -> Result<Self, Error> {
        let path = instance.socket();
        let failed = |error| Error::new(path.display().to_string(), error);
        let listener = local::listen(&path).map_err(failed)?;
        let (wake, bell) = pair().map_err(failed)?;
        let (answered, answer_bell) = pair().map_err(failed)?;
        let (to_loop, requests) = channel();
        let (answers, from_loop) = channel();
        let (end, bell_of_server) =
            bell.try_clone().and_then(|end| Ok((Bell(end), bell.try_clone()?))).map_err(failed)?;
        let server = Server {
            listener,
            to_loop,
            bell: bell_of_server,
            from_loop,
            answered,
            answers,
            answer_bell: Arc::new(answer_bell),
            clients: Vec::new(),
            next_client: 0,
            paused_until: Instant::now(),
        };
        let thread = thread::Builder::new().name("control".into());
        let work = move || {
            // Rung when the server is gone, also after a panic.
            let _end = end;
            let server = server;
            // It serves sockets that are open.
            confine::renounce().map(|()| server.run())
        };
        thread.spawn(work).map_err(failed)?;
        Ok(Self { wake, bell, requests, path })
    }

    /// Readable when a client wants something.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Wakes the loop as a client does.
    pub(super) fn bell(&self) -> io::Result<Bell> {
        self.bell.try_clone().map(Bell)
    }

    /// What clients want. An error if the thread has ended, which only a fault in it can cause.
    pub(super) fn requests(&mut self) -> Result<Vec<(Request, Reply)>, Error> {
        silence(&self.wake);
        let mut requests = Vec::new();
        loop {
            match self.requests.try_recv() {
                Ok(request) => requests.push(request),
                Err(TryRecvError::Empty) => return Ok(requests),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::other(self.path.display().to_string(), "its thread has ended"));
                }
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A socket that stays is replaced at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (here, there) = UnixStream::pair()?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    Ok((here, there))
}

/// Takes out what rang; whether any is left over does not matter.
fn silence(mut wake: &UnixStream) {
    let _ = wake.read(&mut [0; 64]);
}

/// What the thread has.
struct Server {
    listener: UnixListener,
    to_loop: Sender<(Request, Reply)>,
    bell: UnixStream,
    from_loop: Receiver<Answer>,
    answered: UnixStream,
    /// For replies, which ring `answered`.
    answers: Sender<Answer>,
    answer_bell: Arc<UnixStream>,
    /// In the order in which they came.
    clients: Vec<Client>,
    next_client: u64,
    paused_until: Instant,
}

impl Server {
    fn run(mut self) {
        loop {
            let Some((is_called, is_answered, found)) = self.wait() else { return };
            let now = Instant::now();
            for (client, found) in self.clients.iter_mut().zip(found) {
                client.serve(&found, now);
            }
            if is_answered {
                silence(&self.answered);
            }
            self.take_answers(now);
            self.hand_over(now);
            self.clients.retain(|client| !client.has_ended());
            if is_called {
                self.accept(now);
            }
        }
    }

    /// Waits for something to do: whether there are new clients and answers, and what each client is ready for. `None` at the end.
    fn wait(&self) -> Option<(bool, bool, Vec<Ready>)> {
        let now = Instant::now();
        let is_paused = now < self.paused_until;
        let mut polled = vec![
            Polled::new(self.listener.as_fd(), !is_paused, false),
            Polled::new(self.answered.as_fd(), true, false),
        ];
        polled.extend(self.clients.iter().map(Client::polled));
        let pause = is_paused.then_some(self.paused_until);
        let due = self.clients.iter().filter_map(Client::deadline).chain(pause).min();
        let timeout = due.map_or(IDLE, |due| due.saturating_duration_since(now).min(IDLE));
        if local::poll(&mut polled, timeout).is_err() {
            // Only a lack of memory can be the cause, which may pass.
            thread::sleep(PAUSE);
        }
        let mut found = polled.iter().map(|polled| Ready {
            readable: polled.readable,
            writable: polled.writable,
            gone: polled.gone,
        });
        let (listener, answered) = (found.next()?, found.next()?);
        Some((listener.readable, answered.readable, found.collect()))
    }

    fn take_answers(&mut self, now: Instant) {
        for answer in self.from_loop.try_iter() {
            let (Answer::Line(id, _) | Answer::End(id)) = &answer;
            let Some(client) = self.clients.iter_mut().find(|client| client.id == *id) else { continue };
            match answer {
                Answer::Line(_, line) => client.push_line(&line, now),
                Answer::End(_) => client.finish(now),
            }
        }
    }

    /// Hands complete requests over to the loop, and ends the oldest of those who wait for the same where they are too many.
    fn hand_over(&mut self, now: Instant) {
        for at in 0..self.clients.len() {
            let Some((id, request, place)) = self.clients.get_mut(at).and_then(Client::take_request) else {
                continue;
            };
            match &request {
                Request::Log(true) => self.make_room(Client::follows, MAX_FOLLOWING, now),
                Request::Initiate(..) | Request::Terminate(..) => {
                    self.make_room(Client::waits, MAX_WAITING, now);
                }
                _ => {}
            }
            let (answers, bell) = (self.answers.clone(), self.answer_bell.clone());
            let reply = Reply { client: id, place, answers, bell };
            // The loop is gone when its end of the channel is.
            let _ = self.to_loop.send((request, reply));
            ring(&self.bell);
        }
    }

    fn make_room(&mut self, is_one: fn(&Client) -> bool, most: usize, now: Instant) {
        let count = self.clients.iter().filter(|client| is_one(client)).count();
        let mut ones = self.clients.iter_mut().filter(|client| is_one(client));
        if let Some(oldest) = ones.next().filter(|_| count > most) {
            oldest.give_way(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_ASKING {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.paused_until = now + PAUSE;
                    return;
                }
            };
            let asking = self.clients.iter().filter(|client| client.asks()).count();
            if asking >= MAX_ASKING || local::check_peer(&stream).is_err() {
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                self.next_client = self.next_client.wrapping_add(1);
                self.clients.push(Client::new(self.next_client, stream, now));
            }
        }
    }
}

/// What a client's connection is ready for.
pub(super) struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) gone: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_thread_wakes_the_loop_and_is_an_error() {
        let ((wake, bell), (to_loop, requests)) = (pair().unwrap(), channel());
        let end = Bell(bell.try_clone().unwrap());
        let mut control = Control { wake, bell, requests, path: "socket".into() };
        assert!(control.requests().unwrap().is_empty());
        let fails = move || {
            let _end = end;
            let _to_loop: Sender<(Request, Reply)> = to_loop;
            panic!("on purpose");
        };
        assert!(thread::spawn(fails).join().is_err());
        let mut polled = [Polled::new(control.wake(), true, false)];
        local::poll(&mut polled, Duration::ZERO).unwrap();
        assert!(polled[0].readable);
        let error = control.requests().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("socket: its thread has ended"));
    }
}
