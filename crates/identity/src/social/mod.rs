//! Sign-in with an account at another provider, such as Google.
//!
//! `table` holds the differences between the providers. The other modules are the same for all.
mod apple;
mod attempt;
mod avatar;
mod exchange;
mod id_token;
mod keys;
mod one_tap;
mod profile;
mod providers;
mod settings;
mod table;
mod who;
mod wire;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    fault::{CROSS_SITE, Code, INVALID, Result},
    feature::Feature,
    http::{Json, Path, Query, Routes, foreign_origin},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Admitted, Delivery, Visitor, cookies},
    sessions::sign_in::{self, Entered, MfaChallenge, SignInMethod, SignedIn, Typed},
};

use self::{
    attempt::{Attempt, INVALID_STATE},
    exchange::PROVIDER_REFUSED,
    id_token::INVALID_ID_TOKEN,
    providers::{PROVIDER_NOT_CONFIGURED, Providers},
    who::ACCOUNT_EXISTS,
    wire::PROVIDER_UNAVAILABLE,
};
pub use settings::Settings;

use crate::{BODY, password::LoginOptions};
pub use providers::names;

pub fn feature() -> Feature {
    Feature::new(routes().and(one_tap::routes()).and(avatar::routes()))
        .declares(&[attempt::STATE, one_tap::TOKEN])
        .own(Providers::default())
        .start(|janua| Box::pin(async move { providers::start(&janua) }))
}

fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .get("/auth/oauth/{provider}/url", oauth_url, "get the redirect URL of a third-party identity provider")
        .fails(&[PROVIDER_NOT_CONFIGURED])
        .answers::<RedirectUrl>(200, "application/json")
        .post("/auth/oauth/{provider}", oauth_sign_in, "exchange the provider's authorization code for a session")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<MayEnterSocially>(200, "application/json")
        .fails(&[INVALID_STATE, PROVIDER_REFUSED])
        .fails(&REFUSALS)
        .fails(&crate::policy::REFUSALS)
}

/// What every way in by a provider can answer.
const REFUSALS: [Code; 4] = [PROVIDER_NOT_CONFIGURED, PROVIDER_UNAVAILABLE, INVALID_ID_TOKEN, ACCOUNT_EXISTS];

#[derive(Deserialize, JsonSchema)]
struct ByProvider {
    provider: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Destination {
    /// The redirect URI at the provider. Default: `/sign-in/{provider}` of this service.
    #[schemars(length(min = 1, max = 2048))]
    redirect_uri: Option<String>,
    /// Returned unchanged. Default: a random value.
    #[schemars(length(min = 1, max = 2048))]
    state: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct RedirectUrl {
    /// The URL to redirect to. The response also sets a cookie that the sign-in needs.
    url: String,
}

async fn oauth_url(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    Path(path): Path<ByProvider>,
    headers: HeaderMap,
    Query(to): Query<Destination>,
) -> Result<Response> {
    // Somebody else's page must not begin a sign-in in this browser, by a call or by sending it here.
    let fetched = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if fetched("sec-fetch-site") == "cross-site" && foreign_origin(&janua, &headers).is_none()
        || fetched("sec-fetch-mode") == "navigate"
    {
        return Err(CROSS_SITE.into());
    }
    let (url, cookie) = begin(&janua, &visitor, &path.provider, to.redirect_uri, to.state).await?;
    let mut response = Json(RedirectUrl { url }).into_response();
    response.headers_mut().extend(cookie);
    Ok(response)
}

/// Where to send somebody, and the cookie without which nobody comes back. The same for programs and for the page.
pub async fn begin(
    janua: &Janua,
    visitor: &Visitor,
    provider: &str,
    redirect_uri: Option<String>,
    state: Option<String>,
) -> Result<(String, HeaderMap)> {
    let provider = janua.own::<Providers>().find(provider)?;
    let attempt = Attempt::new(janua, visitor, provider, redirect_uri, state)?;
    let (url, mut headers) = (exchange::address(provider, &attempt)?, HeaderMap::new());
    let cookie = attempt.keep(janua).await?;
    cookies::set_social(janua, &cookie, attempt::STATE.life, &mut headers);
    Ok((url, headers))
}

/// A provider that people can choose.
pub struct Offered {
    pub name: &'static str,
    pub label: &'static str,
    /// Where they are sent.
    pub address: String,
}

pub fn offered(janua: &Janua) -> Vec<Offered> {
    janua
        .own::<Providers>()
        .all()
        .map(|provider| Offered {
            name: provider.row.name,
            label: provider.row.label,
            address: provider.authorize.to_string(),
        })
        .collect()
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Return {
    /// The code that the provider returned.
    code: Typed,
    /// The `state` they came back with.
    state: Option<Typed>,
    /// Optional; must equal the redirect URI of the URL request.
    #[schemars(length(max = 2048))]
    redirect_uri: Option<String>,
    /// The `user` parameter that Apple sends at the first sign-in, unchanged: JSON with the user's name.
    #[schemars(length(max = 8192))]
    user: Option<String>,
    options: Option<LoginOptions>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CookieWish {
    /// `true` delivers the session as cookies that scripts cannot read.
    set_cookie: Option<bool>,
}

impl CookieWish {
    /// In the body, unless cookies are asked for in one of the two ways.
    fn delivery(&self, options: Option<LoginOptions>) -> Delivery {
        match self.set_cookie {
            Some(true) => Delivery::Cookie,
            _ => options.and_then(|options| options.token_delivery).unwrap_or(Delivery::Body),
        }
    }
}

async fn oauth_sign_in(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    headers: HeaderMap,
    Path(path): Path<ByProvider>,
    Query(wish): Query<CookieWish>,
    Json(body): Json<Return>,
) -> Result<Response> {
    let delivery = wish.delivery(body.options);
    let back = Back { code: body.code, state: body.state, redirect_uri: body.redirect_uri, user: body.user };
    let (entered, is_new) = complete(&janua, &visitor, &headers, &path.provider, back, delivery).await?;
    answer(&janua, entered, is_new)
}

/// What somebody brings along who comes back.
pub struct Back {
    pub code: Typed,
    pub state: Option<Typed>,
    pub redirect_uri: Option<String>,
    pub user: Option<String>,
}

/// Whose account it is, and whether it was made just now. The same for programs and for the page.
pub async fn complete(
    janua: &Janua,
    visitor: &Visitor,
    headers: &HeaderMap,
    provider: &str,
    body: Back,
    delivery: Delivery,
) -> Result<(Entered, bool)> {
    let provider = janua.own::<Providers>().find(provider)?;
    let name = body.user.as_deref().filter(|_| provider.row.name == "apple").map(name_in).transpose()?.flatten();
    let state = body.state.as_ref().map(|state| &state.0);
    let attempt = Attempt::take(janua, visitor, headers, provider, state, body.redirect_uri.as_deref()).await?;
    let handed = exchange::exchange(janua, provider, &attempt, &body.code.0).await?;
    let mut profile = profile::read(janua, provider, &handed, &attempt.nonce.into()).await?;
    profile.name = name.or(profile.name);
    let kept = handed.to_keep(janua);
    transact!(janua, async |tx| {
        let (account, is_new) = who::recognise(tx, janua, visitor, provider.row, &profile, Some(&kept)).await?;
        let entered = sign_in::enter(tx, janua, visitor, account, SignInMethod::by("social", delivery)).await?;
        Ok((entered, is_new))
    })
}

/// Apple tells a person's name once, through their own browser: good for a name, and for nothing else it says.
fn name_in(user: &str) -> Result<Option<String>> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Name {
        first_name: String,
        last_name: String,
    }
    #[derive(Deserialize)]
    struct User {
        #[serde(default)]
        name: Name,
    }
    let wrong = |_| INVALID.at("user", "wrong_form", "must be the JSON text that the provider sent");
    let User { name } = serde_json::from_str(user).map_err(wrong)?;
    let whole = profile::short(format!("{} {}", name.first_name.trim(), name.last_name.trim()).trim());
    Ok(Some(whole).filter(|name| !name.is_empty() && !name.contains('\0')))
}

/// The answer to a successful sign-in.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SociallySignedIn {
    #[serde(flatten)]
    signed_in: SignedIn,
    /// Whether the account was created by this sign-in.
    is_new_user: bool,
}

/// The tokens, or a second-factor ticket.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes the answer")]
enum MayEnterSocially {
    In(Box<SociallySignedIn>),
    Waiting(MfaChallenge),
}

fn answer(janua: &Janua, entered: Entered, is_new_user: bool) -> Result<Response> {
    let mut response = match entered {
        Entered::Waiting(_) | Entered::Refused(_) => entered.answer(janua)?,
        Entered::In(person) => {
            let (signed_in, headers) = person.hand_out(janua)?;
            let mut response = Json(SociallySignedIn { signed_in, is_new_user }).into_response();
            response.headers_mut().extend(headers);
            response
        }
    };
    cookies::clear_social(janua, response.headers_mut());
    Ok(response)
}
