//! The parser of strongswan.conf(5): `name { ... }`, `name : other, another { ... }`, `key = value`,
//! `include pattern`, `#`.
//!
//! The parser works on bytes, because comments may contain anything; names and values must be UTF-8.
//! Every file must close the sections that it opens.

use super::files::TreeLoader;
use super::problem::{Location, Problem};
use super::tree::{Reference, SectionId, Value};
use casemate_wire::invariant::OrBroken;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Reads one file into the section `into` of the loader's tree.
pub(super) fn read(loader: &mut TreeLoader<'_>, file: &Arc<Path>, text: &[u8], into: SectionId) {
    let mut parser = FileParser { loader, file, rest: text, line: 1, open: Vec::new(), into, spanning: None };
    while parser.skip_to_statement() {
        if let Err(problem) = parser.statement() {
            parser.loader.problems.push(problem);
            parser.skip_line();
        }
    }
    for (location, _) in parser.open {
        let text = "the section is never closed: a `}` was expected before the end of the file";
        parser.loader.problems.push(Problem::new(&location, text));
    }
}

struct FileParser<'r, 'f> {
    loader: &'r mut TreeLoader<'f>,
    file: &'r Arc<Path>,
    rest: &'r [u8],
    line: usize,
    /// Start of each open section, and the section around it.
    open: Vec<(Location, SectionId)>,
    /// The innermost open section.
    into: SectionId,
    /// Start of the first string that ends on another line.
    spanning: Option<Location>,
}

/// Whether `byte` ends a name.
fn ends_name(byte: u8) -> bool {
    byte.is_ascii_control() || b" .,:{}=\"#".contains(&byte)
}

/// Whether `byte` ends a word of a value.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b'#' | b'}' | b'"' | b'\r' | b'\n' | b'\t' | b' ')
}

impl<'r> FileParser<'r, '_> {
    fn location(&self) -> Location {
        Location { file: Arc::clone(self.file), line: self.line }
    }

    fn error(&self, text: impl Into<String>) -> Problem {
        Problem::new(&self.location(), text)
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn take(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        if first == b'\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(first)
    }

    fn take_if(&mut self, wanted: u8) -> bool {
        if self.peek() != Some(wanted) {
            return false;
        }
        self.take();
        true
    }

    /// Takes the bytes of the current line up to the first byte that `ends` accepts.
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'r [u8] {
        let len = self.rest.iter().position(|&byte| byte == b'\n' || ends(byte)).unwrap_or(self.rest.len());
        let (taken, rest) =
            self.rest.split_at_checked(len).or_broken("the length is inside", (self.rest, &[]));
        self.rest = rest;
        taken
    }

    fn skip_line(&mut self) {
        self.take_until(|_| false);
    }

    fn skip_blanks(&mut self) {
        self.take_until(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    }

    /// Skips blanks, line ends and comments. Returns false at the end of the file.
    fn skip_to_statement(&mut self) -> bool {
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(b'#') => self.skip_line(),
                Some(b'\n') => {
                    self.take();
                }
                other => return other.is_some(),
            }
        }
    }

    fn statement(&mut self) -> Result<(), Problem> {
        if self.take_if(b'}') {
            let (_, around) = self.open.pop().ok_or_else(|| self.error("`}` closes no section"))?;
            self.into = around;
            return Ok(());
        }
        let location = self.location();
        let name = self.name()?;
        if name == "include" && self.is_include() {
            return self.include();
        }
        self.skip_to_statement();
        if self.take_if(b'=') {
            let value = self.value()?;
            self.loader.tree.set(self.into, name, Value { text: value, location });
            return Ok(());
        }
        let references = if self.take_if(b':') { self.references()? } else { Vec::new() };
        if !self.skip_to_statement() || !self.take_if(b'{') {
            // The text here may be part of a secret, so the message does not show it.
            return Err(Problem::new(&location, "`=`, `{` or `:` was expected after the first word"));
        }
        let known = self.loader.tree.get(self.into).and_then(|section| section.section(name));
        let section = self.loader.tree.open(self.into, name, location.clone());
        if known.is_some() {
            self.loader.tree.reopen(section, location.clone());
        }
        for reference in references {
            self.loader.tree.refer(section, reference);
        }
        self.open.push((location, self.into));
        self.into = section;
        Ok(())
    }

    fn name(&mut self) -> Result<&'r str, Problem> {
        let name = self.take_until(ends_name);
        if name.is_empty() {
            let text = match self.peek() {
                Some(odd) if odd.is_ascii_graphic() => {
                    format!(
                        "`{}` where a name should begin: a key or a section was expected",
                        char::from(odd)
                    )
                }
                _ => "a control character: a key or a section was expected".into(),
            };
            return Err(self.error(text));
        }
        if self.peek() == Some(b'.') {
            return Err(self.error("a name contains a `.`: another character was expected"));
        }
        self.text(name)
    }

    fn text(&self, bytes: &'r [u8]) -> Result<&'r str, Problem> {
        match str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => Err(self.error("the text is not UTF-8: UTF-8 without zero bytes was expected")),
        }
    }

    /// Reads the section names after `:`.
    fn references(&mut self) -> Result<Vec<Reference>, Problem> {
        let mut references = Vec::new();
        loop {
            self.skip_to_statement();
            let location = self.location();
            let name = self.take_until(|byte| byte != b'.' && ends_name(byte));
            let name = self.text(name)?;
            if name.is_empty() || name.split('.').any(str::is_empty) {
                return Err(
                    self.error("after `:` the name of a section was expected, such as connections.gw")
                );
            }
            references.push(Reference { name: name.to_owned(), location });
            self.skip_to_statement();
            if !self.take_if(b',') {
                return Ok(references);
            }
        }
    }

    /// Reads the rest of a line after `=`. Words and strings are joined by one space; a `}` closes the
    /// section.
    fn value(&mut self) -> Result<Zeroizing<String>, Problem> {
        let mut value = Zeroizing::new(String::new());
        loop {
            self.skip_blanks();
            match self.peek() {
                None | Some(b'#' | b'}' | b'\n') => return Ok(value),
                Some(b'"') => join(&mut value, &self.string()?),
                Some(_) => {
                    let word = self.take_until(ends_word);
                    join(&mut value, self.text(word)?);
                }
            }
        }
    }

    /// Reads a string in quotes. The string may span lines; a backslash before the end of a line joins
    /// the lines.
    fn string(&mut self) -> Result<Zeroizing<String>, Problem> {
        let start = self.location();
        // If a string lacks its end, the beginning of the next one closes it, and the last one stays open.
        let first = self.spanning.clone().unwrap_or_else(|| start.clone());
        let open = || Problem::new(&first, "the string is not closed: a second `\"` was expected");
        self.take();
        // Allocates the maximum length, so that growing leaves no copy of a secret in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.string_bound()));
        loop {
            match self.take().ok_or_else(open)? {
                b'"' => break,
                b'\r' => {}
                b'\\' => bytes.extend(self.escape().ok_or_else(open)?),
                byte => bytes.push(byte),
            }
        }
        if self.line != start.line {
            self.spanning.get_or_insert_with(|| start.clone());
        }
        let text = str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'));
        let text = text.ok_or_else(|| {
            Problem::new(&start, "the string is not UTF-8: UTF-8 without zero bytes was expected")
        })?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// Upper bound of the length of the string that begins here.
    fn string_bound(&self) -> usize {
        let mut escaped = false;
        let end = self.rest.iter().position(|&byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        end.unwrap_or(0)
    }

    /// Reads an escape sequence after its backslash. `Some(None)` produces nothing; `None` means the end
    /// of the file.
    #[expect(clippy::option_option, reason = "an escape may produce no byte, and the file may end")]
    fn escape(&mut self) -> Option<Option<u8>> {
        let byte = self.take()?;
        if byte == b'\r' && self.peek() == Some(b'\n') {
            self.take();
            return Some(None);
        }
        Some(match byte {
            b'\n' => None,
            b'n' => Some(b'\n'),
            b'r' => Some(b'\r'),
            b't' => Some(b'\t'),
            other => Some(other),
        })
    }

    /// Whether `include` begins an include statement, rather than being the name of a key.
    fn is_include(&self) -> bool {
        let blanks = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        blanks > 0 && self.rest.get(blanks) != Some(&b'=')
    }

    fn include(&mut self) -> Result<(), Problem> {
        let location = self.location();
        self.skip_blanks();
        let pattern =
            if self.peek() == Some(b'"') { self.string()?.to_string() } else { self.bare_pattern()? };
        if pattern.is_empty() {
            return Err(Problem::new(
                &location,
                "after `include` a file was expected, such as conf.d/*.conf",
            ));
        }
        self.loader.include(&location, &pattern, self.into);
        Ok(())
    }

    /// Reads a pattern without quotes. A backslash escapes `"`, `#`, `}` and a space.
    fn bare_pattern(&mut self) -> Result<String, Problem> {
        let mut pattern = String::new();
        loop {
            let part = self.take_until(|byte| ends_word(byte) || byte == b'\\');
            pattern.push_str(self.text(part)?);
            if !self.take_if(b'\\') {
                return Ok(pattern);
            }
            match self.peek() {
                Some(special @ (b'"' | b'#' | b'}' | b' ')) => {
                    self.take();
                    pattern.push(char::from(special));
                }
                _ => pattern.push('\\'),
            }
        }
    }
}

/// Appends a part of a value after a space, without leaving a copy of a secret in memory.
fn join(value: &mut Zeroizing<String>, part: &str) {
    let mut joined =
        Zeroizing::new(String::with_capacity(value.len().saturating_add(part.len()).saturating_add(1)));
    joined.push_str(value);
    if !value.is_empty() {
        joined.push(' ');
    }
    joined.push_str(part);
    *value = joined;
}
