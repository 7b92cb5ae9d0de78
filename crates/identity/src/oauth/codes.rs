//! Authorization codes: what is kept of them, and every statement on it.
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use db::{Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret, same},
};
use tenancy::{
    apps::scopes::Scopes,
    sessions::{SessionId, audience::Audience},
};

use super::request::Request;

const LIFE: Duration = Duration::from_mins(1);

pub struct Code {
    /// The session in which the person let the client in.
    pub session_id: SessionId,
    pub redirect_uri: String,
    /// Empty for a client that went without PKCE.
    challenge: String,
    pub scopes: Scopes,
    pub resource: Option<Audience>,
    pub nonce: Option<String>,
    expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
    /// The session it gave.
    pub gave: Option<SessionId>,
}
row!(Code { session_id, redirect_uri, challenge, scopes, resource, nonce, expires_at, used_at, gave });

/// A code for what was asked, on the word of a session.
pub async fn issue(tx: &mut Tx, janua: &Janua, session: SessionId, request: &Request) -> db::Result<Secret> {
    let code = janua.entropy.token();
    tx.exec(
        "INSERT INTO oauth_code (hash, client, session_id, redirect_uri, challenge, scopes, resource, nonce, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        params![
            crypto::hash(code.expose().as_bytes()),
            &request.client.id,
            session,
            &request.redirect_uri,
            request.challenge.as_deref().unwrap_or_default(),
            &request.scopes,
            request.resource.as_ref(),
            request.nonce.clone(),
            janua.clock.now().plus(LIFE)
        ],
    )
    .await?;
    Ok(code)
}

impl Code {
    /// One of this client's, used or not.
    pub async fn find(tx: &mut Tx, code: &Secret, client: &str) -> db::Result<Option<Self>> {
        let hash = crypto::hash(code.expose().as_bytes());
        tx.opt("SELECT * FROM oauth_code WHERE hash = $1 AND client = $2", params![hash, client]).await
    }

    /// Whether it was asked for without PKCE: then the client's secret alone says who redeems it.
    pub fn needs_secret(&self) -> bool {
        self.challenge.is_empty()
    }

    /// Whether whoever redeems it is who asked for it. A verifier without a challenge belongs to another code (RFC 9700,
    /// 2.1.1).
    pub fn is_answered(&self, redirect_uri: &str, verifier: Option<&Secret>, now: Timestamp) -> bool {
        let is_verified = match verifier.map(Secret::expose) {
            Some(verifier) => {
                let digest = BASE64URL_NOPAD.encode(&crypto::digest(verifier.as_bytes()));
                is_verifier(verifier) && same(digest.as_bytes(), self.challenge.as_bytes())
            }
            None => self.needs_secret(),
        };
        is_verified && self.redirect_uri == redirect_uri && now < self.expires_at
    }

    /// Of many at once, one uses it up.
    pub async fn use_up(tx: &mut Tx, code: &Secret, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE oauth_code SET used_at = $2 WHERE hash = $1 AND used_at IS NULL";
        Ok(tx.exec(sql, params![crypto::hash(code.expose().as_bytes()), now]).await? == 1)
    }

    pub async fn note_gift(tx: &mut Tx, code: &Secret, session: SessionId) -> db::Result<()> {
        let sql = "UPDATE oauth_code SET gave = $2 WHERE hash = $1";
        tx.exec(sql, params![crypto::hash(code.expose().as_bytes()), session]).await?;
        Ok(())
    }
}

/// RFC 7636, 4.1.
fn is_verifier(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}
