//! Headers that any caller may send: `traceparent` and `Range`.
use hosting::ranges::{self, Part};
use kernel::telemetry::SpanContext;

use crate::texts;

/// What is read of a `traceparent` is written as the standard says, and read as the same again.
pub fn traceparent(data: &[u8]) -> bool {
    let Some([text]) = texts(data) else { return false };
    let Some(found) = SpanContext::parse(text) else { return false };
    let written = found.to_string();
    assert_eq!(SpanContext::parse(&written), Some(found), "{written}");
    assert_eq!(written.len(), 55, "{written}");
    assert_eq!(written[3..53], text[3..53], "the trace and the span are those of the caller");
    true
}

/// A range, and the size of what it is a part of. A part lies inside, and is what a plain reading of the digits says.
pub fn range(data: &[u8]) -> bool {
    let Some([text, size]) = texts(data) else { return false };
    let size: u64 = size.trim().parse().unwrap_or(10);
    let Part::Bytes(part) = ranges::parse(text, size) else { return false };
    assert!(part.start < part.end && part.end <= size, "{text} of {size}: {part:?}");
    let written = format!("bytes={}-{}", part.start, part.end - 1);
    assert_eq!(ranges::parse(&written, size), Part::Bytes(part.clone()), "{text} of {size}");
    let digits = text.trim().trim_start_matches("bytes=").trim();
    assert!(digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'), "{text}");
    if let Some((first, last)) = digits.split_once('-').filter(|(first, _)| !first.is_empty()) {
        assert_eq!(first.parse(), Ok(part.start), "{text}");
        let last = if last.is_empty() { size - 1 } else { last.parse().unwrap_or(u64::MAX) };
        assert_eq!(last.min(size - 1), part.end - 1, "{text}");
    }
    true
}
