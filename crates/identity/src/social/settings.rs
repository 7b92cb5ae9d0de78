//! The settings of sign-in with providers.
use kernel::{config::Setting, crypto::Secret, settings};

settings! {
    /// What each provider knows this installation by.
    pub struct Settings {
        /// The client ID at Google. Empty: sign-in with Google is off.
        google_client_id: String = "";
        /// The client secret.
        google_client_secret: Option<Secret> = "";
        /// The client ID at GitHub. Empty: sign-in with GitHub is off.
        github_client_id: String = "";
        /// The client secret.
        github_client_secret: Option<Secret> = "";
        /// The services ID at Apple. Empty: sign-in with Apple is off.
        apple_client_id: String = "";
        /// The private key: the content of the .p8 file.
        apple_client_secret: Option<Secret> = "";
        /// The team ID.
        apple_team_id: String = "";
        /// The key ID.
        apple_key_id: String = "";
        /// The client ID at Microsoft. Empty: sign-in with Microsoft is off.
        microsoft_client_id: String = "";
        /// The client secret.
        microsoft_client_secret: Option<Secret> = "";
        /// Which accounts can sign in: `common` (all), `organizations`, `consumers`, or a tenant ID.
        microsoft_tenant: String = "common";
        /// The client ID at Facebook. Empty: sign-in with Facebook is off.
        facebook_client_id: String = "";
        /// The client secret.
        facebook_client_secret: Option<Secret> = "";
        /// The client ID at Discord. Empty: sign-in with Discord is off.
        discord_client_id: String = "";
        /// The client secret.
        discord_client_secret: Option<Secret> = "";
        /// The client ID at LinkedIn. Empty: sign-in with LinkedIn is off.
        linkedin_client_id: String = "";
        /// The client secret.
        linkedin_client_secret: Option<Secret> = "";
        /// The client ID at Amazon Cognito. Empty: sign-in with Amazon Cognito is off.
        cognito_client_id: String = "";
        /// The client secret.
        cognito_client_secret: Option<Secret> = "";
        /// The issuer URL of the user pool, such as `https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbCdEf`.
        cognito_issuer: String = "";
        /// The URL of the sign-in pages, such as `https://example.auth.eu-west-1.amazoncognito.com`.
        cognito_domain: String = "";
        /// Other URLs for parts of a provider, such as `google.token=https://…, google.issuer=…`; for tests. Parts: authorize, token, issuer, jwks, userinfo, emails.
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
