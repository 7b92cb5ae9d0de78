//! Sealing with the master key: AES-256-GCM-SIV, a key of its own for each purpose, bound to the place it is kept in.
use std::{
    collections::HashMap,
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::{
    aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey},
    hkdf,
};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use db::Db;
use zeroize::Zeroizing;

use super::{HmacKey, Secret, same};
use crate::{entropy::Entropy, installation};

const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;
/// The first byte of everything sealed, so that another scheme can follow one day.
const SCHEME: u8 = 1;

/// The [fact](installation) that says which master key the database belongs to.
const PROOF: &str = "master_key_proof";

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("the master key must be 64 hexadecimal characters (32 bytes)")]
    Malformed,
    #[error(
        "the master key does not open this database: it was set up with another one. Give back the original \
         JANUA_MASTER_KEY or master.key file; without it what is sealed in the database cannot be read"
    )]
    Wrong,
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("this was not sealed here, or was changed since")]
    Unreadable,
    #[error(transparent)]
    Db(#[from] db::Error),
}

/// The one secret that all others at rest hang on.
pub struct MasterKey(Zeroizing<[u8; KEY_LEN]>);

impl MasterKey {
    pub fn parse(text: &Secret) -> Result<Self, VaultError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.expose().trim().as_bytes()).map_err(|_| VaultError::Malformed)?;
        let bytes: [u8; KEY_LEN] = bytes.try_into().map_err(|_| VaultError::Malformed)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// The key kept in a file that only its owner can read; made when there is none.
    pub fn from_file(path: &Path, entropy: &Entropy) -> Result<Self, VaultError> {
        let failed = |source| VaultError::File { path: path.display().to_string(), source };
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text.into()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let text = entropy.secret();
                // Written aside and linked into place whole: a crash leaves no half key, and the first of two wins.
                let aside = path.with_extension(HEXLOWER.encode(&entropy.bytes::<8>()));
                let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside).and_then(
                    |mut file| {
                        file.write_all(text.expose().as_bytes())?;
                        file.sync_all()?;
                        match fs::hard_link(&aside, path) {
                            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
                            _ => path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all()),
                        }
                    },
                );
                let removed = fs::remove_file(&aside);
                written.and(removed).map_err(failed)?;
                fs::read_to_string(path).map_err(failed).and_then(|text| Self::parse(&text.into()))
            }
            Err(e) => Err(failed(e)),
        }
    }

    fn derive(&self, purpose: &str) -> Zeroizing<[u8; KEY_LEN]> {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"janua");
        #[expect(clippy::expect_used, reason = "32 bytes is a length HKDF-SHA256 always gives")]
        salt.extract(&*self.0)
            .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut *key))
            .expect("HKDF gives 32 bytes");
        key
    }
}

/// The keys of one purpose.
struct Keys {
    seal: RandomizedNonceKey,
    mac: HmacKey,
}

/// Makes keyed digests of one purpose.
pub struct MacKey(Arc<Keys>);

impl MacKey {
    pub fn sign(&self, data: &[u8]) -> String {
        HEXLOWER.encode(&self.0.mac.sign(&[data]))
    }
}

/// Seals and opens what the server must be able to read back.
pub struct Vault {
    master: MasterKey,
    /// Those that were needed: deriving one takes longer than using it.
    keys: RwLock<HashMap<&'static str, Arc<Keys>>>,
}

impl Vault {
    pub fn new(master: MasterKey) -> Self {
        Self { master, keys: RwLock::default() }
    }

    /// Seals for one purpose and one place (`table:column:id`); it opens nowhere else.
    pub fn seal(&self, purpose: &'static str, place: &str, plain: &[u8]) -> Vec<u8> {
        let mut body = plain.to_vec();
        #[expect(clippy::expect_used, reason = "fails only past 64 GiB or without randomness")]
        let nonce =
            self.keys(purpose).seal.seal_in_place_append_tag(Aad::from(place), &mut body).expect("sealing works");
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + body.len());
        sealed.push(SCHEME);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut body);
        sealed
    }

    pub fn open(&self, purpose: &'static str, place: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let (head, body) = sealed.split_at_checked(1 + NONCE_LEN).ok_or(VaultError::Unreadable)?;
        let nonce = match head.split_first() {
            Some((&SCHEME, nonce)) => Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::Unreadable)?,
            _ => return Err(VaultError::Unreadable),
        };
        let mut body = Zeroizing::new(body.to_vec());
        let opened = self.keys(purpose).seal.open_in_place(nonce, Aad::from(place), &mut body);
        let length = opened.map_err(|_| VaultError::Unreadable)?.len();
        body.truncate(length);
        Ok(body)
    }

    /// A keyed digest for what must be recognised again but neither read nor made by others.
    pub fn mac(&self, purpose: &'static str, data: &[u8]) -> String {
        self.mac_key(purpose).sign(data)
    }

    /// The key of such digests, for whoever makes them and has no vault.
    pub fn mac_key(&self, purpose: &'static str) -> MacKey {
        MacKey(self.keys(purpose))
    }

    /// Whether the database belongs to some master key already.
    pub async fn is_claimed(db: &Db) -> Result<bool, VaultError> {
        Ok(installation::read(db, PROOF).await?.is_some())
    }

    /// Ties the database to this master key at first start, and refuses any other from then on.
    pub async fn claim(&self, db: &Db) -> Result<(), VaultError> {
        let proof = self.mac("master-key-proof", b"this database belongs to this key");
        db::transact!(db, async |tx| installation::write_once(tx, PROOF, &proof).await)?;
        let kept = installation::read(db, PROOF).await?.ok_or(db::Error::Missing)?;
        if same(kept.as_bytes(), proof.as_bytes()) { Ok(()) } else { Err(VaultError::Wrong) }
    }

    fn keys(&self, purpose: &'static str) -> Arc<Keys> {
        if let Some(known) = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(purpose) {
            return known.clone();
        }
        let key = self.master.derive(purpose);
        #[expect(clippy::expect_used, reason = "the key has the length the cipher asks for")]
        let seal = RandomizedNonceKey::new(&AES_256_GCM_SIV, &*key).expect("32 bytes are a key");
        let keys = Arc::new(Keys { seal, mac: HmacKey::new(&*key) });
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(purpose, keys.clone());
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault() -> Vault {
        Vault::new(MasterKey::parse(&"5a".repeat(32).into()).unwrap())
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_and_nowhere_else() {
        let sealed = vault().seal("keys", "key:private:1", b"inside");
        assert_eq!(&**vault().open("keys", "key:private:1", &sealed).unwrap(), b"inside");
        assert!(vault().open("keys", "key:private:2", &sealed).is_err(), "moved to another row");
        assert!(vault().open("mail", "key:private:1", &sealed).is_err(), "used for another purpose");
        for i in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[i] ^= 1;
            assert!(vault().open("keys", "key:private:1", &changed).is_err(), "byte {i} changed");
            assert!(vault().open("keys", "key:private:1", &sealed[..i]).is_err(), "cut at {i}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_come_back_and_any_others_are_refused(plain: Vec<u8>, junk: Vec<u8>) {
            let sealed = vault().seal("p", "here", &plain);
            assert_eq!(**vault().open("p", "here", &sealed).unwrap(), plain);
            assert!(vault().open("p", "here", &junk).is_err());
        }
    }

    #[test]
    fn the_key_file_is_made_once_and_only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let first = MasterKey::from_file(&path, &Entropy::system()).unwrap();
        let again = MasterKey::from_file(&path, &Entropy::system()).unwrap();
        assert_eq!(*first.0, *again.0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        fs::write(&path, "short").unwrap();
        assert!(
            matches!(MasterKey::from_file(&path, &Entropy::system()), Err(VaultError::Malformed)),
            "never replaced"
        );
    }
}
