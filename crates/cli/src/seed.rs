//! The first people and the first app of a development server.
use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    profile::{Credentials, DEFAULT, Profile},
    server::body_of,
};

const PASSWORD: &str = "correct horse battery staple";
/// Everybody but the owner: email, name, about them.
pub const PEOPLE: &[(&str, &str, &str)] = &[
    ("ada@example.com", "Ada Lovelace", "end user of the app"),
    ("grace@example.com", "Grace Hopper", "end user of the app"),
    ("alan@example.com", "Alan Turing", "has an account, and never used the app"),
];

/// What the app sends mail from. The development server takes its DNS records for created.
pub const MAIL_DOMAIN: &str = "shop.example";

/// Makes them through the API of the server at `url`. `code` waits for the code in the newest mail to an email.
pub async fn seed(
    url: &str,
    owner: &str,
    config: &Path,
    code: impl AsyncFn(&str) -> Option<String>,
) -> std::result::Result<Value, String> {
    make(url, owner, config, code).await.map_err(|failure| failure.message)
}

async fn make(url: &str, owner: &str, config: &Path, code: impl AsyncFn(&str) -> Option<String>) -> Result<Value> {
    let client = reqwest::Client::new();
    let ask = async |method: Method, path: &str, token: &str, key: &str, body: Value| -> Result<Value> {
        let mut request = client.request(method, format!("{url}{path}")).json(&body);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if !key.is_empty() {
            request = request.header("X-Service-App-Key", key);
        }
        let answer = request.send().await.map_err(|error| Failure::failed(error.to_string()))?;
        body_of(answer).await
    };
    let post = async |path: &str, token: &str, body: Value| ask(Method::POST, path, token, "", body).await;
    let sign_in =
        |email: &str| json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    post("/auth/register", "", json!({ "email": owner, "password": PASSWORD, "name": "Olga Owner" })).await?;
    let code = code(owner).await.ok_or_else(|| Failure::failed("no mail with a code came"))?;
    post("/auth/verify-email", "", json!({ "email": owner, "code": code })).await?;
    let session = post("/auth/login", "", sign_in(owner)).await?;
    let profile = Profile::from_answer(url, &session).ok_or_else(|| Failure::failed("no token"))?;
    let token = profile.access_token.clone();
    save(config, profile)?;
    let org = post("/org", &token, json!({ "name": "Example" })).await?;
    let app = json!({
        "name": "Shop", "slug": "shop", "orgId": org["id"], "redirectUris": ["http://localhost:3000/callback"],
        "allowedOrigins": ["http://localhost:3000"],
    });
    let app = post("/apps", &token, app).await?;
    let keys = format!("/apps/{}/keys", app["id"].as_str().unwrap_or_default());
    let key = async |kind: &str| -> Result<String> {
        let made = post(&keys, &token, json!({ "type": kind, "environment": "live", "name": "dev" })).await?;
        Ok(made["value"].as_str().unwrap_or_default().to_owned())
    };
    let (secret, publishable) = (key("secret").await?, key("publishable").await?);
    let domains = format!("/apps/{}/email/domains", app["id"].as_str().unwrap_or_default());
    post(&domains, &token, json!({ "hostname": MAIL_DOMAIN })).await?;
    post(&format!("{domains}/{MAIL_DOMAIN}/verify"), &token, json!({})).await?;
    let mut people = vec![
        json!({ "email": owner, "name": "Olga Owner", "about": "owner of the installation, the organization and the app" }),
    ];
    for (email, name, about) in PEOPLE {
        let new = json!({ "email": email, "name": name, "emailVerified": true, "password": PASSWORD });
        post("/admin/users", &token, new).await?;
        if about.starts_with("end user") {
            ask(Method::POST, "/auth/login", "", &publishable, sign_in(email)).await?;
        }
        people.push(json!({ "email": email, "name": name, "about": about }));
    }
    Ok(json!({
        "url": url, "password": PASSWORD, "people": people, "org": org, "app": app, "secretKey": secret,
        "publishableKey": publishable, "mailDomain": MAIL_DOMAIN,
    }))
}

/// The owner is signed in for `janua` with this configuration.
fn save(config: &Path, profile: Profile) -> Result<()> {
    fs::create_dir_all(config)?;
    let mut credentials = Credentials::default();
    credentials.profiles.insert(DEFAULT.to_owned(), profile);
    let path = config.join("credentials.json");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    Ok(serde_json::to_writer(&mut file, &credentials)?)
}
