//! Talking to providers: in good time, to nobody else than asked, and without listening to endless answers.
use std::{pin::Pin, sync::OnceLock, time::Duration};

use kernel::{
    crypto::Secret,
    fault::{Code, Fault, Result},
};
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse, http};
use reqwest::{Client, header, redirect::Policy};
use serde_json::Value;
use url::Url;

pub const PROVIDER_UNAVAILABLE: Code =
    Code::new(502, "provider_unavailable", "The provider is unavailable. Try again later.");

const TIMEOUT: Duration = Duration::from_secs(10);
/// No answer of a provider is longer.
const LONGEST: usize = 1024 * 1024;

/// Made for the first question: reading the system's authorities takes a while, and many installations ask nobody.
#[derive(Default)]
pub struct Wire(OnceLock<Client>);

/// What went wrong, without anything of the question: that holds codes and secrets.
#[derive(Debug)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Broken {}

impl From<reqwest::Error> for Broken {
    fn from(error: reqwest::Error) -> Self {
        Self(error.without_url().to_string())
    }
}

impl From<Broken> for Fault {
    #[track_caller]
    fn from(broken: Broken) -> Self {
        PROVIDER_UNAVAILABLE.caused_by(broken)
    }
}

/// The library's questions go the same way as ours.
impl<'c> AsyncHttpClient<'c> for Wire {
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Broken>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.ask(request))
    }
}

impl Wire {
    fn client(&self) -> Result<&Client, Broken> {
        if let Some(made) = self.0.get() {
            return Ok(made);
        }
        // Nowhere but there: no redirect takes a secret along, and no proxy of the environment reads it.
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().user_agent("Janua");
        let made = client.build()?;
        Ok(self.0.get_or_init(|| made))
    }

    /// One question and its whole answer.
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, Broken> {
        let mut answer = self.client()?.execute(request.try_into()?).await?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if body.len() + chunk.len() > LONGEST {
                return Err(Broken("the answer is too long".into()));
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = http::Response::new(body);
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    }

    /// A document, read with an access token where one is needed.
    pub async fn document(&self, url: &Url, token: Option<&Secret>) -> Result<Value, Broken> {
        let mut request = http::Request::get(url.as_str()).header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request.body(vec![]).map_err(|_| Broken("the question cannot be put".into()))?;
        let answer = self.ask(request).await?;
        if answer.status() != http::StatusCode::OK {
            return Err(Broken(format!("the provider says {}", answer.status())));
        }
        serde_json::from_slice(answer.body()).map_err(|_| Broken("the answer is not JSON".into()))
    }
}
