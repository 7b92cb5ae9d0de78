//! Objects in a bucket of an S3-compatible server. Clients put them there, at addresses signed with the bucket's key.
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode, header, redirect::Policy};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};

use super::{Doing, KEPT_FOR_GOOD, Key, ObjectError, Objects, Slot, shown_here};
use crate::{
    clock::{Clock, Timestamp},
    config::Config,
};

/// How long one conversation with the server may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request of our own may be on its way.
const FRESH: Duration = Duration::from_mins(1);

pub(super) struct S3 {
    client: Client,
    bucket: Bucket,
    credentials: Credentials,
    clock: Clock,
    shown_at: String,
}

impl S3 {
    /// Nothing when no server is named; the error names the wrong setting.
    pub(super) fn from_config(config: &Config, clock: &Clock) -> Result<Option<Self>, String> {
        let named = [
            ("s3_bucket", !config.s3_bucket.is_empty()),
            ("s3_access_key", config.s3_access_key.is_some()),
            ("s3_secret_key", config.s3_secret_key.is_some()),
        ];
        let Some(url) = &config.s3_url else {
            let alone = named.iter().find(|(_, is_set)| *is_set);
            return alone.map_or(Ok(None), |(name, _)| Err(format!("{name}: needs s3_url beside it")));
        };
        let (Some(access), Some(secret), false) =
            (&config.s3_access_key, &config.s3_secret_key, config.s3_bucket.is_empty())
        else {
            let missing: Vec<_> = named.iter().filter(|(_, is_set)| !is_set).map(|(name, _)| *name).collect();
            return Err(format!("s3_url: needs {} beside it", missing.join(", ")));
        };
        if !is_web(url) {
            return Err("s3_url: must start with http:// or https://".into());
        }
        if config.s3_public_url.as_ref().is_some_and(|url| !is_web(url)) {
            return Err("s3_public_url: must start with http:// or https://".into());
        }
        let style = if config.s3_path_style.is_on() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let bucket = Bucket::new(url.clone(), style, config.s3_bucket.clone(), config.s3_region.clone());
        // Nowhere but there: no redirect and no proxy of the environment sees what we sign.
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
        let shown_at = config.s3_public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
        Ok(Some(Self {
            client: client.map_err(|e| format!("s3_url: {e}"))?,
            bucket: bucket.map_err(|e| format!("s3_bucket: {e}"))?,
            credentials: Credentials::new(access.expose(), secret.expose()),
            clock: clock.clone(),
            shown_at: shown_at.unwrap_or_else(|| shown_here(config)),
        }))
    }

    fn sign<'a>(&self, action: &impl S3Action<'a>, until: Timestamp) -> url::Url {
        let now = self.clock.now();
        let moment = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
        action.sign_with_time(until.since(now).max(Duration::from_secs(1)), &moment)
    }

    fn soon(&self) -> Timestamp {
        self.clock.now().plus(FRESH)
    }
}

impl Objects for S3 {
    fn signed_put(&self, slot: &Slot<'_>) -> String {
        let length = slot.length.to_string();
        let mut put = self.bucket.put_object(Some(&self.credentials), slot.key.as_str());
        // What is signed must come: the server refuses another type or length by itself.
        put.headers_mut().insert("content-length", length);
        put.headers_mut().insert("content-type", slot.content_type);
        self.sign(&put, slot.until).into()
    }

    fn read<'a>(&'a self, key: &'a Key, most: u64) -> Doing<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let get = self.bucket.get_object(Some(&self.credentials), key.as_str());
            let answer = send(self.client.get(self.sign(&get, self.soon()))).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let mut answer = expect_success(answer)?;
            if answer.content_length().is_some_and(|length| length > most) {
                return Err(ObjectError::TooLong);
            }
            let mut bytes = vec![];
            while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() as u64 > most {
                    return Err(ObjectError::TooLong);
                }
            }
            Ok(Some(bytes))
        })
    }

    fn write<'a>(&'a self, key: &'a Key, content_type: &'a str, bytes: &'a [u8]) -> Doing<'a, ()> {
        Box::pin(async move {
            let mut put = self.bucket.put_object(Some(&self.credentials), key.as_str());
            put.headers_mut().insert("cache-control", KEPT_FOR_GOOD);
            put.headers_mut().insert("content-type", content_type);
            let request = self.client.put(self.sign(&put, self.soon()));
            let request = request.header(header::CONTENT_TYPE, content_type);
            let request = request.header(header::CACHE_CONTROL, KEPT_FOR_GOOD).body(bytes.to_vec());
            expect_success(send(request).await?).map(|_| ())
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()> {
        Box::pin(async move {
            let delete = self.bucket.delete_object(Some(&self.credentials), key.as_str());
            let answer = send(self.client.delete(self.sign(&delete, self.soon()))).await?;
            if answer.status() == StatusCode::NOT_FOUND { Ok(()) } else { expect_success(answer).map(|_| ()) }
        })
    }

    fn public_url(&self, key: &Key) -> String {
        format!("{}/{key}", self.shown_at)
    }

    fn is_put_here(&self) -> bool {
        false
    }

    fn check(&self) -> Doing<'_, ()> {
        Box::pin(async move {
            let head = self.bucket.head_bucket(Some(&self.credentials));
            expect_success(send(self.client.head(self.sign(&head, self.soon()))).await?).map(|_| ())
        })
    }

    fn describe(&self) -> String {
        let host = self.bucket.base_url().host_str().unwrap_or_default().to_owned();
        format!("the bucket {} at {host}", self.bucket.name())
    }
}

fn is_web(url: &url::Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host_str().is_some()
}

async fn send(request: RequestBuilder) -> Result<Response, ObjectError> {
    request.send().await.map_err(unreachable)
}

fn expect_success(answer: Response) -> Result<Response, ObjectError> {
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::INSUFFICIENT_STORAGE => Err(ObjectError::Full("the server has no room left".into())),
        status => Err(ObjectError::Away(format!("the server says {status}"))),
    }
}

/// The address would show the signature.
fn unreachable(error: reqwest::Error) -> ObjectError {
    ObjectError::Away(error.without_url().to_string())
}
