use super::contents::{Contents, FIRST_LINE};
use super::opened::lock;
use super::*;
use crate::instance::NetnsId;
use crate::route::{RoutingNumbers, Rule};
use casemate_test_support::TempDir;
use proptest::prelude::*;

fn entries() -> Vec<Undo> {
    let numbers = RoutingNumbers { mark: 1, table: 2, priority: 3 };
    vec![
        Undo::Rule(Rule { v4: true, numbers }),
        Undo::Rule(Rule { v4: false, numbers }),
        Undo::Routes { table: 2, tun: "tun3".into() },
        Undo::Sysctl { name: "net/ipv4/conf/eth0/rp_filter".into(), value: "1".into() },
        Undo::Guard { tun: "tun3".into() },
    ]
}

/// Opens a journal. Programs that other tests are starting may still hold copies of a lock that was just
/// released.
fn open(instance: &Instance) -> Journal {
    casemate_test_support::eventually("the lock of the journal is free", || {
        Journal::open(instance, Nft::direct()).inspect_err(|error| println!("{error}")).ok()
    })
}

#[test]
fn a_line_parses_to_what_was_written() {
    for undo in entries() {
        assert_eq!(undo.to_string().parse(), Ok(undo));
    }
    for line in [
        "",
        "rule 4",
        "rule 4 1 2 x",
        "rule 5 1 2 3",
        "rule 4 1 2 +3",
        "sysctl kernel/core_pattern x",
        "sysctl net/../kernel/x 1",
        "sysctl net/./x 1",
        "sysctl net//x 1",
        "sysctl net/x/.. 1",
    ] {
        assert_eq!(line.parse::<Undo>(), Err(ParseUndoError), "{line}");
    }
}

/// The names that `dev_valid_name` of Linux allows, as far as they are UTF-8: 1 to 15 bytes, neither
/// `.` nor `..`, without `/`, `:` and white space.
fn interface_name() -> impl Strategy<Value = String> {
    let any = prop_oneof!["[.a-z0-9_@%\\\\\"'`$;#-]{1,15}", "[^/: \t\n\r\u{b}\u{c}\u{0}]{1,7}"];
    any.prop_filter("a name that Linux allows", |name| !matches!(&**name, "." | "..") && name.len() <= 15)
}

proptest! {
    #[test]
    fn what_is_written_can_be_read(
        name in interface_name(),
        value in 0..3u8,
        numbers in any::<[u32; 3]>(),
        v4 in any::<bool>(),
    ) {
        let [mark, table, priority] = numbers;
        let undos = [
            Undo::Sysctl { name: format!("net/ipv4/conf/{name}/rp_filter"), value: value.to_string() },
            Undo::Guard { tun: name.clone() },
            Undo::Routes { table, tun: name },
            Undo::Rule(Rule { v4, numbers: RoutingNumbers { mark, table, priority } }),
        ];
        let mut contents = Contents::default();
        for undo in &undos {
            contents.add(2, undo.to_string().as_bytes());
        }
        prop_assert_eq!(&contents.entries, &undos);
        for undo in &undos {
            contents.add(2, format!("{UNDONE}{undo}").as_bytes());
        }
        prop_assert_eq!(&contents.entries, &[]);
    }
}

#[test]
fn an_incomplete_line_is_ignored_and_other_files_are_rejected() {
    let dir = TempDir::new("journal").unwrap();
    let path = dir.file("journal");
    let parse = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read(&mut File::open(&path).unwrap(), &path).map(|contents| contents.entries)
    };
    assert_eq!(parse("").unwrap(), []);
    assert_eq!(parse("casemate jou").unwrap(), []);
    let undo = Undo::Guard { tun: "a".into() };
    assert_eq!(parse("casemate journal 1\nguard a\nguard b").unwrap(), [undo]);
    assert_eq!(parse("casemate journal 1\nguard a\nundone guard a\n").unwrap(), []);
    assert!(parse("casemate journal 2\nguard a\n").is_err());
}

/// The text about the damaged lines of a file.
fn damage(text: &[u8]) -> String {
    let dir = TempDir::new("journal").unwrap();
    let path = dir.file("journal");
    std::fs::write(&path, text).unwrap();
    read(&mut File::open(&path).unwrap(), &path).unwrap().damage.to_string()
}

#[test]
fn damaged_lines_are_quoted_and_an_incomplete_one_is_no_damage() {
    assert_eq!(damage(b"casemate journal 1\nguard a\nguard b/torn\nguar"), "");
    assert_eq!(damage(b"x\x1b\nguard a\n"), "line 1 is damaged: `x\\u{1b}`");
    let text = damage(b"casemate journal 1\nguard \xff\nguard a\n\nundone guard\n");
    let expected =
        "line 2 is damaged: `guard \u{fffd}`; line 4 is damaged: ``; line 5 is damaged: `undone guard`";
    assert_eq!(text, expected);
    let text = damage(&[b"casemate journal 1\n", &[b'x'; 500][..], &b"\nx"[..].repeat(30)].concat());
    assert!(text.contains(&format!("line 2 is damaged: `{}...`;", "x".repeat(120))), "{text}");
    assert!(text.ends_with("; line 11 is damaged: `x`; 30 lines are damaged in total"), "{text}");
}

/// The error of a start, and that of a clean-up.
fn errors(instance: &Instance, text: &str) -> [String; 2] {
    write_journal(instance, text);
    let refused =
        |result: Result<Journal, Error>| result.err().map_or(String::new(), |error| error.to_string());
    let start = once_unlocked(|| refused(Journal::open(instance, Nft::direct())));
    assert_eq!(std::fs::read_to_string(instance.journal()).unwrap(), text, "a refused start changes nothing");
    let cleaned_up = once_unlocked(|| {
        clean_up(instance).map_or_else(
            |error| error.to_string(),
            |done| done.problem.map_or(String::new(), |problem| problem.to_string()),
        )
    });
    [start, cleaned_up]
}

/// Repeats a call while its error is that the instance runs. Programs that other tests are starting may still
/// hold copies of a lock that was just released.
fn once_unlocked(error: impl Fn() -> String) -> String {
    casemate_test_support::eventually("the lock of the journal is free", || {
        Some(error()).filter(|error| !error.contains("another instance"))
    })
}

fn write_journal(instance: &Instance, text: &str) {
    std::fs::write(instance.journal(), text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(instance.journal(), mode).unwrap();
}

#[test]
fn a_damaged_journal_is_refused_and_its_readable_lines_can_be_undone() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    netns
        .run(|| {
            let Some(here) = NetnsId::present().unwrap() else {
                return casemate_test_support::skip("SO_NETNS_COOKIE");
            };
            let guard = || Nft::direct().run("table inet casemate_tun3 { }\n").unwrap();
            // Also if the line of the namespace or of the guard is damaged, as long as the guard stands.
            for lines in [
                format!("{FIRST_LINE}\n{here}\nguard tun3\nruXe 4 1 2 3\nroutes 7 tun3\n"),
                format!("{FIRST_LINE}\nnamespaXe\nguard tun3\nruXe 4 1 2 3\nroutes 7 tun3\n"),
                format!("Xasemate\n{here}\nguarX tun3\nruXe 4 1 2 3\nroutes 7 tun3\n"),
            ] {
                guard();
                let [start, clean_up] = errors(&instance, &lines);
                for error in [start, clean_up] {
                    assert!(error.contains("line 4 is damaged: `ruXe 4 1 2 3`"), "{error}");
                }
                assert!(!has_guard("tun3").unwrap());
                assert_eq!(written(&instance), []);
            }
            // Without namespace and guard, it is unknown what the lines are about.
            let text = format!("{FIRST_LINE}\nnamespaXe\nroutes 7 tun3\n");
            for error in errors(&instance, &text) {
                assert!(error.contains("line 2 is damaged"), "{error}");
            }
            assert_eq!(std::fs::read_to_string(instance.journal()).unwrap(), text);
            // Nothing is left of a namespace that has ended.
            write_journal(&instance, &format!("{FIRST_LINE}\n{here}1\nruXe 4 1 2 3\n"));
            assert!(!open(&instance).is_recovered());
            assert!(!instance.journal().exists());
        })
        .unwrap();
}

/// Otherwise the change would be made, and a crash would leave it.
#[test]
fn a_change_that_could_not_be_read_again_is_refused() {
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let mut journal = open(&instance);
    for (name, value) in [("net/ipv4/conf/a b/rp_filter", "1"), ("net/x", "1\n2"), ("net/x", "")] {
        let undo = Undo::Sysctl { name: name.into(), value: value.into() };
        assert!(journal.record(undo).is_err(), "{name} {value}");
    }
    assert_eq!(written(&instance), []);
}

#[test]
fn a_former_journal_is_taken_over_with_its_oldest_values() {
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let sysctl = |value: &str| Undo::Sysctl { name: "net/ipv4/conf/x/rp_filter".into(), value: value.into() };
    let (guard, routes) = (Undo::Guard { tun: "tun3".into() }, Undo::Routes { table: 7, tun: "tun3".into() });
    let mut journal = open(&instance);
    assert!(!journal.is_recovered());
    [&routes, &guard, &sysctl("1")].into_iter().for_each(|undo| journal.record(undo.clone()).unwrap());
    journal.record_protected_traffic([selector()].into_iter()).unwrap();
    // As after an error: nothing is undone, and the file stays.
    let remains = journal.leftovers();
    drop(journal);
    assert!(matches!(*remains.lock().unwrap(), Leftovers::GuardMissing(_)), "the guard was never installed");
    std::fs::OpenOptions::new()
        .append(true)
        .open(instance.journal())
        .and_then(|mut file| file.write_all(b"guard unfin"))
        .unwrap();
    let mut journal = open(&instance);
    assert!(journal.is_recovered());
    journal.record(sysctl("2")).unwrap();
    let rule = Undo::Rule(Rule { v4: true, numbers: RoutingNumbers { mark: 1, table: 7, priority: 3 } });
    journal.record(rule.clone()).unwrap();
    assert_eq!(journal.entries(), [routes.clone(), guard.clone(), sysctl("1"), rule.clone()]);
    drop(journal);
    assert_eq!(written(&instance), [routes, guard, sysctl("1"), rule]);
}

/// The changes in the file of an instance that are not undone.
fn written(instance: &Instance) -> Vec<Undo> {
    read(&mut File::open(instance.journal()).unwrap(), &instance.journal()).unwrap().entries
}

/// Opens a journal with these lines.
fn open_with(instance: &Instance, lines: &str) -> Journal {
    write_journal(instance, &format!("{FIRST_LINE}\n{lines}"));
    open(instance)
}

/// The kernel reuses the numbers of namespaces. When a namespace ends, all its routes and rules end.
#[test]
fn entries_about_another_namespace_are_neither_undone_nor_taken_over() {
    let Some(here) = NetnsId::present().unwrap() else {
        return casemate_test_support::skip("SO_NETNS_COOKIE");
    };
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let routes = "routes 7 tun3\n";
    let write = |namespace: &str| open_with(&instance, &format!("{namespace}{routes}"));
    let journal = write(&format!("{here}\n"));
    assert!(journal.is_recovered());
    journal.abandon();
    let other = here.to_string() + "1";
    let journal = write(&format!("{other}\n"));
    assert!(!journal.is_recovered());
    assert_eq!(written(&instance), []);
    journal.abandon();
    // The next run finds the namespace in the file.
    let mut journal = open(&instance);
    journal.record(Undo::Routes { table: 8, tun: "tun3".into() }).unwrap();
    journal.abandon();
    let journal = open(&instance);
    assert!(journal.is_recovered());
    journal.abandon();
}

/// Former versions did not write the namespace.
#[test]
fn a_journal_without_namespace_is_taken_over_if_its_guard_stands() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let dir = TempDir::new("journal").unwrap();
    netns
        .run(|| {
            let instance = Instance::at(dir.path(), "tun3");
            let adopts = || {
                let journal = open_with(&instance, "routes 7 tun3\nguard tun3\n");
                let adopts = journal.is_recovered();
                journal.abandon();
                adopts
            };
            assert!(!adopts());
            Nft::direct().run("table inet casemate_tun3 { }\n").unwrap();
            assert!(adopts());
        })
        .unwrap();
}

#[test]
fn changes_that_cannot_be_undone_stay_in_the_journal() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let sysctl =
        |value: &str| Undo::Sysctl { name: "net/ipv4/conf/lo/rp_filter".into(), value: value.into() };
    let noted = |undo: &Undo| {
        let mut journal = open(&instance);
        let guard = Undo::Guard { tun: "tun3".into() };
        let rule = Undo::Rule(Rule { v4: true, numbers: RoutingNumbers { mark: 1, table: 7, priority: 3 } });
        [&guard, &rule, undo].into_iter().for_each(|undo| journal.record(undo.clone()).unwrap());
        journal
    };
    netns
        .run(|| {
            let error = noted(&sysctl("no-number")).close().unwrap_err().to_string();
            assert!(error.contains("rp_filter") && !error.contains("rule"), "{error}");
            // The next attempt undoes nothing twice.
            assert_eq!(written(&instance), [sysctl("no-number")]);
            casemate_test_support::eventually("the lock is free, and the clean-up fails again", || {
                let again = clean_up(&instance).map(|done| done.problem.unwrap().to_string());
                println!("{again:?}");
                again.is_ok_and(|problem| problem.contains("rp_filter")).then_some(())
            });
            std::fs::remove_file(instance.journal()).unwrap();
            noted(&sysctl("0")).close().unwrap();
            assert!(!instance.journal().exists(), "a missing object counts as undone");
        })
        .unwrap();
}

fn selector() -> ProtectedSelector {
    let any = casemate_sa::AddrRange::ANY_V4;
    let selector = casemate_sa::Selector::between(any, any);
    ProtectedSelector { direction: casemate_datapath::Direction::Outbound, selector }
}

/// A start that fails before there are policies undoes its changes, but never what a former run left.
#[test]
fn after_an_error_only_a_guard_that_has_protected_something_stays() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let fail = |selectors: &[ProtectedSelector], then: &[ProtectedSelector]| {
        let mut journal = open(&instance);
        journal.record_protected_traffic(selectors.iter().copied()).unwrap();
        journal.record(Undo::Guard { tun: "tun3".into() }).unwrap();
        journal.nft().run("table inet casemate_tun3 { }\n").unwrap();
        then.iter().for_each(|selector| journal.protected_traffic().unwrap().add(*selector));
        selectors.iter().chain(then).for_each(|added| journal.protected_traffic().unwrap().remove(added));
        let remains = journal.leftovers();
        drop(journal);
        let stands = has_guard("tun3").unwrap();
        assert_eq!(stands, instance.journal().exists());
        assert_eq!(stands, instance.protected_traffic_file().exists());
        assert_eq!(stands, matches!(*remains.lock().unwrap(), Leftovers::GuardStands));
        stands
    };
    let clean = || {
        casemate_test_support::eventually("the lock of the journal is free", || {
            clean_up(&instance)
                .inspect_err(|error| println!("{error}"))
                .ok()
                .filter(|done| done.problem.is_none())
        });
    };
    netns
        .run(|| {
            assert!(!fail(&[], &[]), "nothing was protected");
            assert!(fail(&[], &[selector()]), "something was protected for a while");
            assert!(fail(&[], &[]), "the guard is that of a former run");
            clean();
            assert!(fail(&[selector()], &[]), "something was protected from the start");
            clean();
            assert!(!fail(&[], &[]));
        })
        .unwrap();
}

/// Otherwise this instance would use, and later remove, a rule that the other instance may still own.
#[test]
fn an_unreadable_journal_of_another_instance_is_an_error() {
    let dir = TempDir::new("journal").unwrap();
    let (instance, other) = (Instance::at(dir.path(), "tun3"), Instance::at(dir.path(), "tun4"));
    let journal = open(&instance);
    let routes = Undo::Routes { table: 7, tun: "tun4".into() };
    assert!(!journal.is_recorded_elsewhere(&routes).unwrap());
    let unreadable = ["casemate journal 2\nroutes 7 tun4\n", "casemate journal 1\nrou\n", "something else\n"];
    for text in unreadable {
        std::fs::write(other.journal(), text).unwrap();
        let error = journal.is_recorded_elsewhere(&routes).unwrap_err().to_string();
        assert!(error.contains(&other.journal().display().to_string()), "{error}");
    }
    std::fs::write(other.journal(), "casemate journal 1\nroutes 7 tun4\n").unwrap();
    assert!(journal.is_recorded_elsewhere(&routes).unwrap());
    journal.abandon();
}

/// A full file system may have taken part of a line.
#[test]
fn a_failed_write_damages_no_later_line() {
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let routes = |table| Undo::Routes { table, tun: "tun3".into() };
    let mut journal = open(&instance);
    journal.file.write_all(b"routes 7 t").unwrap();
    let read_only = File::open(instance.journal()).unwrap();
    let file = std::mem::replace(&mut journal.file, read_only);
    assert!(journal.record(routes(7)).is_err());
    journal.file = file;
    journal.record(routes(8)).unwrap();
    journal.record(routes(9)).unwrap();
    journal.abandon();
    let contents = read(&mut File::open(instance.journal()).unwrap(), &instance.journal()).unwrap();
    assert_eq!(contents.entries, [routes(8), routes(9)]);
    assert!(contents.damage.is_empty(), "the part of a line is known to have no effect");
}

/// The marks in the file do not matter if the file is removed.
#[test]
fn everything_can_be_undone_on_a_full_file_system() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    netns
        .run(|| {
            let mut journal = open(&instance);
            journal.record(Undo::Routes { table: 7, tun: "tun3".into() }).unwrap();
            journal.file = File::open(instance.journal()).unwrap();
            journal.close().unwrap();
            assert!(!instance.journal().exists());
        })
        .unwrap();
}

#[test]
fn a_change_that_comes_and_goes_does_not_let_the_file_grow() {
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    let routes = |table| Undo::Routes { table, tun: "tun3".into() };
    let mut journal = open(&instance);
    journal.record(routes(7)).unwrap();
    journal.record(routes(8)).unwrap();
    // It is not in the last line.
    journal.forget(&routes(7)).unwrap();
    let text = std::fs::read_to_string(instance.journal()).unwrap();
    for _ in 0..100 {
        journal.record(routes(9)).unwrap();
        assert_eq!(written(&instance), [routes(8), routes(9)]);
        journal.forget(&routes(9)).unwrap();
        assert_eq!(std::fs::read_to_string(instance.journal()).unwrap(), text);
    }
    journal.record(routes(10)).unwrap();
    assert_eq!(written(&instance), [routes(8), routes(10)]);
    journal.abandon();
}

#[test]
fn without_a_guard_no_journal_is_left() {
    let dir = TempDir::new("journal").unwrap();
    let instance = Instance::at(dir.path(), "tun3");
    drop(open(&instance));
    assert!(!instance.journal().exists());
}

#[test]
fn a_locked_journal_is_not_opened() {
    let dir = TempDir::new("journal").unwrap();
    let path = dir.file("lock");
    let locked = lock(&path).unwrap();
    assert!(locked.is_some());
    assert!(lock(&path).unwrap().is_none());
    drop(locked);
    casemate_test_support::eventually("the lock goes", || lock(&path).unwrap());
}
