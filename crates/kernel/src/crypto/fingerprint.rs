//! How a cache knows a secret again without keeping it: a keyed hash under a key of this process.
//!
//! SHA-256 would do as well, and is several times slower on processors that have no instructions for it: for a signed token
//! it took a tenth of the time of the whole request. A fingerprint leaves the process neither in answers nor in the
//! database, and without the key nobody can look for two secrets that share one.
use std::{hash::Hasher as _, sync::LazyLock};

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::entropy::Entropy;

/// The fingerprint of a secret, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

static KEYED: LazyLock<SipHasher24> = LazyLock::new(|| SipHasher24::new_with_key(&Entropy::system().bytes()));

impl Fingerprint {
    pub fn of(secret: &str) -> Self {
        let mut hasher = *KEYED;
        hasher.write(secret.as_bytes());
        Self(hasher.finish128().as_u128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_again_and_no_other_one() {
        let token = "a.token.with-a-signature";
        assert_eq!(Fingerprint::of(token), Fingerprint::of(token));
        for other in ["", "a.token.with-a-signaturf", "a.token.with-a-signature\0", "A.token.with-a-signature"] {
            assert_ne!(Fingerprint::of(token), Fingerprint::of(other), "{other:?}");
        }
    }
}
