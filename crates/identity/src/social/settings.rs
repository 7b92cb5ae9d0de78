//! The settings of sign-in with providers.
use kernel::{config::Setting, crypto::Secret, settings};

settings! {
    /// What each provider knows this installation by.
    pub struct Settings {
        /// The id this installation is registered under at Google; left empty, nobody signs in with it.
        google_client_id: String = "";
        /// The secret that belongs to it.
        google_client_secret: Option<Secret> = "";
        /// The id this installation is registered under at GitHub; left empty, nobody signs in with it.
        github_client_id: String = "";
        /// The secret that belongs to it.
        github_client_secret: Option<Secret> = "";
        /// The services id that this installation is registered under at Apple; left empty, nobody signs in with it.
        apple_client_id: String = "";
        /// The private key for signing in with Apple: the text of its .p8 file.
        apple_client_secret: Option<Secret> = "";
        /// The team the key belongs to.
        apple_team_id: String = "";
        /// The id of the key.
        apple_key_id: String = "";
        /// The id this installation is registered under at Microsoft; left empty, nobody signs in with it.
        microsoft_client_id: String = "";
        /// The secret that belongs to it.
        microsoft_client_secret: Option<Secret> = "";
        /// Whose people may come: `common` for all, `organizations`, `consumers`, or the id of one tenant.
        microsoft_tenant: String = "common";
        /// The id this installation is registered under at Facebook; left empty, nobody signs in with it.
        facebook_client_id: String = "";
        /// The secret that belongs to it.
        facebook_client_secret: Option<Secret> = "";
        /// The id this installation is registered under at Discord; left empty, nobody signs in with it.
        discord_client_id: String = "";
        /// The secret that belongs to it.
        discord_client_secret: Option<Secret> = "";
        /// The id this installation is registered under at LinkedIn; left empty, nobody signs in with it.
        linkedin_client_id: String = "";
        /// The secret that belongs to it.
        linkedin_client_secret: Option<Secret> = "";
        /// The id this installation is registered under at Amazon Cognito; left empty, nobody signs in with it.
        cognito_client_id: String = "";
        /// The secret that belongs to it.
        cognito_client_secret: Option<Secret> = "";
        /// The user pool, such as `https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbCdEf`.
        cognito_issuer: String = "";
        /// Where its sign-in pages are, such as `https://example.auth.eu-west-1.amazoncognito.com`.
        cognito_domain: String = "";
        /// Other addresses for parts of a provider, such as `google.token=https://…, google.issuer=…`, so that another
        /// server can stand in for it. Parts: authorize, token, issuer, jwks, userinfo, emails.
        provider_endpoints: Vec<ProviderEndpoint> = "";
    }
}

/// One part of a provider that is somewhere else than usual. Whether there is such a provider, and such a part, is
/// known where the providers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEndpoint {
    pub provider: String,
    pub part: String,
    pub address: String,
}

impl Setting for ProviderEndpoint {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').unwrap_or_default();
        let (provider, part) = name.trim().split_once('.').unwrap_or_default();
        if provider.is_empty() || part.is_empty() || address.trim().is_empty() {
            return Err(format!(
                "{text:?} is not a part of a provider such as google.token=https://id.example.com/token"
            ));
        }
        Ok(Self { provider: provider.into(), part: part.into(), address: address.trim().into() })
    }
}
