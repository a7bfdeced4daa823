//! Additional key exchanges of a proposal (RFC 9370): which of them no peer can accept, and what a proposal
//! allows and its author probably does not mean.

use super::keyword::Keyword;
use super::proposal::Keywords;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_ike::config::{AdditionalKexes, KexRound};

/// Warning about `modp1024`.
const WEAK_GROUP: &str = "modp1024 has only 1024 bits, and RFC 8247 section 2.4 says SHOULD NOT: modp2048, \
                          ecp256 or another stronger group was expected; remove it as soon as the peer has \
                          one";

/// Whether each round that must take place can have a method of its own: no method is used in two rounds (RFC
/// 9370 section 2.2.2).
pub(super) fn can_be_agreed(all: &AdditionalKexes) -> bool {
    let rounds: Vec<&[KexMethod]> =
        all.values().filter(|kex| !kex.optional).map(|kex| &*kex.methods).collect();
    can_differ(&rounds, &mut Vec::new())
}

/// Whether these rounds can have different methods, none of which is taken. At most seven rounds.
fn can_differ(rounds: &[&[KexMethod]], taken: &mut Vec<KexMethod>) -> bool {
    let Some((methods, rest)) = rounds.split_first() else { return true };
    methods.iter().any(|method| {
        if taken.contains(method) {
            return false;
        }
        taken.push(*method);
        let differ = can_differ(rest, taken);
        taken.pop();
        differ
    })
}

/// What a proposal that parses allows and its author probably does not mean: sentences without a full stop.
pub fn warnings(text: &str) -> Vec<String> {
    let Ok(words) = Keywords::read(text) else { return Vec::new() };
    let first = words.kex();
    let further = words.pick(|word| match word {
        Keyword::Additional(round, method) => Some((round, method)),
        _ => None,
    });
    let mut found = Vec::new();
    let methods = further.iter().filter_map(|(_, method)| *method);
    if first.iter().copied().chain(methods).any(|method| method == KexMethod::Modp1024) {
        found.push(WEAK_GROUP.to_string());
    }
    found.extend(one_of_two(&first));
    let of_round = |at: KexRound| further.iter().filter(move |(round, _)| *round == at);
    let rounds: BTreeSet<KexRound> = further.iter().map(|(round, _)| *round).collect();
    let needless = rounds.into_iter().filter(|round| of_round(*round).all(|(_, method)| method.is_none()));
    found.extend(needless.map(|round| {
        let number = round.number();
        format!(
            "ke{number}_none has no effect without a method of the same round: ke{number}_mlkem768-\
             ke{number}_none was expected, or neither"
        )
    }));
    found
}

/// A warning about ML-KEM beside another method, which looks as if both were used.
fn one_of_two(first: &[KexMethod]) -> Option<String> {
    let kem = first.iter().find(|method| method.is_kem())?;
    let other = first.iter().find(|method| !method.is_kem())?;
    let (kem, other) = (kem.keyword(), name(*other));
    Some(format!(
        "{kem} beside {other} is one key exchange with one of the two methods: {other}-ke1_{kem} was \
         expected, if the keys are to depend on both"
    ))
}

/// The usual keyword of a method.
fn name(method: KexMethod) -> &'static str {
    match method {
        KexMethod::X25519 => "x25519",
        method => method.keyword(),
    }
}

#[cfg(all(test, feature = "multiple-kex"))]
mod tests {
    use super::*;
    use crate::proposal::{parse_esp, parse_ike};

    #[test]
    fn a_method_in_two_rounds_is_an_error_unless_another_choice_exists() {
        let of = |kexes: &str| parse_ike(&format!("aes256gcm16-prfsha384-x25519-{kexes}"));
        for never in [
            "ke1_mlkem768-ke2_mlkem768",
            "ke1_mlkem768-ke7_mlkem768-ke7_mlkem768",
            "ke1_mlkem768-ke1_ecp384-ke2_mlkem768-ke2_ecp384-ke3_mlkem768-ke3_ecp384",
        ] {
            let why = of(never).unwrap_err();
            assert!(why.contains("RFC 9370 section 2.2.2") && why.contains("ke1_mlkem768-ke2_"), "{why}");
        }
        assert!(parse_esp("aes256gcm16-x25519-ke1_mlkem768-ke2_mlkem768").is_err());
        for possible in [
            "ke1_mlkem768-ke2_mlkem768-ke2_none",
            "ke1_mlkem768-ke1_mlkem1024-ke2_mlkem768",
            "ke1_mlkem768-ke2_mlkem1024-ke3_ecp384",
            // The first key exchange does not count.
            "ke1_x25519",
        ] {
            assert!(of(possible).is_ok(), "{possible}");
        }
    }

    #[test]
    fn what_is_probably_not_meant_gives_a_warning() {
        for (text, expected) in [
            ("aes256gcm16-prfsha384-x25519-mlkem768", "x25519-ke1_mlkem768 was expected"),
            ("aes256gcm16-mlkem1024-ecp384", "ecp384-ke1_mlkem1024 was expected"),
            ("aes256gcm16-prfsha384-x25519-ke1_none", "ke1_none has no effect"),
            ("aes256gcm16-prfsha384-x25519-ke1_mlkem768-ke2_none", "ke2_none has no effect"),
        ] {
            let found = warnings(text);
            assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
        }
        for text in [
            "default",
            "aes256gcm16-prfsha384-x25519-ke1_mlkem768",
            "aes256gcm16-prfsha384-mlkem768",
            "aes256gcm16-x25519-ecp384-ke1_mlkem768-ke1_none",
        ] {
            assert!(warnings(text).is_empty(), "{text}: {:?}", warnings(text));
        }
    }

    #[test]
    fn a_weak_group_gives_a_warning_in_every_round() {
        for text in ["aes256-sha256-modp1024", "aes256-sha256-x25519-ke1_modp1024"] {
            let found = warnings(text);
            // Without the legacy provider, the keyword is an error.
            assert_eq!(found.len(), usize::from(cfg!(feature = "legacy")), "{text}");
            assert!(found.iter().all(|text| text.contains("RFC 8247")), "{found:?}");
        }
    }
}
