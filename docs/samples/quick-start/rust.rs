// Save as src/main.rs, run `env $(cat .env) cargo run`, open http://localhost:3000
// cargo add aws-lc-rs axum data-encoding serde_json tokio url
// cargo add tokio --features full && cargo add reqwest --features form,json
use std::{collections::HashMap, env, error::Error};

use aws_lc_rs::{digest, rand};
use axum::{
    Router,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;
use url::{Url, form_urlencoded};

#[derive(Clone)]
pub struct Settings {
    pub issuer: String,
    pub client_id: String,
    pub redirect_url: Url,
}

const COOKIE: &str = "HttpOnly; SameSite=Lax; Path=/";

fn random() -> Result<String, aws_lc_rs::error::Unspecified> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes)?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

async fn login(State(settings): State<Settings>) -> Response {
    let (Ok(state), Ok(verifier)) = (random(), random()) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let challenge = BASE64URL_NOPAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()).as_ref());
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", &settings.client_id)
        .append_pair("redirect_uri", settings.redirect_url.as_str())
        .append_pair("scope", "openid profile email")
        .append_pair("state", &state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .finish();
    let location = format!("{}/oauth/authorize?{query}", settings.issuer);
    let cookie = format!("pending={state}.{verifier}; {COOKIE}");
    (StatusCode::FOUND, [(header::LOCATION, location), (header::SET_COOKIE, cookie)]).into_response()
}

async fn callback(State(settings): State<Settings>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
    let cookies = headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let pending = cookies.split("; ").find_map(|pair| pair.strip_prefix("pending=")).unwrap_or_default();
    match finish(&settings, &query, pending).await {
        Ok(user) => {
            let cookie = format!("pending=; Max-Age=0; {COOKIE}");
            let email = user["email"].as_str().unwrap_or("a user without an email");
            ([(header::SET_COOKIE, cookie)], format!("Signed in as {email}.\n")).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn finish(
    settings: &Settings,
    query: &HashMap<String, String>,
    pending: &str,
) -> Result<Value, Box<dyn Error + Send + Sync>> {
    let (state, verifier) = pending.split_once('.').ok_or("This sign-in was not started here.")?;
    if query.get("state").map(String::as_str) != Some(state) {
        return Err("This sign-in was not started here.".into());
    }
    let code = query.get("code").ok_or_else(|| query.get("error").cloned().unwrap_or_default())?;
    let http = reqwest::Client::new();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", settings.client_id.as_str()),
        ("redirect_uri", settings.redirect_url.as_str()),
        ("code", code.as_str()),
        ("code_verifier", verifier),
    ];
    let answer = http.post(format!("{}/oauth/token", settings.issuer)).form(&form).send().await?;
    let tokens: Value = answer.json().await?;
    let access_token = tokens["access_token"].as_str().ok_or("The code was refused.")?;
    let answer = http.get(format!("{}/oauth/userinfo", settings.issuer)).bearer_auth(access_token).send().await?;
    Ok(answer.json().await?)
}

pub async fn serve(settings: Settings) -> Result<(), Box<dyn Error>> {
    let host = settings.redirect_url.host_str().unwrap_or("localhost").to_owned();
    let port = settings.redirect_url.port_or_known_default().unwrap_or(3000);
    let path = settings.redirect_url.path().to_owned();
    let router = Router::new()
        .route("/", get(|| async { Html(r#"<a href="/login">Sign in</a>"#) }))
        .route("/login", get(login))
        .route(&path, get(callback))
        .with_state(settings);
    println!("Open http://{host}:{port}");
    Ok(axum::serve(tokio::net::TcpListener::bind((host, port)).await?, router).await?)
}

#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    serve(Settings {
        issuer: setting("ISSUER", "https://id.example.com"),
        client_id: setting("CLIENT_ID", "YOUR_CLIENT_ID"),
        redirect_url: setting("REDIRECT_URL", "http://localhost:3000/callback").parse()?,
    })
    .await
}
