//! Pages that show an audit log: the filter, the list, and the file.
use axum::response::Response;
use kernel::http::Routes;
use serde::Serialize;
use serde_json::json;
use tenancy::events::Kind;
use url::form_urlencoded::Serializer;

use crate::me::Me;

/// A page of this kind also answers the file.
pub fn with_file(routes: Routes) -> Routes {
    routes.answers::<String>(200, "text/csv")
}

const FILTER: [&str; 5] = ["type", "actor", "since", "until", "search"];

/// Draws the page. `list` is the route of the log: `/org/{id}/audit-log`.
pub async fn show(
    me: &Me,
    template: &str,
    place: &impl Serialize,
    list: (&str, &str),
    asks: &[(&str, &str)],
) -> Response {
    if me.parameter("format") == "csv" {
        return me.file(list.1, place).await;
    }
    let given: Vec<_> = FILTER.iter().map(|name| (*name, me.parameter(name))).collect();
    let filter = given.iter().filter(|(_, value)| !value.is_empty());
    let filter = Serializer::new(String::new()).extend_pairs(filter).finish();
    let mut kinds: Vec<_> = me.janua.declared::<Kind>().iter().map(|kind| kind.audit).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let asked: serde_json::Map<_, _> =
        given.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let pattern = format!("{}?{{query}}", list.1);
    let all: Vec<_> = asks.iter().copied().chain([(list.0, pattern.as_str())]).collect();
    me.show_with(template, place, &all, json!({ "kinds": kinds, "asked": asked, "filter": filter })).await
}
