//! What does not fit is refused, and says so.

use crate::pair::{with_each, with_programs};
use crate::specs::Case;
use casemate_datapath_tests::Ends;
use casemate_lwip_tests::Host;
use casemate_sa::Mode;

fn sa(spi: u32, suite: &str, key: usize) -> String {
    let key = "5a".repeat(key);
    format!("sa out esp transport 192.0.2.2 192.0.2.9 {spi} {suite} {key} - 0 0 0 0")
}

fn plain() -> Vec<Case> {
    vec![Case::esp(Ends::transport(4), Mode::Transport)]
}

#[test]
fn what_is_wrong_has_a_name() {
    with_each(plain(), |_, pair| {
        let lwip = &mut pair.lwip;
        let before = lwip.order("memory").unwrap();
        for (order, word) in [
            (sa(0, "aes128gcm16", 20), "values"),
            (sa(7, "aes128gcm15", 20), "suite"),
            (sa(7, "aes128gcm16", 16), "length"),
            ("sa out esp transport 192.0.2.2 fd00::1 7 aes128gcm16 5a - 0 0 0 0".into(), "version"),
            ("sa out ah transport 192.0.2.2 192.0.2.9 7 sha256 - 5a 4500 0 0 0".into(), "contradict"),
            ("policy out 192.0.2.2 fd00::1 ::1 ::1 1 bypass - - - -".into(), "version"),
        ] {
            let error = lwip.order(&order).unwrap_err();
            assert!(error.contains(word), "{order}: {error}");
        }
        assert_eq!(lwip.order("memory").unwrap(), before, "what was refused left nothing behind");
        lwip.order(&sa(7, "aes128gcm16", 20)).unwrap();
        assert!(lwip.order(&sa(7, "aes128gcm16", 20)).unwrap_err().contains("exists"));
    });
}

#[test]
fn full_tables_refuse_what_comes_next() {
    with_each(plain(), |_, pair| {
        let lwip = &mut pair.lwip;
        let free = |lwip: &mut Host| lwip.order("memory").unwrap().parse::<usize>().unwrap();
        // "host=TAKEN of SAID, ..."
        let mut words = lwip.greeting.trim_start_matches("host=").split([' ', ',']);
        let (taken, said): (usize, usize) =
            (words.next().unwrap().parse().unwrap(), words.nth(1).unwrap().parse().unwrap());
        assert!(taken <= said && said < taken + 8_000, "{}", lwip.greeting);
        // The tables hold 8 SAs, two of which are there.
        let before = free(lwip);
        for spi in 1..=6 {
            lwip.order(&sa(spi, "aes256gcm16", 36)).unwrap();
        }
        let each = (before - free(lwip)) / 6;
        assert!(each <= 4_096, "an SA costs {each} bytes, more than casemate_limits says");
        assert!(lwip.order(&sa(8, "aes256gcm16", 36)).unwrap_err().contains("as many entries"));
        let before = free(lwip);
        let mut count = 0;
        let error = loop {
            let address = format!("10.0.{count}.1");
            let order = format!("policy out {address} {address} {address} {address} 9 bypass - - - -");
            match lwip.order(&order) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        // The tables hold 32 in each direction; 11 are there.
        assert!(count == 21 && error.contains("as many entries"), "{count}: {error}");
        let each = (before - free(lwip)) / count;
        assert!(each <= 2_048, "a policy costs {each} bytes, more than casemate_limits says");
    });
}

/// However much memory there is: what does not fit is refused before anything is allocated, and what works goes on working.
#[test]
fn memory_that_does_not_suffice_is_said_so() {
    with_programs(|program| {
        let (mut refused, mut started) = (0, 0);
        for memory in (0..100_000).step_by(4_000) {
            let Ok((mut lwip, _wire)) = Host::start(program, memory).inspect_err(|error| {
                assert!(error.contains("memory"), "{memory}: {error}");
                refused += 1;
            }) else {
                continue;
            };
            started += 1;
            let outcome = (1..=8).try_for_each(|spi| lwip.order(&sa(spi, "aes256gcm16", 36)).map(drop));
            assert!(
                outcome.as_ref().is_ok() || outcome.as_ref().is_err_and(|error| error.contains("memory"))
            );
            let outcome = lwip.order("housekeeping");
            assert!(outcome.is_ok() || outcome.is_err_and(|error| error.contains("memory")));
            lwip.order("drops").unwrap();
            lwip.end();
        }
        assert!(refused > 5 && started > 5, "{refused} {started}");
    });
}

/// What `casemate_limits` says of all tables is enough for all tables.
#[test]
fn full_tables_fit_the_memory_that_was_said() {
    with_programs(|program| {
        let (mut asked, _wire) = Host::start(program, 400_000).unwrap();
        let total = asked.greeting.rsplit(' ').next().unwrap().parse().unwrap();
        asked.order("drops").unwrap();
        asked.end();
        let (mut lwip, _wire) = Host::start(program, total).unwrap();
        for spi in 1..=8 {
            let direction = if spi % 2 == 0 { "in" } else { "out" };
            let order = sa(spi, "aes256-sha512", 32).replace(" - ", &format!(" {} ", "5a".repeat(64)));
            let order = order.replace("sa out", &format!("sa {direction}"));
            // The largest window that the tables allow.
            let order = format!("{} 4096 0", order.strip_suffix(" 0 0").unwrap());
            lwip.order(&order).unwrap_or_else(|error| panic!("{spi}: {error}"));
        }
        for direction in ["in", "out"] {
            for n in 1..=32 {
                let order = format!("policy {direction} 10.0.{n}.1 10.0.{n}.1 ::1 ::1 9 bypass - - - -");
                let order = order.replace("::1", &format!("10.1.{n}.0"));
                lwip.order(&order).unwrap_or_else(|error| panic!("{direction} {n}: {error}"));
            }
        }
        lwip.end();
    });
}
