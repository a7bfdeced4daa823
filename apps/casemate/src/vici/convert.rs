//! Messages with sections of the configuration, as the sections that a file would have.

use super::loaded::{Objects, object_path};
use super::message::{Bytes, Element, Section};
use crate::swanctl::{SectionHandle, Sections};
use casemate_crypto::{HashAlg, Provider, Providers};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Keys whose values are certificates or public keys, while a file has their paths.
const OBJECT_KEYS: [&str; 4] = ["certs", "cacerts", "pubkeys", "cacert"];

/// The sections of a message, and the certificates in it.
pub struct Converted {
    /// The sections.
    pub sections: Sections,
    /// Certificates by the paths that the sections have for them.
    pub(super) objects: Objects,
}

/// Converts a message whose elements belong into the top-level section `kind`. An error names the element
/// that a file could not contain.
pub fn convert(
    kind: &str,
    message: &Section,
    providers: &[&'static dyn Provider],
) -> Result<Converted, String> {
    let mut converted = Converted { sections: Sections::default(), objects: Objects::new() };
    let root = converted.sections.open(Sections::ROOT, kind)?;
    converted.add(root, kind, message, &Providers(providers))?;
    Ok(converted)
}

impl Converted {
    fn add(
        &mut self,
        into: SectionHandle,
        path: &str,
        section: &Section,
        providers: &Providers<'_>,
    ) -> Result<(), String> {
        for element in &section.0 {
            match element {
                Element::Section(name, nested) => {
                    let handle = self.sections.open(into, name)?;
                    self.add(handle, &format!("{path}.{name}"), nested, providers)?;
                }
                Element::Value(name, value) => {
                    let text = self.text(path, name, value, providers)?;
                    self.sections.set(into, name, text)?;
                }
                Element::List(name, items) => {
                    let mut joined = Zeroizing::new(String::new());
                    for item in items {
                        if !joined.is_empty() {
                            joined.push(',');
                        }
                        joined.push_str(&self.text(path, name, item, providers)?);
                    }
                    self.sections.set(into, name, joined)?;
                }
            }
        }
        Ok(())
    }

    /// The text of a value; for a certificate or public key, its path.
    fn text(
        &mut self,
        path: &str,
        name: &str,
        value: &Bytes,
        providers: &Providers<'_>,
    ) -> Result<Zeroizing<String>, String> {
        if OBJECT_KEYS.contains(&name) && !value.is_empty() {
            let object = object_path(&object_id(value, providers));
            let text = object.display().to_string();
            self.objects.insert(object, Arc::new(value.clone()));
            return Ok(Zeroizing::new(text));
        }
        let text = str::from_utf8(value).map_err(|_| {
            format!("{path}.{name}: the text is not UTF-8: UTF-8 without zero bytes was expected")
        })?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

/// An identifier for these bytes.
pub(super) fn object_id(bytes: &[u8], providers: &Providers<'_>) -> String {
    let digest = providers.hash(HashAlg::Sha256, &[bytes]);
    digest.map_or_else(|| hex(bytes), |digest| hex(digest.as_slice()))
}

/// Hexadecimal digits in lower case.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
