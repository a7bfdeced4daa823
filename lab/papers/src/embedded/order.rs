//! What the host has the device do over a connection: eight bytes in front of what is measured.
//!
//! The host opens every connection, also where the device begins to speak, so that one side counts and times everything.

/// Where the device listens.
pub(super) const PORT: u16 = 5_002;
/// Bytes of an order: the duty, three zeros, and the size of a message (big-endian).
pub(super) const LEN: usize = 8;
/// The longest message, in bytes.
pub(super) const LONGEST: usize = 16_384;

/// What the device does until the host closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// It answers every message with one of the same size.
    Answer,
    /// It sends a message, waits for one of the same size, and begins again.
    Ask,
    /// It reads, and closes when the host has said all.
    Take,
    /// It sends message after message.
    Give,
}

/// An order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) duty: Duty,
    /// Bytes of a message, from 1 to [`LONGEST`].
    pub(super) size: usize,
}

const DUTIES: [(u8, Duty); 4] =
    [(b'A', Duty::Answer), (b'Q', Duty::Ask), (b'T', Duty::Take), (b'G', Duty::Give)];

impl Order {
    pub(super) fn encode(self) -> [u8; LEN] {
        let letter = DUTIES.iter().find(|(_, duty)| *duty == self.duty).map_or(0, |(letter, _)| *letter);
        let [_, _, _, _, a, b, c, d] = (self.size as u64).to_be_bytes();
        [letter, 0, 0, 0, a, b, c, d]
    }

    /// `None` if it is no order.
    pub(super) fn decode(bytes: [u8; LEN]) -> Option<Self> {
        let [letter, 0, 0, 0, a, b, c, d] = bytes else { return None };
        let (_, duty) = DUTIES.iter().find(|(known, _)| *known == letter)?;
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        (1..=LONGEST).contains(&size).then_some(Self { duty: *duty, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for (_, duty) in DUTIES {
            for size in [1, 1_000, LONGEST] {
                let order = Order { duty, size };
                assert_eq!(Order::decode(order.encode()), Some(order));
            }
        }
        assert_eq!(Order { duty: Duty::Ask, size: 258 }.encode(), [b'Q', 0, 0, 0, 0, 0, 1, 2]);
        let no_orders = [
            [b'X', 0, 0, 0, 0, 0, 0, 1],
            [b'A', 1, 0, 0, 0, 0, 0, 1],
            [b'A'; 8],
            [b'A', 0, 0, 0, 0, 0, 0, 0],
        ];
        for wrong in no_orders {
            assert_eq!(Order::decode(wrong), None, "{wrong:?}");
        }
        assert_eq!(Order::decode([b'A', 0, 0, 0, 0, 0, 0x40, 1]), None);
    }
}
