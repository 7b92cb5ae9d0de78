//! What the library for passkeys does for us, and what we hold it to: one host, exact origins, a challenge that counts
//! once.
//!
//! A challenge is the secret of a [`once`] entry with the library's state put aside under it, so whatever node the
//! answer reaches finds it, once, for five minutes.
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use db::Tx;
use kernel::{
    Janua,
    config::Config,
    crypto::Secret,
    fault::{Code, Fault, INTERNAL, INVALID, Result},
    transact,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tenancy::{
    accounts::{
        Account, AccountId,
        factors::PASSKEY_REGISTER,
        passkeys::{Owned, Passkey},
    },
    apps::{Application, ApplicationId},
    once::{self, Purpose, Spent, TOKEN_SPENT},
    sessions::SessionId,
};
use webauthn_rs::prelude::{
    DiscoverableAuthentication, Passkey as Key, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, Url, Webauthn, WebauthnBuilder, WebauthnError,
};

pub const PASSKEYS_OFF: Code = Code::new(
    409,
    "passkeys_off",
    "Passkeys need a base URL with a host name (localhost works, an IP address does not).",
);
pub const INVALID_PASSKEY: Code = Code::new(401, "invalid_passkey", "This passkey does not belong to an account.");
pub const PASSKEY_REFUSED: Code =
    Code::new(400, "passkey_refused", "This passkey cannot be registered. Start again.");

/// A challenge that somebody signs to come in.
pub const SIGN_IN: Purpose = Purpose::new("passkey_sign_in", Duration::from_mins(5));

const SHORTEST_ID: usize = 16;

/// The options a browser takes, just as `navigator.credentials` wants them.
pub type Options = Map<String, Value>;

/// The library, set up for this server; nothing on a server whose name is an IP address.
pub struct Passkeys(Option<Webauthn>);

impl Passkeys {
    /// What it makes of the settings; says so when it makes nothing of them.
    pub fn new(config: &Config) -> Self {
        let made = set_up(config, None);
        if made.is_none() {
            tracing::warn!(
                base_url = config.base_url(),
                "passkeys are off: they need a host name, not an IP address"
            );
        }
        Self(made)
    }

    pub fn are_on(&self) -> bool {
        self.0.is_some()
    }

    fn get(janua: &Janua) -> Result<&Webauthn> {
        janua.own::<Self>().0.as_ref().ok_or_else(|| PASSKEYS_OFF.into())
    }
}

fn set_up(config: &Config, more: Option<&Url>) -> Option<Webauthn> {
    let ours = Url::parse(&config.base_url()).ok()?;
    let host = ours.domain()?.to_owned();
    let mut builder = WebauthnBuilder::new(&host, &ours).ok()?.rp_name("Janua");
    // A page elsewhere may ask for a passkey of this host only from underneath it; a browser allows no other.
    // Other pages may where the list of related origins names them: those of an app's domain, to come in to that app.
    for origin in config.allowed_origins.iter().filter_map(|origin| Url::parse(&origin.0).ok()) {
        let is_under = origin.domain().is_some_and(|name| name == host || name.ends_with(&format!(".{host}")));
        if is_under {
            builder = builder.append_allowed_origin(&origin);
        }
    }
    if let Some(origin) = more {
        builder = builder.append_allowed_origin(origin);
    }
    builder.build().ok()
}

/// What is put aside while somebody makes a passkey: it is theirs, in this session.
#[derive(Serialize, Deserialize)]
struct Registering {
    session: SessionId,
    state: PasskeyRegistration,
}

/// Asks for a new passkey that none of the person's authenticators has yet.
pub async fn begin_registration(
    janua: &Janua,
    account: &Account,
    session: SessionId,
    have: &[Passkey],
) -> Result<Options> {
    let known = have.iter().filter_map(|passkey| BASE64URL_NOPAD.decode(passkey.credential_id.as_bytes()).ok());
    let name = account.email.as_deref().unwrap_or(&account.name);
    let (options, state) = Passkeys::get(janua)?
        .start_passkey_registration(account.id.uuid(), name, &account.name, Some(known.collect()))
        .map_err(unexpected)?;
    let mut options = as_map(&options)?;
    // The library leaves it open whether the authenticator remembers whose key it is. Ours are found without a name.
    let selection = &mut options["publicKey"]["authenticatorSelection"];
    selection["residentKey"] = json!("required");
    selection["requireResidentKey"] = json!(true);
    let aside = Registering { session, state };
    keep(janua, PASSKEY_REGISTER, &options, Some(account.id), &aside).await?;
    Ok(options)
}

/// The new key, when it answers a challenge of this very session.
pub async fn finish_registration(
    janua: &Janua,
    account: AccountId,
    session: SessionId,
    made: &RegisterPublicKeyCredential,
) -> Result<Key> {
    let passkeys = Passkeys::get(janua)?;
    let spent = spend(janua, PASSKEY_REGISTER, &made.response.client_data_json).await?;
    let begun: Registering = aside(janua, &spent)?;
    if spent.account_id != Some(account) || begun.session != session {
        return Err(TOKEN_SPENT.into());
    }
    let key = passkeys.finish_passkey_registration(made, &begun.state);
    let key = key.map_err(|error| PASSKEY_REFUSED.caused_by(error))?;
    // Shorter ones could meet by chance, and nobody makes them.
    if key.cred_id().len() < SHORTEST_ID { Err(PASSKEY_REFUSED.into()) } else { Ok(key) }
}

/// Asks whoever is there to sign with any passkey of this host.
pub async fn begin_sign_in(janua: &Janua) -> Result<Options> {
    let (options, state) = Passkeys::get(janua)?.start_discoverable_authentication().map_err(unexpected)?;
    let mut options = as_map(&options)?;
    // Whether the browser offers it in a list or at a button is for the page to say.
    options.remove("mediation");
    keep(janua, SIGN_IN, &options, None, &state).await?;
    Ok(options)
}

/// A signature that was right, not yet written down.
pub struct Signed {
    pub account_id: AccountId,
    credential_id: String,
    old: String,
    new: String,
}

/// Why a signature does not count.
pub enum Refused {
    /// Nobody here is known by it.
    Stranger,
    /// It is somebody's, and something is wrong with it.
    Wrong(AccountId, &'static str),
}

/// Checks a signature: the challenge, the host, the origin, that a person was there and was recognised, the owner, the
/// count. The challenge is used up whatever comes out.
pub async fn finish_sign_in(
    janua: &Janua,
    app: Option<ApplicationId>,
    given: &PublicKeyCredential,
) -> Result<Result<Signed, Refused>> {
    let related = of_related_origin(janua, app, &given.response.client_data_json).await?;
    let passkeys = match &related {
        Some(related) => related,
        None => Passkeys::get(janua)?,
    };
    let spent = spend(janua, SIGN_IN, &given.response.client_data_json).await?;
    let state: DiscoverableAuthentication = aside(janua, &spent)?;
    let credential_id = BASE64URL_NOPAD.encode(given.get_credential_id());
    let Some(Owned { account_id, key: old }) = Passkey::find(&janua.db, &credential_id).await? else {
        return Ok(Err(Refused::Stranger));
    };
    let handle = passkeys.identify_discoverable_authentication(given).ok();
    if handle.is_none_or(|(user, _)| user != account_id.uuid()) {
        return Ok(Err(Refused::Wrong(account_id, "foreign_user_handle")));
    }
    let mut key: Key = serde_json::from_str(&old).map_err(|error| INTERNAL.caused_by(error))?;
    let result = match passkeys.finish_discoverable_authentication_v2(given, state, &key) {
        Ok(result) => result,
        Err(WebauthnError::CredentialPossibleCompromise) => {
            return Ok(Err(Refused::Wrong(account_id, "passkey_copied")));
        }
        Err(error) => {
            tracing::info!(%error, "a passkey was refused");
            return Ok(Err(Refused::Wrong(account_id, "wrong_passkey")));
        }
    };
    let new = match key.update_credential(&result) {
        Some(true) => serde_json::to_string(&key).map_err(|error| INTERNAL.caused_by(error))?,
        _ => old.clone(),
    };
    Ok(Ok(Signed { account_id, credential_id, old, new }))
}

/// The library for an answer from a page on a domain of the app whose key came along. With the key of another app, or with
/// none, such an answer counts for nothing: whoever holds that domain could use it to come in to the service itself.
async fn of_related_origin(
    janua: &Janua,
    app: Option<ApplicationId>,
    client_data: &[u8],
) -> Result<Option<Webauthn>> {
    let Ok(client_data) = serde_json::from_slice::<ClientData>(client_data) else { return Ok(None) };
    let (Some(app), Ok(origin)) = (app, Url::parse(&client_data.origin)) else { return Ok(None) };
    let is_related = Passkeys::get(janua).is_ok()
        && Application::may_ask_for_passkeys(&janua.db, app, &origin.origin().ascii_serialization()).await?;
    Ok(if is_related { set_up(&janua.config, Some(&origin)) } else { None })
}

impl Signed {
    /// Writes the use down; refuses when another use of the same key came in between.
    pub async fn note(&self, tx: &mut Tx, janua: &Janua) -> Result<()> {
        let is_noted = Passkey::used(tx, &self.credential_id, &self.old, &self.new, janua.clock.now()).await?;
        if is_noted { Ok(()) } else { Err(INVALID_PASSKEY.into()) }
    }
}

/// What a browser sent, as the library reads it.
pub fn read<T: DeserializeOwned>(credential: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(credential))
        .map_err(|_| INVALID.at("credential", "malformed", "is not what a browser's credential looks like as JSON"))
}

fn as_map(options: &impl Serialize) -> Result<Options> {
    match serde_json::to_value(options) {
        Ok(Value::Object(options)) => Ok(options),
        _ => Err(INTERNAL.caused_by("the options of a passkey are not an object")),
    }
}

async fn keep(
    janua: &Janua,
    purpose: Purpose,
    options: &Options,
    account: Option<AccountId>,
    state: &impl Serialize,
) -> Result<()> {
    let challenge = options.get("publicKey").and_then(|inner| inner["challenge"].as_str()).unwrap_or_default();
    let state = serde_json::to_vec(state).map_err(|error| INTERNAL.caused_by(error))?;
    let challenge = Secret::from(challenge.to_owned());
    transact!(janua, async |tx| Ok(once::keep(tx, janua, purpose, &challenge, account, &state).await?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    challenge: String,
    #[serde(default)]
    origin: String,
    /// Said by a page inside another site's page.
    #[serde(default)]
    cross_origin: bool,
}

/// Uses up the challenge that was signed, in a transaction of its own: a wrong answer to it is the last one.
async fn spend(janua: &Janua, purpose: Purpose, client_data: &[u8]) -> Result<Spent> {
    let client_data: ClientData = serde_json::from_slice(client_data).map_err(|_| {
        INVALID.at("credential.response.clientDataJSON", "malformed", "is not a browser's client data")
    })?;
    let (challenge, now) = (Secret::from(client_data.challenge), janua.clock.now());
    let spent = db::transact!(janua.db, async |tx| once::spend(tx, purpose, &challenge, now).await)?;
    let spent = spent.ok_or(TOKEN_SPENT)?;
    if client_data.cross_origin { Err(PASSKEY_REFUSED.into()) } else { Ok(spent) }
}

fn aside<T: DeserializeOwned>(janua: &Janua, spent: &Spent) -> Result<T> {
    let aside = spent.aside(janua).and_then(|aside| serde_json::from_slice(&aside).ok());
    aside.ok_or_else(|| TOKEN_SPENT.into())
}

fn unexpected(error: WebauthnError) -> Fault {
    INTERNAL.caused_by(error)
}
