//! Packets of other implementations. The faults of lists are in `core/eap/tests/aka.rs`.

use super::*;
use crate::method::aka::keys::tests::{hex, keys_of_case_1, with_context};

/// Packets in the tests of Android's IKE library (AOSP, packages/modules/IPsec, EapAkaPrimeTest), with the
/// keys of case 1 in RFC 5448 appendix C: the challenge and the response.
const ANDROID: [&str; 2] = [
    "01CE0050 32010000 01050000 81E92B6C0EE0E12EBCEBA8D92A99DFA5 02050000 BB52E91C747AC3AB2A5C23D15EE351D5
     17020004 574C414E 18010001 0B050000 621879e3e2da6da77e5184edb7385b13",
    "02CE0028 32010000 03030040 28D7B0F2A2EC3DE5 0B050000 702DF07378567EF9C8E73A58578B7700",
];

#[test]
fn a_challenge_and_its_response_as_android_has_them() {
    let [challenge, response] = ANDROID.map(hex);
    let message = Message::parse(&challenge[5..]).unwrap();
    assert_eq!(message.subtype, Subtype::CHALLENGE);
    assert_eq!((message.network, &*message.kdfs), (Some(&b"WLAN"[..]), &[1][..]));
    let keys = keys_of_case_1();
    let packet = Packet {
        code: EapCode::REQUEST,
        identifier: 0xCE,
        flavour: Flavour::AkaPrime,
        data: &challenge[5..],
    };
    let verify = |packet| {
        with_context(|context| message.verify_mac(packet, &keys, EapFault::WrongAuthenticator, context))
    };
    assert_eq!(verify(&packet), Ok(()));
    assert_eq!(verify(&Packet { identifier: 0xCF, ..packet }), Err(EapFault::WrongAuthenticator));
    let res = hex("28D7B0F2A2EC3DE5");
    let written = with_context(|context| {
        Writer::new(Subtype::CHALLENGE).res(&res).mac(EapCode::RESPONSE, 0xCE, &keys, context)
    });
    let bytes = packet_bytes(EapCode::RESPONSE, 0xCE, Flavour::AkaPrime, &written.unwrap());
    assert_eq!(bytes, Ok(response.clone()));
    assert_eq!(Message::parse(&response[5..]).unwrap().res, Some(&*res));
}

/// The identity in a message of the same tests, with three bytes of padding.
#[test]
fn an_identity_as_android_has_it() {
    let message = hex("050000 0E060011 3630353535343434333333323232313131 000000");
    let identity = b"60555444333222111";
    assert_eq!(Message::parse(&message).unwrap().identity, Some(&identity[..]));
    assert_eq!(*Writer::new(Subtype::IDENTITY).identity(identity).finish(), message);
}
