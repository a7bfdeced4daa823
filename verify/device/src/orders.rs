//! Orders from standard input: one at a time, each answered by a line.

use crate::jobs::flow::Flow;
use crate::jobs::{self, Job};
use crate::stack::Stack;
use casemate_app::command;
use smoltcp::time::Instant;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};

pub(crate) struct Orders {
    lines: Receiver<String>,
    job: Option<Box<dyn Job>>,
    /// Echo requests that go on beside the orders.
    flow: Option<Flow>,
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
        Self { lines, job: None, flow: None, ended: false }
    }

    pub(crate) const fn have_ended(&self) -> bool {
        self.ended && self.job.is_none()
    }

    /// Goes on with the present job, or begins the next.
    pub(crate) fn work(&mut self, stack: &mut Stack, now: Instant) {
        if let Some(flow) = &mut self.flow {
            flow.step(stack, now);
        }
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
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words.as_slice() {
            ["keys", path] => stack.load_keys(Path::new(path), now).map(|()| "loaded".into()),
            ["connections", path] => stack.load_connections(Path::new(path), now).map(|()| "loaded".into()),
            ["drops"] => Ok(stack.drops()),
            ["status"] => Ok(stack.ike_sas(now)),
            ["rekey", name, rest @ ..] => {
                let ike = rest == ["--ike"];
                let begun = stack.with_ike(now, |endpoint, means| command::rekey(name, ike, endpoint, means));
                begun.map(|()| "begun".into())
            }
            ["flow", from, to] => Flow::new(from, to, stack, now).map(|flow| {
                self.flow = Some(flow);
                "begun".into()
            }),
            ["stop"] => match self.flow.take() {
                Some(flow) => return self.job = Some(Box::new(flow.ending(now))),
                None => Err("there is no flow".into()),
            },
            words => match jobs::parse(words, stack, now) {
                Ok(job) => return self.job = Some(job),
                Err(error) => Err(error),
            },
        };
        answer(&done);
    }
}

fn answer(done: &Result<String, String>) {
    let mut out = std::io::stdout().lock();
    // An answer is one line. Whoever does not read any more is not told.
    let _ = match done {
        Ok(text) => writeln!(out, "0 {text}"),
        Err(text) => writeln!(out, "1 {}", text.replace('\n', "; ")),
    };
    let _ = out.flush();
}
