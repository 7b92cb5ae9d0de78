//! What Apple wants for a client secret: a token that we sign anew each time.
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use kernel::{
    clock::Timestamp,
    crypto::Secret,
    fault::{INTERNAL, Result},
};
use serde::Serialize;

use super::settings::Settings;

/// Long enough for one question.
const LIFE_S: i64 = 300;

pub struct AppleKey {
    team: String,
    id: String,
    key: EncodingKey,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    iat: i64,
    exp: i64,
}

impl AppleKey {
    pub fn read(settings: &Settings, pem: &Secret) -> Result<Self, String> {
        for (setting, value) in [("apple_team_id", &settings.apple_team_id), ("apple_key_id", &settings.apple_key_id)]
        {
            if value.is_empty() {
                return Err(format!("{setting}: is needed beside apple_client_id"));
            }
        }
        // In a variable the lines are often written as one.
        let pem: Secret = pem.expose().replace("\\n", "\n").into();
        let key = EncodingKey::from_ec_pem(pem.expose().as_bytes())
            .map_err(|_| "apple_client_secret: must be the text of a .p8 file (a private key in PEM form)")?;
        Ok(Self { team: settings.apple_team_id.clone(), id: settings.apple_key_id.clone(), key })
    }

    pub fn sign(&self, client_id: &str, issuer: &str, now: Timestamp) -> Result<Secret> {
        let iat = now.0.div_euclid(1000);
        let claims = Claims { iss: &self.team, sub: client_id, aud: issuer, iat, exp: iat + LIFE_S };
        let header = Header { kid: Some(self.id.clone()), ..Header::new(Algorithm::ES256) };
        let signed = jsonwebtoken::encode(&header, &claims, &self.key);
        Ok(signed.map_err(|_| INTERNAL.caused_by("the key for Apple signs nothing"))?.into())
    }
}
