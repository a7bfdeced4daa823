//! Measurements, with three servers on this machine. Their results are in docs/decisions/0142-etcd.md.

use crate::user::{User, commit, endpoints, put_with, ticks_in};
use casemate_etcd::Config;
use casemate_store::{Comparison, Lease, Outcome, Request, RequestId, Revision, StoreError, Write};
use casemate_test_support::etcd::Cluster;
use std::time::{Duration, Instant};

/// Bytes of a record of an IKE SA with its Child SAs.
const RECORD: usize = 1_024;
/// Clock ticks of /proc/PID/stat in a second (proc(5), USER_HZ).
const TICKS: u64 = 100;

fn record(number: usize) -> Write {
    Write::Put { key: format!("sas/{number:06}").into(), value: vec![7; RECORD], lease: None }
}

fn expect_committed(outcome: Result<Outcome, StoreError>) {
    assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
}

fn ticks_of(process: &str) -> u64 {
    ticks_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap())
}

fn own_ticks() -> u64 {
    ticks_of("self")
}

/// CPU time of all servers in clock ticks.
fn ticks_of_servers(cluster: &Cluster) -> u64 {
    cluster.pids().iter().map(|pid| ticks_of(&pid.to_string())).sum()
}

/// A transaction as a gateway writes it: compares the epoch of a slot, and writes one record.
fn write_record(epoch: Revision, number: usize) -> Request {
    commit(&[Comparison::Created(b"slots/0000".to_vec(), epoch)], &[record(number)])
}

#[test]
#[ignore = "a measurement: cargo xtask bench etcd"]
fn measure() {
    let Some(mut cluster) = Cluster::start("measure", None, &[]) else { return };
    let leader = cluster.leader().unwrap();
    for (what, first) in [("leader", leader), ("follower", (leader + 1) % 3)] {
        let config = Config::new(endpoints(&cluster, first), &format!("{what}/"));
        let mut user = User::new(Config { deadline: Duration::from_secs(20), ..config });
        let lease = user.grant(60);
        let Ok(Outcome::Committed(epoch)) = user.run(commit(&[], &[put_with("slots/0000", "n", lease)]))
        else {
            panic!("no slot")
        };
        println!("connected to the {what}:");
        one_at_a_time(&mut user, epoch);
        for in_flight in [8, 64] {
            parallel(&mut user, epoch, in_flight);
        }
        claims(&mut user, lease);
        renewals(&cluster, &mut user, lease);
    }
    cluster.stop();
}

fn one_at_a_time(user: &mut User, epoch: Revision) {
    let mut times: Vec<Duration> = (0..1_000)
        .map(|number| {
            let (outcome, time) = user.timed(write_record(epoch, number));
            expect_committed(outcome);
            time
        })
        .collect();
    let total: Duration = times.iter().sum();
    times.sort();
    let [median, high] = [times.len() / 2, times.len() * 99 / 100].map(|index| times[index]);
    println!(
        "  one at a time: median {median:?}, 99 % {high:?}, {:.0} transactions/s",
        times.len() as f64 / total.as_secs_f64()
    );
}

fn parallel(user: &mut User, epoch: Revision, in_flight: usize) {
    let (start, mut ended) = (Instant::now(), 0);
    let (own, limit) = (own_ticks(), Duration::from_secs(5));
    for number in 0..in_flight {
        user.submit(write_record(epoch, number));
    }
    let mut open = in_flight;
    while open > 0 {
        let (_, outcome) = user.next();
        expect_committed(outcome);
        ended += 1;
        open -= 1;
        if start.elapsed() < limit {
            user.submit(write_record(epoch, in_flight + ended));
            open += 1;
        }
    }
    let rate = ended as f64 / start.elapsed().as_secs_f64();
    let cpu = (own_ticks() - own) as f64 / TICKS as f64 * 1e6 / ended as f64;
    println!("  {in_flight} in flight: {rate:.0} transactions/s, {cpu:.0} us of CPU time each");
}

/// Claims all 4,096 slots of a cell in 64 transactions.
fn claims(user: &mut User, lease: Lease) {
    let transaction = |part: usize| {
        let names: Vec<String> = (0..64).map(|slot| format!("claims/{:04}", part * 64 + slot)).collect();
        let absent = |name: &String| Comparison::Created(name.as_bytes().to_vec(), Revision::ABSENT);
        let comparisons: Vec<_> = names.iter().map(absent).collect();
        let writes: Vec<_> = names.iter().map(|name| put_with(name, "gateway-1", lease)).collect();
        commit(&comparisons, &writes)
    };
    let start = Instant::now();
    let ids: Vec<RequestId> = (0..64).map(|part| user.submit(transaction(part))).collect();
    for id in ids {
        expect_committed(user.wait(id));
    }
    println!("  64 transactions with 64 writes each: {:?}", start.elapsed());
    let start = Instant::now();
    let mut count = 0;
    let mut after = None;
    loop {
        let range = casemate_store::Range { prefix: b"claims/".to_vec(), after, limit: 1_000 };
        let Ok(Outcome::Entries { entries, more, .. }) = user.run(Request::Read(range)) else {
            panic!("no entries")
        };
        count += entries.len();
        after = entries.last().map(|entry| entry.key.clone());
        if !more {
            break;
        }
    }
    println!("  {count} entries read: {:?}", start.elapsed());
}

fn renewals(cluster: &Cluster, user: &mut User, lease: Lease) {
    const COUNT: u32 = 3_000;
    let (own, servers, start) = (own_ticks(), ticks_of_servers(cluster), Instant::now());
    for _ in 0..COUNT {
        assert_eq!(user.run(Request::Renew(lease)), Ok(Outcome::Renewed));
    }
    let each = |ticks: u64| ticks as f64 / TICKS as f64 * 1e6 / f64::from(COUNT);
    let (own, servers) = (each(own_ticks() - own), each(ticks_of_servers(cluster) - servers));
    let latency = start.elapsed() / COUNT;
    println!("  renewal: {latency:?}, CPU time {own:.0} us here and {servers:.0} us in the servers");
}
