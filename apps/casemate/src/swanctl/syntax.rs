//! The syntax of strongswan.conf(5): `name { ... }`, `name : other, another { ... }`, `key = value`, `include pattern`, `#`.
//!
//! Bytes are taken as they come, because comments may hold anything; names and values must be UTF-8. Every file closes the
//! sections that it opens.

use super::files::Loader;
use super::problem::{Place, Problem};
use super::tree::{Reference, SectionId, Value};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Reads one file into the section `into` of the loader's tree.
pub(super) fn read(loader: &mut Loader<'_>, file: &Arc<Path>, text: &[u8], into: SectionId) {
    let mut reader = Reader { loader, file, rest: text, line: 1, open: Vec::new(), into };
    while reader.skip_to_statement() {
        if let Err(problem) = reader.statement() {
            reader.loader.problems.push(problem);
            reader.skip_line();
        }
    }
    for (place, _) in reader.open {
        let text = "this section is never closed: a `}` was expected before the end of the file";
        reader.loader.problems.push(Problem::new(&place, text));
    }
}

struct Reader<'r, 'f> {
    loader: &'r mut Loader<'f>,
    file: &'r Arc<Path>,
    rest: &'r [u8],
    line: usize,
    /// Where each open section begins, and the section around it.
    open: Vec<(Place, SectionId)>,
    /// The innermost open section.
    into: SectionId,
}

/// What ends a name.
fn ends_name(byte: u8) -> bool {
    byte.is_ascii_control() || b" .,:{}=\"#".contains(&byte)
}

/// What ends a word of a value.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b'#' | b'}' | b'"' | b'\r' | b'\n' | b'\t' | b' ')
}

impl<'r> Reader<'r, '_> {
    fn place(&self) -> Place {
        Place { file: Arc::clone(self.file), line: self.line }
    }

    fn wrong(&self, text: impl Into<String>) -> Problem {
        Problem::new(&self.place(), text)
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

    /// Takes bytes of one line until one that `ends` accepts.
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'r [u8] {
        let len = self.rest.iter().position(|&byte| byte == b'\n' || ends(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        taken
    }

    fn skip_line(&mut self) {
        self.take_until(|_| false);
    }

    fn skip_blanks(&mut self) {
        self.take_until(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    }

    /// Goes to the next byte that is no blank, line end or comment. False at the end of the file.
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
            let (_, around) = self.open.pop().ok_or_else(|| self.wrong("`}` closes no section"))?;
            self.into = around;
            return Ok(());
        }
        let place = self.place();
        let name = self.name()?;
        if name == "include" && self.is_include() {
            return self.include();
        }
        self.skip_to_statement();
        if self.take_if(b'=') {
            let value = self.value()?;
            self.loader.tree.set(self.into, name, Value { text: value, place });
            return Ok(());
        }
        let references = if self.take_if(b':') { self.references()? } else { Vec::new() };
        if !self.skip_to_statement() || !self.take_if(b'{') {
            // What stands here may be a part of a secret, so it is not shown.
            return Err(Problem::new(&place, "`=`, `{` or `:` was expected after the first word"));
        }
        let section = self.loader.tree.open(self.into, name, place.clone());
        for reference in references {
            self.loader.tree.refer(section, reference);
        }
        self.open.push((place, self.into));
        self.into = section;
        Ok(())
    }

    fn name(&mut self) -> Result<&'r str, Problem> {
        let name = self.take_until(ends_name);
        if name.is_empty() {
            let text = match self.peek() {
                Some(odd) if odd.is_ascii_graphic() => {
                    format!("`{}` in the place of a name: a key or a section was expected", char::from(odd))
                }
                _ => "a control character: a key or a section was expected".into(),
            };
            return Err(self.wrong(text));
        }
        if self.peek() == Some(b'.') {
            return Err(self.wrong("a name with a `.` in it: another character was expected"));
        }
        self.text(name)
    }

    fn text(&self, bytes: &'r [u8]) -> Result<&'r str, Problem> {
        match str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => Err(self.wrong("this is no text: UTF-8 was expected")),
        }
    }

    /// The names of sections after `:`, up to what is not one of them.
    fn references(&mut self) -> Result<Vec<Reference>, Problem> {
        let mut references = Vec::new();
        loop {
            self.skip_to_statement();
            let place = self.place();
            let name = self.take_until(|byte| byte != b'.' && ends_name(byte));
            let name = self.text(name)?;
            if name.is_empty() || name.split('.').any(str::is_empty) {
                return Err(
                    self.wrong("after `:` the name of a section was expected, such as connections.gw")
                );
            }
            references.push(Reference { name: name.to_owned(), place });
            self.skip_to_statement();
            if !self.take_if(b',') {
                return Ok(references);
            }
        }
    }

    /// The rest of a line behind `=`. Words and strings are joined by one space; a `}` belongs to the section.
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

    /// A string in quotes. It may go over several lines; a backslash before the end of a line joins the lines.
    fn string(&mut self) -> Result<Zeroizing<String>, Problem> {
        let start = self.place();
        let open = || Problem::new(&start, "this string has no end: a second `\"` was expected");
        self.take();
        // As large as it can get, so that no copy of a secret is left behind when it grows.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.string_bound()));
        loop {
            match self.take().ok_or_else(open)? {
                b'"' => break,
                b'\r' => {}
                b'\\' => bytes.extend(self.escape().ok_or_else(open)?),
                byte => bytes.push(byte),
            }
        }
        let text = str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'));
        let text = text.ok_or_else(|| Problem::new(&start, "this string is no text: UTF-8 was expected"))?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// How far it is to the end of the string, at most.
    fn string_bound(&self) -> usize {
        let mut escaped = false;
        let end = self.rest.iter().position(|&byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        end.unwrap_or(0)
    }

    /// What a backslash and the next byte mean. `Some(None)` is nothing, `None` the end of the file.
    #[expect(clippy::option_option, reason = "both are possible")]
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

    /// Whether `include` is the statement here, rather than the name of a key.
    fn is_include(&self) -> bool {
        let blanks = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        blanks > 0 && self.rest.get(blanks) != Some(&b'=')
    }

    fn include(&mut self) -> Result<(), Problem> {
        let place = self.place();
        self.skip_blanks();
        let pattern =
            if self.peek() == Some(b'"') { self.string()?.to_string() } else { self.bare_pattern()? };
        if pattern.is_empty() {
            return Err(Problem::new(&place, "after `include` a file was expected, such as conf.d/*.conf"));
        }
        self.loader.include(&place, &pattern, self.into);
        Ok(())
    }

    /// A pattern without quotes. A backslash takes the meaning from `"`, `#`, `}` and a space.
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

/// Adds a part of a value behind a space, without leaving a copy of a secret behind.
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
