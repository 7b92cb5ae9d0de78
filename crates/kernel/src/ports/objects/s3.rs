//! Objects in a bucket of an S3-compatible server. Clients write them there, to URLs signed with the bucket's key.
mod parts;

use std::{io, ops::Range, time::Duration};

use futures_util::stream;
use reqwest::{Client, RequestBuilder, Response, StatusCode, header, redirect::Policy};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle, actions::ListObjectsV2};
use tokio::time::timeout;

use super::{Content, Doing, Key, LISTED, Listed, New, ObjectError, Objects, Slot, Source, Stored, View, shown_here};
use crate::{
    clock::{Clock, Timestamp},
    config::Config,
};

/// How long the server may take to answer, and to go on with an answer it has begun.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A slower server counts as one that is away, in bytes a second: to take what we send, and to copy by itself.
const SLOWEST_PUT: u64 = 256 * 1024;
const SLOWEST_COPY: u64 = 16 * 1024 * 1024;
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
        let client = Client::builder().connect_timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
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
        // What is signed must come: the server refuses another type or length by itself. Whoever gave a digest has it
        // checked when the object is taken.
        put.headers_mut().insert("content-length", length);
        put.headers_mut().insert("content-type", slot.content_type);
        self.sign(&put, slot.until).into()
    }

    fn signed_get(&self, view: &View<'_>) -> Option<String> {
        let mut get = self.bucket.get_object(Some(&self.credentials), view.key.as_str());
        get.query_mut().insert("response-content-type", view.content_type);
        get.query_mut().insert("response-content-disposition", view.disposition);
        Some(self.sign(&get, view.until).into())
    }

    fn put<'a>(&'a self, new: New<'a>, bytes: Source<'a>) -> Doing<'a, Stored> {
        Box::pin(self.put_in_parts(new, bytes))
    }

    fn get<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Doing<'a, Option<Content>> {
        Box::pin(async move {
            let get = self.bucket.get_object(Some(&self.credentials), key.as_str());
            let mut request = self.client.get(self.sign(&get, self.soon()));
            if let Some(range) = &range {
                let last = range.end.saturating_sub(1);
                request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
            }
            let answer = send(request, TIMEOUT).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let answer = expect_success(answer)?;
            let total = match (&range, answer.status()) {
                (Some(_), StatusCode::PARTIAL_CONTENT) => total_of(&answer),
                (Some(_), _) => return Err(ObjectError::Away("the server ignores ranges".into())),
                (None, _) => answer.content_length(),
            };
            let total = total.ok_or_else(|| ObjectError::Away("the server does not say how long it is".into()))?;
            let bytes = stream::try_unfold(answer, async |mut answer| {
                let piece =
                    timeout(TIMEOUT, answer.chunk()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
                // It also complains when less comes than was announced.
                let piece = piece.map_err(|error| io::Error::other(error.without_url()))?;
                Ok::<_, io::Error>(piece.map(|piece| (piece, answer)))
            });
            Ok(Some(Content { total, bytes: Box::pin(bytes) }))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> Doing<'a, Option<u64>> {
        Box::pin(async move {
            let head = self.bucket.head_object(Some(&self.credentials), key.as_str());
            let answer = send(self.client.head(self.sign(&head, self.soon())), TIMEOUT).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let length = expect_success(answer)?.headers().get(header::CONTENT_LENGTH).and_then(number);
            length.map(Some).ok_or_else(|| ObjectError::Away("the server does not say how long it is".into()))
        })
    }

    fn copy<'a>(&'a self, from: &'a Key, to: &'a Key) -> Doing<'a, bool> {
        Box::pin(async move {
            let Some(length) = self.head(from).await? else { return Ok(false) };
            let source = format!("/{}/{from}", self.bucket.name());
            let mut put = self.bucket.put_object(Some(&self.credentials), to.as_str());
            put.headers_mut().insert("x-amz-copy-source", source.clone());
            let request = self.client.put(self.sign(&put, self.soon())).header("x-amz-copy-source", source);
            let patience = TIMEOUT + Duration::from_secs(length / SLOWEST_COPY);
            let answer = send(request, patience).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(false);
            }
            // It may fail after it has begun to answer, and says so in the body.
            let said = text(expect_success(answer)?, patience).await?;
            if said.contains("CopyObjectResult") { Ok(true) } else { Err(ObjectError::Away("a copy failed".into())) }
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()> {
        Box::pin(async move {
            let delete = self.bucket.delete_object(Some(&self.credentials), key.as_str());
            let answer = send(self.client.delete(self.sign(&delete, self.soon())), TIMEOUT).await?;
            if answer.status() == StatusCode::NOT_FOUND { Ok(()) } else { expect_success(answer).map(|_| ()) }
        })
    }

    fn list<'a>(&'a self, folder: &'a str, after: Option<&'a Key>) -> Doing<'a, Vec<Listed>> {
        Box::pin(async move {
            let mut after = after.map(|key| key.as_str().to_owned());
            loop {
                let mut list = self.bucket.list_objects_v2(Some(&self.credentials));
                if !folder.is_empty() {
                    list.with_prefix(format!("{folder}/"));
                }
                list.with_max_keys(LISTED);
                if let Some(after) = &after {
                    list.with_start_after(after.as_str());
                }
                let answer = send(self.client.get(self.sign(&list, self.soon())), TIMEOUT).await?;
                let said = text(expect_success(answer)?, TIMEOUT).await?;
                let found = ListObjectsV2::parse_response(&said).map_err(unreadable)?;
                let last = found.contents.last().map(|object| object.key.clone());
                let listed: Vec<_> = found
                    .contents
                    .into_iter()
                    .filter_map(|object| {
                        let changed: jiff::Timestamp = object.last_modified?.parse().ok()?;
                        let changed_at = Timestamp(changed.as_millisecond());
                        Some(Listed { key: Key::parse(&object.key)?, length: object.size?, changed_at })
                    })
                    .collect();
                // A page on which nothing is ours is not the end.
                if last.is_none() || !listed.is_empty() {
                    return Ok(listed);
                }
                after = last;
            }
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
            expect_success(send(self.client.head(self.sign(&head, self.soon())), TIMEOUT).await?).map(|_| ())
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

/// Waits so long for the head of the answer.
async fn send(request: RequestBuilder, patience: Duration) -> Result<Response, ObjectError> {
    match timeout(patience, request.send()).await {
        Ok(answer) => answer.map_err(unreachable),
        Err(_) => Err(ObjectError::Away("the server does not answer".into())),
    }
}

/// An answer that is known to be short.
async fn text(answer: Response, patience: Duration) -> Result<String, ObjectError> {
    match timeout(patience, answer.text()).await {
        Ok(text) => text.map_err(unreachable),
        Err(_) => Err(ObjectError::Away("the server does not go on".into())),
    }
}

/// `bytes 0-4/100` says 100.
fn total_of(answer: &Response) -> Option<u64> {
    answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

fn number(value: &header::HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn expect_success(answer: Response) -> Result<Response, ObjectError> {
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::INSUFFICIENT_STORAGE => Err(ObjectError::Full("the server has no room left".into())),
        status => Err(ObjectError::Away(format!("the server says {status}"))),
    }
}

/// The URL would show the signature.
fn unreachable(error: reqwest::Error) -> ObjectError {
    ObjectError::Away(error.without_url().to_string())
}

fn unreadable(error: impl std::fmt::Display) -> ObjectError {
    ObjectError::Away(format!("the server answers something else: {error}"))
}
