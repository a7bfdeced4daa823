//! Where the program with lwIP is.

use std::path::{Path, PathBuf};

/// Its name.
const NAME: &str = "casemate-lwip";

/// Beside `casemate`, or in the PATH; or why there is none.
pub(super) fn program(casemate: &Path) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = casemate.parent().map(Path::to_path_buf);
    find(beside.into_iter().chain(std::env::split_paths(&path))).ok_or_else(|| {
        format!("no program {NAME} beside casemate or in the PATH (`cargo xtask lwip --example` builds it)")
    })
}

fn find(directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    directories.map(|directory| directory.join(NAME)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_in_order() {
        let scratch = casemate_stage::scratch::Scratch::new("find-lwip").unwrap();
        let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
        for directory in [&first, &second] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let both = || [first.clone(), second.clone()].into_iter();
        assert_eq!(find(both()), None);
        std::fs::write(second.join(NAME), "").unwrap();
        assert_eq!(find(both()), Some(second.join(NAME)));
        std::fs::write(first.join(NAME), "").unwrap();
        assert_eq!(find(both()), Some(first.join(NAME)));
    }
}
