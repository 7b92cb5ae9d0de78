//! What a reader's program would rather have, going by the headers it sends.
use axum::http::{HeaderMap, header};
use kernel::telemetry::Exposition;

/// What such a header lists, the most wanted first.
pub(crate) fn by_weight(header: &str) -> Vec<&str> {
    let mut ranges: Vec<(&str, f32)> = header.split(',').filter_map(weighted).collect();
    ranges.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranges.into_iter().map(|(range, _)| range).collect()
}

/// `de-AT;q=0.8` as the tag and its weight; a weight of zero means "not this".
fn weighted(range: &str) -> Option<(&str, f32)> {
    let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
    let mut parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight = weight.map_or(Some(1.0), |(_, q)| q.trim().parse().ok())?;
    (weight > 0.0 && !tag.trim().is_empty()).then_some((tag.trim(), weight))
}

/// Browsers name HTML before anything else that we could answer; programs name JSON, anything or nothing.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_ours = |kind: &&str| matches!(*kind, "text/html" | "application/json" | "application/*" | "*/*");
    by_weight(accept).into_iter().find(is_ours) == Some("text/html")
}

/// Scrapers that know `OpenMetrics` name it; everything else reads the older format.
pub(crate) fn exposition(headers: &HeaderMap) -> Exposition {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known = by_weight(accept).into_iter().find_map(|kind| match kind.to_ascii_lowercase().as_str() {
        "application/openmetrics-text" => Some(Exposition::OpenMetrics),
        "text/plain" | "text/*" | "*/*" => Some(Exposition::Prometheus),
        _ => None,
    });
    known.unwrap_or(Exposition::Prometheus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_it_would_rather_have() {
        let given = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            exposition(&headers)
        };
        for open in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            // What Prometheus 3 sends.
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(given(open), Exposition::OpenMetrics, "{open}");
        }
        for text in [
            "",
            "*/*",
            "text/plain",
            "text/html,*/*;q=0.8",
            "application/json",
            "text/plain;version=0.0.4;q=0.9, application/openmetrics-text;version=1.0.0;q=0.5",
            "application/openmetrics-text;version=1.0.0;q=0, */*",
        ] {
            assert_eq!(given(text), Exposition::Prometheus, "{text}");
        }
        assert_eq!(exposition(&HeaderMap::new()), Exposition::Prometheus);
    }

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
