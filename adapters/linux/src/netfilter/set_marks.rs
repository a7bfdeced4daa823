//! Marks packets that come out of tunnels (`set_mark_in`), before any rule of the administrator sees them.
//!
//! The rules are in a table that ends with this process, however it ends.

use super::owned_table::{
    REGISTER, append_rule, chain, compare, create, expression, load_meta, number, rule, value,
};
use super::{Netfilter, nested};
use std::collections::BTreeMap;
use std::io;

const CHAIN: &str = "marks";
/// Before connection tracking (-200) and the rules that set marks (-150).
const PRIORITY: i32 = -300;

/// The marks of the packets that arrive by interfaces of tunnels.
pub(crate) struct SetMarks {
    netfilter: Netfilter,
    table: String,
    /// Mark by index of the interface.
    marks: BTreeMap<u32, u32>,
}

impl SetMarks {
    /// No marks yet, for the instance with this TUN interface.
    pub(crate) fn open(tun: &str) -> io::Result<Self> {
        let table = format!("casemate-marks_{tun}");
        Ok(Self { netfilter: Netfilter::open()?, table, marks: BTreeMap::new() })
    }

    /// Sets exactly these marks from now on. After an error, the former ones are set.
    pub(crate) fn set(&mut self, marks: BTreeMap<u32, u32>) -> io::Result<()> {
        if marks == self.marks {
            return Ok(());
        }
        let table = &self.table;
        let contents = (!marks.is_empty()).then(|| {
            let rules = marks.iter().map(|(index, mark)| append_rule(mark_rule(table, *index, *mark)));
            let chain = create(libc::NFT_MSG_NEWCHAIN, chain(table, CHAIN, PRIORITY));
            std::iter::once(chain).chain(rules).collect()
        });
        self.netfilter.replace_table(table, !self.marks.is_empty(), contents)?;
        self.marks = marks;
        Ok(())
    }
}

/// The rule for the packets of one interface.
fn mark_rule(table: &str, index: u32, mark: u32) -> Vec<u8> {
    rule(table, CHAIN, |bytes| {
        load_meta(bytes, libc::NFT_META_IIF);
        compare(bytes, libc::NFT_CMP_EQ, &index.to_ne_bytes());
        expression(bytes, "immediate", |bytes| {
            number(bytes, 1, REGISTER);
            nested(bytes, 2, |bytes| value(bytes, &mark.to_ne_bytes()));
        });
        expression(bytes, "meta", |bytes| {
            number(bytes, 2, libc::NFT_META_MARK as u32);
            number(bytes, 3, REGISTER);
        });
    })
}
