//! The wrapping keys of a store: files, or credentials of the service, which a token may have to decrypt.
//! There is a second one only while the wrapping key is changed (docs/manual/store.md).

use crate::tokens::TokenKeys;
use casemate_cell::{SealError, WRAPPING_KEY_LEN, WrappingKey, WrappingKeys};
use casemate_crypto::{Provider, Providers, Rng, SecretBytes};
use casemate_linux::private_file::{self, OthersAccess};
use casemate_linux::process::SystemRng;
use std::env;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Variable with the directory of the credentials of a service (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Name of the credential with the wrapping key.
pub(super) const CREDENTIAL: &str = "casemate-store-key";
/// Name of the credential with the second wrapping key.
const SECOND_CREDENTIAL: &str = "casemate-second-store-key";

/// Longest encrypted key in bytes: with RSA of 8192 bits.
const MAX_ENCRYPTED: usize = 1_024;

/// What is in the file of a wrapping key.
#[derive(Clone, Copy)]
pub(super) enum KeyForm<'a> {
    /// The key.
    Plain,
    /// The key, encrypted for the private key of this section.
    Encrypted(&'a TokenKeys, &'a str),
}

impl<'a> KeyForm<'a> {
    /// `section` has the private key, if the wrapping key is encrypted.
    pub(super) fn new(tokens: &'a TokenKeys, section: Option<&'a String>) -> Self {
        section.map_or(Self::Plain, |section| Self::Encrypted(tokens, section))
    }

    const fn max_len(self) -> usize {
        match self {
            Self::Plain => WRAPPING_KEY_LEN,
            Self::Encrypted(..) => MAX_ENCRYPTED,
        }
    }

    /// The key in the contents of a file.
    fn key(self, contents: &[u8]) -> Result<SecretBytes, String> {
        match self {
            Self::Plain if contents.len() == WRAPPING_KEY_LEN => Ok(SecretBytes::new(contents)),
            Self::Plain => Err(format!(
                "a key of exactly {WRAPPING_KEY_LEN} bytes was expected, for example from \
                 `head -c {WRAPPING_KEY_LEN} /dev/urandom`"
            )),
            Self::Encrypted(tokens, section) => {
                let key = tokens.decrypt(section, contents.to_vec())?;
                let len = key.expose().len();
                if len == WRAPPING_KEY_LEN {
                    return Ok(key);
                }
                Err(format!(
                    "it decrypts to {len} bytes: a key of exactly {WRAPPING_KEY_LEN} bytes was expected"
                ))
            }
        }
    }

    /// What a missing file should have been.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Plain => format!("a file with {WRAPPING_KEY_LEN} random bytes was expected"),
            Self::Encrypted(_, section) => {
                format!("a file with the wrapping key, encrypted for the key of `{section}`, was expected")
            }
        }
    }
}

/// The bytes of the wrapping keys.
pub struct KeyBytes {
    pub(super) first: SecretBytes,
    pub(super) second: Option<SecretBytes>,
}

impl KeyBytes {
    /// An error if the second key is the first one.
    pub(super) fn new(first: SecretBytes, second: Option<SecretBytes>) -> Result<Self, String> {
        // SecretBytes compares in constant time.
        if second.as_ref() == Some(&first) {
            return Err("both wrapping keys are the same: another one was expected".into());
        }
        Ok(Self { first, second })
    }

    pub(super) fn wrapping_keys(
        &self,
        providers: &[&'static dyn Provider],
    ) -> Result<WrappingKeys, SealError> {
        let key = |bytes| WrappingKey::new(bytes, &Providers(providers));
        let second = self.second.as_ref().map(key).transpose()?;
        Ok(WrappingKeys::new(key(&self.first)?, second))
    }
}

/// The key in a credential of the service; `None` without such a credential.
pub(super) fn credential_key(name: &str, form: KeyForm<'_>) -> Result<Option<SecretBytes>, String> {
    let path = env::var_os(CREDENTIALS).map(|directory| Path::new(&directory).join(name));
    path.as_deref().map(|path| read_key(path, form)).transpose().map(Option::flatten)
}

/// The key in a file that must exist.
pub(super) fn existing_key(path: &Path, form: KeyForm<'_>) -> Result<SecretBytes, String> {
    read_key(path, form)?.ok_or_else(|| format!("{}: no such file: {}", path.display(), form.expected()))
}

/// The second key: in this file, which must exist, or else in the credential of the service, if there is one.
pub(super) fn second_key(file: Option<&Path>, form: KeyForm<'_>) -> Result<Option<SecretBytes>, String> {
    let found = match file {
        Some(path) => existing_key(path, form).map(Some),
        None => credential_key(SECOND_CREDENTIAL, form),
    }?;
    match (&found, form) {
        (None, KeyForm::Encrypted(..)) => {
            Err(format!("there is no file and no credential {SECOND_CREDENTIAL}: {}", form.expected()))
        }
        _ => Ok(found),
    }
}

/// The key in a file, which no other user may read; `None` if there is no file.
pub(super) fn read_key(path: &Path, form: KeyForm<'_>) -> Result<Option<SecretBytes>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = match private_file::open(path, File::options().read(true), OthersAccess::None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let most = form.max_len().saturating_add(1);
    let mut contents = Zeroizing::new(Vec::with_capacity(most));
    file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut contents).map_err(failed)?;
    form.key(&contents).map(Some).map_err(|why| format!("{}: {why}", path.display()))
}

/// Makes a file with a new key.
pub(super) fn create_key(path: &Path, rng: &mut SystemRng) -> io::Result<SecretBytes> {
    let mut key = Zeroizing::new([0; WRAPPING_KEY_LEN]);
    rng.secret(&mut *key);
    let mut file =
        private_file::open(path, File::options().write(true).create_new(true), OthersAccess::None)?;
    file.write_all(&*key)?;
    file.sync_all()?;
    Ok(SecretBytes::new(&*key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_must_have_its_length() {
        let scratch = TempDir::new("wrapping-keys").unwrap();
        let path = scratch.file("key");
        assert_eq!(read_key(&path, KeyForm::Plain), Ok(None));
        let made = create_key(&path, &mut SystemRng::new().unwrap()).unwrap();
        assert_eq!(read_key(&path, KeyForm::Plain), Ok(Some(made)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for len in [0, WRAPPING_KEY_LEN - 1, WRAPPING_KEY_LEN + 1, 4_096] {
            fs::write(&path, vec![7; len]).unwrap();
            assert!(
                read_key(&path, KeyForm::Plain).unwrap_err().contains("exactly 32 bytes was expected"),
                "{len}"
            );
        }
        fs::write(&path, [7; WRAPPING_KEY_LEN]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_key(&path, KeyForm::Plain).unwrap_err().contains("0600 was expected"));
    }

    #[test]
    fn the_second_key_is_another_one() {
        let key = |byte| SecretBytes::new(&[byte; WRAPPING_KEY_LEN]);
        assert!(KeyBytes::new(key(1), None).is_ok() && KeyBytes::new(key(1), Some(key(2))).is_ok());
        let why = KeyBytes::new(key(1), Some(key(1))).err().unwrap();
        assert!(why.contains("another one was expected"), "{why}");
    }
}
