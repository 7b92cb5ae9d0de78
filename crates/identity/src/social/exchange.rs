//! The two ends of the code flow (RFC 6749, with PKCE): where a person is sent, and what their code is exchanged for.
use std::time::Duration;

use kernel::{
    Janua,
    crypto::Secret,
    fault::{Code, Fault, INTERNAL, Result},
};
use oauth2::{
    AccessToken, AuthType, AuthUrl, AuthorizationCode, Client, ClientId, CsrfToken, EndpointNotSet, EndpointSet,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope, StandardRevocableToken,
    TokenResponse, TokenUrl,
    basic::{BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    attempt::Attempt,
    providers::{ClientSecret, Provider, Providers},
    table::Source,
    wire::{Broken, PROVIDER_UNAVAILABLE},
};

pub const PROVIDER_REFUSED: Code = Code::new(400, "provider_refused", "The provider rejected the code. Start again.");

/// What a provider hands out. The type of the token may be left out: it is always a bearer's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handed {
    access_token: AccessToken,
    refresh_token: Option<RefreshToken>,
    id_token: Option<IdToken>,
    expires_in: Option<u64>,
    #[serde(skip, default = "bearer")]
    kind: BasicTokenType,
}

/// Text that the library's own types do not cover, and that is not printed either.
#[derive(Serialize, Deserialize)]
struct IdToken(String);

impl std::fmt::Debug for IdToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

fn bearer() -> BasicTokenType {
    BasicTokenType::Bearer
}

impl TokenResponse for Handed {
    type TokenType = BasicTokenType;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }
    fn token_type(&self) -> &BasicTokenType {
        &self.kind
    }
    fn expires_in(&self) -> Option<Duration> {
        self.expires_in.map(Duration::from_secs)
    }
    fn refresh_token(&self) -> Option<&RefreshToken> {
        self.refresh_token.as_ref()
    }
    fn scopes(&self) -> Option<&Vec<Scope>> {
        None
    }
}

impl Handed {
    pub fn access(&self) -> Secret {
        self.access_token.secret().clone().into()
    }

    pub fn id_token(&self) -> Option<Secret> {
        self.id_token.as_ref().map(|token| token.0.clone().into())
    }

    /// What is worth keeping, as it goes into the vault.
    pub fn to_keep(&self, janua: &Janua) -> Vec<u8> {
        let expires_at = self.expires_in().map(|life| janua.clock.now().plus(life).0);
        let refresh = self.refresh_token.as_ref().map(RefreshToken::secret);
        let kept = json!({ "access": self.access_token.secret(), "refresh": refresh, "expiresAt": expires_at });
        kept.to_string().into_bytes()
    }
}

type Oauth = Client<
    BasicErrorResponse,
    Handed,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

fn client(provider: &Provider, redirect_uri: &str) -> Result<Oauth> {
    let redirect = RedirectUrl::new(redirect_uri.to_owned()).map_err(|e| INTERNAL.caused_by(e))?;
    Ok(Client::new(ClientId::new(provider.client_id.clone()))
        .set_auth_uri(AuthUrl::from_url(provider.authorize.clone()))
        .set_token_uri(TokenUrl::from_url(provider.token.clone()))
        .set_redirect_uri(redirect)
        // In the body: the one way all of them take.
        .set_auth_type(AuthType::RequestBody))
}

/// Where the person is sent.
pub fn address(provider: &Provider, attempt: &Attempt) -> Result<String> {
    let client = client(provider, &attempt.redirect_uri)?;
    let scopes = provider.row.scopes.iter().map(|scope| Scope::new((*scope).to_owned()));
    let mut request = client.authorize_url(|| CsrfToken::new(attempt.state.clone())).add_scopes(scopes);
    if provider.row.takes_pkce {
        let verifier = PkceCodeVerifier::new(attempt.verifier.clone());
        request = request.set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier));
    }
    if matches!(provider.row.source, Source::IdToken { .. }) {
        request = request.add_extra_param("nonce", &attempt.nonce);
    }
    for (name, value) in provider.row.extra {
        request = request.add_extra_param(*name, *value);
    }
    let (url, _) = request.url();
    Ok(url.into())
}

/// The provider's tokens for the code a person came back with.
pub async fn exchange(janua: &Janua, provider: &Provider, attempt: &Attempt, code: &Secret) -> Result<Handed> {
    let secret = match &provider.secret {
        ClientSecret::Text(text) => text.clone(),
        ClientSecret::Signed(key) => {
            let issuer = provider.issuers.first().map(String::as_str).unwrap_or_default();
            key.sign(&provider.client_id, issuer, janua.clock.now())?
        }
    };
    let client = client(provider, &attempt.redirect_uri)?
        .set_client_secret(oauth2::ClientSecret::new(secret.expose().to_owned()));
    let mut request = client.exchange_code(AuthorizationCode::new(code.expose().to_owned()));
    if provider.row.takes_pkce {
        request = request.set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier.clone()));
    }
    let wire = janua.own::<Providers>().wire()?;
    request.request_async(wire).await.map_err(|error| refused(provider, error))
}

/// Whether it was the provider that said no, or nobody who answered.
fn refused(provider: &Provider, error: RequestTokenError<Broken, BasicErrorResponse>) -> Fault {
    let said = match error {
        RequestTokenError::ServerResponse(answer) => answer.error().to_string(),
        RequestTokenError::Request(broken) => return broken.into(),
        // GitHub refuses with a 200.
        RequestTokenError::Parse(_, body) => {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            answer["error"].as_str().unwrap_or_default().to_owned()
        }
        RequestTokenError::Other(_) => String::new(),
    };
    // The provider's word, as far as it is one: nothing else of the answer goes into the log.
    let said: String = said.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(64).collect();
    match said.as_str() {
        "" | "server_error" | "temporarily_unavailable" => PROVIDER_UNAVAILABLE.caused_by("no tokens in the answer"),
        said => {
            let is_ours = matches!(said, "invalid_client" | "unauthorized_client" | "redirect_uri_mismatch");
            if is_ours {
                tracing::warn!(
                    provider = provider.row.name,
                    said,
                    "the provider rejected this service's client credentials"
                );
            }
            PROVIDER_REFUSED.into()
        }
    }
}
