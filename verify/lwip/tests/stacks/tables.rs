//! Limits of memory and tables.

use crate::pair::{StaticCase, with_each, with_programs};
use casemate_lwip_tests::{LwipHost, Placement, Setup};
use casemate_sa::Mode;
use casemate_test_support::hosts::Ends;

fn sa(spi: u32, suite: &str, key: usize) -> String {
    let key = "5a".repeat(key);
    format!("sa out esp transport src 192.0.2.2 dst 192.0.2.9 spi {spi} suite {suite} encryption-key {key}")
}

/// Start parameters of a host with small tables.
fn small(memory: usize) -> Setup {
    let config = "tables sas 8 policies 32 flows 16 arrivals 1 reassemblies 1 reassembly-bytes 8000\n";
    Setup { memory, placement: Placement::Below, config }
}

/// Memory of the tables, and free memory, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Costs {
    host: usize,
    total: usize,
    free: usize,
}

fn costs(lwip: &mut LwipHost) -> Costs {
    let response = lwip.command("costs").unwrap();
    let number = |name| {
        let word = response.split(", ").find_map(|part| part.strip_prefix(name)).unwrap();
        word.trim().parse().unwrap()
    };
    Costs { host: number("host"), total: number("total"), free: number("free") }
}

fn plain() -> Vec<StaticCase> {
    vec![StaticCase::esp(Ends::transport(4), Mode::Transport)]
}

#[test]
fn errors_describe_the_problem() {
    with_each(plain(), |_, pair| {
        let lwip = &mut pair.lwip;
        let before = costs(lwip);
        for (command, word) in [
            (sa(0, "aes128gcm16", 20), "from 1 to"),
            (sa(7, "aes128gcm15", 20), "suite"),
            (sa(7, "aes128gcm16", 16), "length"),
            ("sa out esp transport src 192.0.2.2 dst fd00::1 spi 7 suite aes128gcm16".into(), "version"),
            (
                "sa out ah transport src 192.0.2.2 dst fd00::1 spi 7 suite aescmac integrity-key ".to_owned()
                    + &"5a".repeat(16),
                "version",
            ),
            (
                "sa out ah transport src 192.0.2.2 dst 192.0.2.9 spi 7 suite aescmac udp 4500 integrity-key "
                    .to_owned()
                    + &"5a".repeat(16),
                "contradict",
            ),
            ("sa out esp transport src 192.0.2.2".into(), "`dst`"),
            ("sa out esp transport src 192.0.2.2 dst 192.0.2.9 suite null-sha1".into(), "`spi N`"),
            ("sa out esp transport src 1 dst 192.0.2.9".into(), "an address such as"),
            ("sa up".into(), "`in` or `out`"),
            (sa(7, "aes128gcm16", 20) + "5", "two for each byte"),
            (sa(7, "aes128gcm16", 20) + " window", "the line ends"),
            ("policy out src 192.0.2.2 dst fd00::1 bypass".into(), "version"),
            ("policy out src 192.0.2.0/33 dst 192.0.2.9 bypass".into(), "a prefix"),
            ("policy out src 192.0.2.2 dst 192.0.2.9 protect esp".into(), "`transport` or `tunnel`"),
            ("policy out src 192.0.2.2 dst 192.0.2.9 bypass now".into(), "the end of the line"),
            ("address 192.0.2.2/x".into(), "192.0.2.1/24"),
            ("neighbour 02:00".into(), "an Ethernet address"),
            ("unmatched maybe".into(), "`discard` or `bypass`"),
            ("ike".into(), "another word"),
            ("ike a secre b".into(), "an option of a connection"),
            ("ike a key /nowhere".into(), "a readable file"),
            ("ike a secret b".into(), "as many entries"),
            ("polity".into(), "--help"),
        ] {
            let error = lwip.command(&command).unwrap_err();
            assert!(error.contains(word), "{command}: {error}");
            assert!(!error.contains("5a5a"), "the error contains a key: {error}");
        }
        assert_eq!(costs(lwip), before, "a refused command left something behind");
        lwip.command(&sa(7, "aes128gcm16", 20)).unwrap();
        assert!(lwip.command(&sa(7, "aes128gcm16", 20)).unwrap_err().contains("exists"));
    });
}

#[test]
fn full_tables_refuse_new_entries() {
    with_each(plain(), |_, pair| {
        let lwip = &mut pair.lwip;
        let free = |lwip: &mut LwipHost| costs(lwip).free;
        // The tables hold 8 SAs, and two exist.
        let before = free(lwip);
        for spi in 1..=6 {
            lwip.command(&sa(spi, "aes256gcm16", 36)).unwrap();
        }
        let each = (before - free(lwip)) / 6;
        assert!(each <= 4_096, "an SA costs {each} bytes, more than casemate_limits reports");
        assert!(lwip.command(&sa(8, "aes256gcm16", 36)).unwrap_err().contains("as many entries"));
        let before = free(lwip);
        let mut count = 0;
        let error = loop {
            let address = format!("10.0.{count}.1");
            let command = format!("policy out src {address} dst {address} priority 9 bypass");
            match lwip.command(&command) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        // The tables hold 32 policies per direction, and 11 exist.
        assert!(count == 21 && error.contains("as many entries"), "{count}: {error}");
        let each = (before - free(lwip)) / count;
        assert!(each <= 2_048, "a policy costs {each} bytes, more than casemate_limits reports");
    });
}

/// With any amount of memory, whatever does not fit is refused before anything is allocated, and the rest
/// still works.
#[test]
fn insufficient_memory_is_reported() {
    with_programs(|program| {
        let (mut refused, mut started) = (0, 0);
        for memory in (0..100_000).step_by(4_000) {
            let Ok((mut lwip, _wire)) = LwipHost::start(program, small(memory)).inspect_err(|error| {
                assert!(error.contains("memory"), "{memory}: {error}");
                refused += 1;
            }) else {
                continue;
            };
            started += 1;
            let outcome = (1..=8).try_for_each(|spi| lwip.command(&sa(spi, "aes256gcm16", 36)).map(drop));
            assert!(
                outcome.as_ref().is_ok() || outcome.as_ref().is_err_and(|error| error.contains("memory"))
            );
            let outcome = lwip.command("control-plane");
            assert!(outcome.is_ok() || outcome.is_err_and(|error| error.contains("memory")));
            lwip.command("drops").unwrap();
            lwip.end();
        }
        assert!(refused > 5 && started > 5, "{refused} {started}");
    });
}

/// The memory that `casemate_limits` reports for full tables is sufficient.
#[test]
fn full_tables_fit_the_reported_memory() {
    with_programs(|program| {
        let (mut asked, _wire) = LwipHost::start(program, small(400_000)).unwrap();
        let Costs { host, total, free } = costs(&mut asked);
        let taken = 400_000 - free;
        assert!(taken <= host && host < taken + 8_000, "{taken} {host}");
        asked.end();
        let (mut lwip, _wire) = LwipHost::start(program, small(total)).unwrap();
        for spi in 1..=8 {
            let direction = if spi % 2 == 0 { "in" } else { "out" };
            let command = sa(spi, "aes256-sha512", 32).replace("sa out", &format!("sa {direction}"));
            // The largest window that the tables permit.
            let command = format!("{command} integrity-key {} window 4096", "5a".repeat(64));
            lwip.command(&command).unwrap_or_else(|error| panic!("{spi}: {error}"));
        }
        for direction in ["in", "out"] {
            for n in 1..=32 {
                let command = format!("policy {direction} src 10.0.{n}.1 dst 10.1.{n}.0 priority 9 bypass");
                lwip.command(&command).unwrap_or_else(|error| panic!("{direction} {n}: {error}"));
            }
        }
        lwip.end();
    });
}
