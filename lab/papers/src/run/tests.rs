use super::*;
use crate::Need;
use casemate_report::Paper;
use casemate_stage::Error;

fn paper() -> Paper {
    Paper { authors: "A".into(), title: "T".into(), venue: "V".into(), year: 2000 }
}

fn works(context: &Context) -> Result<Vec<Part>> {
    context.progress.expect(1);
    context.progress.next("piece");
    Ok(vec![Part { title: format!("{} s", context.time.as_secs()), ..Part::default() }])
}

fn fails(_: &Context) -> Result<Vec<Part>> {
    Err(Error::new("the wire is dead"))
}

fn panics(_: &Context) -> Result<Vec<Part>> {
    panic!("no good")
}

const fn step(title: &'static str, run: fn(&Context) -> Result<Vec<Part>>) -> Step {
    Step { title, needs: &[], share: 1, run }
}

static TINY: Experiment = Experiment {
    name: "tiny",
    paper,
    summary: "Steps that do not all work.",
    steps: &[
        step("fails", fails),
        step("panics", panics),
        Step { needs: &[Need::Program("no-such-program", "none")], ..step("needs", works) },
        Step { share: 3, ..step("works", works) },
    ],
};

fn order() -> Order {
    Order {
        quick: true,
        time: Order::usual_time(true),
        program: "casemate".into(),
        scratch: std::env::temp_dir(),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    }
}

#[test]
fn what_fails_is_left_out_and_the_rest_is_there() {
    let record = run(&TINY, &order());
    let titles: Vec<&str> = record.parts.iter().map(|part| part.title.as_str()).collect();
    // Of the 36 s, for it has three shares of five: what is needed and not there needs no time.
    assert_eq!(titles, ["fails", "panics", "needs", "21 s"]);
    let reasons: Vec<&str> = record.left_out().map(|out| out.why.as_str()).collect();
    assert_eq!(reasons[0], "the wire is dead");
    assert_eq!(reasons[1], "it panicked");
    assert!(reasons[2].starts_with("no program no-such-program"), "{reasons:?}");
    let failed: Vec<bool> = record.left_out().map(|out| out.failed).collect();
    assert_eq!(failed, [true, true, false]);
}

#[test]
fn a_step_that_hangs_is_given_up() {
    fn hangs(_: &Context) -> Result<Vec<Part>> {
        thread::sleep(Duration::from_secs(3600));
        Ok(Vec::new())
    }
    static HANGS: Step = step("hangs", hangs);
    let context = Context {
        quick: true,
        time: Duration::from_secs(1),
        program: "casemate".into(),
        scratch: std::env::temp_dir(),
        progress: Progress::silent(),
    };
    let begun = Instant::now();
    let why = attempt(&HANGS, None, context, Duration::from_millis(50)).unwrap_err().why;
    assert!(why.starts_with("no time"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}
