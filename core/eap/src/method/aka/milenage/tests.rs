//! Test sets of 3GPP TS 35.208.

use super::*;
use alloc::vec::Vec;
use casemate_rustcrypto::RUSTCRYPTO;

const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The values of one test set, by name.
struct Set<'a>(Vec<(&'a str, &'a str)>);

impl Set<'_> {
    fn get<const N: usize>(&self, name: &str) -> [u8; N] {
        let (_, digits) = self.0.iter().find(|(found, _)| *found == name).unwrap();
        hex(digits).try_into().unwrap()
    }
}

fn sets() -> Vec<Set<'static>> {
    let text = include_str!("../../../../tests/data/milenage.txt");
    let sets = text.split("set ").skip(1).map(|set| {
        Set(set
            .lines()
            .skip(1)
            .map(|line| line.split_once(' ').unwrap())
            .map(|(a, b)| (a, b.trim()))
            .collect())
    });
    sets.collect()
}

#[test]
fn all_functions_have_the_values_of_the_test_sets() {
    assert_eq!(sets().len(), 4);
    for set in sets() {
        let subscriber =
            Subscriber::with_op(&set.get("k"), &set.get("op"), set.get("amf"), &PROVIDERS).unwrap();
        assert_eq!(*subscriber.opc, set.get("opc"));
        let (sqn, amf) = (set.get("sqn"), subscriber.amf());
        let milenage = Milenage::new(&subscriber, &set.get("rand"), &PROVIDERS).unwrap();
        let out1 = milenage.f1(&sqn, amf).unwrap();
        assert_eq!(*out1, [set.get::<8>("f1"), set.get("f1*")].concat()[..]);
        let derived = milenage.derive().unwrap();
        assert_eq!(*derived.res, set.get("f2"));
        assert_eq!(*derived.ck, set.get("f3"));
        assert_eq!(*derived.ik, set.get("f4"));
        assert_eq!(*derived.ak, set.get("f5"));
        assert_eq!(*milenage.ak_star().unwrap(), set.get("f5*"));
    }
}

#[test]
fn each_side_opens_what_the_other_has_made_and_nothing_else() {
    for set in sets() {
        let subscriber = Subscriber::new(&set.get("k"), &set.get("opc"), set.get("amf"));
        let milenage = Milenage::new(&subscriber, &set.get("rand"), &PROVIDERS).unwrap();
        let (derived, sqn) = (milenage.derive().unwrap(), sqn_of(set.get("sqn")));
        let autn = milenage.autn(sqn, subscriber.amf(), &derived).unwrap();
        assert_eq!(autn[8..], set.get::<8>("f1"));
        assert_eq!(milenage.open_autn(&autn, &derived), Ok((sqn, subscriber.amf())));
        let auts = milenage.auts(sqn).unwrap();
        assert_eq!(milenage.open_auts(&auts), Ok(sqn));
        for at in 0..autn.len() * 8 {
            let mut wrong = autn;
            wrong[at / 8] ^= 1 << (at % 8);
            assert_eq!(milenage.open_autn(&wrong, &derived), Err(EapFault::WrongAuthenticator), "{at}");
        }
        for at in 0..auts.len() * 8 {
            let mut wrong = auts;
            wrong[at / 8] ^= 1 << (at % 8);
            assert_eq!(milenage.open_auts(&wrong), Err(EapFault::WrongPassword), "{at}");
        }
    }
}

#[test]
fn debug_output_has_no_key() {
    let subscriber = Subscriber::new(&[0x4B; 16], &[0x4F; 16], Subscriber::DEFAULT_AMF);
    assert_eq!(alloc::format!("{subscriber:?}"), "Subscriber");
}
