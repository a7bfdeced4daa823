//! Splits lines into words as both `sh` and `ip -batch` do.
//!
//! The two differ: `ip -batch` ends a line at every `#`; `sh` expands `$` and joins `a"b"`. A file that
//! means different things to them is refused, so a file that loads has one meaning.

use super::LineProblem;
use casemate_wire::invariant::OrBroken;

/// A word and its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// The text without quotes.
    pub(super) text: &'a str,
    /// Line number, from 1.
    pub(super) line: usize,
}

/// The words of one command; never empty.
pub(super) type CommandWords<'a> = Vec<Word<'a>>;

/// Characters with a meaning for `sh` outside quotes. Parentheses have one too, but `hmac(sha256)` is
/// valid for `ip -batch`.
const SHELL: [char; 7] = ['$', '`', ';', '&', '|', '<', '>'];

/// Splits a file into commands. Lines that cannot be split become problems; the other lines are returned.
pub(super) fn split<'a>(file: &'a [u8], problems: &mut Vec<LineProblem>) -> Vec<CommandWords<'a>> {
    let mut commands = Vec::new();
    let mut command = CommandWords::new();
    let mut broken = false;
    for (number, line) in (1..).zip(file.split(|byte| *byte == b'\n')) {
        let mut continues = false;
        let split = match std::str::from_utf8(line) {
            Ok(text) => words(text, number, &mut command, &mut continues),
            Err(_) => Err(LineProblem::new(number, "the line is not text: UTF-8 was expected")),
        };
        if let Err(problem) = split {
            problems.push(problem);
            broken = true;
            continues = line.ends_with(b"\\");
        }
        if continues {
            continue;
        }
        let whole = std::mem::take(&mut command);
        if !broken && !whole.is_empty() {
            commands.push(whole);
        }
        broken = false;
    }
    if let Some(last) = command.last() {
        problems
            .push(LineProblem::new(last.line, "the file ends after `\\`: a continuation line was expected"));
    }
    commands
}

/// Appends the words of one line to `command`; `continues` is set if it ends in a backslash.
fn words<'a>(
    line: &'a str,
    number: usize,
    command: &mut CommandWords<'a>,
    continues: &mut bool,
) -> Result<(), LineProblem> {
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        let Some(first) = rest.chars().next() else { return Ok(()) };
        if first == '#' {
            return Ok(());
        }
        if rest == "\\" {
            *continues = true;
            return Ok(());
        }
        let split = match first {
            '\'' | '"' => quoted(rest, first, number)?,
            _ => bare(rest, number)?,
        };
        command.push(Word { text: split.word, line: number });
        rest = split.rest;
    }
}

/// A word without quotes, and the rest of the line.
struct SplitLine<'a> {
    word: &'a str,
    rest: &'a str,
}

/// Splits off a quoted word.
fn quoted(rest: &str, quote: char, line: usize) -> Result<SplitLine<'_>, LineProblem> {
    let inside = rest.get(1..).or_broken_default("the word begins with a quote");
    let Some((text, after)) = inside.split_once(quote) else {
        return Err(LineProblem::new(
            line,
            format!("a quoted word does not end on its line: a second {quote} was expected"),
        ));
    };
    if !after.is_empty() && !after.starts_with([' ', '\t', '\r']) {
        return Err(LineProblem::new(
            line,
            format!("a space was expected after the closing {quote} of a word"),
        ));
    }
    if let Some(odd) =
        text.chars().find(|c| matches!(c, '#' | '\\') || (quote == '"' && matches!(c, '$' | '`')))
    {
        return Err(LineProblem::new(
            line,
            format!(
                "`{odd}` in quotes means different things to sh and to ip -batch: a key in hex (0x...) was \
                 expected"
            ),
        ));
    }
    Ok(SplitLine { word: text, rest: after })
}

/// Splits off a word without quotes.
fn bare(rest: &str, line: usize) -> Result<SplitLine<'_>, LineProblem> {
    let end = rest.find([' ', '\t', '\r']).unwrap_or(rest.len());
    let (text, after) = rest.split_at_checked(end).or_broken("a space is a boundary", (rest, ""));
    match text.chars().find(|c| SHELL.contains(c) || matches!(c, '#' | '\\' | '\'' | '"')) {
        // The word may hold a key, so only the character is shown.
        Some('$' | '`') => Err(LineProblem::new(
            line,
            "variables and commands of the shell are not expanded here: a plain value was expected",
        )),
        Some(odd) => Err(LineProblem::new(
            line,
            format!(
                "`{odd}` in a word means different things to sh and to ip -batch: a word in quotes was \
                 expected"
            ),
        )),
        None => Ok(SplitLine { word: text, rest: after }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_ok(text: &str) -> Vec<Vec<(String, usize)>> {
        let mut problems = Vec::new();
        let commands = split(text.as_bytes(), &mut problems);
        assert_eq!(problems, []);
        commands.iter().map(|c| c.iter().map(|w| (w.text.to_owned(), w.line)).collect()).collect()
    }

    fn texts(text: &str) -> Vec<Vec<String>> {
        split_ok(text).into_iter().map(|c| c.into_iter().map(|(t, _)| t).collect()).collect()
    }

    fn problem(text: &[u8]) -> String {
        let mut problems = Vec::new();
        split(text, &mut problems);
        assert_eq!(problems.len(), 1, "{problems:?}");
        format!("{}: {}", problems[0].line, problems[0].text)
    }

    #[test]
    fn lines_words_comments_and_quotes() {
        assert_eq!(texts("a b\tc\r\n\n  # x 'y\n d #e"), [vec!["a", "b", "c"], vec!["d"]]);
        assert_eq!(texts(r#"k 'a b' "c" '' hmac(sha1)"#), [["k", "a b", "c", "", "hmac(sha1)"]]);
        assert_eq!(texts("#!/bin/sh\nx"), [["x"]]);
    }

    #[test]
    fn continuation_keeps_line_numbers() {
        assert_eq!(
            split_ok("a \\\n  b \\\n  c\nd"),
            [vec![("a".into(), 1), ("b".into(), 2), ("c".into(), 3)], vec![("d".into(), 4)]]
        );
        // A comment ends the command even if the comment ends in a backslash, in both programs.
        assert_eq!(texts("a # b \\\nc"), [["a"], ["c"]]);
    }

    #[test]
    fn text_that_sh_and_ip_batch_read_differently_is_refused() {
        assert!(problem(b"a 'b").starts_with("1: a quoted word does not end"));
        assert!(problem(b"\na 'b'c").starts_with("2: a space was expected after"));
        assert!(problem(b"a 'b#c'").starts_with("1: `#` in quotes"));
        assert!(problem(b"a \"$b\"").starts_with("1: `$` in quotes"));
        assert!(problem(b"a $KEY").contains("of the shell are not expanded"));
        assert!(problem(b"a b#c").contains("`#` in a word"));
        assert!(problem(b"a b;c").contains("`;` in a word"));
        assert!(problem(b"a 0x'11'").contains("`'` in a word"));
        assert!(problem(b"a \\").contains("a continuation line was expected"));
        assert!(problem(b"a\n\xff").starts_with("2: the line is not text"));
    }

    #[test]
    fn malformed_line_discards_its_command() {
        let mut problems = Vec::new();
        let commands = split(b"a $b \\\nc\nd", &mut problems);
        assert_eq!(problems.len(), 1);
        assert_eq!(commands.len(), 1);
        assert_eq!(commands[0][0].text, "d");
    }
}
