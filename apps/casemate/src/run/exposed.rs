//! Files with keys that other users of the machine can read or change.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Permissions of the group and of everybody to read and to write.
const OTHERS: u32 = 0o066;

/// A warning if other users than the owner can read or write a file with keys. None for a file that cannot be
/// looked at: reading it reports that.
pub(super) fn warning(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok().filter(|metadata| metadata.is_file())?.mode() & 0o7777;
    let path = path.display();
    (mode & OTHERS != 0).then(|| {
        format!("{path}: mode {mode:04o} gives other users access to the keys in it: `chmod 600 {path}` was expected")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_scratch::Scratch;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_can_read_or_write_gives_a_warning() {
        let scratch = Scratch::new("exposed");
        let path = scratch.file("key");
        fs::write(&path, "").unwrap();
        for (mode, is_exposed) in
            [(0o600, false), (0o400, false), (0o711, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let warning = warning(&path);
            assert_eq!(warning.is_some(), is_exposed, "{mode:o}: {warning:?}");
        }
        let shown = warning(&path).unwrap();
        let name = path.display();
        let expected = format!(
            "{name}: mode 0620 gives other users access to the keys in it: `chmod 600 {name}` was expected"
        );
        assert_eq!(shown, expected);
        assert_eq!(warning(&scratch.file("none")), None);
    }
}
