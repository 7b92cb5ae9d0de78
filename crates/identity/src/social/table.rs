//! The providers, a row each: where they are, what they are asked for, and how what they say is read.
use kernel::crypto::Secret;

use super::settings::Settings;

/// What is known of a provider before any setting is read. In addresses `{tenant}`, `{pool}` and `{domain}` stand for
/// settings, and in an issuer `{tid}` for the claim of that name.
pub struct Row {
    pub name: &'static str,
    /// As people call it.
    pub label: &'static str,
    pub authorize: &'static str,
    pub token: &'static str,
    pub scopes: &'static [&'static str],
    /// What else goes into the address people are sent to.
    pub extra: &'static [(&'static str, &'static str)],
    pub source: Source,
    pub fields: Fields,
    pub proof: Proof,
    /// Not every provider can: LinkedIn refuses a verifier that comes with a client secret.
    pub takes_pkce: bool,
    /// The id and the secret in the settings.
    pub keys: fn(&Settings) -> (&str, Option<&Secret>),
}

/// Where the provider says who somebody is.
pub enum Source {
    /// In a signed token (OpenID Connect).
    IdToken {
        issuers: &'static [&'static str],
        jwks: &'static str,
        /// LinkedIn leaves the nonce out; where one is, it must be ours.
        echoes_nonce: bool,
    },
    /// At an address of its interface, and the addresses of the person at another.
    Api { userinfo: &'static str, emails: Option<&'static str> },
}

/// Where in what the provider says something is, as JSON pointers.
pub struct Fields {
    pub subject: &'static str,
    /// The first that is there.
    pub names: &'static [&'static str],
    pub username: Option<&'static str>,
    pub picture: Picture,
}

pub enum Picture {
    At(&'static str),
    /// Discord tells only the picture's hash.
    Discord,
    Nowhere,
}

/// What makes an address proven.
pub enum Proof {
    /// This field says so.
    Says(&'static str),
    /// Any administrator of a Microsoft tenant can write any address into their tokens. It counts where Microsoft says
    /// that the tenant owns the domain, and for the accounts it keeps itself.
    Microsoft,
    /// The list of addresses says it of each.
    Listed,
    /// Nothing the provider says.
    Never,
}

const OPENID: Fields =
    Fields { subject: "/sub", names: &["/name"], username: None, picture: Picture::At("/picture") };
const VERIFIED: Proof = Proof::Says("/email_verified");
const PROFILE: &[&str] = &["openid", "profile", "email"];

pub const ROWS: [Row; 8] = [
    Row {
        name: "google",
        label: "Google",
        authorize: "https://accounts.google.com/o/oauth2/v2/auth",
        token: "https://oauth2.googleapis.com/token",
        scopes: PROFILE,
        extra: &[],
        source: Source::IdToken {
            issuers: &["https://accounts.google.com", "accounts.google.com"],
            jwks: "https://www.googleapis.com/oauth2/v3/certs",
            echoes_nonce: true,
        },
        fields: OPENID,
        proof: VERIFIED,
        takes_pkce: true,
        keys: |settings| (&settings.google_client_id, settings.google_client_secret.as_ref()),
    },
    Row {
        name: "github",
        label: "GitHub",
        authorize: "https://github.com/login/oauth/authorize",
        token: "https://github.com/login/oauth/access_token",
        scopes: &["read:user", "user:email"],
        extra: &[],
        source: Source::Api {
            userinfo: "https://api.github.com/user",
            emails: Some("https://api.github.com/user/emails"),
        },
        fields: Fields {
            subject: "/id",
            names: &["/name", "/login"],
            username: Some("/login"),
            picture: Picture::At("/avatar_url"),
        },
        proof: Proof::Listed,
        takes_pkce: true,
        keys: |settings| (&settings.github_client_id, settings.github_client_secret.as_ref()),
    },
    Row {
        name: "apple",
        label: "Apple",
        authorize: "https://appleid.apple.com/auth/authorize",
        token: "https://appleid.apple.com/auth/token",
        scopes: &["openid", "name", "email"],
        // Without it Apple refuses to be asked for a name.
        extra: &[("response_mode", "form_post")],
        source: Source::IdToken {
            issuers: &["https://appleid.apple.com"],
            jwks: "https://appleid.apple.com/auth/keys",
            echoes_nonce: true,
        },
        fields: Fields { picture: Picture::Nowhere, ..OPENID },
        proof: VERIFIED,
        takes_pkce: true,
        keys: |settings| (&settings.apple_client_id, settings.apple_client_secret.as_ref()),
    },
    Row {
        name: "microsoft",
        label: "Microsoft",
        authorize: "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
        token: "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
        scopes: PROFILE,
        extra: &[],
        source: Source::IdToken {
            issuers: &["https://login.microsoftonline.com/{tid}/v2.0"],
            jwks: "https://login.microsoftonline.com/{tenant}/discovery/v2.0/keys",
            echoes_nonce: true,
        },
        fields: Fields { picture: Picture::Nowhere, ..OPENID },
        proof: Proof::Microsoft,
        takes_pkce: true,
        keys: |settings| (&settings.microsoft_client_id, settings.microsoft_client_secret.as_ref()),
    },
    Row {
        name: "facebook",
        label: "Facebook",
        authorize: "https://www.facebook.com/v23.0/dialog/oauth",
        token: "https://graph.facebook.com/v23.0/oauth/access_token",
        scopes: &["public_profile", "email"],
        extra: &[],
        source: Source::Api {
            userinfo: "https://graph.facebook.com/v23.0/me?fields=id,name,email,picture.type(large)",
            emails: None,
        },
        fields: Fields {
            subject: "/id",
            names: &["/name"],
            username: None,
            picture: Picture::At("/picture/data/url"),
        },
        proof: Proof::Never,
        takes_pkce: true,
        keys: |settings| (&settings.facebook_client_id, settings.facebook_client_secret.as_ref()),
    },
    Row {
        name: "discord",
        label: "Discord",
        authorize: "https://discord.com/oauth2/authorize",
        token: "https://discord.com/api/oauth2/token",
        scopes: &["identify", "email"],
        extra: &[],
        source: Source::Api { userinfo: "https://discord.com/api/users/@me", emails: None },
        fields: Fields {
            subject: "/id",
            names: &["/global_name", "/username"],
            username: Some("/username"),
            picture: Picture::Discord,
        },
        proof: Proof::Says("/verified"),
        takes_pkce: true,
        keys: |settings| (&settings.discord_client_id, settings.discord_client_secret.as_ref()),
    },
    Row {
        name: "linkedin",
        label: "LinkedIn",
        authorize: "https://www.linkedin.com/oauth/v2/authorization",
        token: "https://www.linkedin.com/oauth/v2/accessToken",
        scopes: PROFILE,
        extra: &[],
        source: Source::IdToken {
            issuers: &["https://www.linkedin.com/oauth"],
            jwks: "https://www.linkedin.com/oauth/openid/jwks",
            echoes_nonce: false,
        },
        fields: OPENID,
        proof: VERIFIED,
        takes_pkce: false,
        keys: |settings| (&settings.linkedin_client_id, settings.linkedin_client_secret.as_ref()),
    },
    Row {
        name: "cognito",
        label: "Amazon Cognito",
        authorize: "{domain}/oauth2/authorize",
        token: "{domain}/oauth2/token",
        scopes: PROFILE,
        extra: &[],
        source: Source::IdToken { issuers: &["{pool}"], jwks: "{pool}/.well-known/jwks.json", echoes_nonce: true },
        fields: OPENID,
        proof: VERIFIED,
        takes_pkce: true,
        keys: |settings| (&settings.cognito_client_id, settings.cognito_client_secret.as_ref()),
    },
];
