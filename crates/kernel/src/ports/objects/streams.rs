//! The bytes of objects on their way.
use std::{fmt, io, pin::Pin};

use aws_lc_rs::digest;
use axum::body::Body;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures_util::{Stream, StreamExt as _, stream};

use crate::fault::{Fault, TOO_LARGE, UNAVAILABLE};

/// Bytes that come from somewhere: a request, another object. What goes wrong there is told as it is.
pub type Source<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send + 'a>>;

/// Bytes that are there already.
pub fn once<'a>(bytes: Bytes) -> Source<'a> {
    Box::pin(stream::once(async { Ok(bytes) }))
}

/// Ends with 413 after so many bytes.
pub fn limited(bytes: Source<'_>, most: u64) -> Source<'_> {
    Box::pin(bytes.scan(0u64, move |length, piece| {
        *length = length.saturating_add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        let piece = if *length > most { Err(TOO_LARGE.into()) } else { piece };
        async { Some(piece) }
    }))
}

/// What is read of an object.
pub struct Content {
    /// How long the whole object is.
    pub total: u64,
    pub bytes: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
}

impl Content {
    pub fn into_body(self) -> Body {
        Body::from_stream(self.bytes)
    }

    /// As the source of another object.
    pub fn into_source<'a>(self) -> Source<'a> {
        Box::pin(self.bytes.map(|piece| piece.map_err(|error| UNAVAILABLE.caused_by(error))))
    }
}

/// All of an object, as long as it is what it was: the last piece is held back until the digest is known, so that
/// nobody gets a whole object with wrong bytes in it.
#[must_use]
pub fn checked(content: Content, sha256: Sha256) -> Content {
    struct State {
        rest: Option<Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>>,
        hash: Hasher,
        held: Option<Bytes>,
    }
    let start = State { rest: Some(content.bytes), hash: Hasher::new(), held: None };
    let bytes = stream::unfold(start, move |mut state| async move {
        loop {
            let rest = state.rest.as_mut()?;
            match rest.next().await {
                Some(Ok(piece)) => {
                    state.hash.update(&piece);
                    if let Some(before) = state.held.replace(piece) {
                        return Some((Ok(before), state));
                    }
                }
                Some(Err(error)) => {
                    state.rest = None;
                    return Some((Err(error), state));
                }
                None => {
                    state.rest = None;
                    let last = state.held.take();
                    let found = std::mem::take(&mut state.hash).finish();
                    if found != sha256 {
                        tracing::error!(expected = %sha256, %found, "an object was damaged in the store");
                        return Some((Err(io::Error::other("the object is damaged")), state));
                    }
                    return last.map(|last| (Ok(last), state));
                }
            }
        }
    });
    Content { total: content.total, bytes: Box::pin(bytes) }
}

/// A SHA-256 digest, in hexadecimal wherever it is text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; digest::SHA256_OUTPUT_LEN]);

impl Sha256 {
    /// 64 hexadecimal characters in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest in the making, and how many bytes went into it.
pub struct Hasher {
    context: digest::Context,
    pub length: u64,
}

impl Hasher {
    pub fn new() -> Self {
        Self { context: digest::Context::new(&digest::SHA256), length: 0 }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.length += bytes.len() as u64;
    }

    pub fn finish(self) -> Sha256 {
        let mut out = [0; digest::SHA256_OUTPUT_LEN];
        out.copy_from_slice(self.context.finish().as_ref());
        Sha256(out)
    }

    /// The digest of what came so far.
    pub fn so_far(&self) -> Sha256 {
        Self { context: self.context.clone(), length: self.length }.finish()
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}
