//! Commands from standard input, executed one at a time.

use crate::jobs::Flow;
use crate::jobs::{self, Job};
use crate::stack::Stack;
use casemate_app::command;
use smoltcp::time::Instant;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};

pub(crate) struct CommandQueue {
    lines: Receiver<String>,
    job: Option<Box<dyn Job>>,
    /// Echo requests that are sent while other commands run.
    flow: Option<Flow>,
    ended: bool,
}

impl CommandQueue {
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

    pub(crate) const fn is_finished(&self) -> bool {
        self.ended && self.job.is_none()
    }

    /// Continues the current job, or starts the next command.
    pub(crate) fn run(&mut self, stack: &mut Stack, now: Instant) {
        if let Some(flow) = &mut self.flow {
            flow.step(stack, now);
        }
        if self.job.is_none() {
            match self.lines.try_recv() {
                Ok(line) => self.execute(&line, stack, now),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
        if let Some(job) = &mut self.job
            && let Some(done) = job.step(stack, now)
        {
            self.job = None;
            print_result(&done);
        }
    }

    fn execute(&mut self, line: &str, stack: &mut Stack, now: Instant) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words.as_slice() {
            ["keys", path] => stack.load_keys(Path::new(path), now).map(|()| "loaded".into()),
            ["connections", path] => stack.load_connections(Path::new(path), now).map(|()| "loaded".into()),
            ["drops"] => Ok(stack.drops()),
            ["status"] => Ok(stack.ike_sas(now)),
            ["rekey", name, rest @ ..] => {
                let ike = rest == ["--ike"];
                let started =
                    stack.with_ike(now, |endpoint, context| command::rekey(name, ike, endpoint, context));
                started.map(|()| "begun".into())
            }
            ["flow", from, to] => Flow::new(from, to, stack, now).map(|flow| {
                self.flow = Some(flow);
                "begun".into()
            }),
            ["stop"] => match self.flow.take() {
                Some(flow) => return self.job = Some(Box::new(flow.stop(now))),
                None => Err("no flow is running".into()),
            },
            words => match jobs::parse(words, stack, now) {
                Ok(job) => return self.job = Some(job),
                Err(error) => Err(error),
            },
        };
        print_result(&done);
    }
}

fn print_result(done: &Result<String, String>) {
    let mut out = std::io::stdout().lock();
    // A response is one line. Write errors are ignored: the reader has gone.
    let _ = match done {
        Ok(text) => writeln!(out, "0 {text}"),
        Err(text) => writeln!(out, "1 {}", text.replace('\n', "; ")),
    };
    let _ = out.flush();
}
