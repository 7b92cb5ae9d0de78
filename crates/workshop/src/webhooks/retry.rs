//! When a delivery is tried again, and when it is not.
use std::time::{Duration, UNIX_EPOCH};

use kernel::clock::Timestamp;

/// How often a delivery is tried.
pub const TRIES: u32 = 3;
const LONGEST: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_millis(500);
/// How much chance is added, so that not everybody comes back at once.
pub const JITTER_MS: u64 = 500;

/// Whether a status may be another one next time; 0 stands for no answer at all.
pub fn is_worth_it(status: u16) -> bool {
    matches!(status, 0 | 408 | 429 | 500..)
}

/// How long to wait after the given try, counted from one. What the receiver asked for goes before.
pub fn wait(tried: u32, asked: Option<Duration>, jitter: Duration) -> Duration {
    match asked {
        Some(asked) => asked.clamp(SHORTEST, LONGEST),
        None => Duration::from_secs(1 << tried.saturating_sub(1).min(5)).min(LONGEST) + jitter,
    }
}

/// `Retry-After`: seconds, or a date as HTTP writes it.
pub fn asked_for(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if !header.is_empty() && header.bytes().all(|b| b.is_ascii_digit()) {
        // A number too large to read is a long time, too.
        return Some(Duration::from_secs(header.parse().unwrap_or(u64::MAX)));
    }
    let moment = httpdate::parse_http_date(header).ok()?;
    let at = i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    Some(Timestamp(at).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_769_853_600_000);

    #[test]
    fn the_wait_doubles_from_a_second_to_half_a_minute() {
        let waits: Vec<_> = (1..9).map(|tried| wait(tried, None, Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(wait(1, None, Duration::from_millis(499)), Duration::from_millis(1499));
    }

    #[test]
    fn the_receiver_may_ask_for_another_wait_within_bounds() {
        for (header, ms) in [
            ("0", 500),
            ("1", 1_000),
            (" 5 ", 5_000),
            ("9999", 30_000),
            ("99999999999999999999999", 30_000),
            ("Sat, 31 Jan 2026 10:00:07 GMT", 7_000),
            ("Saturday, 31-Jan-26 10:00:07 GMT", 7_000),
            ("Sat Jan 31 10:00:07 2026", 7_000),
            ("Sat, 31 Jan 2026 11:00:00 GMT", 30_000),
            ("Sat, 31 Jan 2026 09:00:00 GMT", 500),
        ] {
            let asked = asked_for(header, NOW).unwrap_or_else(|| panic!("{header}"));
            assert_eq!(wait(1, Some(asked), Duration::from_millis(400)), Duration::from_millis(ms), "{header}");
        }
        for header in ["", "soon", "-1", "1.5", "1s", "2026-01-31T10:00:07Z"] {
            assert_eq!(asked_for(header, NOW), None, "{header}");
        }
    }

    #[test]
    fn only_what_may_change_is_tried_again() {
        assert!([0, 408, 429, 500, 502, 503, 504, 599].into_iter().all(is_worth_it));
        assert!(![200, 204, 301, 302, 307, 308, 400, 401, 404, 410, 422].into_iter().any(is_worth_it));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_receiver_asks_for_the_wait_is_within_bounds(header in "\\PC*", tried in 1..100_u32) {
            let wait = wait(tried, asked_for(&header, NOW), Duration::from_millis(JITTER_MS));
            assert!(wait >= SHORTEST && wait <= LONGEST + Duration::from_millis(JITTER_MS));
        }
    }
}
