//! The providers this installation is registered with: the rows of the table with the settings put in.
use std::{collections::BTreeMap, sync::OnceLock};

use kernel::{
    Janua,
    config::Config,
    crypto::Secret,
    fault::{Code, NOT_FOUND, Result},
};
use url::{Host, Url};

use super::{
    apple::AppleKey,
    id_token::is_uuid,
    keys::KeySet,
    settings::{ProviderEndpoint, Settings},
    table::{ROWS, Row, Source},
    wire::Wire,
};

pub const PROVIDER_NOT_CONFIGURED: Code =
    Code::new(404, "provider_not_configured", "This provider is not configured.");

/// One provider that people can sign in with.
pub struct Provider {
    pub row: &'static Row,
    pub client_id: String,
    pub secret: ClientSecret,
    pub authorize: Url,
    pub token: Url,
    /// Empty where the provider signs nothing.
    pub issuers: Vec<String>,
    pub keys: Option<KeySet>,
    pub userinfo: Option<Url>,
    pub emails: Option<Url>,
}

/// What proves to a provider that it is us who ask.
pub enum ClientSecret {
    Text(Secret),
    /// Apple wants a new one each time, signed with this.
    Signed(AppleKey),
}

/// All of them, known once the settings were read at the start.
#[derive(Default)]
pub struct Providers(OnceLock<Ready>);

struct Ready {
    wire: Wire,
    by_name: BTreeMap<&'static str, Provider>,
}

impl Providers {
    /// By the name in the address. One that does not exist and one that is not set up are both a 404, told apart.
    pub fn find(&self, name: &str) -> Result<&Provider> {
        let row = ROWS.iter().find(|row| row.name == name).ok_or(NOT_FOUND)?;
        let ready = self.0.get().ok_or(PROVIDER_NOT_CONFIGURED)?;
        ready.by_name.get(row.name).ok_or_else(|| PROVIDER_NOT_CONFIGURED.into())
    }

    /// Those that are set up.
    pub fn all(&self) -> impl Iterator<Item = &Provider> {
        self.0.get().into_iter().flat_map(|ready| ready.by_name.values())
    }

    pub fn wire(&self) -> Result<&Wire> {
        Ok(&self.0.get().ok_or(PROVIDER_NOT_CONFIGURED)?.wire)
    }
}

/// The names of the providers that are set up; the error names what is wrong with their settings.
pub fn names(config: &Config) -> Result<Vec<&'static str>, String> {
    Ok(read(&config.of())?.into_keys().collect())
}

/// Reads the settings; what is wrong with them stops the start.
pub fn start(janua: &Janua) -> Result<(), String> {
    let ready = Ready { wire: Wire::default(), by_name: read(&janua.config.of())? };
    janua.own::<Providers>().0.set(ready).map_err(|_| "the providers were read twice".to_owned())
}

fn read(settings: &Settings) -> Result<BTreeMap<&'static str, Provider>, String> {
    for given in &settings.provider_endpoints {
        let row = ROWS.iter().find(|row| row.name == given.provider);
        let row = row.ok_or_else(|| {
            let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            format!("provider_endpoints: there is no provider {:?}; there are {}", given.provider, names.join(", "))
        })?;
        if !parts(row).contains(&given.part.as_str()) {
            let known = parts(row).join(", ");
            return Err(format!("provider_endpoints: {} has no {:?}; it has {known}", row.name, given.part));
        }
    }
    let mut found = BTreeMap::new();
    for row in &ROWS {
        if let Some(provider) = provider(settings, row)? {
            found.insert(row.name, provider);
        }
    }
    Ok(found)
}

fn parts(row: &Row) -> Vec<&'static str> {
    let more: &[_] = match row.source {
        Source::IdToken { .. } => &["issuer", "jwks"],
        Source::Api { emails: None, .. } => &["userinfo"],
        Source::Api { emails: Some(_), .. } => &["userinfo", "emails"],
    };
    [&["authorize", "token"], more].concat()
}

/// The provider of a row, if it is set up at all.
fn provider(settings: &Settings, row: &'static Row) -> Result<Option<Provider>, String> {
    let (id, secret) = (row.keys)(settings);
    let name = row.name;
    let secret = match (id.is_empty(), secret) {
        (true, None) => return Ok(None),
        (true, Some(_)) => return Err(format!("{name}_client_id: is needed beside {name}_client_secret")),
        (false, None) => return Err(format!("{name}_client_secret: is needed beside {name}_client_id")),
        (false, Some(secret)) => secret,
    };
    let secret = match name {
        "apple" => ClientSecret::Signed(AppleKey::read(settings, secret)?),
        _ => ClientSecret::Text(secret.clone()),
    };
    let address = |part: &str, usual: &str| address(settings, name, part, usual);
    let (mut issuers, mut keys, mut userinfo, mut emails) = (vec![], None, None, None);
    match &row.source {
        Source::IdToken { issuers: usual, jwks, .. } => {
            issuers = match overridden(settings, name, "issuer") {
                Some(given) => vec![given.address.clone()],
                None => usual.iter().map(|issuer| filled(settings, issuer)).collect::<Result<_, _>>()?,
            };
            keys = Some(KeySet::at(address("jwks", jwks)?));
        }
        Source::Api { userinfo: usual, emails: list } => {
            userinfo = Some(address("userinfo", usual)?);
            emails = list.map(|usual| address("emails", usual)).transpose()?;
        }
    }
    let (authorize, token) = (address("authorize", row.authorize)?, address("token", row.token)?);
    Ok(Some(Provider { row, client_id: id.to_owned(), secret, authorize, token, issuers, keys, userinfo, emails }))
}

fn overridden<'a>(settings: &'a Settings, provider: &str, part: &str) -> Option<&'a ProviderEndpoint> {
    settings.provider_endpoints.iter().rev().find(|given| given.provider == provider && given.part == part)
}

fn address(settings: &Settings, provider: &str, part: &str, usual: &str) -> Result<Url, String> {
    let (text, setting) = match overridden(settings, provider, part) {
        Some(given) => (given.address.clone(), "provider_endpoints".to_owned()),
        None => (filled(settings, usual)?, format!("{provider}_*")),
    };
    let url = Url::parse(&text).map_err(|e| format!("{setting}: {provider}.{part}: {text:?} is no URL ({e})"))?;
    // What comes from there decides who somebody is, so nobody on the way may change it.
    if url.scheme() != "https" && !is_loopback_http(&url) {
        return Err(format!("{setting}: {provider}.{part} must be https, or http on this machine"));
    }
    Ok(url)
}

/// A template with the settings put in.
fn filled(settings: &Settings, template: &str) -> Result<String, String> {
    let places = [
        ("{tenant}", "microsoft_tenant", &settings.microsoft_tenant),
        ("{pool}", "cognito_issuer", &settings.cognito_issuer),
        ("{domain}", "cognito_domain", &settings.cognito_domain),
    ];
    let mut text = template.to_owned();
    // A tenant that is named by its id is the only one that may speak.
    if is_uuid(&settings.microsoft_tenant) {
        text = text.replace("{tid}", &settings.microsoft_tenant);
    }
    for (place, setting, value) in places {
        if text.contains(place) {
            if value.is_empty() {
                return Err(format!("{setting}: is needed for this provider"));
            }
            text = text.replace(place, value.trim_end_matches('/'));
        }
    }
    Ok(text)
}

pub fn is_loopback_http(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "http" && is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<BTreeMap<&'static str, Provider>, String> {
        let flags = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        read(&Config::load(None, [], flags, crate::PART.settings).map_err(|e| e.to_string())?.of())
    }

    #[test]
    fn nothing_is_set_up_until_somebody_does() {
        assert!(settings(&[]).unwrap().is_empty());
        let found = settings(&[("google_client_id", "id"), ("google_client_secret", "hush")]).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["google"]);
        assert_eq!(found["google"].token.as_str(), "https://oauth2.googleapis.com/token");
        let tenant = [("microsoft_client_id", "id"), ("microsoft_client_secret", "s"), ("microsoft_tenant", "t1")];
        let found = settings(&tenant).unwrap();
        assert_eq!(found["microsoft"].token.as_str(), "https://login.microsoftonline.com/t1/oauth2/v2.0/token");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let google = [("google_client_id", "id"), ("google_client_secret", "hush")];
        let apple = [("apple_client_id", "id"), ("apple_client_secret", "no key")];
        let cognito = [("cognito_client_id", "id"), ("cognito_client_secret", "hush")];
        let with = |base: &[(&'static str, &'static str)], more: (&'static str, &'static str)| {
            settings(&[base, &[more]].concat()).err().unwrap_or_default()
        };
        for (said, named) in [
            (settings(&google[..1]).err().unwrap_or_default(), "google_client_secret"),
            (settings(&google[1..]).err().unwrap_or_default(), "google_client_id"),
            (settings(&apple).err().unwrap_or_default(), "apple_team_id"),
            (with(&apple, ("apple_team_id", "T")), "apple_key_id"),
            (settings(&cognito).err().unwrap_or_default(), "cognito_issuer"),
            (with(&cognito, ("cognito_issuer", "https://pool.example")), "cognito_domain"),
            (with(&google, ("provider_endpoints", "gogle.token=https://x.example")), "\"gogle\""),
            (with(&google, ("provider_endpoints", "google.tokn=https://x.example")), "\"tokn\""),
            (with(&google, ("provider_endpoints", "google.userinfo=https://x.example")), "\"userinfo\""),
            (with(&google, ("provider_endpoints", "google.token=x")), "google.token"),
            (
                with(&google, ("provider_endpoints", "google.token=http://far.example/t")),
                "google.token must be https",
            ),
            (with(&google, ("provider_endpoints", "google.token")), "google.token"),
        ] {
            assert!(said.contains(named), "{named:?} is not in {said:?}");
        }
        assert_eq!(with(&google, ("provider_endpoints", "google.token=http://127.0.0.1:1/t")), "");
    }
}
