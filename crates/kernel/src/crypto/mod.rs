//! Secrets: how they are stored and compared.
//!
//! Tokens are stored as their SHA-256 ([`hash`]); secrets that must be read again are encrypted with the master key
//! ([`Vault`]).
mod fingerprint;
mod vault;

use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use data_encoding::HEXLOWER;
use zeroize::Zeroizing;

pub use fingerprint::Fingerprint;
pub use vault::{MacKey, MasterKey, Vault, VaultError};

/// Text that must not be seen: it prints as `[secret]` and is wiped when dropped. It cannot be compared with `==`,
/// which would tell by its time where the first difference is; [`same`] can.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself. Each use is a place to look at when secrets leak.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// SHA-256 in hexadecimal: how a token with enough entropy of its own is stored.
pub fn hash(token: &[u8]) -> String {
    HEXLOWER.encode(&digest(token))
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> [u8; digest::SHA256_OUTPUT_LEN] {
    let mut out = [0; digest::SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

/// A key of HMAC-SHA256 that is made ready once for many messages.
pub struct HmacKey(hmac::Key);

impl HmacKey {
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Signs the parts of a message as if they were one.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; digest::SHA256_OUTPUT_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        out.copy_from_slice(context.sign().as_ref());
        out
    }
}

/// Compares in a time that does not tell where the first difference is.
pub fn same(left: &[u8], right: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(left, right).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_secret() {
        let secret = Secret::from("hunter2".to_owned());
        assert_eq!(format!("{secret} {secret:?}"), "[secret] [secret]");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn comparison_sees_every_difference() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }
}
