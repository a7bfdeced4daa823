//! Rust sources of the project, and which of their lines are tests.

use crate::shell::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Source file.
pub(crate) struct Source {
    /// Path relative to the root of the walk.
    pub(crate) path: PathBuf,
    /// All lines.
    pub(crate) lines: Vec<String>,
    /// Lines without inline tests; empty if the file contains only tests.
    pub(crate) shipped: Vec<String>,
}

/// All `.rs` files below `root`, sorted, without build output and hidden directories.
pub(crate) fn walk(root: &Path) -> Result<Vec<Source>> {
    let mut texts = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory)
            .map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !name.starts_with('.') && !name.starts_with("target") {
                    directories.push(path);
                }
            } else if name.ends_with(".rs") {
                texts.push((path.strip_prefix(root).unwrap_or(&path).to_path_buf(), read(&path)?));
            }
        }
    }
    texts.sort();
    Ok(sources(&texts))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn sources(texts: &[(PathBuf, String)]) -> Vec<Source> {
    let test_modules: Vec<PathBuf> = texts.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &Path| {
        let in_tests = path.components().any(|part| part.as_os_str() == "tests");
        in_tests || test_modules.iter().any(|module| path.with_extension("").starts_with(module))
    };
    let shipped = |path: &Path, text: &str| if is_test(path) { Vec::new() } else { shipped_lines(text) };
    texts
        .iter()
        .map(|(path, text)| Source {
            path: path.clone(),
            lines: text.lines().map(str::to_owned).collect(),
            shipped: shipped(path, text),
        })
        .collect()
}

/// Modules in files of their own that a file declares for tests only, as paths without `.rs`.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let is_root = matches!(path.file_stem().and_then(|stem| stem.to_str()), Some("lib" | "main" | "mod"));
    let directory =
        if is_root { path.parent().unwrap_or(path).to_path_buf() } else { path.with_extension("") };
    let declared = |(attribute, item): (&str, &str)| {
        let name = item.trim_start().strip_suffix(';')?.rsplit_once("mod ")?.1;
        is_for_tests(attribute).then(|| directory.join(name))
    };
    text.lines().zip(text.lines().skip(1)).filter_map(declared).collect()
}

fn is_for_tests(line: &str) -> bool {
    line.trim_start().starts_with("#[cfg(test)]")
}

/// Lines before the inline test module at the end of a file, without one-line items for tests.
fn shipped_lines(text: &str) -> Vec<String> {
    let mut shipped = Vec::new();
    let mut for_tests = false;
    for line in text.lines() {
        if for_tests && line.starts_with("mod ") && line.ends_with('{') {
            shipped.pop();
            break;
        }
        if !(for_tests && line.ends_with(';')) {
            shipped.push(line.to_owned());
        }
        for_tests = is_for_tests(line);
    }
    shipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_not_shipped() {
        assert_eq!(shipped_lines("a\n#[cfg(test)]\nmod tests {\nb\n}\n"), ["a"]);
        assert_eq!(shipped_lines("#[cfg(test)]\nextern crate std;\nb\n"), ["#[cfg(test)]", "b"]);
    }

    #[test]
    fn test_files_ship_nothing() {
        let text = |path: &str, text: &str| (PathBuf::from(path), String::from(text));
        let sources = sources(&[
            text("a/src/lib.rs", "#[cfg(test)]\nmod helper;\n#[cfg(test)]\nmod tests;\nmod real;\n"),
            text("a/src/helper.rs", "x"),
            text("a/src/helper/deep.rs", "x"),
            text("a/src/real.rs", "#[cfg(test)]\npub(crate) mod inner;\n"),
            text("a/src/real/inner.rs", "x"),
            text("a/src/real/outer.rs", "x"),
            text("a/src/test.rs", "x"),
            text("a/src/tests.rs", "x"),
            text("a/tests/all.rs", "x"),
        ]);
        let ship: Vec<_> =
            sources.iter().filter(|source| source.shipped == ["x"]).map(|source| &source.path).collect();
        assert_eq!(ship, [Path::new("a/src/real/outer.rs"), Path::new("a/src/test.rs")]);
    }
}
