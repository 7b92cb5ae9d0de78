//! Putting an object: in one request when it is short, else in parts, of which two are in memory at most.
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use reqwest::header;
use rusty_s3::{
    S3Action as _,
    actions::{CompleteMultipartUploadResponse, CreateMultipartUpload},
};
use tokio::task::JoinHandle;

use super::{S3, SLOWEST_PUT, TIMEOUT, expect_success, send, text, unreadable};
use crate::ports::objects::{Hasher, Key, New, ObjectError, Source, Stored};

/// S3 wants 5 MiB at least, and takes 10,000 of them.
const PART: usize = 8 * 1024 * 1024;

impl S3 {
    pub(super) async fn put_in_parts(&self, new: New<'_>, bytes: Source<'_>) -> Result<Stored, ObjectError> {
        let mut parts = Parts { bytes, hash: Hasher::new(), rest: Bytes::new() };
        let first = parts.next().await?;
        if first.len() < PART {
            let stored = parts.stored();
            new.must_be(&stored)?;
            self.put_at_once(&new, first).await?;
            return Ok(stored);
        }
        let upload = self.begin(&new).await?;
        let outcome = self.put_each(&new, &upload, first, parts).await;
        if outcome.is_err() {
            self.abort(new.key, &upload).await;
        }
        outcome
    }

    async fn put_at_once(&self, new: &New<'_>, bytes: Bytes) -> Result<(), ObjectError> {
        let mut put = self.bucket.put_object(Some(&self.credentials), new.key.as_str());
        put.headers_mut().insert("content-type", new.content_type);
        if let Some(cache_control) = new.cache_control {
            put.headers_mut().insert("cache-control", cache_control);
        }
        let patience = patience(bytes.len());
        let request = self.client.put(self.sign(&put, self.clock.now().plus(patience))).body(bytes);
        let mut request = request.header(header::CONTENT_TYPE, new.content_type);
        if let Some(cache_control) = new.cache_control {
            request = request.header(header::CACHE_CONTROL, cache_control);
        }
        expect_success(send(request, patience).await?).map(|_| ())
    }

    async fn begin(&self, new: &New<'_>) -> Result<String, ObjectError> {
        let mut begin = self.bucket.create_multipart_upload(Some(&self.credentials), new.key.as_str());
        begin.headers_mut().insert("content-type", new.content_type);
        if let Some(cache_control) = new.cache_control {
            begin.headers_mut().insert("cache-control", cache_control);
        }
        let mut request = self.client.post(self.sign(&begin, self.soon()));
        request = request.header(header::CONTENT_TYPE, new.content_type);
        if let Some(cache_control) = new.cache_control {
            request = request.header(header::CACHE_CONTROL, cache_control);
        }
        let said = text(expect_success(send(request, TIMEOUT).await?)?, TIMEOUT).await?;
        let begun = CreateMultipartUpload::parse_response(&said).map_err(unreadable)?;
        Ok(begun.upload_id().to_owned())
    }

    async fn put_each(
        &self,
        new: &New<'_>,
        upload: &str,
        first: Bytes,
        mut parts: Parts<'_>,
    ) -> Result<Stored, ObjectError> {
        let (mut part, mut tags) = (first, vec![]);
        let mut sending = Sending::none();
        // While one part is sent the next comes in.
        for number in 1u16.. {
            tags.extend(sending.tag().await?);
            if part.is_empty() {
                break;
            }
            sending = self.send_part(new.key, upload, number, part);
            part = parts.next().await?;
        }
        let stored = parts.stored();
        new.must_be(&stored)?;
        let tags = tags.iter().map(String::as_str);
        let complete = self.bucket.complete_multipart_upload(Some(&self.credentials), new.key.as_str(), upload, tags);
        let url = self.sign(&complete, self.soon());
        let request = self.client.post(url).body(complete.body());
        let patience = patience(0) * 6;
        let said = text(expect_success(send(request, patience).await?)?, patience).await?;
        // It may fail after it has begun to answer, and says so in the body.
        CompleteMultipartUploadResponse::parse(&said).map_err(unreadable)?;
        Ok(stored)
    }

    fn send_part(&self, key: &Key, upload: &str, number: u16, part: Bytes) -> Sending {
        let patience = patience(part.len());
        let put = self.bucket.upload_part(Some(&self.credentials), key.as_str(), number, upload);
        let request = self.client.put(self.sign(&put, self.clock.now().plus(patience))).body(part);
        Sending(Some(tokio::spawn(async move {
            let answer = expect_success(send(request, patience).await?)?;
            let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
            tag.map(str::to_owned).ok_or_else(|| ObjectError::Away("a part has no tag".into()))
        })))
    }

    /// Best effort: what cannot be told is left to the bucket's own rule about uploads that never end.
    async fn abort(&self, key: &Key, upload: &str) {
        let abort = self.bucket.abort_multipart_upload(Some(&self.credentials), key.as_str(), upload);
        if let Err(error) = send(self.client.delete(self.sign(&abort, self.soon())), TIMEOUT).await {
            tracing::warn!(%error, "cannot end an upload in parts");
        }
    }
}

fn patience(length: usize) -> Duration {
    TIMEOUT + Duration::from_secs(length as u64 / SLOWEST_PUT)
}

/// A part on its way; given up when nobody waits for it any more.
struct Sending(Option<JoinHandle<Result<String, ObjectError>>>);

impl Sending {
    fn none() -> Self {
        Self(None)
    }

    async fn tag(&mut self) -> Result<Option<String>, ObjectError> {
        match self.0.as_mut() {
            Some(task) => {
                let outcome = task.await.map_err(|error| ObjectError::Away(error.to_string()))?;
                self.0 = None;
                outcome.map(Some)
            }
            None => Ok(None),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// A stream, cut into parts.
struct Parts<'a> {
    bytes: Source<'a>,
    hash: Hasher,
    /// What came beyond the last part.
    rest: Bytes,
}

impl Parts<'_> {
    /// A whole part; a shorter one, or none, at the end.
    async fn next(&mut self) -> Result<Bytes, ObjectError> {
        let mut part = BytesMut::new();
        loop {
            let piece = if self.rest.is_empty() {
                let Some(piece) = self.bytes.next().await else { return Ok(part.freeze()) };
                piece.map_err(ObjectError::Source)?
            } else {
                std::mem::take(&mut self.rest)
            };
            let mut piece = piece;
            self.rest = piece.split_off(piece.len().min(PART - part.len()));
            self.hash.update(&piece);
            part.extend_from_slice(&piece);
            if part.len() == PART {
                return Ok(part.freeze());
            }
        }
    }

    fn stored(&self) -> Stored {
        Stored { length: self.hash.length, sha256: self.hash.so_far() }
    }
}
