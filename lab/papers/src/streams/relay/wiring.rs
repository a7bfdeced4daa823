//! How modules are joined.

use super::message::Message;
use super::modules::{Chain, Module};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;

/// Packets that wait in a queue before the module in front of it has to wait: STREAMS' flow control.
const QUEUE: usize = 64;

/// How modules are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// One calls the next, as STREAMS' put routines do.
    Functions,
    /// Each has a queue and a thread, as STREAMS' service routines have.
    Queues,
}

impl Wiring {
    /// Starts one direction. The error that ends it is told.
    pub(super) fn start(
        self,
        source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
        Chain(modules): Chain,
        told: Sender<io::Error>,
    ) {
        match self {
            Self::Functions => begin(told, move || call(source, modules)),
            Self::Queues => queue(source, modules, &told),
        }
    }
}

fn call(mut source: impl FnMut(&mut Message) -> io::Result<()>, mut modules: Vec<Module>) -> io::Result<()> {
    loop {
        let mut message = Message::new();
        source(&mut message)?;
        for module in &mut modules {
            if !module(&mut message)? {
                break;
            }
        }
    }
}

fn queue(
    mut source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
    modules: Vec<Module>,
    told: &Sender<io::Error>,
) {
    let mut next = None;
    // The last is the first that has to be there.
    for module in modules.into_iter().rev() {
        let (put, get) = sync_channel(QUEUE);
        let after = next.replace(put);
        begin(told.clone(), move || serve(module, &get, after.as_ref()));
    }
    begin(told.clone(), move || {
        loop {
            let mut message = Message::new();
            source(&mut message)?;
            pass(next.as_ref(), message)?;
        }
    });
}

/// A service routine.
fn serve(
    mut module: Module,
    queue: &Receiver<Message>,
    next: Option<&SyncSender<Message>>,
) -> io::Result<()> {
    while let Ok(mut message) = queue.recv() {
        if module(&mut message)? {
            pass(next, message)?;
        }
    }
    Ok(())
}

fn pass(next: Option<&SyncSender<Message>>, message: Message) -> io::Result<()> {
    next.map_or(Ok(()), |queue| queue.send(message)).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn begin(told: Sender<io::Error>, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = work() {
            // Whoever listened has heard of another error.
            let _ = told.send(error);
        }
    });
}

impl fmt::Display for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Functions => "functions",
            Self::Queues => "queues",
        })
    }
}

impl FromStr for Wiring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "functions" => Ok(Self::Functions),
            "queues" => Ok(Self::Queues),
            _ => Err("functions or queues was expected".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Three packets through two modules that count, of which the first drops every second packet.
    fn passed(wiring: Wiring) -> Vec<u8> {
        let (told, hear) = channel();
        let (seen, see) = channel();
        let mut number = 0;
        let source = move |message: &mut Message| {
            number += 1;
            if number > 3 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            message.fill(|buffer| {
                buffer[0] = number;
                Ok(1)
            })
        };
        let odd: Module = Box::new(|message| Ok(message.data()[0] % 2 == 1));
        let last: Module =
            Box::new(move |message| seen.send(message.data()[0]).map(|()| false).map_err(io::Error::other));
        wiring.start(source, Chain(vec![odd, last]), told);
        assert_eq!(hear.recv().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        see.iter().collect()
    }

    #[test]
    fn packets_pass_in_order_and_what_a_module_drops_goes_no_further() {
        assert_eq!(passed(Wiring::Functions), [1, 3]);
        assert_eq!(passed(Wiring::Queues), [1, 3]);
    }
}
