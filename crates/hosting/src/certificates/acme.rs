//! The certificate authority: an account there, and what its errors mean.
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::http::{Request, Response, StatusCode, header::RETRY_AFTER};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use instant_acme::{
    Account, AccountCredentials, BodyWrapper, BytesResponse, Error, ExternalAccountKey, HttpClient, NewAccount,
    Problem,
};
use kernel::Janua;

use super::model::{self, Failure};
use crate::{domains::Reason, settings::Settings};

const PURPOSE: &str = "acme_account";
/// Of one request to the authority.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest answer that is read.
const LONGEST: usize = 1024 * 1024;
/// Longer than this nothing is waited for, whatever the authority says.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// What the authority said last about waiting. The ACME library does not tell.
#[derive(Clone, Default)]
pub struct Patience(Arc<Mutex<Option<Duration>>>);

impl Patience {
    fn note(&self, wait: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }

    pub fn asked(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the authority: our own client, with time limits and the configured root.
struct Caller {
    client: reqwest::Client,
    patience: Patience,
}

impl HttpClient for Caller {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, patience) = (self.client.clone(), self.patience.clone());
        Box::pin(async move {
            let other = |error: reqwest::Error| Error::Other(Box::new(error));
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let mut answer = client
                .request(head.method, head.uri.to_string())
                .headers(head.headers)
                .body(body)
                .send()
                .await
                .map_err(other)?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
                let seconds = headers.get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.trim().parse().ok());
                patience.note(seconds.map(Duration::from_secs));
            }
            let mut read = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(other)? {
                read.extend_from_slice(&part);
                if read.len() > LONGEST {
                    return Err(Error::Str("the answer of the certificate authority is too long"));
                }
            }
            let mut response = Response::new(Full::new(Bytes::from(read)));
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok(BytesResponse::from(response))
        })
    }
}

fn caller(settings: &Settings) -> Result<(Box<dyn HttpClient>, Patience), Error> {
    let other = |error: reqwest::Error| Error::Other(Box::new(error));
    let mut client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .https_only(true);
    if let Some(file) = &settings.acme_ca {
        let pem = std::fs::read(file).map_err(|error| Error::Other(Box::new(error)))?;
        let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(other)?;
        client = client.tls_certs_only(roots);
    }
    let patience = Patience::default();
    let caller = Caller { client: client.build().map_err(other)?, patience: patience.clone() };
    Ok((Box::new(caller), patience))
}

/// The account of this installation at the configured authority; made at the first order. All nodes use one.
pub async fn account(janua: &Janua) -> Result<(Account, Patience), Error> {
    let settings = janua.config.of::<Settings>();
    let Some(directory) = settings.acme.0.as_ref().map(ToString::to_string) else {
        return Err(Error::Str("no certificate authority is configured (setting acme)"));
    };
    let failed = |error: db::Error| Error::Other(Box::new(error));
    for _ in 0..2 {
        if let Some(sealed) = model::account(&janua.db, &directory).await.map_err(failed)? {
            let place = format!("acme_account:sealed:{directory}");
            let opened = janua.vault.open(PURPOSE, &place, &sealed).map_err(|error| Error::Other(Box::new(error)))?;
            let credentials: AccountCredentials = serde_json::from_slice(&opened)?;
            let (caller, patience) = caller(&settings)?;
            return Ok((Account::builder_with_http(caller).from_credentials(credentials).await?, patience));
        }
        create(janua, &settings, &directory).await?;
    }
    Err(Error::Str("the account at the certificate authority was not kept"))
}

async fn create(janua: &Janua, settings: &Settings, directory: &str) -> Result<(), Error> {
    let contact = format!("mailto:{}", settings.acme_email);
    let contacts: &[&str] = if settings.acme_email.is_empty() { &[] } else { &[&contact] };
    let new = NewAccount { contact: contacts, terms_of_service_agreed: true, only_return_existing: false };
    let external = match &settings.acme_eab_key {
        Some(key) => {
            let text = key.expose().trim().trim_end_matches('=');
            let key = data_encoding::BASE64URL_NOPAD.decode(text.as_bytes());
            let key = key.map_err(|_| Error::Str("acme_eab_key is not base64url"))?;
            Some(ExternalAccountKey::new(settings.acme_eab_kid.clone(), &key))
        }
        None => None,
    };
    let (caller, _) = caller(settings)?;
    let builder = Account::builder_with_http(caller);
    let (_, credentials) = builder.create(&new, directory.to_owned(), external.as_ref()).await?;
    let plain = zeroize::Zeroizing::new(serde_json::to_vec(&credentials)?);
    let sealed = janua.vault.seal(PURPOSE, &format!("acme_account:sealed:{directory}"), &plain);
    let kept = model::save_account(&janua.db, directory, sealed, janua.clock.now()).await;
    kept.map_err(|error| Error::Other(Box::new(error)))
}

/// The authority knows the account no more: the next order makes another one.
pub async fn forget_account(janua: &Janua) -> db::Result<()> {
    let settings = janua.config.of::<Settings>();
    match settings.acme.0.as_ref() {
        Some(directory) => model::forget_account(&janua.db, directory.as_str()).await,
        None => Ok(()),
    }
}

/// What an error means for the order of a name.
pub fn failure(error: &Error, patience: &Patience) -> Failure {
    let away = |text: String, wait| Failure { reason: Reason::CaUnavailable, text, counts: false, wait };
    let asked = patience.asked().map(|wait| wait.min(LONGEST_WAIT));
    match error {
        Error::Api(problem) => refusal(problem, asked),
        Error::Timeout(_) => away("the certificate authority did not finish the order in time".into(), asked),
        other => away(innermost(other), asked),
    }
}

pub fn refusal(problem: &Problem, asked: Option<Duration>) -> Failure {
    let kind = problem.r#type.as_deref().unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned();
    let text = problem.detail.clone().unwrap_or_else(|| problem.to_string());
    let (reason, counts) = match kind.as_str() {
        "rateLimited" => (Reason::CaRateLimited, false),
        "caa" => (Reason::CaaForbids, true),
        "badNonce" | "serverInternal" | "orderNotReady" | "accountDoesNotExist" => (Reason::CaUnavailable, false),
        _ => (Reason::ValidationFailed, true),
    };
    let wait = asked.or((reason == Reason::CaRateLimited).then_some(Duration::from_hours(1)));
    Failure { reason, text: text.chars().take(500).collect(), counts, wait }
}

/// Connection errors say what is wrong at their end.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string().chars().take(500).collect()
}
