//! ML-KEM and post-quantum pre-shared keys (PPK) between lwIP and smoltcp, both with Casemate.

use crate::ike_pair::{IkeCase, IkePair, PostQuantum, with_ike_pairs};
use casemate_crypto::KexMethod;
use casemate_ike::{Event, IkeState, IkeStatus};

const PPK: PostQuantum = PostQuantum::Ppk { id: "carol@ppk", key: "a-post-quantum-key-of-both-hosts" };
const ML_KEM: &str =
    "proposals aes128gcm16-prfsha256-x25519-ke1_mlkem768 esp aes128gcm16-x25519-ke1_mlkem768";

fn status(pair: &IkePair) -> IkeStatus {
    let all: Vec<_> = pair.peer.device.endpoint().ike().status().collect();
    let [one] = &all[..] else { panic!("{} IKE SAs: {:?}", all.len(), pair.notices) };
    one.clone()
}

/// Initiates the SAs on both sides in turn, and rekeys them on both sides.
fn establish_and_rekey(pair: &mut IkePair) {
    for is_lwip in [true, false] {
        match is_lwip {
            true => drop(pair.lwip.command("initiate peer/all").unwrap()),
            false => pair.initiate(),
        }
        pair.run("up", |pair| {
            let ikes = pair.peer.device.endpoint().ike().status();
            ikes.filter(|ike| ike.state == IkeState::Established).count() == 1 && pair.children() == 1
        });
        for command in ["rekey peer/all", "rekey peer", ""] {
            let count = pair.notices.len();
            match command {
                "" => pair.rekey(),
                command => drop(pair.lwip.command(command).unwrap()),
            }
            pair.run(&format!("lwIP initiated: {is_lwip}, `{command}`"), |pair| {
                let is_end = |event: &Event| matches!(event, Event::ChildDown { .. } | Event::IkeDown { .. });
                pair.notices[count..].iter().any(is_end) && pair.children() == 1
            });
        }
        // The last rekeying may still close what it has replaced.
        pair.run("one IKE SA", |pair| pair.peer.device.endpoint().ike().status().count() == 1);
        if is_lwip {
            pair.lwip.command("terminate peer").unwrap();
            pair.run("the end", |pair| pair.peer.device.endpoint().ike().ike_sa_count() == 0);
        }
    }
}

#[test]
fn ml_kem_protects_both_sas() {
    let case = IkeCase { post_quantum: Some(PostQuantum::MlKem), words: ML_KEM, ..IkeCase::PLAIN };
    with_ike_pairs(&[case, IkeCase { version: 6, encap: true, ..case }], |case, pair| {
        establish_and_rekey(pair);
        let ike = status(pair);
        let methods: Vec<_> = ike.suite.unwrap().additional.iter().map(|(_, method)| method).collect();
        assert_eq!(methods, [KexMethod::MlKem768], "{case:?}");
        let methods: Vec<_> = ike.children[0].suite.additional.iter().map(|(_, method)| method).collect();
        assert_eq!(methods, [KexMethod::MlKem768], "{case:?}");
        let counts = pair.lwip.command("counts").unwrap();
        assert!(counts.ends_with("refused 0, lost datagrams 0"), "{counts}");
    });
}

#[test]
fn a_ppk_strengthens_the_keys() {
    let words = "ppk-id carol@ppk ppk a-post-quantum-key-of-both-hosts ppk-required";
    with_ike_pairs(&[IkeCase { post_quantum: Some(PPK), words, ..IkeCase::PLAIN }], |_, pair| {
        establish_and_rekey(pair);
        assert_eq!(status(pair).ppk_id.as_deref(), Some(&b"carol@ppk"[..]));
    });
}

/// lwIP has a missing or a wrong PPK, or ML-KEM with a peer without it.
#[test]
fn without_agreement_there_is_no_sa() {
    let ppk = IkeCase { post_quantum: Some(PPK), ..IkeCase::PLAIN };
    let cases = [
        ppk,
        IkeCase { words: "ppk-id carol@ppk ppk another-key", ..ppk },
        IkeCase { words: "ppk-id dave@ppk ppk a-post-quantum-key-of-both-hosts", ..ppk },
        IkeCase { post_quantum: None, words: ML_KEM, ..ppk },
        IkeCase {
            words: "proposals aes128gcm16-prfsha256-x25519",
            post_quantum: Some(PostQuantum::MlKem),
            ..ppk
        },
    ];
    with_ike_pairs(&cases, |case, pair| {
        pair.lwip.command("initiate peer/all").unwrap();
        pair.run(&format!("{case:?}"), |pair| pair.lwip.command("events").unwrap().contains("ike-down peer"));
        assert_eq!(pair.children(), 0, "{case:?}");
    });
}
