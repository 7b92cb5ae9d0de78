//! What a reader's program would rather have, going by the headers it sends.
use axum::http::{HeaderMap, header};

/// What such a header lists, the most wanted first.
pub(crate) fn by_weight(header: &str) -> Vec<&str> {
    let mut ranges: Vec<(&str, f32)> = header.split(',').filter_map(weighted).collect();
    ranges.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranges.into_iter().map(|(range, _)| range).collect()
}

/// `de-AT;q=0.8` as the tag and its weight; a weight of zero means "not this".
fn weighted(range: &str) -> Option<(&str, f32)> {
    let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
    let weight = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |q| q.trim().parse().ok())?;
    (weight > 0.0 && !tag.trim().is_empty()).then_some((tag.trim(), weight))
}

/// Browsers name HTML before anything else that we could answer; programs name JSON, anything or nothing.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_ours = |kind: &&str| matches!(*kind, "text/html" | "application/json" | "application/*" | "*/*");
    by_weight(accept).into_iter().find(is_ours) == Some("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_would_rather_have_a_page_gets_one() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            wants_page(&headers)
        };
        for page in [
            "text/html",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
            "*/*;q=0.1, text/html;q=0.9",
            "text/html, application/json",
        ] {
            assert!(wants(page), "{page}");
        }
        for json in
            ["*/*", "", "application/json", "application/json, text/html;q=0.9", "text/html;q=0, */*", "text/*"]
        {
            assert!(!wants(json), "{json}");
        }
        assert!(!wants_page(&HeaderMap::new()));
    }
}
