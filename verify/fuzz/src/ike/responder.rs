//! Datagrams of unauthenticated senders, to a responder without IKE SAs or to an established one.

use super::check;
use super::forge::{first_request, give_right, plain, read_plain};
use super::pair::Pair;
use crate::Target;
use crate::input::{Input, Script};
use casemate_ike::{Event, IkeSpis, IkeState};
use casemate_wire::ike::{Header, IkeSpi, PayloadType};

pub(crate) const TARGET: Target = Target {
    name: "ike-responder",
    about: "IKE responder: each forged datagram gets at most one response, changes no established SA, and establishes none",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &[],
};

/// All exchanges of IKEv2 that the engine knows, and one that it does not know.
const EXCHANGES: [u8; 8] = [34, 35, 36, 37, 38, 43, 44, 240];

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut pair = Pair::with_defaults();
    let request = first_request(&mut pair);
    let is_established = input.flag();
    if is_established {
        let answer = give_right(&mut pair, &request);
        pair.left.sent.extend([]);
        super::forge::give_left(&mut pair, &answer[0])
            .iter()
            .for_each(|auth| drop(give_right(&mut pair, auth)));
    }
    let established: Vec<_> = pair.right.ike.status().collect();
    let reserved = pair.right.host.reserved.clone();
    for _ in 0..20 {
        if input.is_empty() {
            break;
        }
        let datagram = datagram(&mut input, &request, established.first().map(|ike| ike.spis));
        let answers = give_right(&mut pair, &datagram);
        // RFC 7296 section 2.21.4: at most one response.
        assert!(answers.len() <= 1, "{} responses", answers.len());
        assert!(answers.iter().all(|answer| answer.len() <= 1_000));
        check(&pair.right, false);
    }
    let now: Vec<_> = pair.right.ike.status().filter(|ike| ike.state != IkeState::Connecting).collect();
    assert_eq!(now, established);
    assert_eq!(pair.right.host.reserved, reserved);
    let ups = pair.right.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
    assert_eq!(ups, established.len(), "an IKE SA was established without the key");
}

/// Next datagram: raw bytes, a header that matches an IKE SA, or a valid request with changes.
fn datagram(input: &mut Input<'_>, request: &[u8], spis: Option<IkeSpis>) -> Vec<u8> {
    let kind = input.u8();
    let len = usize::from(input.u16() % 512);
    match kind % 3 {
        0 => input.take(len).to_vec(),
        1 => {
            let mut changed = request.to_vec();
            let (at, with) = (input.index(changed.len()), input.take(len % 16));
            changed.iter_mut().skip(at).zip(with).for_each(|(byte, with)| *byte ^= with);
            changed
        }
        _ => {
            let (mut header, _) = read_plain(request);
            let unknown = IkeSpis { initiator: header.spi_i, responder: IkeSpi::NONE };
            let IkeSpis { initiator: spi_i, responder: spi_r } = spis.unwrap_or(unknown);
            header = Header { spi_i, spi_r, message_id: u32::from(input.u8() % 4), ..header };
            header.exchange.0 = EXCHANGES[input.index(EXCHANGES.len())];
            header.flags.response = input.flag();
            let mut message = plain(&header, &[]);
            message[16] = PayloadType(input.u8()).0;
            message.extend_from_slice(input.take(len));
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            message[24..28].copy_from_slice(&length);
            message
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let request = first_request(&mut Pair::with_defaults());
    let len = u16::try_from(request.len()).unwrap();
    let whole = Script::default().u8(0).u8(0).u16(len).bytes(&request);
    let changed =
        Script::default().u8(0).u8(1).u16(1).u16(20).u8(1).u8(1).u16(1).u16(100).u8(255).u8(1).u16(0).u16(0);
    let delete = [0, 0, 0, 8, 1, 0, 0, 0];
    let clear = Script::default().u8(1).u8(2).u16(8).u8(2).u8(3).u8(0).u8(42).bytes(&delete);
    let sealed =
        Script::default().u8(1).u8(2).u16(64).u8(2).u8(3).u8(0).u8(46).bytes(&[0, 0, 0, 64]).bytes(&[9; 60]);
    let again = Script::default().u8(1).u8(1).u16(0).u16(0).u8(1).u16(1).u16(30).u8(1);
    [whole, changed, clear, sealed, again].map(Script::finish).to_vec()
}
