//! Listings of swanctl, as `swanctl --list-sas --pretty` prints them: sections, values and lists.

use std::collections::BTreeMap;

/// Section of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    values: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
    /// Subsections with their names, in order.
    pub sections: Vec<(String, Listing)>,
}

impl Listing {
    /// Parses the output. Lines of other kinds are ignored.
    pub fn parse(text: &str) -> Self {
        Self::read(&mut text.lines())
    }

    fn read<'t>(lines: &mut impl Iterator<Item = &'t str>) -> Self {
        let mut section = Self::default();
        while let Some(line) = lines.next().map(str::trim) {
            if line == "}" {
                break;
            }
            if let Some(name) = line.strip_suffix(" {") {
                section.sections.push((name.into(), Self::read(lines)));
            } else if let Some(name) = line.strip_suffix(" = [") {
                let items = lines.map(str::trim).take_while(|&line| line != "]").map(Into::into).collect();
                section.lists.insert(name.into(), items);
            } else if let Some((name, value)) = line.split_once(" = ") {
                section.values.insert(name.into(), value.into());
            }
        }
        section
    }

    /// Returns a value, or an empty string.
    pub fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns a list, or an empty list.
    pub fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the subsection of this name.
    pub fn section(&self, name: &str) -> Option<&Listing> {
        self.sections.iter().find(|(own, _)| own == name).map(|(_, section)| section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sections_values_and_lists() {
        let text = "list-sa event {\n  t {\n    remote-id = C=CH, CN=x = y\n    child-sas {\n      c-1 {\n        name = c\n\
                    local-ts = [\n          10.99.1.0/24\n          fd99::/64\n        ]\n        mode = TUNNEL\n      }\n    }\n\
                      }\n}\nlist-sas reply {\n}\n";
        let listing = Listing::parse(text);
        assert_eq!(listing.sections.len(), 2);
        let sa = listing.section("list-sa event").and_then(|event| event.section("t")).unwrap();
        assert_eq!(sa.value("remote-id"), "C=CH, CN=x = y");
        let child = sa.section("child-sas").and_then(|children| children.section("c-1")).unwrap();
        assert_eq!(child.list("local-ts"), ["10.99.1.0/24", "fd99::/64"]);
        assert_eq!((child.value("mode"), child.value("nothing")), ("TUNNEL", ""));
    }
}
