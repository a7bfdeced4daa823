//! The secret of quick crash detection (RFC 6290 section 5.1), in a file that only this user can read.
//!
//! Each instance has its own: of two instances with the same secret, one could be asked for the tokens of the
//! other's IKE SAs (RFC 6290 section 9.2). The file is in the lasting directory of the instance.

use crate::instance::Instance;
use crate::private_file::{self, OthersAccess};
use casemate_crypto::{Rng, SecretBytes};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Length of the secret in bytes.
const SECRET_LEN: usize = 32;
/// End of the file name.
const SUFFIX: &str = ".secret";

/// Reads the secret of an instance, or makes one and stores it.
pub fn load(instance: &Instance, rng: &mut dyn Rng) -> Result<SecretBytes, crate::Error> {
    let path = path_of(instance);
    let secret = read(&path).and_then(|known| known.map_or_else(|| create(&path, rng), Ok));
    secret.map_err(|error| crate::Error::new(path.display().to_string(), error))
}

/// Removes the secret: all IKE SAs have been closed.
pub fn remove(instance: &Instance) {
    // If that fails, the next run uses the secret again, which does no harm.
    let _ = fs::remove_file(path_of(instance));
}

/// Path of the file of an instance.
pub(crate) fn path_of(instance: &Instance) -> PathBuf {
    instance.file_in(&instance.lasting_directory(), SUFFIX)
}

/// The secret in a file. `None` if there is no file, or if it is not complete.
fn read(path: &Path) -> io::Result<Option<SecretBytes>> {
    let mut file = match private_file::open(path, File::options().read(true), OthersAccess::None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut secret = Zeroizing::new([0; SECRET_LEN]);
    match file.read_exact(&mut *secret) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(SecretBytes::new(&*secret))),
    }
}

fn create(path: &Path, rng: &mut dyn Rng) -> io::Result<SecretBytes> {
    let mut secret = Zeroizing::new([0; SECRET_LEN]);
    rng.secret(&mut *secret);
    let options = &mut File::options();
    let mut file =
        private_file::open(path, options.write(true).create(true).truncate(true), OthersAccess::None)?;
    file.write_all(&*secret)?;
    file.sync_all()?;
    Ok(SecretBytes::new(&*secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::{TempDir, TestRng};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_secret_is_made_once_and_read_again() {
        let dir = TempDir::new("secret").unwrap();
        let (one, other) = (Instance::at(dir.path(), "tun5"), Instance::at(dir.path(), "tun6"));
        let path = path_of(&one);
        let mut rng = TestRng::new(1);
        let first = load(&one, &mut rng).unwrap();
        assert!(first.expose().iter().any(|byte| *byte != 0));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(load(&one, &mut rng).unwrap() == first, "it survives a restart");
        assert!(load(&other, &mut rng).unwrap() != first, "another instance has another one");

        fs::write(&path, [1; SECRET_LEN - 1]).unwrap();
        let made = load(&one, &mut rng).unwrap();
        assert_eq!(made.expose().len(), SECRET_LEN, "an incomplete file is replaced");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = load(&one, &mut rng).unwrap_err().to_string();
        assert!(error.contains("0644") && error.contains("tun5"), "{error}");
        remove(&one);
        assert!(!path.exists());
    }
}
