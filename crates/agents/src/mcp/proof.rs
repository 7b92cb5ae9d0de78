//! Proving that a domain belongs to whoever registered a server: a DNS record, a file on the site, the key that the official
//! registry knows, or an app that has proven the domain.
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED, ED25519, UnparsedPublicKey};
use axum::http::{HeaderMap, HeaderValue, Method as Verb, header};
use data_encoding::BASE64;
use kernel::{
    Janua,
    fault::{Code, Fault, Result},
    ports::{
        dns::{DNS_UNAVAILABLE, Resolver},
        outgoing::{self, Call, Limits, Reach},
    },
};
use tenancy::apps::Application;

use super::model::{McpServer, Method};

pub const SITE_UNAVAILABLE: Code =
    Code::new(502, "site_unavailable", "The site did not answer. Check that it is reachable over https.");
pub const BAD_SIGNATURE: Code =
    Code::new(401, "bad_signature", "The signature is not one of this wallet or key over this text.");

const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: 4096 };
const MOST_SEEN: usize = 20;
const LONGEST_SEEN: usize = 255;

/// Looks names up.
pub struct Names(pub Resolver);

/// What was found at the place where a proof should be.
pub struct Seen {
    pub is_proven: bool,
    pub texts: Vec<String>,
    /// The key of an `mcpv1` proof.
    pub public_key: Option<String>,
}

pub fn record_name(domain: &str) -> String {
    format!("_janua-mcp.{domain}")
}

pub fn file_url(domain: &str) -> String {
    format!("https://{domain}/.well-known/janua-mcp")
}

/// The text that the key of a `v=MCPv1` record signs. It names this service and the server, so it is of use nowhere else.
pub fn message(janua: &Janua, server: &McpServer) -> String {
    let (base, id) = (janua.config.base_url(), server.machine.id);
    format!("janua-mcp-verify v1\n{base}\n{id}\n{}\n{}", server.domain, server.nonce)
}

fn kept(texts: Vec<String>) -> Vec<String> {
    let short = |text: String| text.replace('\0', "\u{fffd}").chars().take(LONGEST_SEEN).collect();
    texts.into_iter().take(MOST_SEEN).map(short).collect()
}

/// Looks for the proof of a server.
pub async fn look(janua: &Janua, server: &McpServer, method: Method, signature: Option<&str>) -> Result<Seen> {
    match method {
        Method::Dns => {
            let texts = texts(janua, &record_name(&server.domain)).await?;
            let is_proven = texts.iter().any(|text| text.trim() == server.token);
            Ok(Seen { is_proven, texts: kept(texts), public_key: None })
        }
        Method::Http => {
            let found = file(janua, &file_url(&server.domain)).await?;
            let is_proven = found.as_deref().is_some_and(|text| text.trim() == server.token);
            Ok(Seen { is_proven, texts: kept(found.into_iter().collect()), public_key: None })
        }
        Method::App => {
            let app = Application::of_domain(&janua.db, &server.domain).await?;
            let app = match app {
                Some(id) => Application::find(&janua.db, id).await?,
                None => None,
            };
            let is_proven = app.is_some_and(|app| app.org_id == server.machine.org_id);
            Ok(Seen { is_proven, texts: vec![], public_key: None })
        }
        Method::Mcpv1 => mcpv1(janua, server, signature).await,
    }
}

/// Looks for a proof that was there before. A site that does not answer has none: unlike a name server it is the server's
/// own, and may be gone for ever.
pub async fn find(janua: &Janua, server: &McpServer) -> Result<Seen> {
    match look(janua, server, server.method.unwrap_or(Method::Dns), None).await {
        Err(fault) if fault.code() == SITE_UNAVAILABLE => {
            Ok(Seen { is_proven: false, texts: vec![], public_key: None })
        }
        seen => seen,
    }
}

/// A record is public, so finding it proves nothing: the key in it must have signed our text. Later it is enough that the
/// key still stands there.
async fn mcpv1(janua: &Janua, server: &McpServer, signature: Option<&str>) -> Result<Seen> {
    let mut found = texts(janua, &server.domain).await?;
    found.retain(|text| text.trim_start().starts_with("v=MCPv1"));
    if found.is_empty() {
        let url = format!("https://{}/.well-known/mcp-registry-auth", server.domain);
        found.extend(file(janua, &url).await.ok().flatten().filter(|text| text.starts_with("v=MCPv1")));
    }
    let keys: Vec<String> = found.iter().filter_map(|text| key_of(text)).collect();
    let texts = kept(found);
    let Some(signature) = signature else {
        let public_key = server.public_key.clone().filter(|known| keys.contains(known));
        return Ok(Seen { is_proven: public_key.is_some(), texts, public_key });
    };
    if keys.is_empty() {
        return Ok(Seen { is_proven: false, texts, public_key: None });
    }
    let text = message(janua, server);
    let bytes = BASE64.decode(signature.trim().as_bytes()).map_err(|_| BAD_SIGNATURE)?;
    let public_key = keys.into_iter().find(|key| has_signed(key, text.as_bytes(), &bytes));
    let public_key = public_key.ok_or(BAD_SIGNATURE)?;
    Ok(Seen { is_proven: true, texts, public_key: Some(public_key) })
}

/// `ed25519:<base64>` of a record `v=MCPv1; k=ed25519; p=<base64>`.
fn key_of(record: &str) -> Option<String> {
    let find = |name: &str| {
        let mut fields = record.split(';').filter_map(|field| field.trim().split_once('='));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim().to_owned())
    };
    let (kind, key) = (find("k")?, find("p")?);
    ["ed25519", "ecdsap384"].contains(&kind.as_str()).then(|| format!("{kind}:{key}"))
}

fn has_signed(key: &str, text: &[u8], signature: &[u8]) -> bool {
    let Some((kind, key)) = key.split_once(':') else { return false };
    let Ok(key) = BASE64.decode(key.as_bytes()) else { return false };
    match kind {
        "ed25519" => UnparsedPublicKey::new(&ED25519, key).verify(text, signature).is_ok(),
        _ => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key).verify(text, signature).is_ok(),
    }
}

async fn texts(janua: &Janua, name: &str) -> Result<Vec<String>> {
    let found = tokio::time::timeout(LIMITS.time, janua.own::<Names>().0.texts(name)).await;
    match found {
        Ok(Ok(texts)) => Ok(texts),
        Ok(Err(error)) => Err(DNS_UNAVAILABLE.caused_by(error)),
        Err(_) => Err(DNS_UNAVAILABLE.into()),
    }
}

/// A small text file; nothing when the site has none.
async fn file(janua: &Janua, url: &str) -> Result<Option<String>> {
    let unavailable = |why: String| -> Fault { SITE_UNAVAILABLE.because(why) };
    let url = outgoing::endpoint(url).map_err(|error| unavailable(error.to_string()))?;
    let headers: HeaderMap = [
        (header::ACCEPT, HeaderValue::from_static("text/plain")),
        (header::USER_AGENT, HeaderValue::from_static("Janua")),
    ]
    .into_iter()
    .collect();
    let call = Call { method: Verb::GET, url, headers, body: "".into(), limits: LIMITS, reach: Reach::Public };
    let reply = janua.outgoing.send(call).await.map_err(|error| {
        tracing::debug!(%error, "the proof of an MCP server cannot be fetched");
        unavailable("The site could not be reached.".into())
    })?;
    if reply.status.is_server_error() {
        return Err(unavailable(format!("The site answered {}.", reply.status.as_u16())));
    }
    let text = String::from_utf8(reply.body.to_vec()).ok();
    Ok(text.filter(|_| reply.status.is_success() && !reply.is_cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_official_registry_names_a_key() {
        assert_eq!(key_of("v=MCPv1; k=ed25519; p=AAAA").as_deref(), Some("ed25519:AAAA"));
        assert_eq!(key_of("v=MCPv1; k=rsa; p=AAAA"), None);
        assert_eq!(key_of("v=MCPv1; k=ed25519"), None);
    }
}
