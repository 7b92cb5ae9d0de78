//! The RSA keys that sign access tokens: made at first start, sealed, published before they sign, rotated on time.
//!
//! At any moment one key signs, the next one is published already, and the previous ones stay published until the
//! last token they signed has expired. All nodes read the same table and agree by the clock alone.
#[cfg(feature = "testing")]
use std::sync::atomic::Ordering::SeqCst;
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    rand::SystemRandom,
    rsa::{KeyPair as RsaPair, KeySize, PublicKeyComponents},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair},
};
use data_encoding::BASE64URL_NOPAD;
use db::{Reach, Tx, params, row};
use kernel::{Janua, clock::Timestamp, crypto, http::Document, installation};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// The [fact](installation) that there are signing keys. A rotation locks it.
const CREATED: &str = "signing_keys";

/// How long tokens of frameworks and MCP servers live.
pub const MACHINE_TOKEN_LIFE: Duration = Duration::from_hours(1);

/// The longest life of any kind of token: a signing key stays published for at least as long after its last signature.
/// A kind that lives longer is added here.
pub fn longest_life(config: &kernel::config::Config) -> Duration {
    config.of::<crate::Settings>().access_token_life.max(MACHINE_TOKEN_LIFE)
}

/// Verifiers may keep our keys for this long, so a key signs only after it was published at least as long.
pub const VERIFIERS_CACHE: Duration = Duration::from_mins(5);
/// A node that missed the news reads the keys again within a minute and may publish the old set until then, so that
/// every verifier has seen a key this long after it was stored.
const SEEN_BY_ALL: Duration = VERIFIERS_CACHE.saturating_add(Duration::from_mins(1));
/// How long a key signs.
const TURN: Duration = Duration::from_hours(90 * 24);
const PURPOSE: &str = "signing-key";
pub(crate) const TOPIC: &str = "signing-keys";

struct Stored {
    id: String,
    sealed: Vec<u8>,
    modulus: String,
    exponent: String,
    signs_from: Timestamp,
    signs_until: Option<Timestamp>,
}
row!(Stored { id, sealed, modulus, exponent, signs_from, signs_until });

/// One key, ready to use.
pub struct Key {
    pub id: String,
    pair: RsaKeyPair,
    modulus: String,
    exponent: String,
    signs_from: Timestamp,
    /// The last moment it signs; open while no successor is set.
    signs_until: Option<Timestamp>,
}

impl Key {
    /// A key of a stranger.
    #[cfg(feature = "testing")]
    #[expect(clippy::expect_used, reason = "a test without a key fails")]
    pub fn for_tests(id: &str) -> Self {
        let der = crate::testing::ready_key(2).expect("a key");
        let pair = RsaKeyPair::from_pkcs8(&der).expect("a key");
        let (modulus, exponent) = (String::new(), String::new());
        Self { id: id.into(), pair, modulus, exponent, signs_from: Timestamp(0), signs_until: None }
    }

    /// RS256 over the text.
    pub fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature).ok()?;
        Some(signature)
    }

    pub fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let (Ok(n), Ok(e)) =
            (BASE64URL_NOPAD.decode(self.modulus.as_bytes()), BASE64URL_NOPAD.decode(self.exponent.as_bytes()))
        else {
            return false;
        };
        PublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, text, signature).is_ok()
    }

    /// The last moment at which a token it signed may be alive.
    fn published_until(&self, token_life: Duration) -> Option<Timestamp> {
        self.signs_until.map(|until| until.plus(token_life).plus(VERIFIERS_CACHE))
    }

    fn is_published(&self, now: Timestamp, token_life: Duration) -> bool {
        self.published_until(token_life).is_none_or(|until| now <= until)
    }

    fn jwk(&self) -> Value {
        json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id, "n": self.modulus, "e": self.exponent })
    }
}

/// A signing key, without its private part.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningKey {
    id: String,
    state: KeyState,
    signs_from: Timestamp,
    signs_until: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum KeyState {
    Next,
    Current,
    /// No longer signs; its tokens are still valid.
    Previous,
}

/// The keys of this node, as last read.
#[derive(Default)]
pub struct Ring {
    keys: RwLock<Arc<Vec<Key>>>,
    key_set: RwLock<Option<KeySet>>,
    /// How many keys this node has made.
    #[cfg(feature = "testing")]
    made: std::sync::atomic::AtomicUsize,
}

impl Ring {
    fn all(&self) -> Arc<Vec<Key>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs with the key that signs now.
    pub fn signing<T>(&self, now: Timestamp, work: impl FnOnce(&Key) -> T) -> Option<T> {
        let keys = self.all();
        let signs = |key: &&Key| key.signs_from <= now && key.signs_until.is_none_or(|until| now < until);
        // With a clock that was put back to before the first one, that one has to do.
        let first = || keys.first().filter(|key| now < key.signs_from);
        keys.iter().rev().find(signs).or_else(first).map(work)
    }

    /// Runs with the published key of this id.
    pub fn published<T>(&self, janua: &Janua, id: &str, work: impl FnOnce(&Key) -> T) -> Option<T> {
        let (keys, now, life) = (self.all(), janua.clock.now(), longest_life(&janua.config));
        keys.iter().find(|key| key.id == id && key.is_published(now, life)).map(work)
    }

    /// For people to look at, the newest first.
    pub fn list(&self, now: Timestamp) -> Vec<SigningKey> {
        let state = |key: &Key| match (key.signs_from <= now, key.signs_until.is_none_or(|until| now < until)) {
            (false, _) => KeyState::Next,
            (true, true) => KeyState::Current,
            (true, false) => KeyState::Previous,
        };
        let view = |key: &Key| SigningKey {
            id: key.id.clone(),
            state: state(key),
            signs_from: key.signs_from,
            signs_until: key.signs_until,
        };
        self.all().iter().rev().map(view).collect()
    }

    /// The public parts, for verifiers: put together when they change, and served as they are until then.
    pub fn key_set(&self, janua: &Janua) -> Document {
        let now = janua.clock.now();
        let kept = self.key_set.read().unwrap_or_else(PoisonError::into_inner).clone();
        let keys = self.all();
        match kept.filter(|kept| Arc::ptr_eq(&kept.keys, &keys) && kept.since <= now && kept.is_good_at(now)) {
            Some(kept) => kept.document,
            None => {
                let made = KeySet::of(keys, now, longest_life(&janua.config));
                *self.key_set.write().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
                made.document
            }
        }
    }
}

/// The published keys as a document, and for how long it is true.
#[derive(Clone)]
struct KeySet {
    keys: Arc<Vec<Key>>,
    since: Timestamp,
    /// The last moment at which all of them are published.
    until: Option<Timestamp>,
    document: Document,
}

impl KeySet {
    fn of(keys: Arc<Vec<Key>>, now: Timestamp, token_life: Duration) -> Self {
        let published = || keys.iter().filter(|key| key.is_published(now, token_life));
        let set = json!({ "keys": published().map(Key::jwk).collect::<Vec<_>>() });
        let until = published().filter_map(|key| key.published_until(token_life)).min();
        let document = Document::new("application/json", set.to_string().into_bytes());
        Self { since: now, until, document, keys }
    }

    fn is_good_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

/// Reads the keys, and makes the first one when there are none at all.
pub async fn start(janua: &Janua) -> Result<(), String> {
    let failed = |error: db::Error| format!("cannot read the signing keys: {error}");
    load(janua).await?;
    if janua.own::<Ring>().all().is_empty() {
        let now = janua.clock.now();
        // One is enough to open the door; the next one is published by the first `TurnKeys`, seconds later.
        let first = make(janua).await?;
        db::transact!(janua.db, async |tx| {
            // Of two nodes that start at once one makes the keys.
            if installation::write_once(tx, CREATED, "made").await? {
                insert(tx, janua, &first, now, now, None).await?;
            }
            Ok(())
        })
        .map_err(failed)?;
        load(janua).await?;
    }
    if janua.own::<Ring>().signing(janua.clock.now(), |_| ()).is_none() {
        return Err(
            "the signing keys are gone from the database: restore a backup. New ones are never made over old \
                    data, because that would end every session and hide the loss"
                .into(),
        );
    }
    Ok(())
}

/// Reads all keys again; one that cannot be opened is an error and never replaced.
pub async fn load(janua: &Janua) -> Result<(), String> {
    let sql =
        "SELECT id, sealed, modulus, exponent, signs_from, signs_until FROM signing_key ORDER BY signs_from, id";
    let stored: Vec<Stored> =
        janua.db.all(sql, params![]).await.map_err(|error| format!("cannot read the signing keys: {error}"))?;
    let keys: Result<Vec<_>, String> = stored.into_iter().map(|stored| open(janua, stored)).collect();
    *janua.own::<Ring>().keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys?);
    Ok(())
}

fn open(janua: &Janua, stored: Stored) -> Result<Key, String> {
    let damaged = |why: String| format!("signing key {} is damaged ({why}): restore it from a backup", stored.id);
    let der = janua.vault.open(PURPOSE, &place(&stored.id), &stored.sealed).map_err(|e| damaged(e.to_string()))?;
    let pair = RsaKeyPair::from_pkcs8(&der).map_err(|e| damaged(e.to_string()))?;
    let Stored { id, modulus, exponent, signs_from, signs_until, .. } = stored;
    Ok(Key { id, pair, modulus, exponent, signs_from, signs_until })
}

fn place(id: &str) -> String {
    format!("signing_key:sealed:{id}")
}

/// A new key pair as PKCS#8. Takes a tenth of a second, so not on a thread that serves.
async fn make(janua: &Janua) -> Result<Vec<u8>, String> {
    let size = match janua.config.of::<crate::Settings>().signing_key_bits {
        4096 => KeySize::Rsa4096,
        3072 => KeySize::Rsa3072,
        _ => KeySize::Rsa2048,
    };
    #[cfg(feature = "testing")]
    if let Some(ready) = crate::testing::ready_key(janua.own::<Ring>().made.fetch_add(1, SeqCst)) {
        return Ok(ready);
    }
    let made = tokio::task::spawn_blocking(move || generate(size)).await.map_err(|e| e.to_string())?;
    made.ok_or_else(|| "cannot make an RSA key".to_owned())
}

pub(crate) fn generate(size: KeySize) -> Option<Vec<u8>> {
    let pair = RsaPair::generate(size).ok()?;
    let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
    Some(der.as_ref().to_vec())
}

async fn insert(
    tx: &mut Tx,
    janua: &Janua,
    der: &[u8],
    now: Timestamp,
    from: Timestamp,
    until: Option<Timestamp>,
) -> db::Result<()> {
    let wrong = |error| db::Error::Driver(format!("a new RSA key cannot be read: {error}"));
    let pair = RsaKeyPair::from_pkcs8(der).map_err(wrong)?;
    let public = PublicKeyComponents::<Vec<u8>>::from(pair.public_key());
    let (modulus, exponent) = (BASE64URL_NOPAD.encode(&public.n), BASE64URL_NOPAD.encode(&public.e));
    // A name that follows from the key: two keys never share one.
    let id = crypto::hash(modulus.as_bytes())[..16].to_owned();
    let sealed = janua.vault.seal(PURPOSE, &place(&id), der);
    tx.exec(
        "INSERT INTO signing_key (id, sealed, modulus, exponent, created_at, signs_from, signs_until)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        params![&id, sealed, modulus, exponent, now, from, until],
    )
    .await?;
    tx.notify(Reach::EveryNode, TOPIC, "").await
}

struct Waiting {
    id: String,
    created_at: Timestamp,
    signs_from: Timestamp,
    signs_until: Option<Timestamp>,
}
row!(Waiting { id, created_at, signs_from, signs_until });

/// The next key takes over as soon as every verifier can have seen it, and another one is published behind it. Answers
/// when it takes over: now, if it was published long enough ago.
pub async fn rotate(janua: &Janua) -> Result<Timestamp, String> {
    let fresh = make(janua).await?;
    let now = janua.clock.now();
    let rotated = db::transact!(janua.db, async |tx| {
        // Two rotations at once are one after the other.
        installation::lock(tx, CREATED).await?;
        let waiting: Option<Waiting> = tx
            .opt(
                "SELECT id, created_at, signs_from, signs_until FROM signing_key WHERE signs_from > $1
                 ORDER BY signs_from LIMIT 1",
                params![now],
            )
            .await?;
        // One that has a successor already waits for verifiers, not for its turn.
        if let Some(under_way) = waiting.as_ref().filter(|key| key.signs_until.is_some()) {
            return Ok(Err(under_way.signs_from));
        }
        let takes_over = match &waiting {
            Some(next) => now.max(next.created_at.plus(SEEN_BY_ALL)),
            None => now.plus(SEEN_BY_ALL),
        };
        let sql = "UPDATE signing_key SET signs_until = $1 WHERE signs_until IS NULL OR signs_until > $1";
        tx.exec(sql, params![takes_over]).await?;
        // Where no key was waiting the new one is the next.
        let fresh_from = match &waiting {
            Some(next) => {
                let turns = takes_over.plus(TURN);
                let sql = "UPDATE signing_key SET signs_from = $2, signs_until = $3 WHERE id = $1";
                tx.exec(sql, params![&next.id, takes_over, turns]).await?;
                turns
            }
            None => takes_over,
        };
        insert(tx, janua, &fresh, now, fresh_from, None).await?;
        let life = longest_life(&janua.config);
        let long_gone = now.minus(life).minus(VERIFIERS_CACHE).minus(Duration::from_hours(1));
        tx.exec("DELETE FROM signing_key WHERE signs_until < $1", params![long_gone]).await?;
        Ok(Ok(takes_over))
    })
    .map_err(|error| format!("cannot rotate the signing keys: {error}"))?;
    load(janua).await?;
    rotated.map_err(|from: Timestamp| {
        format!("a rotation is under way: the next key signs from {from}. Try again after that")
    })
}

/// Replaces all keys by a new one: tokens signed with them are invalid at once.
pub async fn replace(janua: &Janua) -> Result<(), String> {
    let fresh = make(janua).await?;
    let now = janua.clock.now();
    db::transact!(janua.db, async |tx| {
        tx.exec("DELETE FROM signing_key", params![]).await?;
        insert(tx, janua, &fresh, now, now, None).await
    })
    .map_err(|error: db::Error| format!("cannot replace the signing keys: {error}"))?;
    load(janua).await
}

/// Whether the last published key has begun to sign, so that another must be published behind it.
pub async fn turn_if_due(janua: &Janua) -> Result<(), String> {
    let now = janua.clock.now();
    let waiting = janua.own::<Ring>().all().iter().any(|key| key.signs_from > now);
    if waiting { Ok(()) } else { publish_next(janua).await }
}

async fn publish_next(janua: &Janua) -> Result<(), String> {
    let fresh = make(janua).await?;
    let now = janua.clock.now();
    db::transact!(janua.db, async |tx| {
        let waiting: Option<(String,)> =
            tx.opt("SELECT id FROM signing_key WHERE signs_from > $1 LIMIT 1", params![now]).await?;
        if waiting.is_none() {
            let until = now.plus(TURN);
            tx.exec("UPDATE signing_key SET signs_until = $1 WHERE signs_until IS NULL", params![until]).await?;
            insert(tx, janua, &fresh, now, until, None).await?;
        }
        Ok(())
    })
    .map_err(|error: db::Error| format!("cannot publish the next signing key: {error}"))?;
    load(janua).await
}
