//! Passkeys: creating, renaming and deleting them, and signing in with one.
//!
//! Every passkey must verify its user (fingerprint, face or PIN). So signing in with a passkey proves two factors,
//! and no second factor is asked for.
mod ceremony;
mod names;

use axum::{
    extract::State,
    response::{NoContent, Response},
};
use ceremony::{INVALID_PASSKEY, Options, PASSKEY_REFUSED, PASSKEYS_OFF, Refused};
use data_encoding::BASE64URL_NOPAD;
use db::Reach;
use kernel::{
    Janua,
    fault::{Code, INTERNAL, NOT_FOUND, Result},
    http::{Json, MaybeJson, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    accounts::{
        Account,
        passkeys::{Added, MOST, Passkey},
    },
    apps::Application,
    enter::{ACCOUNT_TOPIC, Admitted, Session, ToAdmit},
    once::TOKEN_SPENT,
    sessions::{
        Proof, device_name,
        sign_in::{self, SignInMethod, SignedIn},
    },
};
use webauthn_rs::prelude::{PublicKeyCredential, RegisterPublicKeyCredential};

use crate::{
    BODY,
    events::{PasskeyAdded, PasskeyRemoved, PasskeyRenamed, SignInFailed},
    factors::note,
    password::LoginOptions,
    proof::{self, Fresh},
};
pub use ceremony::{Passkeys, SIGN_IN};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/passkey/register-options", passkey_register_options, "options for creating a passkey")
        .fails(&[PASSKEYS_OFF, TOO_MANY])
        .fails(&proof::REFUSALS)
        .post("/auth/passkey/register-verify", passkey_register_verify, "verify and store a new passkey")
        .fails(&[PASSKEYS_OFF, PASSKEY_REFUSED, PASSKEY_EXISTS, TOO_MANY, TOKEN_SPENT])
        .fails(&proof::REFUSALS)
        .post("/auth/passkey/login-options", passkey_login_options, "options for signing in with a passkey")
        .fails(&[PASSKEYS_OFF])
        .post("/auth/passkey/login-verify", passkey_login_verify, "verify a passkey and issue a session")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<SignedIn>(200, "application/json")
        .fails(&[PASSKEYS_OFF, INVALID_PASSKEY, PASSKEY_REFUSED, TOKEN_SPENT])
        .get("/.well-known/webauthn", related_origins, "origins that may use passkeys of this service")
        .patch("/auth/passkey/{credentialId}", rename_passkey, "rename a passkey")
        .fails(&[NOT_FOUND])
        .delete("/auth/passkey/{credentialId}", remove_passkey, "remove a passkey")
        .fails(&[NOT_FOUND])
        .fails(&proof::REFUSALS)
}

const TOO_MANY: Code = Code::new(409, "too_many_passkeys", "You have ten passkeys, the maximum. Remove one first.");
const PASSKEY_EXISTS: Code = Code::new(409, "passkey_exists", "This passkey is already registered.");

/// For the browser: `navigator.credentials` takes it after `parseCreationOptionsFromJSON` or
/// `parseRequestOptionsFromJSON` has read what is in `publicKey`.
#[derive(Serialize, JsonSchema)]
struct PasskeyOptions {
    #[serde(flatten)]
    #[schemars(with = "PublicKeyOptions")]
    options: Options,
}

/// What [`PasskeyOptions`] holds, for the description.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PublicKeyOptions {
    public_key: Map<String, Value>,
}

async fn passkey_register_options(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<Json<PasskeyOptions>> {
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    let account = session.account();
    let have = Passkey::of(&janua.db, account.id).await?;
    if have.len() >= MOST {
        return Err(TOO_MANY.into());
    }
    let options = ceremony::begin_registration(&janua, account, session.id(), &have).await?;
    Ok(Json(PasskeyOptions { options }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewPasskey {
    /// The result of `toJSON()` of the browser's credential.
    credential: Map<String, Value>,
    #[schemars(length(min = 1, max = 100))]
    device_name: Option<String>,
    #[serde(flatten)]
    fresh: Fresh,
}

async fn passkey_register_verify(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Json(new): Json<NewPasskey>,
) -> Result<Json<Passkey>> {
    let account = session.account();
    let made: RegisterPublicKeyCredential = ceremony::read(new.credential)?;
    new.fresh.check(&janua, &visitor, &session).await?;
    let key = ceremony::finish_registration(&janua, account.id, session.id(), &made).await?;
    let device_name = new.device_name.unwrap_or_else(|| match names::of(&made.response.attestation_object) {
        Some(name) => name.to_owned(),
        None => format!("Passkey ({})", device_name(&visitor.user_agent)),
    });
    let passkey = Passkey {
        credential_id: BASE64URL_NOPAD.encode(key.cred_id()),
        device_name,
        created_at: janua.clock.now(),
        last_used_at: None,
    };
    let key = serde_json::to_string(&key).map_err(|error| INTERNAL.caused_by(error))?;
    transact!(janua, async |tx| {
        match passkey.add(tx, account.id, &key).await? {
            Added::Kept => {}
            Added::Taken => return Err(PASSKEY_EXISTS.into()),
            Added::TooMany => return Err(TOO_MANY.into()),
        }
        let name = passkey.device_name.clone();
        let event = PasskeyAdded { credential_id: passkey.credential_id.clone(), device_name: name };
        // Whoever makes one has just shown that they hold it, and that it knows them.
        session.living.session.proved(tx, Proof::Passkey, janua.clock.now()).await?;
        note(tx, &janua, &session, &event, "A passkey was added to your account.").await
    })?;
    Ok(Json(passkey))
}

async fn passkey_login_options(State(janua): State<Janua>, Admitted(_): Admitted) -> Result<Json<PasskeyOptions>> {
    // No list of keys, whoever asks: it would tell who has an account, and the authenticator knows its own.
    Ok(Json(PasskeyOptions { options: ceremony::begin_sign_in(&janua).await? }))
}

/// Related origins, as browsers read them.
#[derive(Serialize, JsonSchema)]
struct RelatedOrigins {
    origins: Vec<String>,
}

async fn related_origins(State(janua): State<Janua>) -> Result<Json<RelatedOrigins>> {
    let mut origins = vec![janua.config.base_url().trim_end_matches('/').to_owned()];
    origins.extend(Application::passkey_origins(&janua.db).await?);
    Ok(Json(RelatedOrigins { origins }))
}

#[derive(Deserialize, JsonSchema)]
struct PasskeySignIn {
    /// The result of `toJSON()` of the browser's credential.
    credential: Map<String, Value>,
    options: Option<LoginOptions>,
}

async fn passkey_login_verify(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    Json(body): Json<PasskeySignIn>,
) -> Result<Response> {
    let given: PublicKeyCredential = ceremony::read(body.credential)?;
    let app = visitor.app.as_ref().map(|keyed| keyed.app_id);
    let signed = match ceremony::finish_sign_in(&janua, app, &given).await? {
        Ok(signed) => signed,
        Err(Refused::Stranger) => return Err(INVALID_PASSKEY.into()),
        Err(Refused::Wrong(account, reason)) => {
            // Whatever key the request came with.
            let noted = async {
                transact!(janua, async |tx| {
                    let failed = SignInFailed { reason };
                    Ok(visitor.record_about(tx, &janua, account, &failed).await?)
                })
            };
            db::aside(noted).await?;
            return Err(INVALID_PASSKEY.into());
        }
    };
    let delivery = body.options.and_then(|options| options.token_delivery).unwrap_or_default();
    let entered = transact!(janua, async |tx| {
        signed.note(tx, &janua).await?;
        let account = Account::find(tx, signed.account_id).await?.ok_or(INVALID_PASSKEY)?;
        let way = SignInMethod { method: "passkey", gate_mark: Some("mfa"), since: None, delivery, scopes: None };
        let entered = sign_in::enter(tx, &janua, &visitor, account, way).await?;
        // When it was used last is remembered with the person's other sessions.
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, signed.account_id.to_string()).await?;
        Ok(entered)
    })?;
    entered.answer(&janua)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PasskeyPath {
    #[schemars(length(max = 1400))]
    credential_id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Renamed {
    #[schemars(length(min = 1, max = 100))]
    device_name: String,
}

async fn rename_passkey(
    State(janua): State<Janua>,
    session: Session,
    Path(which): Path<PasskeyPath>,
    Json(Renamed { device_name }): Json<Renamed>,
) -> Result<Json<Passkey>> {
    let account = session.account().id;
    let passkey = transact!(janua, async |tx| {
        let renamed = Passkey::rename(tx, account, &which.credential_id, &device_name).await?;
        let passkey = renamed.ok_or(NOT_FOUND)?;
        let event = PasskeyRenamed { credential_id: which.credential_id.clone(), device_name: device_name.clone() };
        session.record(tx, &janua, &event).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.to_string()).await?;
        Ok(passkey)
    })?;
    Ok(Json(passkey))
}

async fn remove_passkey(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Path(which): Path<PasskeyPath>,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<NoContent> {
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    transact!(janua, async |tx| {
        if !Passkey::remove(tx, session.account().id, &which.credential_id).await? {
            return Err(NOT_FOUND.into());
        }
        let event = PasskeyRemoved { credential_id: which.credential_id.clone() };
        note(tx, &janua, &session, &event, "A passkey was removed from your account.").await
    })?;
    Ok(NoContent)
}
