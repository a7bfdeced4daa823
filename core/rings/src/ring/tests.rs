use super::*;
use crate::message::{Call, Handle, Tag};
use crate::{Geometry, Local, Transport};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

fn head(tag: u32) -> Head {
    Head::from_call(Tag(tag), &Call::Send { socket: Handle(0) })
}

fn data(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(7) ^ seed).collect()
}

proptest! {
    /// Against a queue: what goes in comes out, in order, whole; and a ring is full only if it is.
    #[test]
    fn a_ring_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..700, any::<u8>()), 0..200)) {
        let geometry = Geometry::new(6, 6).unwrap();
        let (local, _) = Local::pair(geometry);
        let (memory, place) = (local.memory(), geometry.calls());
        let (mut writer, mut reader) = (Writer::new(place), Reader::new(place));
        let mut model: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
        let mut used = 0;
        for (number, (put, len, seed)) in steps.into_iter().enumerate() {
            if put {
                let data = data(len, seed);
                let done = writer.put(memory, head(number as u32), &data);
                if size(len) > 64 {
                    prop_assert_eq!(done, Err(PutError::TooLong));
                } else if used + size(len) > 64 {
                    prop_assert_eq!(done, Err(PutError::Full));
                } else {
                    prop_assert_eq!(done, Ok(()));
                    used += size(len);
                    model.push_back((number as u32, data));
                }
            } else {
                let found = reader.peek(memory).unwrap();
                prop_assert_eq!(found.map(|head| head.tag().0), model.front().map(|(tag, _)| *tag));
                let Some((_, expected)) = model.pop_front() else { continue };
                let mut out = vec![0; expected.len() + 9];
                prop_assert_eq!(reader.copy(memory, 0, &mut out), expected.len());
                prop_assert_eq!(&out[..expected.len()], &expected[..]);
                reader.pass(memory).unwrap();
                used -= size(expected.len());
            }
        }
    }

    /// A reader that meets any words at all: no panic, no message longer than the ring, and no end of time.
    #[test]
    fn any_memory_is_read(words in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..80], 176)) {
        let geometry = Geometry::new(6, 6).unwrap();
        let (local, _) = Local::pair(geometry);
        for (word, value) in local.memory().iter().zip(&words) {
            word.store(*value, Ordering::Relaxed);
        }
        let mut reader = Reader::new(geometry.calls());
        for _ in 0..64 {
            let Ok(Some(head)) = reader.peek(local.memory()) else { break };
            prop_assert!(size(head.len as usize) <= 64);
            let mut out = vec![0; 1_000];
            prop_assert_eq!(reader.copy(local.memory(), 3, &mut out), (head.len as usize).saturating_sub(3));
            reader.pass(local.memory()).unwrap();
        }
        let mut writer = Writer::new(geometry.calls());
        let _ = writer.put(local.memory(), head(1), &[1; 100]);
    }
}

#[test]
fn positions_that_cannot_be_are_violations() {
    let geometry = Geometry::new(6, 6).unwrap();
    let place = geometry.calls();
    let set = |at: usize, value: u64| {
        let (local, _) = Local::pair(geometry);
        local.memory()[at].store(value, Ordering::Relaxed);
        local
    };
    for written in [65, u64::MAX, 1 << 63] {
        let local = set(place.written(), written);
        assert_eq!(Reader::new(place).peek(local.memory()), Err(Violation::Position), "{written}");
    }
    for read in [1, 64, u64::MAX - 64] {
        let local = set(place.read(), read);
        assert_eq!(Writer::new(place).room(local.memory()), Err(Violation::Position), "{read}");
    }
    // Back to what was read already.
    let (local, _) = Local::pair(geometry);
    let (mut writer, mut reader) = (Writer::new(place), Reader::new(place));
    for tag in 0..3 {
        writer.put(local.memory(), head(tag), &[]).unwrap();
    }
    reader.peek(local.memory()).unwrap();
    reader.pass(local.memory()).unwrap();
    assert_eq!(writer.room(local.memory()), Ok(Some((64 - 10 - 5) * 8)));
    local.memory()[place.read()].store(0, Ordering::Relaxed);
    assert_eq!(writer.room(local.memory()), Err(Violation::Position));
    // A message that is longer than what was written.
    let (local, _) = Local::pair(geometry);
    Writer::new(place).put(local.memory(), head(7), &[0; 8]).unwrap();
    local.memory()[place.written()].store(5, Ordering::Relaxed);
    assert_eq!(Reader::new(place).peek(local.memory()), Err(Violation::Length));
}

#[test]
fn a_writer_without_room_is_woken() {
    let geometry = Geometry::new(6, 6).unwrap();
    let (local, _) = Local::pair(geometry);
    let (memory, place) = (local.memory(), geometry.answers());
    let (mut writer, mut reader) = (Writer::new(place), Reader::new(place));
    writer.put(memory, head(1), &[1; 200]).unwrap();
    writer.put(memory, head(2), &[2; 200]).unwrap();
    assert_eq!(writer.put(memory, head(3), &[3; 200]), Err(PutError::Full));
    reader.peek(memory).unwrap();
    assert_eq!(reader.pass(memory), Ok(true), "the writer waits");
    writer.put(memory, head(3), &[3; 200]).unwrap();
    reader.peek(memory).unwrap();
    assert_eq!(reader.pass(memory), Ok(false), "it does not wait any more");
}
