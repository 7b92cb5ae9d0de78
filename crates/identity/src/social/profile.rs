//! What a provider says about a person, read by the row of the table.
use kernel::{Janua, crypto::Secret, fault::Result};
use serde_json::Value;
use tenancy::email::Email;
use url::Url;

use super::{
    exchange::Handed,
    id_token::{self, INVALID_ID_TOKEN, Verified},
    providers::{Provider, Providers, is_loopback_http},
    table::{Picture, Proof, Row, Source},
    wire::PROVIDER_UNAVAILABLE,
};

/// The tenant in which Microsoft keeps the accounts of private people.
const MICROSOFT_CONSUMERS: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";
const LONGEST_URL: usize = 2048;
const LONGEST_NAME: usize = 200;
const LONGEST_ID: usize = 255;

#[derive(Debug)]
pub struct Profile {
    pub subject: String,
    pub email: Option<Email>,
    pub email_verified: bool,
    pub username: Option<String>,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
}

/// Who came back with these tokens.
pub async fn read(janua: &Janua, provider: &Provider, handed: &Handed, nonce: &Secret) -> Result<Profile> {
    let row = provider.row;
    if matches!(row.source, Source::IdToken { .. }) {
        let token = handed.id_token().ok_or(INVALID_ID_TOKEN)?;
        let verified = id_token::verify(janua, provider, &token).await?;
        if !verified.has_nonce(&row.source, nonce) {
            return Err(INVALID_ID_TOKEN.into());
        }
        return of_token(row, &verified);
    }
    let (wire, access) = (janua.own::<Providers>().wire()?, handed.access());
    let Some(userinfo) = &provider.userinfo else { return Err(PROVIDER_UNAVAILABLE.into()) };
    let said = wire.document(userinfo, Some(&access)).await?;
    let listed = match &provider.emails {
        Some(emails) => wire.document(emails, Some(&access)).await?,
        None => Value::Null,
    };
    of(row, &said, &listed)
}

/// What a token says that stood up to everything.
pub fn of_token(row: &Row, verified: &Verified) -> Result<Profile> {
    of(row, &verified.0, &Value::Null)
}

fn of(row: &Row, said: &Value, listed: &Value) -> Result<Profile> {
    let text = |pointer: &str| said.pointer(pointer).and_then(as_text);
    let subject = text(row.fields.subject).filter(|id| id.len() <= LONGEST_ID);
    let subject = subject.ok_or_else(|| PROVIDER_UNAVAILABLE.caused_by("the provider's answer has no user id"))?;
    let (email, email_verified) = match row.proof {
        Proof::Listed => primary(listed),
        Proof::Says(pointer) => (text("/email"), said.pointer(pointer).is_some_and(is_said)),
        Proof::Microsoft => (text("/email"), is_owned_domain(said)),
        Proof::Never => (text("/email"), false),
    };
    let email = email.as_deref().and_then(Email::parse);
    Ok(Profile {
        email_verified: email_verified && email.is_some(),
        email,
        username: row.fields.username.and_then(text).map(|name| short(&name)),
        name: row.fields.names.iter().find_map(|pointer| text(pointer)).map(|name| short(&name)),
        avatar_url: picture(row, said, &subject).filter(|url| may_be_shown(url)),
        subject,
    })
}

/// Text that says something; some ids are numbers.
fn as_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    // No column can keep a NUL.
    Some(text).filter(|text| !text.is_empty() && !text.contains('\0'))
}

/// Apple writes it as text.
fn is_said(value: &Value) -> bool {
    value == true || value == "true"
}

fn is_owned_domain(claims: &Value) -> bool {
    let owned = &claims["xms_edov"];
    is_said(owned) || owned == 1 || owned == "1" || claims["tid"] == MICROSOFT_CONSUMERS
}

/// The address a person calls their first, and whether it is proven.
fn primary(listed: &Value) -> (Option<String>, bool) {
    let entries = listed.as_array().into_iter().flatten();
    let first = entries.into_iter().find(|entry| entry["primary"] == true);
    first.map_or((None, false), |entry| (as_text(&entry["email"]), entry["verified"] == true))
}

fn picture(row: &Row, said: &Value, subject: &str) -> Option<String> {
    match row.fields.picture {
        Picture::At(pointer) => said.pointer(pointer).and_then(as_text),
        Picture::Discord => {
            let hash = as_text(&said["avatar"])?;
            let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let url = format!("https://cdn.discordapp.com/avatars/{subject}/{hash}.png");
            (is_plain(&hash) && is_plain(subject)).then_some(url)
        }
        Picture::Nowhere => None,
    }
}

/// It is put into pages, so it is an address of a picture and nothing that runs.
fn may_be_shown(url: &str) -> bool {
    let parsed = Url::parse(url).ok();
    let is_web = parsed.is_some_and(|url| url.scheme() == "https" && url.host().is_some() || is_loopback_http(&url));
    is_web && url.len() <= LONGEST_URL
}

/// One line, as long as a name may be.
pub fn short(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_NAME)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::table::ROWS, *};

    fn read(name: &str, said: &Value, listed: &Value) -> Profile {
        of(ROWS.iter().find(|row| row.name == name).unwrap(), said, listed).unwrap()
    }

    #[test]
    fn p23_only_a_plain_yes_proves_an_address() {
        for (word, is_proof) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("false"), false),
            (json!("0"), false),
            (json!(0), false),
            (json!("yes"), false),
            (Value::Null, false),
            (json!([true]), false),
        ] {
            let said = json!({ "sub": "1", "email": "ada@example.com", "email_verified": word });
            assert_eq!(read("google", &said, &Value::Null).email_verified, is_proof, "{word}");
        }
        let said = json!({ "sub": "1", "email": "ada@example.com" });
        assert!(!read("apple", &said, &Value::Null).email_verified, "nothing said is nothing proven");
        let said = json!({ "sub": "1", "email_verified": true });
        assert!(!read("apple", &said, &Value::Null).email_verified, "no address is no proven address");
    }

    #[test]
    fn a_tenant_of_microsoft_cannot_claim_others_addresses() {
        let said = |more: Value| {
            let mut said = json!({ "sub": "1", "email": "ada@example.com", "email_verified": true,
                                   "tid": "00000000-0000-0000-0000-000000000001" });
            said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read("microsoft", &said, &Value::Null).email_verified
        };
        assert!(!said(json!({})), "whatever else the token says");
        for owned in [json!(true), json!(1), json!("1"), json!("true")] {
            assert!(said(json!({ "xms_edov": owned })), "{owned}");
        }
        for foreign in [json!(false), json!(0), json!("0"), json!("false"), Value::Null] {
            assert!(!said(json!({ "xms_edov": foreign })), "{foreign}");
        }
        assert!(said(json!({ "tid": MICROSOFT_CONSUMERS })));
    }

    #[test]
    fn github_says_of_each_address_whether_it_is_proven() {
        let person = json!({ "id": 42, "login": "ada", "name": null, "email": "public@example.com" });
        let listed = json!([
            { "email": "old@example.com", "primary": false, "verified": true },
            { "email": "ada@example.com", "primary": true, "verified": true },
        ]);
        let ada = read("github", &person, &listed);
        assert_eq!(
            (ada.subject.as_str(), ada.username.as_deref(), ada.name.as_deref()),
            ("42", Some("ada"), Some("ada"))
        );
        assert_eq!(ada.email.map(|email| email.as_str().to_owned()).as_deref(), Some("ada@example.com"));
        assert!(ada.email_verified);
        let listed = json!([{ "email": "ada@example.com", "primary": true, "verified": false }]);
        assert!(!read("github", &person, &listed).email_verified);
        assert!(read("github", &person, &json!([])).email.is_none());
    }

    #[test]
    fn a_picture_is_an_address_on_the_web() {
        let shown = |url: &str| read("google", &json!({ "sub": "1", "picture": url }), &Value::Null).avatar_url;
        assert!(shown("https://pictures.example/ada.png").is_some());
        let long = format!("https://pictures.example/{}", "a".repeat(LONGEST_URL));
        for wrong in
            ["javascript:alert(1)", "data:image/png;base64,AA", "http://pictures.example/a", "ada.png", &long]
        {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
        let discord =
            json!({ "id": "80351110224678912", "username": "nelly", "avatar": "8342729096ea3675442027381ff50dfe" });
        let url = "https://cdn.discordapp.com/avatars/80351110224678912/8342729096ea3675442027381ff50dfe.png";
        assert_eq!(read("discord", &discord, &Value::Null).avatar_url.as_deref(), Some(url));
        let odd = json!({ "id": "1", "username": "nelly", "avatar": "../../x" });
        assert_eq!(read("discord", &odd, &Value::Null).avatar_url, None);
    }
}
