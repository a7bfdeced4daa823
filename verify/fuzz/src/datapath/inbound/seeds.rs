//! Beginnings: for each link, packets in order, doubled, late, changed and made up.

use crate::datapath::specs;
use crate::script::Script;

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let honest = |shape: u8, len: u8| vec![0, shape, 0xb8, len, 4, 1, 2, 3, 4];
    let deliver = |which: u8| vec![7, which];
    let mut seeds = Vec::new();
    for link in 0..specs::COUNT {
        let start = Script::default().u8(link);
        let two = start.clone().bytes(&honest(0, 9)).bytes(&honest(0, 200));
        // In order, a replay, and the first once more.
        seeds.push(
            two.clone().bytes(&deliver(0)).bytes(&deliver(1)).bytes(&deliver(1)).bytes(&deliver(0)).done(),
        );
        // Late, after changes to TOS, TTL, the sequence number and the last byte.
        let changes = [[4, 1, 1, 1, 3], [4, 1, 1, 8, 1], [4, 0, 1, 27, 2], [4, 1, 0, 60, 1]].concat();
        seeds.push(two.clone().bytes(&changes).bytes(&[4, 0, 0x40, 50]).bytes(&deliver(0)).done());
        // Unusual headers, dummies, fragments.
        let odd = [honest(0x15, 30), honest(5, 0), honest(0x40, 16)].concat();
        seeds.push(start.clone().bytes(&odd).bytes(&deliver(2)).bytes(&deliver(1)).bytes(&deliver(0)).done());
        // Lies, and what is behind them.
        let lie = |how: u8| [&[2, 1, 1, how][..], &[0, 0xb8, 9, 0, 8, 0xff]].concat();
        let lies = [lie(0x20), lie(0x24), lie(0x21), lie(0x10), lie(0)].concat();
        seeds
            .push(start.clone().bytes(&lies).bytes(&deliver(0)).bytes(&deliver(1)).bytes(&deliver(2)).done());
        // Made up, with a header that leads to the SA.
        let made_up = [1u8, 0x11, 0x23, 0x35, 0x39].map(|how| [&[3, how, 0, 30][..], &[0; 30]].concat());
        seeds.push(start.bytes(&made_up.concat()).done());
    }
    seeds
}
