//! The subject of the present task: a request or a job, the request that caused it, and its place in a trace.
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use data_encoding::HEXLOWER;
use uuid::Uuid;

tokio::task_local! {
    /// What the present task is about; every log line that it writes carries the name.
    pub static ABOUT: Arc<About>;
}

/// A request or a job that is being worked on.
#[derive(Debug)]
pub struct About {
    /// The ID of the request or of the job.
    name: Arc<str>,
    /// The request at the beginning of the chain; none for jobs that are due by the clock.
    request: Option<Arc<str>>,
    place: SpanPlace,
    /// Whether a stored row carries the ID of the request.
    is_kept: AtomicBool,
}

impl About {
    pub fn request(id: Arc<str>, place: SpanPlace) -> Arc<Self> {
        Arc::new(Self { request: Some(id.clone()), name: id, place, is_kept: AtomicBool::new(false) })
    }

    pub(crate) fn job(id: &str, request: Option<&str>, place: SpanPlace) -> Arc<Self> {
        let request = request.map(Arc::from);
        Arc::new(Self { name: id.into(), request, place, is_kept: AtomicBool::new(false) })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn cause(&self) -> Option<&Arc<str>> {
        self.request.as_ref()
    }

    pub(crate) fn place(&self) -> SpanPlace {
        self.place
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Relaxed)
    }
}

/// What the present task is about, for what it has done elsewhere.
pub fn about() -> Option<Arc<About>> {
    ABOUT.try_with(Arc::clone).ok()
}

/// The ID of the request that the present task works for, directly or as a job, for a row that is being written. The request is
/// then worth keeping, too.
pub fn request_id() -> Option<Arc<str>> {
    let found = ABOUT.try_with(|about| {
        about.is_kept.store(true, Relaxed);
        about.request.clone()
    });
    found.ok().flatten()
}

/// The present task as the `traceparent` of what it causes. None outside of requests and of what they caused.
pub fn traceparent() -> Option<String> {
    let found = ABOUT.try_with(|about| about.request.is_some().then(|| about.place.context.to_string()));
    found.ok().flatten()
}

/// A span of a trace, as the header `traceparent` of W3C Trace Context names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub is_sampled: bool,
}

/// Where a span is in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanPlace {
    pub context: SpanContext,
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
}

impl SpanContext {
    /// Reads a `traceparent`. Of versions to come the part that is known is read, as the standard asks.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.split_at_checked(55)?;
        let mut parts = known.split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_whole = parts.next().is_none()
            && (version.len(), trace.len(), span.len(), flags.len()) == (2, 32, 16, 2)
            && known.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            && version != "ff"
            && (rest.is_empty() || (version != "00" && rest.starts_with('-')));
        if !is_whole {
            return None;
        }
        let (mut found, mut bits) = (Self { trace: [0; 16], span: [0; 8], is_sampled: false }, [0; 1]);
        HEXLOWER.decode_mut(trace.as_bytes(), &mut found.trace).ok()?;
        HEXLOWER.decode_mut(span.as_bytes(), &mut found.span).ok()?;
        HEXLOWER.decode_mut(flags.as_bytes(), &mut bits).ok()?;
        found.is_sampled = bits[0] & 1 == 1;
        (found.trace != [0; 16] && found.span != [0; 8]).then_some(found)
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.span));
        write!(f, "00-{trace}-{span}-0{}", u8::from(self.is_sampled))
    }
}

impl SpanPlace {
    /// A span below another one, or the first of a new trace. The random half of an ID becomes the ID of the span, so that no
    /// request draws more random bytes than it did.
    pub fn below(parent: Option<SpanContext>, id: Uuid) -> Self {
        let mut span = [0; 8];
        span.copy_from_slice(&id.as_bytes()[8..]);
        match parent {
            Some(SpanContext { trace, span: parent, is_sampled }) => {
                Self { context: SpanContext { trace, span, is_sampled }, parent: Some(parent) }
            }
            None => Self { context: SpanContext { trace: *id.as_bytes(), span, is_sampled: true }, parent: None },
        }
    }

    /// The same for one of several tries: each is a span of its own.
    #[must_use]
    pub fn tried(mut self, tries: u32) -> Self {
        let span = u64::from_be_bytes(self.context.span).wrapping_add(u64::from(tries));
        self.context.span = span.max(1).to_be_bytes();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        let whole = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(SpanContext::parse(whole).unwrap().to_string(), whole);
        assert!(!SpanContext::parse(&whole.replace("-01", "-00")).unwrap().is_sampled);
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes";
        assert_eq!(
            SpanContext::parse(later).unwrap().to_string(),
            whole,
            "versions to come are read as far as known"
        );
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
        ] {
            assert_eq!(SpanContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_span_is_below_its_parent_and_each_try_is_another() {
        let parent = SpanContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        let id = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0007);
        let place = SpanPlace::below(parent, id);
        assert_eq!(place.context.trace, parent.unwrap().trace);
        assert_eq!(place.parent, Some(parent.unwrap().span));
        assert!(!place.context.is_sampled, "the caller's decision is passed on");
        assert_ne!(place.tried(1).context.span, place.tried(2).context.span);
        let first = SpanPlace::below(None, id);
        assert_eq!((first.context.trace, first.parent), (*id.as_bytes(), None));
    }
}
