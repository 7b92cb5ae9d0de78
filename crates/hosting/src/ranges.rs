//! The header `Range` (RFC 9110, 14.1.2), for sites and for files of an app's users.

/// What part of a representation is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Not understood, or several: the whole is a right answer.
    Whole,
    Bytes(std::ops::Range<u64>),
    Outside,
}

/// Reads one range of a representation of `size` bytes.
pub fn parse(text: &str, size: u64) -> Part {
    let Some(wanted) = text.trim().strip_prefix("bytes=") else { return Part::Whole };
    let Some((from, to)) = wanted.trim().split_once('-').filter(|_| !wanted.contains(',')) else {
        return Part::Whole;
    };
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (start, end) = match (from, to) {
        ("", "") => return Part::Whole,
        ("", last) => match number(last) {
            Some(0) => return Part::Outside,
            Some(last) => (size.saturating_sub(last), size),
            None => return Part::Whole,
        },
        (first, "") => match number(first) {
            Some(first) => (first, size),
            None => return Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(size)),
            _ => return Part::Whole,
        },
    };
    if start >= size { Part::Outside } else { Part::Bytes(start..end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (text, range) in [
            ("bytes=0-4", Part::Bytes(0..5)),
            ("bytes=5-", Part::Bytes(5..10)),
            ("bytes=-3", Part::Bytes(7..10)),
            ("bytes=-30", Part::Bytes(0..10)),
            ("bytes=8-99", Part::Bytes(8..10)),
            ("bytes=10-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=+1-2", Part::Whole),
        ] {
            assert_eq!(parse(text, 10), range, "{text}");
        }
    }
}
