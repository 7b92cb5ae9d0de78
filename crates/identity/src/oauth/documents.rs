//! Clients that describe themselves: the id is an https address, and what stands there is the client (OAuth Client ID
//! Metadata Document). Nobody registers; whose address it is vouches for it, so the person is shown the host.
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};

use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Fault, RATE_LIMITED, Result},
    ports::outgoing::{self, Call, Limits, Reply},
    recent::Recent,
    transact,
};
use serde::Deserialize;
use tenancy::{apps::redirects, messages::budget};
use url::Url;

use super::clients::{Client, Described, Reach, shown_name};

pub const CLIENT_UNREADABLE: Code = Code::new(
    400,
    "client_unreadable",
    "The client ID metadata document cannot be read. Contact the app's developer.",
);

const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: 64 * 1024 };
/// However long its server says it may be kept.
const SHORTEST: Duration = Duration::from_mins(5);
const LONGEST: Duration = Duration::from_hours(24);
const MOST_REDIRECTS: usize = 50;
/// How many addresses are asked in an hour because one network sends people here.
const MOST_AN_HOUR: u32 = 60;

#[derive(Deserialize)]
struct Document {
    client_id: String,
    client_name: Option<String>,
    redirect_uris: Vec<String>,
    token_endpoint_auth_method: Option<String>,
    client_secret: Option<serde_json::Value>,
}

/// Addresses that had nothing to say a moment ago, on this node.
pub struct Silent(Recent<String, ()>);

impl Default for Silent {
    fn default() -> Self {
        Self(Recent::new(10_000, Duration::from_mins(1)))
    }
}

/// The client at this address, as it was read last or, once that is too old and somebody is sent here anew, as it is now.
pub async fn read(janua: &Janua, reach: Reach<'_>, id: &str) -> Result<Option<Client>> {
    let Some(address) = address(id) else { return Ok(None) };
    if !janua.config.of::<crate::oauth::Settings>().client_documents.is_on() {
        return Ok(None);
    }
    let (now, known) = (janua.clock.now(), Described::find(&janua.db, id).await?);
    let is_enough =
        |known: &Described| matches!(reach, Reach::Known) || known.read_until.is_some_and(|until| now < until);
    let visitor = match (known.filter(is_enough), reach) {
        (None, Reach::Asked(visitor)) => visitor,
        (known, _) => return Ok(known.map(Described::client)),
    };
    if janua.own::<Silent>().0.get(id).is_some() {
        return Err(unreadable("The URL could not be read a moment ago."));
    }
    let is_within = transact!(janua, async |tx| {
        let spent = budget::spend_by_network(tx, janua, "client-document", visitor.client, MOST_AN_HOUR).await?;
        Ok(spent)
    })?;
    if !is_within {
        return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
    }
    match fetch(janua, id, address, now).await {
        Ok(found) => {
            found.keep(&janua.db).await?;
            Ok(Some(found.client()))
        }
        Err(fault) => {
            janua.own::<Silent>().0.insert(id.to_owned(), ());
            Err(fault)
        }
    }
}

/// One that means one place and nothing else: with a path, without dots in it, a query, a fragment or a name.
fn address(id: &str) -> Option<Url> {
    let url = outgoing::endpoint(id).ok().filter(|url| url.scheme() == "https" && url.as_str() == id)?;
    (url.path() != "/" && url.query().is_none() && id.len() <= 2000).then_some(url)
}

async fn fetch(janua: &Janua, id: &str, url: Url, now: Timestamp) -> Result<Described> {
    let headers = [
        (header::ACCEPT, HeaderValue::from_static("application/json")),
        (header::USER_AGENT, HeaderValue::from_static("Janua")),
    ];
    let headers = headers.into_iter().collect::<HeaderMap>();
    let call =
        Call { method: Method::GET, url, headers, body: "".into(), limits: LIMITS, reach: outgoing::Reach::Public };
    // Why not is for the log: who asks may want to know what is inside.
    let reply = janua.outgoing.send(call).await.map_err(|error| {
        tracing::debug!(%error, id, "a client's description cannot be fetched");
        unreadable("The URL does not answer with a document of at most 64 KiB.")
    })?;
    let kind = reply.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().ends_with("json"));
    if !reply.status.is_success() || reply.is_cut || !is_json {
        return Err(unreadable("The URL does not answer with a document of at most 64 KiB."));
    }
    let document: Document = serde_json::from_slice(&reply.body)
        .map_err(|_| unreadable("The document is not JSON with client_id and redirect_uris."))?;
    if document.client_id != id {
        return Err(unreadable("Its client_id differs from its URL."));
    }
    let is_secret = document.token_endpoint_auth_method.as_deref().is_some_and(|method| method != "none");
    if is_secret || document.client_secret.is_some() {
        return Err(unreadable("It uses a client secret, which a client without registration cannot have."));
    }
    let are_good = document.redirect_uris.iter().all(|uri| redirects::wrong_redirect(uri).is_none());
    if !are_good || document.redirect_uris.is_empty() || document.redirect_uris.len() > MOST_REDIRECTS {
        return Err(unreadable("Its redirect_uris are missing, too many, or not allowed."));
    }
    let name = document.client_name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or(id);
    Ok(Described {
        id: id.to_owned(),
        name: shown_name(name),
        redirect_uris: document.redirect_uris,
        created_at: now,
        read_until: Some(now.plus(kept(&reply))),
    })
}

fn unreadable(why: &str) -> Fault {
    CLIENT_UNREADABLE.because(why)
}

/// As long as its server says, within bounds.
fn kept(reply: &Reply) -> Duration {
    let said = reply.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let age = said.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    Duration::from_secs(age.unwrap_or(0)).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_in_one_way() {
        for good in ["https://client.example/oauth.json", "https://client.example:8443/a/b"] {
            assert!(address(good).is_some(), "{good}");
        }
        for bad in [
            "http://client.example/oauth.json",
            "https://client.example",
            "https://client.example/",
            "https://client.example/a/../b",
            "https://client.example/./b",
            "https://client.example/a?x=1",
            "https://client.example/a#b",
            "https://me@client.example/a",
            "https://CLIENT.example/a",
            "https://client.example:443/a",
            "https://client.example/a b",
        ] {
            assert!(address(bad).is_none(), "{bad}");
        }
    }
}
