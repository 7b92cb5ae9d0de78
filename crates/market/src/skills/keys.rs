//! The Ed25519 keys that sign versions. A signature has no end, so a key stays published after its turn; a new one signs
//! every 90 days.
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::{extract::State, http::HeaderMap, response::Response};
use data_encoding::BASE64URL_NOPAD;
use db::{Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{INTERNAL, Result},
    http::{Document, Routes},
    installation,
    jobs::{Job, Later},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const CREATED: &str = "skill_keys";
const PURPOSE: &str = "skill-key";
/// How long a key signs.
const TURN: Duration = Duration::from_hours(90 * 24);
/// A key is published for so long before it signs.
const AHEAD: Duration = Duration::from_hours(1);
pub const EVERY: Duration = Duration::from_hours(6);

pub fn routes() -> Routes {
    Routes::new("skills")
        .get("/.well-known/skills-pubkey", skills_pubkey, "the keys that sign versions of skills")
        .answers::<SkillKeys>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
}

/// As in a JSON Web Key Set (RFC 8037).
#[derive(Serialize, JsonSchema)]
struct SkillKeys {
    keys: Vec<SkillKey>,
}

#[derive(Serialize, JsonSchema)]
struct SkillKey {
    kty: &'static str,
    crv: &'static str,
    alg: &'static str,
    #[serde(rename = "use")]
    for_use: &'static str,
    kid: String,
    /// The public key, in base64url.
    x: String,
}

struct Stored {
    id: String,
    sealed: Vec<u8>,
    public_key: String,
    signs_from: Timestamp,
}
row!(Stored { id, sealed, public_key, signs_from });

const ALL: &str = "SELECT id, sealed, public_key, signs_from FROM skill_key ORDER BY signs_from DESC, id DESC";

async fn skills_pubkey(State(janua): State<Janua>, headers: HeaderMap) -> Result<Response> {
    let stored: Vec<Stored> = janua.db.all(ALL, params![]).await?;
    let view = |key: Stored| SkillKey {
        kty: "OKP",
        crv: "Ed25519",
        alg: "EdDSA",
        for_use: "sig",
        kid: key.id,
        x: key.public_key,
    };
    let keys = SkillKeys { keys: stored.into_iter().map(view).collect() };
    let bytes = serde_json::to_vec(&keys).map_err(|error| INTERNAL.caused_by(error))?;
    Ok(Document::new("application/json", bytes).answer(&headers))
}

/// A signature, and the key that made it.
#[derive(Debug)]
pub struct Signed {
    pub key_id: String,
    /// In base64url.
    pub signature: String,
}

/// Signs a text with the key whose turn it is.
pub async fn sign(tx: &mut Tx, janua: &Janua, text: &str) -> Result<Signed> {
    let stored: Vec<Stored> = tx.all(ALL, params![]).await?;
    let now = janua.clock.now();
    // With a clock that was put back, the first one has to do.
    let key = stored.iter().find(|key| key.signs_from <= now).or(stored.last()).ok_or(INTERNAL)?;
    let seed = janua.vault.open(PURPOSE, &place(&key.id), &key.sealed).map_err(|error| INTERNAL.caused_by(error))?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|error| INTERNAL.caused_by(error))?;
    let signature = BASE64URL_NOPAD.encode(pair.sign(text.as_bytes()).as_ref());
    Ok(Signed { key_id: key.id.clone(), signature })
}

fn place(id: &str) -> String {
    format!("skill_key:sealed:{id}")
}

async fn create(tx: &mut Tx, janua: &Janua, signs_from: Timestamp) -> db::Result<()> {
    let seed = janua.entropy.bytes::<32>();
    let wrong = |error| db::Error::Driver(format!("a new Ed25519 key cannot be read: {error}"));
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(wrong)?;
    let public = pair.public_key().as_ref();
    let id = crypto::hash(public)[..16].to_owned();
    let sql = "INSERT INTO skill_key (id, sealed, public_key, created_at, signs_from) VALUES ($1, $2, $3, $4, $5)";
    let sealed = janua.vault.seal(PURPOSE, &place(&id), &seed);
    tx.exec(sql, params![&id, sealed, BASE64URL_NOPAD.encode(public), janua.clock.now(), signs_from]).await.map(drop)
}

/// Creates the first key.
pub async fn start(janua: &Janua) -> Result<(), String> {
    db::transact!(janua.db, async |tx| {
        if installation::write_once(tx, CREATED, "made").await? {
            create(tx, janua, janua.clock.now()).await?;
        }
        Ok(())
    })
    .map_err(|error: db::Error| format!("cannot create the key that signs skills: {error}"))
}

/// Publishes the next key when the turn of the last one ends.
#[derive(Default, Serialize, Deserialize)]
pub struct TurnSkillKeys {}

impl Job for TurnSkillKeys {
    const KIND: &'static str = "turn_skill_keys";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let now = janua.clock.now();
        db::transact!(janua.db, async |tx| {
            installation::lock(tx, CREATED).await?;
            let newest: Option<(Timestamp,)> =
                tx.opt("SELECT signs_from FROM skill_key ORDER BY signs_from DESC LIMIT 1", params![]).await?;
            if newest.is_none_or(|(from,)| now.since(from) >= TURN) {
                create(tx, &janua, now.plus(AHEAD)).await?;
            }
            Ok(())
        })
        .map_err(|error: db::Error| Later::retry(error))
    }
}

/// The canonical form of JSON (RFC 8785), for texts, whole numbers, lists and records.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
            let field = |name: &&String| format!("{}:{}", json!(name), canonical(&fields[name.as_str()]));
            format!("{{{}}}", names.iter().map(field).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_has_one_order() {
        let value = json!({ "b": [1, { "z": null, "a": true }], "a": "\u{20ac}\u{1}\n\"\\/" });
        assert_eq!(canonical(&value), "{\"a\":\"\u{20ac}\\u0001\\n\\\"\\\\/\",\"b\":[1,{\"a\":true,\"z\":null}]}");
    }
}
