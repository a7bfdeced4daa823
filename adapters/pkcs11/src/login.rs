//! The tokens of a module as its thread uses them: slots, sessions and the login.

use crate::{TokenError, TokenObject};
use casemate_crypto::SecretBytes;
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The tokens of one module.
pub(crate) struct Tokens {
    path: PathBuf,
    /// Why the thread must not load the module.
    entry: Result<(), String>,
    module: Option<Pkcs11>,
    /// Sessions by slot.
    sessions: BTreeMap<u64, TokenSession>,
    /// PINs that tokens have refused, with the serial numbers of the tokens.
    refused: Vec<(String, SecretBytes)>,
}

/// A session with a token. All sessions of a process with a token are logged in together.
struct TokenSession {
    session: Session,
    /// Serial number of the token.
    serial: String,
    /// The PIN that the token has accepted.
    pin: Option<SecretBytes>,
    is_logged_in: bool,
}

/// A session to work with, and the serial number of its token.
pub(crate) struct OpenSession<'t> {
    pub(crate) session: &'t Session,
    pub(crate) serial: &'t str,
}

impl Tokens {
    /// The module is loaded with the first operation, unless `entry` is an error.
    pub(crate) fn new(path: PathBuf, entry: Result<(), String>) -> Self {
        Self { path, entry, module: None, sessions: BTreeMap::new(), refused: Vec::new() }
    }

    fn module(&mut self) -> Result<&Pkcs11, TokenError> {
        self.entry.clone().map_err(TokenError::Module)?;
        let module = match self.module.take() {
            Some(module) => module,
            None => {
                let failed = |error: Error| TokenError::Module(error.to_string());
                let module = Pkcs11::new(&self.path).map_err(failed)?;
                match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
                    Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => module,
                    Err(error) => return Err(failed(error)),
                }
            }
        };
        Ok(self.module.insert(module))
    }

    /// The slot of an object: the given one, the only one with a token, or the only one whose token shows an
    /// object with this CKA_ID without a login.
    pub(crate) fn slot_of(&mut self, object: &TokenObject) -> Result<u64, TokenError> {
        let slots: Vec<u64> =
            self.module()?.get_slots_with_initialized_token()?.iter().map(Slot::id).collect();
        match (object.slot, slots.as_slice()) {
            (Some(slot), _) if slots.contains(&slot) => Ok(slot),
            (Some(slot), _) => Err(TokenError::NoToken(slot)),
            (None, []) => Err(TokenError::NoTokens),
            (None, [slot]) => Ok(*slot),
            (None, _) => {
                let mut showing = Vec::new();
                for slot in &slots {
                    let found =
                        self.open(*slot)?.session.find_objects(&[Attribute::Id(object.id.clone())])?;
                    showing.extend((!found.is_empty()).then_some(*slot));
                }
                match showing.as_slice() {
                    [slot] => Ok(*slot),
                    [] => Err(TokenError::WhichSlot(slots)),
                    _ => Err(TokenError::WhichSlot(showing)),
                }
            }
        }
    }

    /// A session with the token in a slot, without a login.
    pub(crate) fn open(&mut self, slot: u64) -> Result<OpenSession<'_>, TokenError> {
        if !self.sessions.contains_key(&slot) {
            let id = Slot::try_from(slot).map_err(|_| TokenError::NoToken(slot))?;
            let module = self.module()?;
            let serial = module.get_token_info(id)?.serial_number().trim().to_owned();
            let session = module.open_ro_session(id)?;
            self.sessions.insert(slot, TokenSession { session, serial, pin: None, is_logged_in: false });
        }
        let opened = self.sessions.get(&slot).ok_or(TokenError::NoToken(slot))?;
        Ok(OpenSession { session: &opened.session, serial: &opened.serial })
    }

    /// Ends the session with a token that was lost. The next operation opens another one.
    pub(crate) fn forget(&mut self, slot: u64) {
        self.sessions.remove(&slot);
    }

    /// Logs in to the token in a slot, unless that has happened. `serial` is the serial number of the token
    /// for which the PIN is; `None` if any token may get it.
    pub(crate) fn log_in(
        &mut self,
        slot: u64,
        pin: Option<&SecretBytes>,
        serial: Option<&str>,
    ) -> Result<(), TokenError> {
        let found = self.open(slot)?.serial.to_owned();
        if let Some(expected) = serial.filter(|expected| **expected != *found) {
            return Err(TokenError::OtherToken { expected: expected.into(), found });
        }
        let id = Slot::try_from(slot).map_err(|_| TokenError::NoToken(slot))?;
        let info = self.module()?.get_token_info(id)?;
        let Some(opened) = self.sessions.get_mut(&slot) else { return Err(TokenError::NoToken(slot)) };
        if opened.is_logged_in {
            // SecretBytes compares in constant time.
            let differs = pin.is_some() && opened.pin.as_ref() != pin;
            return if differs { Err(TokenError::PinDiffers) } else { Ok(()) };
        }
        if !info.login_required() {
            return Ok(());
        }
        if info.user_pin_locked() {
            return Err(TokenError::PinLocked);
        }
        if pin.is_none() && !info.protected_authentication_path() {
            return Err(TokenError::PinMissing);
        }
        if let Some(pin) = pin {
            if self.refused.iter().any(|(token, refused)| *token == found && refused == pin) {
                return Err(TokenError::PinWrongBefore);
            }
            if info.user_pin_final_try() {
                return Err(TokenError::PinFinalTry);
            }
        }
        match opened.session.login(UserType::User, pin.map(auth_pin).transpose()?.as_ref()) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {
                (opened.is_logged_in, opened.pin) = (true, pin.cloned());
                Ok(())
            }
            Err(error) if is_absent(&error) => Err(error.into()),
            Err(error) => {
                // The token may have counted the PIN as wrong, whatever it says.
                self.refused.extend(pin.map(|pin| (found, pin.clone())));
                Err(match TokenError::from(error) {
                    TokenError::Lost(why) => TokenError::Other(why),
                    error => error,
                })
            }
        }
    }
}

/// Whether a login has not reached the token.
const fn is_absent(error: &Error) -> bool {
    use RvError::{DeviceRemoved, SessionClosed, SessionHandleInvalid, TokenNotPresent};
    matches!(error, Error::Pkcs11(DeviceRemoved | SessionClosed | SessionHandleInvalid | TokenNotPresent, _))
}

fn auth_pin(pin: &SecretBytes) -> Result<AuthPin, TokenError> {
    let text = str::from_utf8(pin.expose()).map_err(|_| TokenError::PinText)?;
    Ok(AuthPin::from(text.to_owned()))
}

/// The only object of a class with this CKA_ID. Of several, the first.
pub(crate) fn find(
    session: &Session,
    class: ObjectClass,
    id: &[u8],
) -> Result<Option<ObjectHandle>, TokenError> {
    let found = session.find_objects(&[Attribute::Class(class), Attribute::Id(id.to_vec())])?;
    Ok(found.first().copied())
}
