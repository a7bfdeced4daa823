//! The random ECP groups P-256, P-384 and P-521 (RFC 5903).

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Rng, SecretBytes};
use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use p256::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize, PublicKey, SecretKey};

/// Leads an uncompressed point in SEC 1 section 2.3.3; IKE sends the coordinates without it.
const UNCOMPRESSED: u8 = 4;

struct Ecp<C: CurveArithmetic> {
    method: KexMethod,
    private: SecretKey<C>,
    public: Vec<u8>,
}

/// Our side of an exchange on the curve `C`, which is that of `method`.
pub(crate) fn secret<C>(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError>
where
    C: CurveArithmetic + 'static,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    SecretKey<C>: Send,
{
    let private = method.draw_private(rng, |bytes| SecretKey::<C>::from_slice(bytes).ok())?;
    let point = private.public_key().to_sec1_point(false);
    let public = point.as_bytes().get(1..).unwrap_or_default().to_vec();
    Ok(Box::new(Ecp { method, private, public }))
}

impl<C> KexSecret for Ecp<C>
where
    C: CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    SecretKey<C>: Send,
{
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_public(peer)?;
        let encoded = [&[UNCOMPRESSED], peer].concat();
        // RFC 6989 section 2.3: coordinates below the field's prime, on the curve. The point at infinity has no such form.
        let peer = PublicKey::<C>::from_sec1_bytes(&encoded).map_err(|_| KexError::NotOnCurve)?;
        Ok(SecretBytes::new(self.private.diffie_hellman(&peer).raw_secret_bytes()))
    }
}
