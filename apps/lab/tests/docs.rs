//! The documentation against the program: example files load, word tables are correct and complete, the
//! tables of drop reasons and faults match the code, command lines parse, and every referenced file and test
//! exists.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_app::cli;
use casemate_app::swanctl::{Config, SystemEnvironment};
use casemate_app::xfrm::XfrmFile;
use casemate_datapath::DropReason;
use casemate_ike::StateFault;
use casemate_lab_app::COMMANDS;
use casemate_sa::{SaParams, Transform};
use casemate_wire::ike::FaultKind;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Path and text of every page.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![];
    for directory in ["", "docs", "docs/manual", "docs/decisions"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                paths.push(Path::new(directory).join(name).to_str().unwrap().to_owned());
            }
        }
    }
    assert!(paths.len() > 15, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), page(&path))).collect()
}

/// The fenced code blocks of a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The text under a heading, up to the next heading of the same or a higher level.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let level = heading.split(' ').next().unwrap().len();
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    let end = (1..=level).filter_map(|n| rest.find(&format!("\n{} ", "#".repeat(n)))).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// The body rows of all tables in a text, as trimmed cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |n: usize| lines.get(n).is_some_and(|line| line.starts_with('|'));
    let is_rule = |n: usize| lines.get(n).is_some_and(|line| line.starts_with("|-"));
    (0..lines.len())
        .filter(|&n| is_row(n) && !is_rule(n) && !is_rule(n + 1))
        .map(|n| lines[n].trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// The code spans of a cell or line.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn key(bits: usize) -> String {
    match bits {
        0 => "''".into(),
        _ => format!("0x{}", "5a".repeat(bits / 8)),
    }
}

/// State lines that are complete with the words under test.
fn state_lines(words: &str) -> Vec<String> {
    let (cipher, mac) = (format!("enc aes {}", key(128)), format!("auth sha1 {}", key(160)));
    let gcm = format!("aead 'rfc4106(gcm(aes))' {} 128", key(160));
    let (from, to) = ("src 192.0.2.1 dst 192.0.2.2", "proto esp spi 0x1001");
    [
        format!("{words} dst 192.0.2.2 {to} {gcm}"),
        format!("src 192.0.2.1 {words} {to} {gcm}"),
        format!("{from} {words} spi 0x1001 {gcm}"),
        format!("{from} {words} spi 0x1001 {mac}"),
        format!("{from} proto esp {words} {gcm}"),
        format!("{from} {to} {gcm} {words}"),
        format!("{from} {to} {gcm} mode tunnel {words}"),
        format!("{from} {to} {gcm} flag esn replay-window 64 {words}"),
        format!("{from} {to} {cipher} {words}"),
        format!("{from} {to} {mac} {words}"),
        format!("{from} {to} {words}"),
    ]
    .map(|rest| format!("ip xfrm state add {rest}"))
    .to_vec()
}

fn policy_lines(words: &str) -> Vec<String> {
    ["", "dir out "].map(|dir| format!("ip xfrm policy add {words} {dir}")).to_vec()
}

fn loads(line: &str) -> bool {
    XfrmFile::parse(line.as_bytes()).is_ok()
}

/// The words that an error message of the parser lists as expected.
fn expected_words(line: &str) -> Vec<String> {
    let problems = XfrmFile::parse(line.as_bytes()).unwrap_err();
    let (_, list) = problems[0].text.split_once(": ").unwrap();
    let list = list.strip_suffix(" was expected").unwrap().replace(" or ", ", ");
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn example_files_load_without_a_warning() {
    let mut count = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "xfrm") {
            let file =
                XfrmFile::parse(block.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why:?}\n{block}"));
            assert!(file.warnings.is_empty(), "{path}: {:?}\n{block}", file.warnings);
            assert!(!file.states.is_empty(), "{path}:\n{block}");
            count += 1;
        }
    }
    assert!(count >= 2, "{count} examples");
}

#[test]
fn example_connections_load_without_a_warning() {
    let mut count = 0;
    for (path, text) in pages() {
        let connections =
            blocks(&text, "text").into_iter().filter(|block| block.starts_with("connections {"));
        for block in connections {
            let config =
                Config::parse(Path::new("/nowhere/swanctl.conf"), block.as_bytes(), &SystemEnvironment);
            let config = config.unwrap_or_else(|problems| panic!("{path}: {problems:?}\n{block}"));
            assert!(config.warnings.is_empty(), "{path}: {:?}\n{block}", config.warnings);
            count += 1;
        }
    }
    assert!(count >= 5, "{count} examples");
}

#[test]
fn documented_words_load() {
    let text = page("docs/manual/xfrm.md");
    let states = section(&text, "## Words of a state");
    let states = states.split("\n### ").next().unwrap();
    let policies = section(&text, "## Words of a policy");
    for (table, lines) in [(states, state_lines as fn(&str) -> Vec<String>), (policies, policy_lines)] {
        assert!(rows(table).len() > 15);
        for row in rows(table) {
            let words = spans(row[0])[0];
            assert!(lines(words).iter().any(|line| loads(line)), "`{words}` does not load");
        }
    }
}

#[test]
fn documented_refusals_are_refused() {
    let text = page("docs/manual/xfrm.md");
    let refused = section(&text, "## What is refused");
    let (states, policies) = refused.split_once("\n\n| words of a policy").unwrap();
    for (table, lines) in [(states, state_lines as fn(&str) -> Vec<String>), (policies, policy_lines)] {
        assert!(rows(table).len() > 5);
        for row in rows(table) {
            let words = spans(row[0])[0];
            // A cipher with a MAC is valid; the refused case is the cipher alone, the last of the lines.
            let lines = lines(words);
            let alone = if words.starts_with("enc ") { &lines[lines.len() - 1..] } else { &lines[..] };
            assert!(!alone.iter().any(|line| loads(line)), "`{words}` loads");
        }
    }
}

#[test]
fn tables_name_every_word_of_the_parser() {
    let text = page("docs/manual/xfrm.md");
    let named = |heading: &str, words: Vec<String>| {
        let spans: Vec<&str> = rows(section(&text, heading)).iter().flat_map(|row| spans(row[0])).collect();
        for word in words {
            let is_named = spans.iter().any(|span| span.split([' ', '\'']).any(|part| part == word));
            assert!(is_named, "{heading}: no row for `{word}`");
        }
    };
    let esp = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001";
    named("## Words of a state", expected_words(&format!("{esp} bogus")));
    named("## Words of a state", expected_words(&format!("{esp} flag bogus")));
    named("## Words of a state", expected_words(&format!("{esp} extra-flag bogus")));
    named("## Words of a state", expected_words(&format!("{esp} limit bogus 1")));
    named("## Words of a policy", expected_words("ip xfrm policy add bogus"));
    for word in ["enc", "auth", "aead"] {
        named("### Algorithms", expected_words(&format!("{esp} {word} bogus 0x00 128")));
    }
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

fn icv_bits(sa: &SaParams) -> usize {
    8 * match &sa.transform {
        Transform::Esp { suite, .. } => suite.icv_len(),
        Transform::Ah { suite, .. } => suite.0.tag_len(),
    }
}

#[test]
fn documented_key_and_tag_lengths_are_accepted() {
    let text = page("docs/manual/xfrm.md");
    let esp = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001";
    let mut checked = 0;
    for row in rows(section(&text, "### Algorithms")) {
        let (sizes, salt) = row[2].split_once(", and ").unwrap_or((row[2], ""));
        let (salt, tags) =
            (numbers(salt).first().copied().unwrap_or(0), row.get(3).map(|cell| numbers(cell)));
        let tags = tags.unwrap_or_default();
        for words in spans(row[0]) {
            for size in numbers(sizes) {
                let key = key(size + salt);
                let line = |tail: &str| match words.split(' ').next().unwrap() {
                    "enc" => format!("{esp} {words} {key} auth sha1 {}", self::key(160)),
                    "auth" => format!("{esp} {words} {key} enc cipher_null ''"),
                    _ => format!("{esp} {words} {key} {tail}"),
                };
                let listed: Vec<usize> = if words.starts_with("aead") { tags.clone() } else { vec![96] };
                for tag in listed {
                    let file = XfrmFile::parse(line(&tag.to_string()).as_bytes());
                    let file = file.unwrap_or_else(|why| panic!("{words} {size} {tag}: {why:?}"));
                    let icv = icv_bits(&file.states[0].value);
                    let expected = if words.starts_with("auth") { tags[0] } else { tag };
                    assert_eq!(icv, expected, "{words}");
                    checked += 1;
                }
                // A key that is one byte longer is refused, so the table lists the maximum.
                let longer = line("128").replacen(&key, &self::key(size + salt + 8), 1);
                assert!(!loads(&longer), "{longer}");
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

/// The table of drop reasons as the manual must have it: names and sources of the code, with the doc
/// comment of each variant.
fn drop_table() -> String {
    let code = page("core/datapath/src/drop.rs");
    let mut table = String::from("| reason | meaning | audited | source |\n|---|---|---|---|\n");
    for reason in DropReason::ALL {
        let line = code.lines().position(|line| line.contains(&format!("= \"{}\",", reason.name()))).unwrap();
        let docs: Vec<&str> = code.lines().take(line).collect();
        let docs = docs.rsplitn(2, |line| !line.trim().starts_with("///")).next().unwrap();
        let meaning =
            docs.iter().map(|line| line.trim().trim_start_matches("/// ")).collect::<Vec<_>>().join(" ");
        assert!(!meaning.is_empty(), "{reason}");
        let audited = if reason.is_audited() { "yes" } else { "" };
        table.push_str(&format!("| `{reason}` | {meaning} | {audited} | {} |\n", reason.source()));
    }
    table
}

#[test]
fn documented_drop_reasons_match_the_code() {
    let (text, table) = (page("docs/manual/inspect.md"), drop_table());
    assert!(text.contains(&table), "docs/manual/inspect.md should hold:\n\n{table}");
}

/// A table of faults as the manual must have it: name, meaning and source of each.
fn fault_table(faults: impl Iterator<Item = [&'static str; 3]>) -> String {
    let mut table = String::from("| fault | meaning | source |\n|---|---|---|\n");
    for [name, meaning, source] in faults {
        table.push_str(&format!("| `{name}` | {} | {source} |\n", meaning.trim()));
    }
    table
}

#[test]
fn documented_faults_match_the_code() {
    let state =
        fault_table(StateFault::ALL.iter().map(|fault| [fault.name(), fault.description(), fault.source()]));
    let wire =
        fault_table(FaultKind::ALL.iter().map(|fault| [fault.name(), fault.description(), fault.source()]));
    let text = page("docs/manual/troubleshooting.md");
    for table in [state, wire] {
        assert!(text.contains(&table), "docs/manual/troubleshooting.md should hold:\n\n{table}");
    }
}

#[test]
fn documented_metrics_match_the_program() {
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for family in casemate_app::metrics::families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (family.name, family.kind, labels.join(", "), family.help);
        table.push_str(&format!("| `{name}` | {kind} | {labels} | {help} |\n"));
    }
    let text = page("docs/manual/metrics.md");
    assert!(text.contains(&table), "docs/manual/metrics.md should hold:\n\n{table}");
}

/// Every test of `broken_tunnel` has a row, and every row a test.
#[test]
fn table_of_broken_tunnels_matches_the_tests() {
    let text = page("docs/manual/troubleshooting.md");
    let table = section(&text, "## Ways to break a tunnel");
    let rows: Vec<&str> = rows(table)
        .iter()
        .filter_map(|row| row.last().and_then(|cell| spans(cell).first().copied()))
        .collect();
    let mut tests = Vec::new();
    for file in ["negotiation", "eap", "certificates", "network"] {
        let code = page(&format!("apps/casemate/tests/broken_tunnel/{file}.rs"));
        let after_attribute = code.split("#[test]\nfn ").skip(1);
        tests.extend(after_attribute.map(|rest| rest.split('(').next().unwrap().to_owned()));
    }
    assert!(tests.len() >= 20, "{} tests", tests.len());
    for test in &tests {
        assert!(rows.contains(&test.as_str()), "no row for {test}");
    }
    for row in rows {
        assert!(tests.iter().any(|test| test == row), "no test {row}");
    }
}

#[test]
fn documented_command_lines_parse() {
    let mut count = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "sh") {
            let block = block.replace("\\\n", " ");
            for line in block.lines() {
                let command = line
                    .split(" | ")
                    .find_map(|part| part.trim_start_matches("sudo ").split_once("casemate "));
                let Some(("" | "cargo run --release -- " | "./target/release/", rest)) = command else {
                    continue;
                };
                let rest = rest.split(" #").next().unwrap();
                let words: Vec<&str> = std::iter::once("casemate").chain(rest.split_whitespace()).collect();
                let parsed = cli::command(&COMMANDS).try_get_matches_from(&words);
                parsed.unwrap_or_else(|why| panic!("{path}: {line}\n{why}"));
                count += 1;
            }
        }
    }
    assert!(count >= 5, "{count} command lines");
}

/// The sources of an experiment of the lab, as one text.
fn experiment_sources(name: &str) -> String {
    let (mut directories, mut text) = (vec![root().join("lab/papers/src").join(name)], String::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                text += &fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// Every row names an experiment, one of its steps, and the beginning of a title in its code, or a page and
/// words on it. The counts above the table are those of its rows.
#[test]
fn table_of_the_papers_figures_matches_the_lab() {
    let text = page("docs/manual/lab.md");
    let text = section(&text, "## Figures and tables of the papers");
    let table = rows(text);
    for row in &table {
        let [paper, figure, _, done, place] = row[..] else { panic!("five cells expected: {row:?}") };
        let paper = casemate_lab::find(spans(paper)[0]).unwrap_or_else(|| panic!("{figure}: {paper}"));
        match (done, &spans(place)[..]) {
            ("no", _) => assert!(!place.is_empty(), "{figure}: no reason"),
            ("yes" | "part", [name, step, title, ..]) => {
                assert_eq!(*name, paper.name, "{figure}");
                assert!(paper.steps.iter().any(|known| known.title == *step), "{figure}: no step `{step}`");
                let has_title = experiment_sources(name).contains(&format!("\"{title}"));
                assert!(has_title, "{} has no title that begins with `{title}`", paper.name);
            }
            ("yes" | "part", [words]) => {
                let file = place.split("](").nth(1).unwrap().split(')').next().unwrap();
                let target = page(&format!("docs/manual/{file}"));
                assert!(target.contains(words), "{figure}: {file} does not contain `{words}`");
            }
            _ => panic!("{figure}: `{done}` with {place}"),
        }
    }
    let count = |done: &str| table.iter().filter(|row| row[3] == done).count();
    let total = format!(
        "{} of {} are done, {} in part, and {} are not.",
        count("yes"),
        table.len(),
        count("part"),
        count("no")
    );
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&total), "the page should say: {total}");
}

#[test]
fn referenced_files_and_tests_exist() {
    let mut count = 0;
    for (path, text) in pages() {
        // Code spans that look like paths.
        for span in text.lines().filter(|line| !line.starts_with("```")).flat_map(spans) {
            let (file, test) = span.split_once("::").map_or((span, None), |(file, test)| (file, Some(test)));
            let is_path = file.contains('/')
                && file.rsplit('.').next().is_some_and(|end| matches!(end, "rs" | "md" | "toml"));
            // `foo/` is a placeholder.
            if !is_path
                || file.contains([' ', '*', '<'])
                || file.starts_with(['/', '~'])
                || file.starts_with("foo/")
            {
                continue;
            }
            let near = root().join(&path).parent().unwrap().join(file);
            let found = [root().join(file), near].into_iter().find(|path| path.is_file());
            let found = found.unwrap_or_else(|| panic!("{path}: `{span}`: no such file"));
            if let Some(test) = test {
                let code = fs::read_to_string(found).unwrap();
                assert!(code.contains(&format!("fn {test}(")), "{path}: `{span}`: no such function");
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count} names");
}

#[test]
fn crate_table_lists_every_crate() {
    let members = page("Cargo.toml");
    let members = members.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let text = page("ARCHITECTURE.md");
    let table = rows(section(&text, "## The crates"));
    let listed: Vec<(&str, &str)> = table.iter().map(|row| (spans(row[0])[0], spans(row[1])[0])).collect();
    assert_eq!(listed.iter().map(|(_, directory)| *directory).collect::<Vec<_>>(), members);
    for (name, directory) in listed {
        let manifest = page(&format!("{directory}/Cargo.toml"));
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{directory} is not {name}");
    }
}

#[test]
fn links_between_pages_resolve() {
    for (path, text) in pages() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || target.contains("://") {
                continue;
            }
            assert!(root().join(&path).parent().unwrap().join(file).exists(), "{path}: link to {target}");
        }
    }
}
