use super::*;
use casemate_scratch::Scratch;

fn entries() -> Vec<Undo> {
    let numbers = Numbers { mark: 1, table: 2, priority: 3 };
    vec![
        Undo::Rule(Rule { v4: true, numbers }),
        Undo::Rule(Rule { v4: false, numbers }),
        Undo::Routes { table: 2, tun: "tun3".into() },
        Undo::Sysctl { name: "net/ipv4/conf/eth0/rp_filter".into(), value: "1".into() },
        Undo::Guard { tun: "tun3".into() },
    ]
}

/// Opens a journal. Programs that other tests start at this moment may still hold copies of a lock that was
/// just released.
fn open(instance: &Instance) -> Journal {
    crate::eventually::eventually("the lock of the journal is free", || {
        Journal::open(instance, Nft::direct()).inspect_err(|error| println!("{error}")).ok()
    })
}

#[test]
fn lines_are_read_as_they_were_written() {
    for undo in entries() {
        assert_eq!(undo.to_string().parse(), Ok(undo));
    }
    for line in ["", "rule 4", "rule 4 1 2 x", "sysctl kernel/core_pattern x", "sysctl net/../kernel/x 1"] {
        assert_eq!(line.parse::<Undo>(), Err(NoUndo), "{line}");
    }
}

#[test]
fn an_unfinished_line_does_not_count_and_alien_files_are_refused() {
    let scratch = Scratch::new("journal");
    let path = scratch.file("journal");
    let parse = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read(&mut File::open(&path).unwrap(), &path).map(|contents| contents.entries)
    };
    assert_eq!(parse("").unwrap(), []);
    assert_eq!(parse("casemate jou").unwrap(), []);
    let undo = Undo::Guard { tun: "a".into() };
    assert_eq!(parse("casemate journal 1\nguard a\nguard b").unwrap(), [undo]);
    assert_eq!(parse("casemate journal 1\nguard a\nundone guard a\n").unwrap(), []);
    assert!(parse("something else\n").is_err());
}

#[test]
fn what_was_left_is_taken_over_with_its_oldest_values() {
    let scratch = Scratch::new("journal");
    let instance = Instance::at(scratch.path(), "tun3");
    let sysctl = |value: &str| Undo::Sysctl { name: "net/ipv4/conf/x/rp_filter".into(), value: value.into() };
    let (guard, routes) = (Undo::Guard { tun: "tun3".into() }, Undo::Routes { table: 7, tun: "tun3".into() });
    let mut journal = open(&instance);
    assert!(!journal.is_adopted());
    [&routes, &guard, &sysctl("1")].into_iter().for_each(|undo| journal.note(undo.clone()).unwrap());
    journal.promise([promise()].into_iter()).unwrap();
    // An error: nothing is undone, and the file stays.
    let remains = journal.remains();
    drop(journal);
    assert!(matches!(*remains.lock().unwrap(), Remains::NoGuard(_)), "nobody has put it up");
    std::fs::OpenOptions::new()
        .append(true)
        .open(instance.journal())
        .and_then(|mut file| file.write_all(b"guard unfin"))
        .unwrap();
    let mut journal = open(&instance);
    assert!(journal.is_adopted());
    journal.note(sysctl("2")).unwrap();
    let rule = Undo::Rule(Rule { v4: true, numbers: Numbers { mark: 1, table: 7, priority: 3 } });
    journal.note(rule.clone()).unwrap();
    assert_eq!(journal.entries(), [routes.clone(), guard.clone(), sysctl("1"), rule.clone()]);
    drop(journal);
    assert_eq!(written(&instance), [routes, guard, sysctl("1"), rule]);
}

/// What the file of an instance says is not undone.
fn written(instance: &Instance) -> Vec<Undo> {
    read(&mut File::open(instance.journal()).unwrap(), &instance.journal()).unwrap().entries
}

/// Opens a journal with these lines.
fn open_with(instance: &Instance, lines: &str) -> Journal {
    std::fs::write(instance.journal(), format!("{FIRST_LINE}\n{lines}")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(instance.journal(), mode).unwrap();
    open(instance)
}

/// A namespace may have the number of one that has ended, and everything of that one ended with it.
#[test]
fn what_is_about_another_namespace_is_neither_undone_nor_taken_over() {
    let Some(here) = Namespace::present() else { return casemate_left_out::note("SO_NETNS_COOKIE") };
    let scratch = Scratch::new("journal");
    let instance = Instance::at(scratch.path(), "tun3");
    let routes = "routes 7 tun3\n";
    let write = |namespace: &str| open_with(&instance, &format!("{namespace}{routes}"));
    let journal = write(&format!("{here}\n"));
    assert!(journal.is_adopted());
    journal.abandon();
    let other = here.to_string() + "1";
    let journal = write(&format!("{other}\n"));
    assert!(!journal.is_adopted());
    assert_eq!(written(&instance), []);
    journal.abandon();
    // The next one knows whose it is.
    let mut journal = open(&instance);
    journal.note(Undo::Routes { table: 8, tun: "tun3".into() }).unwrap();
    journal.abandon();
    let journal = open(&instance);
    assert!(journal.is_adopted());
    journal.abandon();
}

/// Former versions did not say which namespace a journal is about.
#[test]
fn an_old_journal_is_taken_over_where_its_guard_stands() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_left_out::note).ok() else { return };
    let scratch = Scratch::new("journal");
    netns
        .run(|| {
            let instance = Instance::at(scratch.path(), "tun3");
            let adopts = || {
                let journal = open_with(&instance, "routes 7 tun3\nguard tun3\n");
                let adopts = journal.is_adopted();
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
fn what_cannot_be_undone_stays_in_the_journal() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_left_out::note).ok() else { return };
    let scratch = Scratch::new("journal");
    let instance = Instance::at(scratch.path(), "tun3");
    let sysctl =
        |value: &str| Undo::Sysctl { name: "net/ipv4/conf/lo/rp_filter".into(), value: value.into() };
    let noted = |undo: &Undo| {
        let mut journal = open(&instance);
        let guard = Undo::Guard { tun: "tun3".into() };
        let rule = Undo::Rule(Rule { v4: true, numbers: Numbers { mark: 1, table: 7, priority: 3 } });
        [&guard, &rule, undo].into_iter().for_each(|undo| journal.note(undo.clone()).unwrap());
        journal
    };
    netns
        .run(|| {
            let error = noted(&sysctl("no-number")).close().unwrap_err().to_string();
            assert!(error.contains("rp_filter") && !error.contains("rule"), "{error}");
            // Whoever goes on from here does nothing twice.
            assert_eq!(written(&instance), [sysctl("no-number")]);
            crate::eventually::eventually("the lock is free, and it fails again", || {
                let again = clean_up(&instance).unwrap_err().to_string();
                println!("{again}");
                again.contains("rp_filter").then_some(())
            });
            std::fs::remove_file(instance.journal()).unwrap();
            noted(&sysctl("0")).close().unwrap();
            assert!(!instance.journal().exists(), "what is not there is done");
        })
        .unwrap();
}

fn promise() -> Promise {
    let any = casemate_sa::AddrRange::ANY_V4;
    (casemate_datapath::Direction::Outbound, casemate_sa::Selector::between(any, any))
}

/// A start that fails before there are policies takes back what it has made, but never what a former run
/// left.
#[test]
fn an_error_leaves_a_guard_that_protects_or_protected_something_and_no_other() {
    let Some(netns) = crate::netns::Netns::new().map_err(casemate_left_out::note).ok() else { return };
    let scratch = Scratch::new("journal");
    let instance = Instance::at(scratch.path(), "tun3");
    let fail = |promises: &[Promise], then: &[Promise]| {
        let mut journal = open(&instance);
        journal.promise(promises.iter().copied()).unwrap();
        journal.note(Undo::Guard { tun: "tun3".into() }).unwrap();
        journal.nft().run("table inet casemate_tun3 { }\n").unwrap();
        then.iter().for_each(|promise| journal.promises().unwrap().add(*promise));
        journal.promises().unwrap().remove(&promise());
        let remains = journal.remains();
        drop(journal);
        let stands = has_guard("tun3").unwrap();
        assert_eq!(stands, instance.journal().exists());
        assert_eq!(stands, instance.promises().exists());
        assert_eq!(stands, matches!(*remains.lock().unwrap(), Remains::Guard));
        stands
    };
    let clean = || {
        crate::eventually::eventually("the lock of the journal is free", || {
            clean_up(&instance).inspect_err(|error| println!("{error}")).ok()
        });
    };
    netns
        .run(|| {
            assert!(!fail(&[], &[]), "nothing was promised");
            assert!(fail(&[], &[promise()]), "something was, for a while");
            assert!(fail(&[], &[]), "it is that of a former run");
            clean();
            assert!(fail(&[promise()], &[]), "something was from the start");
            clean();
            assert!(!fail(&[], &[]));
        })
        .unwrap();
}

#[test]
fn without_a_guard_nothing_is_left() {
    let scratch = Scratch::new("journal");
    let instance = Instance::at(scratch.path(), "tun3");
    drop(open(&instance));
    assert!(!instance.journal().exists());
}

#[test]
fn a_locked_journal_is_left_alone() {
    let scratch = Scratch::new("journal");
    let path = scratch.file("lock");
    let held = lock(&path).unwrap();
    assert!(held.is_some());
    assert!(lock(&path).unwrap().is_none());
    drop(held);
    crate::eventually::eventually("the lock goes", || lock(&path).unwrap());
}
