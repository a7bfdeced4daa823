//! Orders from standard input: one at a time, each answered by a line.

use crate::jobs::{self, Job};
use crate::stack::Stack;
use smoltcp::time::Instant;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};

pub(crate) struct Orders {
    lines: Receiver<String>,
    job: Option<Box<dyn Job>>,
    ended: bool,
}

impl Orders {
    pub(crate) fn listen() -> Self {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, job: None, ended: false }
    }

    pub(crate) const fn have_ended(&self) -> bool {
        self.ended && self.job.is_none()
    }

    /// Goes on with the present job, or begins the next.
    pub(crate) fn work(&mut self, stack: &mut Stack, now: Instant) {
        if self.job.is_none() {
            match self.lines.try_recv() {
                Ok(line) => self.obey(&line, stack, now),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
        if let Some(job) = &mut self.job
            && let Some(done) = job.step(stack, now)
        {
            self.job = None;
            answer(&done);
        }
    }

    fn obey(&mut self, line: &str, stack: &mut Stack, now: Instant) {
        let done = match line.split_once(' ').unwrap_or((line, "")) {
            ("keys", path) => stack.load(Path::new(path), now).map(|()| "loaded".into()),
            ("drops", _) => Ok(stack.drops()),
            _ => match jobs::parse(line, stack, now) {
                Ok(job) => return self.job = Some(job),
                Err(error) => Err(error),
            },
        };
        answer(&done);
    }
}

fn answer(done: &Result<String, String>) {
    let mut out = std::io::stdout().lock();
    // Whoever does not read any more is not told.
    let _ = match done {
        Ok(text) => writeln!(out, "0 {text}"),
        Err(text) => writeln!(out, "1 {text}"),
    };
    let _ = out.flush();
}
