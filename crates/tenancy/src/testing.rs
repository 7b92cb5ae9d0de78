//! RSA keys made once for a whole test program: making one takes a tenth of a second.
use std::sync::OnceLock;

use aws_lc_rs::rsa::KeySize;

/// The first few keys a node makes are the same for every test; further ones are made for real.
pub fn ready_key(place: usize) -> Option<Vec<u8>> {
    static KEYS: [OnceLock<Option<Vec<u8>>>; 3] = [const { OnceLock::new() }; 3];
    KEYS.get(place)?.get_or_init(|| crate::sessions::keys::generate(KeySize::Rsa2048)).clone()
}
