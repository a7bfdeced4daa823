//! Sections that a program has sent instead of a file, with the same rules and the same messages.

use super::problem::{Location, Problems};
use super::resolved::Resolver;
use super::tree::{SectionId, Tree, Value};
use super::{Config, Known};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Sections of a configuration, without includes and references.
pub struct Sections {
    tree: Tree,
    location: Location,
}

/// A section of [`Sections`].
#[derive(Debug, Clone, Copy)]
pub struct SectionHandle(SectionId);

impl Default for Sections {
    fn default() -> Self {
        // Messages show no location.
        let location = Location { file: Arc::from(Path::new("")), line: 0 };
        Self { tree: Tree::new(location.clone()), location }
    }
}

impl Sections {
    /// The top level.
    pub const ROOT: SectionHandle = SectionHandle(Tree::ROOT);

    /// Opens the section `name` inside `parent`; creates it if it does not exist.
    pub fn open(&mut self, parent: SectionHandle, name: &str) -> Result<SectionHandle, String> {
        check_name(name)?;
        Ok(SectionHandle(self.tree.open(parent.0, name, self.location.clone())))
    }

    /// Sets the value of a key. Values of lists are separated by commas.
    pub fn set(
        &mut self,
        section: SectionHandle,
        name: &str,
        value: Zeroizing<String>,
    ) -> Result<(), String> {
        check_name(name)?;
        if value.contains('\0') {
            return Err(format!("{name}: the text is not UTF-8: UTF-8 without zero bytes was expected"));
        }
        self.tree.set(section.0, name, Value { text: value, location: self.location.clone() });
        Ok(())
    }

    /// Reads the sections. `known` is what the rest of the configuration defines. Returns the configuration
    /// without folders, or every problem in it, without locations.
    pub fn read(&self, known: &Known<'_>) -> Result<Config, Vec<String>> {
        let problems = Problems::default();
        let resolver = Resolver::new(&self.tree);
        let config = Config::read_sections(Path::new(""), &self.tree, &resolver.root(), known, &problems);
        let errors: Vec<String> = problems.take_errors().into_iter().map(|problem| problem.text).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Config { warnings: problems.take_warnings().into_iter().collect(), ..config })
    }
}

/// Refuses names that a file cannot contain.
fn check_name(name: &str) -> Result<(), String> {
    if name.contains('.') {
        return Err(format!(
            "{}: a name contains a `.`: another character was expected",
            name.escape_debug()
        ));
    }
    match name.chars().find(|letter| letter.is_ascii_control() || " ,:{}=\"#".contains(*letter)) {
        Some(odd) => Err(format!(
            "{}: a name contains `{}`: another character was expected",
            name.escape_debug(),
            odd.escape_debug()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::SystemEnvironment;

    /// A file and a program get the same messages.
    #[test]
    fn problems_have_the_words_of_a_file() {
        let mut sections = Sections::default();
        let mut section = Sections::ROOT;
        for name in ["connections", "home", "children", "net"] {
            section = sections.open(section, name).unwrap();
        }
        for (key, value) in [("esp_proposals", "rot13"), ("start_action", "now"), ("label", "a")] {
            sections.set(section, key, Zeroizing::new(value.into())).unwrap();
        }
        let text = b"connections {\nhome {\nchildren {\nnet {\nesp_proposals = rot13\nstart_action = now\nlabel = a\n}\n}\n}\n}\n";
        let of_file = Config::parse(Path::new("/nowhere/x.conf"), text, &SystemEnvironment).unwrap_err();
        let mut of_file: Vec<String> = of_file.into_iter().map(|problem| problem.text).collect();
        of_file.sort();
        let known = Known { pools: &[], has_scheduler: false, has_groups: false, has_all_secrets: false };
        let mut of_program = sections.read(&known).unwrap_err();
        of_program.sort();
        assert_eq!(of_program, of_file);
        assert_eq!(of_program.len(), 3, "{of_program:?}");
    }

    #[test]
    fn names_are_those_that_a_file_can_contain() {
        let mut sections = Sections::default();
        for name in ["a.b", "a b", "a\n", "a{", "#a"] {
            assert!(sections.open(Sections::ROOT, name).is_err(), "{name}");
        }
        assert!(sections.open(Sections::ROOT, "h\u{e9}-1_2").is_ok());
    }
}
