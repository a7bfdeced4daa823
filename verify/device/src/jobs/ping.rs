//! Echo requests of several sizes, every byte of the answers compared.

use super::Job;
use super::echo::Echo;
use crate::stack::Stack;
use smoltcp::time::{Duration, Instant};
use std::collections::VecDeque;
use std::net::IpAddr;

const IDENT: u16 = 0xCA5E;
/// How long an answer may take. None may be lost: the device cuts what is too long, and so does its peer.
const LIMIT: Duration = Duration::from_secs(3);

pub(crate) struct Ping {
    echo: Echo,
    sizes: VecDeque<usize>,
    count: usize,
    /// The request that waits for its answer: its number, its data, and since when.
    waiting: Option<(u16, Vec<u8>, Instant)>,
    began: Instant,
}

impl Ping {
    pub(crate) fn new(
        ends: (IpAddr, IpAddr),
        sizes: Vec<usize>,
        stack: &mut Stack,
        now: Instant,
    ) -> Result<Self, String> {
        let (echo, count) = (Echo::new(IDENT, ends, stack)?, sizes.len());
        Ok(Self { echo, sizes: sizes.into(), count, waiting: None, began: now })
    }

    /// Sends the next request; `false` if there is none.
    fn send(&mut self, stack: &mut Stack, now: Instant) -> Result<bool, String> {
        let Some(size) = self.sizes.pop_front() else { return Ok(false) };
        let number = self.sizes.len() as u16;
        let data: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(7) as u8) ^ number as u8).collect();
        self.echo.request(number, &data, stack)?;
        self.waiting = Some((number, data, now));
        Ok(true)
    }

    /// Takes an answer, if it is the right one.
    fn take(&mut self, stack: &mut Stack) {
        let waiting = &mut self.waiting;
        self.echo.answers(stack, |number, data| {
            if waiting.as_ref().is_some_and(|(wanted, sent, _)| *wanted == number && sent == data) {
                *waiting = None;
            }
        });
    }
}

impl Job for Ping {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.take(stack);
        let done = match &self.waiting {
            Some((_, data, since)) if now - *since > LIMIT => {
                Err(format!("no answer to {} bytes", data.len()))
            }
            Some(_) => return None,
            None => match self.send(stack, now) {
                Ok(true) => return None,
                Ok(false) => Ok(format!("{} answered, {} ms", self.count, (now - self.began).total_millis())),
                Err(error) => Err(error),
            },
        };
        self.echo.close(stack);
        Some(done)
    }
}
