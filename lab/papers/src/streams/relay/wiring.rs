//! Coupling of the modules: function calls or queues.

use super::modules::{Chain, Message, Module};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;

/// Maximum length of a queue. Then the previous module has to wait (flow control of STREAMS).
const QUEUE: usize = 64;

/// Coupling of the modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Each module is called in turn, like put routines of STREAMS.
    Functions,
    /// Each module has a queue and a thread, like service routines of STREAMS.
    Queues,
}

impl Wiring {
    /// Starts one direction. Its final error is sent to `errors`.
    pub(super) fn start(
        self,
        source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
        Chain(modules): Chain,
        errors: Sender<io::Error>,
    ) {
        match self {
            Self::Functions => spawn(errors, move || run_functions(source, modules)),
            Self::Queues => start_queues(source, modules, &errors),
        }
    }
}

fn run_functions(
    mut source: impl FnMut(&mut Message) -> io::Result<()>,
    mut modules: Vec<Module>,
) -> io::Result<()> {
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

fn start_queues(
    mut source: impl FnMut(&mut Message) -> io::Result<()> + Send + 'static,
    modules: Vec<Module>,
    errors: &Sender<io::Error>,
) {
    let mut next = None;
    // A module must exist before those that send to it.
    for module in modules.into_iter().rev() {
        let (put, get) = sync_channel(QUEUE);
        let after = next.replace(put);
        spawn(errors.clone(), move || serve(module, &get, after.as_ref()));
    }
    spawn(errors.clone(), move || {
        loop {
            let mut message = Message::new();
            source(&mut message)?;
            forward(next.as_ref(), message)?;
        }
    });
}

/// Service routine of a module.
fn serve(
    mut module: Module,
    queue: &Receiver<Message>,
    next: Option<&SyncSender<Message>>,
) -> io::Result<()> {
    while let Ok(mut message) = queue.recv() {
        if module(&mut message)? {
            forward(next, message)?;
        }
    }
    Ok(())
}

fn forward(next: Option<&SyncSender<Message>>, message: Message) -> io::Result<()> {
    next.map_or(Ok(()), |queue| queue.send(message)).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn spawn(errors: Sender<io::Error>, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = work() {
            // If the channel is closed, its receiver has got another error.
            let _ = errors.send(error);
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

    /// Passes three packets through two modules. The first one drops every second packet.
    fn passed(wiring: Wiring) -> Vec<u8> {
        let (errors, receiver) = channel();
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
        wiring.start(source, Chain(vec![odd, last]), errors);
        assert_eq!(receiver.recv().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        see.iter().collect()
    }

    #[test]
    fn packets_stay_in_order_and_dropped_packets_stop() {
        assert_eq!(passed(Wiring::Functions), [1, 3]);
        assert_eq!(passed(Wiring::Queues), [1, 3]);
    }
}
