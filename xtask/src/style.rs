//! Style of the sources: width of comments, lengths of files, identifiers, and comments that say nothing.

use crate::shell::{self, Failure, Result};
use crate::sources::{self, Source};
use std::collections::HashMap;
use std::path::Path;

pub(crate) const ABOUT: &str = "Check the width of comments, lengths of files, identifiers and empty comments
- A comment line is at most 110 columns wide. `cargo fmt` wraps the code.
- A production file has at most 400 lines, tests not counted. A file below 60 lines is a payload of
  core/wire, mod.rs, main.rs, lib.rs, build.rs or a program in src/bin; otherwise it belongs into the file
  that uses it. At most 60 files are that short.
- Identifiers and names of files are terms of the field. xtask/src/style/identifiers.txt lists others and
  what to write instead.
- A doc comment adds information: what the item is, its unit, shape, error, limit or source. `Its name.`
  adds none.
- A comment names the thread, lock, packet or SA instead of `whoever` or `somebody`.";

/// The most columns of a comment line, as for code in rustfmt.toml.
const WIDTH: usize = 110;
/// The most lines of a production file.
const MAX_LINES: usize = 400;
/// A production file with fewer lines is a crate root, a `mod.rs`, a program or a payload.
const MIN_LINES: usize = 60;
/// The most files below `MIN_LINES`.
const MAX_SHORT_FILES: usize = 60;
/// Rules such as `identifier: what to write instead`, one a line. The file explains their forms.
const IDENTIFIERS: &str = include_str!("style/identifiers.txt");
/// Words that stand where a noun belongs.
const VAGUE: [&str; 4] = ["whoever", "somebody", "someone", "nobody"];
/// Beginnings of doc comments that refer to a neighbour instead of describing the item.
const EMPTY: [&str; 4] = ["the same", "its ", "of each", "as above"];
/// The most words of a doc comment that is empty if it begins like one of [`EMPTY`].
const EMPTY_WORDS: usize = 3;

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let sources = sources::walk(&shell::root())?;
    let denylist = Denylist::parse(IDENTIFIERS);
    let mut findings: Vec<String> = sources.iter().flat_map(|source| examine(source, &denylist)).collect();
    findings.extend(short_files(&sources));
    Failure::unless_empty(&findings, "the style of the sources (cargo xtask style --help)")?;
    println!("{} source files keep the style", sources.len());
    Ok(())
}

fn examine(source: &Source, denylist: &Denylist) -> Vec<String> {
    let mut findings: Vec<String> = length(source).into_iter().collect();
    let name = source.path.with_extension("").to_string_lossy().replace(['/', '-'], " ");
    findings
        .extend(denylist.find(&source.path, &name).map(|what| format!("{}: {what}", source.path.display())));
    let mut follows_doc = false;
    for (index, line) in source.lines.iter().enumerate() {
        let (code, comment) = split_comment(line);
        let finding = wide(line, comment)
            .or_else(|| comment.and_then(vague))
            .or_else(|| comment.filter(|_| !follows_doc).and_then(empty))
            .or_else(|| denylist.find(&source.path, &code));
        follows_doc = comment.is_some_and(|text| doc_text(text).is_some_and(|text| !text.is_empty()));
        findings.extend(
            finding.map(|what| format!("{}:{}: {what}", source.path.display(), index.saturating_add(1))),
        );
    }
    findings
}

/// The bound of the number of short files.
fn short_files(sources: &[Source]) -> Option<String> {
    // A build script cannot be merged with another file.
    let is_script = |source: &Source| source.path.file_name().is_some_and(|name| name == "build.rs");
    let count = sources.iter().filter(|source| is_short(source) && !is_script(source)).count();
    (count > MAX_SHORT_FILES).then(|| {
        format!(
            "{count} files have fewer than {MIN_LINES} lines, {MAX_SHORT_FILES} may: merge a `mod.rs` with \
             one of its modules"
        )
    })
}

fn is_short(source: &Source) -> bool {
    (1..MIN_LINES).contains(&source.shipped.len())
}

/// Both bounds of the length of a file that ships.
fn length(source: &Source) -> Option<String> {
    let lines = source.shipped.len();
    let path = source.path.display();
    if lines > MAX_LINES {
        return Some(format!("{path}: {lines} lines: split it by subject, {MAX_LINES} lines are the most"));
    }
    (is_short(source) && !may_be_short(&source.path))
        .then(|| format!("{path}: {lines} lines: move them to the file that uses them, or to a sibling"))
}

fn may_be_short(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = path.parent().unwrap_or(path);
    matches!(&*name, "mod.rs" | "main.rs" | "lib.rs" | "build.rs")
        || directory.ends_with("src/bin")
        || directory.starts_with("core/wire/src/ike")
}

/// A comment line that is too wide. A line with code is as wide as `cargo fmt` lets it be.
fn wide(line: &str, comment: Option<&str>) -> Option<String> {
    let columns = line.chars().count();
    let is_link = line.contains("://") && !line.trim().contains(' ');
    (comment.is_some() && columns > WIDTH && !is_link)
        .then(|| format!("a comment of {columns} columns: wrap it at {WIDTH}"))
}

fn vague(comment: &str) -> Option<String> {
    let comment = comment.to_lowercase();
    let word = VAGUE.iter().find(|word| contains_word(&comment, word))?;
    Some(format!("`{word}`: name the thread, peer, packet or caller"))
}

/// A doc comment such as `/// Its name.`
fn empty(comment: &str) -> Option<String> {
    let text = doc_text(comment)?.to_lowercase();
    let is_short = text.split_whitespace().count() <= EMPTY_WORDS;
    (is_short && text.ends_with('.') && EMPTY.iter().any(|begin| text.starts_with(begin))).then(|| {
        "an empty doc comment: say what it is, its unit, limit or source, or make the item private".into()
    })
}

/// The text of a line of a doc comment.
fn doc_text(comment: &str) -> Option<&str> {
    comment.strip_prefix("//!").or_else(|| comment.strip_prefix("///")).map(str::trim)
}

/// The rules for identifiers.
struct Denylist {
    /// By the whole identifier.
    identifiers: HashMap<&'static str, Rule>,
    /// By the first word of the term.
    words: HashMap<&'static str, Vec<WordRule>>,
}

/// Rule for a term of one or more words.
struct WordRule {
    /// Words of the term after the first one.
    others: Vec<&'static str>,
    rule: Rule,
}

/// What to write instead of a term, and where.
struct Rule {
    term: &'static str,
    instead: &'static str,
    place: &'static str,
}

impl Denylist {
    /// Reads lines such as `word TERM: INSTEAD @ PLACE`, in which `word` and the place are optional.
    fn parse(text: &'static str) -> Self {
        let mut list = Self { identifiers: HashMap::new(), words: HashMap::new() };
        let rules = text.lines().filter(|line| !line.starts_with('#'));
        for (term, rest) in rules.filter_map(|rule| rule.split_once(": ")) {
            let (instead, place) = rest.split_once(" @ ").unwrap_or((rest, ""));
            if let Some(term) = term.strip_prefix("word ") {
                let mut words = term.split(' ');
                let first = words.next().unwrap_or(term);
                let rule = Rule { term, instead, place };
                list.words.entry(first).or_default().push(WordRule { others: words.collect(), rule });
            } else {
                list.identifiers.insert(term, Rule { term, instead, place });
            }
        }
        list
    }

    /// A rule that applies to the directory of the file and to an identifier in `code`.
    fn find(&self, path: &Path, code: &str) -> Option<String> {
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let identifiers = code.split(|character| !is_part(character)).filter(|name| !name.is_empty());
        let rule = identifiers
            .flat_map(|name| self.identifiers.get(name).into_iter().chain(self.words_of(name)))
            .find(|rule| path.starts_with(rule.place))?;
        Some(format!("`{}`: write `{}`", rule.term, rule.instead))
    }

    /// Rules about words of an identifier.
    fn words_of(&self, identifier: &str) -> Vec<&Rule> {
        let text = words(identifier);
        let words: Vec<&str> = text.split(' ').collect();
        let mut found = Vec::new();
        for (at, first) in words.iter().enumerate() {
            let rest = words.get(at.saturating_add(1)..).unwrap_or_default();
            let rules = self.words.get(*first).into_iter().flatten();
            found.extend(rules.filter(|rule| rest.starts_with(&rule.others)).map(|found| &found.rule));
        }
        found
    }
}

/// The words of an identifier, in lower case: `DoorBell` and `door_bell` become `door bell`.
fn words(identifier: &str) -> String {
    let mut words = String::new();
    let mut previous = ' ';
    for character in identifier.chars() {
        if character == '_' || (character.is_uppercase() && previous.is_lowercase()) {
            words.push(' ');
        }
        if character != '_' {
            words.extend(character.to_lowercase());
        }
        previous = character;
    }
    words
}

/// The code of a line without the contents of its string literals, and its comment with the slashes.
fn split_comment(line: &str) -> (String, Option<&str>) {
    let mut code = String::new();
    let mut in_string = false;
    let mut previous = '\0';
    for (at, character) in line.char_indices() {
        let is_quote = character == '"' && previous != '\\' && previous != '\'';
        if !in_string && character == '/' && previous == '/' {
            code.pop();
            return (code, line.get(at.saturating_sub(1)..));
        }
        if is_quote || !in_string {
            code.push(character);
        }
        in_string ^= is_quote;
        previous = if previous == '\\' { '\0' } else { character };
    }
    (code, None)
}

/// Whether `text` has `word` with no part of an identifier beside it.
fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at.saturating_add(word.len())..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, lines: &[&str]) -> Source {
        let lines: Vec<String> = lines.iter().map(|&line| line.into()).collect();
        Source { path: path.into(), shipped: lines.clone(), lines }
    }

    fn findings_in(source: &Source) -> Vec<String> {
        examine(source, &Denylist::parse(IDENTIFIERS))
    }

    fn findings(line: &str) -> usize {
        findings_in(&source("a/src/lib.rs", &[line])).len()
    }

    #[test]
    fn only_comments_have_a_width() {
        let wide = "x".repeat(WIDTH);
        assert_eq!(findings(&format!("// {wide}")), 1);
        assert_eq!(findings(&format!("    code(); // {wide}")), 1);
        assert_eq!(findings(&format!("const TEXT: &str = \"// {wide}\";")), 0);
        assert_eq!(findings(&format!("//{}", "x".repeat(WIDTH - 2))), 0);
    }

    #[test]
    fn denied_identifiers_are_found_in_code_only() {
        assert_eq!(findings("struct Door;"), 1);
        assert_eq!(findings("struct Outdoors; // a Door"), 0);
        assert_eq!(findings("println!(\"the Door\");"), 0);
        assert_eq!(findings("println!(\"{}\", door);"), 1, "behind a string");
    }

    #[test]
    fn denied_words_are_found_in_each_identifier() {
        for line in ["struct DoorBell;", "fn close_door() {}", "const DOOR: u8 = 0;", "let look_after = 1;"] {
            assert_eq!(findings(line), 1, "{line}");
        }
        assert_eq!(findings("let outdoors = 1;"), 0);
        assert_eq!(findings_in(&source("a/src/door/lib.rs", &[])).len(), 1, "the name of a file");
    }

    #[test]
    fn rule_with_a_place_applies_there_only() {
        let findings = |path: &str| findings_in(&source(path, &["struct Arena;"])).len();
        assert_eq!(findings("lab/testbed/src/lib.rs"), 1);
        assert_eq!(findings("adapters/lwip/src/lib.rs"), 0);
    }

    #[test]
    fn vague_words_are_found_in_comments_only() {
        assert_eq!(findings("// Whoever has the lock"), 1);
        assert_eq!(findings("let whom = \"somebody\";"), 0);
    }

    #[test]
    fn empty_doc_comments_are_found() {
        assert_eq!(findings("/// Its name."), 1);
        assert_eq!(findings("/// The same."), 1);
        assert_eq!(findings("/// Its size in bytes, headers included."), 0);
        assert_eq!(findings("// The same."), 0);
        let wrapped = source("a/src/lib.rs", &["/// Returns the name and", "/// its length."]);
        assert!(findings_in(&wrapped).is_empty(), "the second line of a comment");
    }

    #[test]
    fn number_of_short_files_has_a_bound() {
        let short = |count: usize| (0..count).map(|_| source("a/src/mod.rs", &["x"])).collect::<Vec<_>>();
        assert!(short_files(&short(MAX_SHORT_FILES)).is_none());
        assert!(short_files(&short(MAX_SHORT_FILES + 1)).is_some_and(|what| what.starts_with("61 files")));
        let long = source("a/src/lib.rs", &["x"; MIN_LINES]);
        assert!(!is_short(&long));
    }

    #[test]
    fn lengths_have_two_bounds() {
        let file = |path: &str, lines: usize| findings_in(&source(path, &vec!["x"; lines])).len();
        assert_eq!(file("a/src/lib.rs", MAX_LINES + 1), 1);
        assert_eq!(file("a/src/lib.rs", MAX_LINES), 0);
        assert_eq!(file("a/src/one.rs", MIN_LINES - 1), 1);
        assert_eq!(file("a/src/one.rs", MIN_LINES), 0);
        assert_eq!(file("a/src/one.rs", 0), 0, "a file of tests");
        for path in ["a/src/mod.rs", "a/src/main.rs", "a/src/bin/one.rs", "core/wire/src/ike/nonce.rs"] {
            assert_eq!(file(path, 10), 0, "{path}");
        }
    }
}
