//! A zone at Amazon Route 53.
use kernel::{clock::Clock, crypto::Secret};
use reqwest::{Client, Method, redirect::Policy};
use url::Url;

use super::{LIFE, TIMEOUT};
use crate::{
    settings::Settings,
    sigv4::{self, Signing, element, escape, plain},
};

const STANDARD: &str = "https://route53.amazonaws.com/";
const API: &str = "/2013-04-01";
const REGION: &str = "us-east-1";

/// The zone, and the key that may change it.
pub struct HostedZone {
    client: Client,
    url: Url,
    id: String,
    access_key: Secret,
    secret_key: Secret,
}

impl HostedZone {
    /// The error names the settings that are missing.
    pub fn of(settings: &Settings) -> Result<Self, String> {
        let missing = "acme_dns: route53 needs acme_dns_zone, acme_dns_access_key and acme_dns_secret_key";
        let url = settings.acme_dns_url.clone().or_else(|| Url::parse(STANDARD).ok());
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
        let id = plain(settings.acme_dns_zone.trim().trim_start_matches("/hostedzone/"));
        if id.is_empty() {
            return Err(missing.into());
        }
        Ok(Self {
            client: client.map_err(|error| format!("acme_dns_url: {error}"))?,
            url: url.ok_or("acme_dns_url: must be a URL")?,
            id,
            access_key: settings.acme_dns_access_key.clone().ok_or(missing)?,
            secret_key: settings.acme_dns_secret_key.clone().ok_or(missing)?,
        })
    }

    /// Puts a TXT record in place of what stands at a name. Answers the change, which takes a while to reach all servers.
    pub async fn put(&self, name: &str, value: &str) -> Result<String, String> {
        let answer = self.change("UPSERT", name, value).await?;
        element(&answer, "Id").map(str::to_owned).ok_or_else(|| "the zone named no change".into())
    }

    /// Takes it away again. It must be named as it is, with its life.
    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        self.change("DELETE", name, value).await.map(drop)
    }

    /// Whether every server of the zone has the change.
    pub async fn is_everywhere(&self, change: &str) -> Result<bool, String> {
        let id = plain(change.trim_start_matches("/change/"));
        let answer = self.send(Method::GET, &format!("{API}/change/{id}"), String::new()).await?;
        Ok(element(&answer, "Status") == Some("INSYNC"))
    }

    async fn change(&self, action: &str, name: &str, value: &str) -> Result<String, String> {
        let body = format!(
            "<ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
             <Comment>Janua: check of a certificate authority</Comment><Changes><Change><Action>{action}</Action>\
             <ResourceRecordSet><Name>{}.</Name><Type>TXT</Type><TTL>{LIFE}</TTL><ResourceRecords><ResourceRecord>\
             <Value>\"{}\"</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></Change></Changes></ChangeBatch>\
             </ChangeResourceRecordSetsRequest>",
            escape(name),
            escape(value)
        );
        self.send(Method::POST, &format!("{API}/hostedzone/{}/rrset/", self.id), body).await
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Result<String, String> {
        let said = |error: reqwest::Error| error.without_url().to_string();
        let host = sigv4::host_of(&self.url);
        let signing = Signing {
            access_key: self.access_key.expose(),
            secret_key: self.secret_key.expose(),
            region: REGION,
            service: "route53",
        };
        let headers = [("content-type", "text/xml"), ("host", host.as_str())];
        // The service refuses requests whose time is not its own: a clock that was moved must not matter.
        let signed = signing.sign(method.as_str(), path, &headers, body.as_bytes(), Clock::System.now());
        let mut url = self.url.clone();
        url.set_path(path);
        let request = self.client.request(method, url).header("content-type", "text/xml");
        let request = request.header("x-amz-date", &signed.date).header("authorization", &signed.authorization);
        let answer = request.body(body).send().await.map_err(said)?;
        let status = answer.status();
        let text = answer.text().await.map_err(said)?;
        if status.is_success() {
            return Ok(text);
        }
        let (code, message) =
            (element(&text, "Code").unwrap_or_default(), element(&text, "Message").unwrap_or_default());
        Err(format!("{status} {code} {message}").chars().take(300).collect())
    }
}
