//! A distribution at CloudFront, or a service that speaks its interface: a few calls, signed as AWS wants it
//! (Signature Version 4). The edge is its origin.
use std::{ops::Range, time::Duration};

use kernel::{clock::Timestamp, config::Config, crypto::Secret};
use reqwest::{Client, Method};
use url::Url;

use crate::sigv4::{self, Signing, element, escape, plain};

const API: &str = "/2020-05-31/distribution";
const REGION: &str = "us-east-1";
const SERVICE: &str = "cloudfront";
const PATIENCE: Duration = Duration::from_secs(20);

kernel::settings! {
    /// A content delivery network in front of the edge.
    pub struct Settings {
        /// The interface of CloudFront, or of a service that speaks it.
        cdn_endpoint: Url = "https://cloudfront.amazonaws.com";
        /// The access key that may create distributions. Empty: only the built-in edge is offered.
        cdn_access_key: Option<String> = "";
        /// Its secret.
        cdn_secret_key: Option<Secret> = "";
        /// The host of the edge as the content delivery network reaches it, if it is not the site's own host.
        cdn_origin: Option<String> = "";
    }
}

/// A distribution as the provider knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    pub id: String,
    pub host: String,
    pub is_deployed: bool,
}

/// The header by which a distribution names the site it asks for. The edge believes it on the host `cdn_origin` alone.
pub const SITE_HEADER: &str = "x-janua-site";

/// Where a distribution gets its files.
#[derive(Debug, Clone)]
pub struct Origin {
    /// What it connects to, and names as `Host`.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
    /// The host of the site.
    pub site: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CdnError {
    /// Worth trying again.
    #[error("the content delivery network is out of reach: {0}")]
    Away(String),
    /// It is not there, or not in the state that the call needs.
    #[error("the content delivery network refuses for now: {0}")]
    Conflict(String),
    #[error("the content delivery network does not know it: {0}")]
    Unknown(String),
    #[error("the content delivery network refuses: {0}")]
    Refused(String),
}

/// A client of the interface.
pub struct CloudFront {
    client: Client,
    endpoint: Url,
    access_key: String,
    secret_key: Secret,
}

impl CloudFront {
    /// None where the settings name no key.
    pub fn from_config(config: &Config) -> Option<Self> {
        let settings = config.of::<Settings>();
        let (access_key, secret_key) = (settings.cdn_access_key.clone()?, settings.cdn_secret_key.clone()?);
        let client = Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build().ok()?;
        Some(Self { client, endpoint: settings.cdn_endpoint.clone(), access_key, secret_key })
    }

    /// Creates a distribution. The same reference again answers the same distribution.
    pub async fn create(&self, reference: &str, origin: &Origin, now: Timestamp) -> Result<External, CdnError> {
        let body = distribution_config(reference, origin);
        match self.send(Method::POST, API, None, body, now).await {
            Ok(said) => read(&said.text),
            // The answer to an earlier request was lost. The refusal names what that request made.
            Err(CdnError::Conflict(says) | CdnError::Refused(says)) => match says.rsplit_once("Already exists: ") {
                Some((_, id)) => self.look(id, now).await,
                None => Err(CdnError::Refused(says)),
            },
            Err(error) => Err(error),
        }
    }

    pub async fn look(&self, id: &str, now: Timestamp) -> Result<External, CdnError> {
        read(&self.send(Method::GET, &format!("{API}/{}", plain(id)), None, String::new(), now).await?.text)
    }

    /// Goes one step towards the end of a distribution: switches it off, and deletes it once that is rolled out. Answers
    /// whether it is gone.
    pub async fn retire(&self, id: &str, now: Timestamp) -> Result<bool, CdnError> {
        let path = format!("{API}/{}", plain(id));
        let config = match self.send(Method::GET, &format!("{path}/config"), None, String::new(), now).await {
            Err(CdnError::Unknown(_)) => return Ok(true),
            found => found?,
        };
        let version = config.version.as_deref();
        let switch = enabled(&config.text).ok_or_else(|| CdnError::Away("the answer cannot be read".into()))?;
        if &config.text[switch.clone()] != "false" {
            let mut off = config.text.clone();
            off.replace_range(switch, "false");
            self.send(Method::PUT, &format!("{path}/config"), version, off, now).await?;
            return Ok(false);
        }
        if !self.look(id, now).await?.is_deployed {
            return Ok(false);
        }
        match self.send(Method::DELETE, &path, version, String::new(), now).await {
            Ok(_) | Err(CdnError::Unknown(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Drops what the network keeps of a site. The same reference again does nothing more.
    pub async fn invalidate(&self, id: &str, reference: &str, now: Timestamp) -> Result<(), CdnError> {
        let body = format!(
            "<InvalidationBatch xmlns=\"http://cloudfront.amazonaws.com/doc/2020-05-31/\"><Paths><Quantity>1</Quantity>\
             <Items><Path>/*</Path></Items></Paths><CallerReference>{}</CallerReference></InvalidationBatch>",
            escape(reference)
        );
        self.send(Method::POST, &format!("{API}/{}/invalidation", plain(id)), None, body, now).await.map(drop)
    }

    /// `version` is what a change is made to; the provider refuses it if there is a later one.
    async fn send(
        &self,
        method: Method,
        path: &str,
        version: Option<&str>,
        body: String,
        now: Timestamp,
    ) -> Result<CloudFrontAnswer, CdnError> {
        let away = |error: reqwest::Error| CdnError::Away(error.without_url().to_string());
        let host = sigv4::host_of(&self.endpoint);
        let signing = Signing {
            access_key: &self.access_key,
            secret_key: self.secret_key.expose(),
            region: REGION,
            service: SERVICE,
        };
        let headers = [("content-type", "text/xml"), ("host", host.as_str())];
        let signed = signing.sign(method.as_str(), path, &headers, body.as_bytes(), now);
        let mut url = self.endpoint.clone();
        url.set_path(path);
        let request = self.client.request(method, url).header("host", host).header("content-type", "text/xml");
        let request = request.header("x-amz-date", &signed.date).header("authorization", &signed.authorization);
        let request = version.into_iter().fold(request, |request, version| request.header("if-match", version));
        let response = request.body(body).send().await.map_err(away)?;
        let status = response.status();
        let version = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let text = response.text().await.map_err(away)?;
        if status.is_success() {
            return Ok(CloudFrontAnswer { text, version });
        }
        let code = element(&text, "Code").unwrap_or("unknown");
        let message = element(&text, "Message").unwrap_or_default();
        let says = format!("{status} {code} {message}").chars().take(300).collect();
        Err(match status.as_u16() {
            429 | 500.. => CdnError::Away(says),
            409 | 412 => CdnError::Conflict(says),
            404 => CdnError::Unknown(says),
            _ => CdnError::Refused(says),
        })
    }
}

/// An answer of the provider.
struct CloudFrontAnswer {
    text: String,
    version: Option<String>,
}

fn read(xml: &str) -> Result<External, CdnError> {
    let wrong = || CdnError::Away("the answer cannot be read".into());
    let (id, host) = (element(xml, "Id").ok_or_else(wrong)?, element(xml, "DomainName").ok_or_else(wrong)?);
    let is_deployed = element(xml, "Status") == Some("Deployed");
    Ok(External { id: id.to_owned(), host: host.to_owned(), is_deployed })
}

/// Where the text of the distribution's own `Enabled` is. Parts of it have elements of that name, too.
fn enabled(config: &str) -> Option<Range<usize>> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = config[at..].find('<') {
        let open = at + found;
        let end = open + config[open..].find('>')?;
        let tag = &config[open + 1..end];
        at = end + 1;
        if tag.starts_with('/') {
            depth = depth.saturating_sub(1);
        } else if !tag.starts_with(['?', '!']) && !tag.ends_with('/') {
            depth += 1;
            if depth == 2 && tag == "Enabled" {
                return Some(at..at + config[at..].find('<')?);
            }
        }
    }
    None
}

/// Caching follows the headers that the edge sends; nothing is kept beyond them. `Host` must not be forwarded: that of the
/// visitor is the distribution's own, which the edge does not know, and every policy of AWS that keeps to the origin's
/// headers forwards it. `Accept` decides whether a path gets the page of a client-side router. Cookies stay behind.
fn distribution_config(reference: &str, origin: &Origin) -> String {
    let (http, https, policy) =
        if origin.is_tls { (80, origin.port, "https-only") } else { (origin.port, 443, "http-only") };
    let (reference, host, site) = (escape(reference), escape(&origin.host), escape(&origin.site));
    format!(
        "<DistributionConfig xmlns=\"http://cloudfront.amazonaws.com/doc/2020-05-31/\">\
         <CallerReference>{reference}</CallerReference>\
         <Origins><Quantity>1</Quantity><Items><Origin><Id>janua</Id><DomainName>{host}</DomainName>\
         <CustomHeaders><Quantity>1</Quantity><Items><OriginCustomHeader><HeaderName>{SITE_HEADER}</HeaderName>\
         <HeaderValue>{site}</HeaderValue></OriginCustomHeader></Items></CustomHeaders>\
         <CustomOriginConfig><HTTPPort>{http}</HTTPPort><HTTPSPort>{https}</HTTPSPort>\
         <OriginProtocolPolicy>{policy}</OriginProtocolPolicy>\
         <OriginSslProtocols><Quantity>1</Quantity><Items><SslProtocol>TLSv1.2</SslProtocol></Items>\
         </OriginSslProtocols></CustomOriginConfig></Origin></Items></Origins>\
         <DefaultCacheBehavior><TargetOriginId>janua</TargetOriginId>\
         <ViewerProtocolPolicy>redirect-to-https</ViewerProtocolPolicy>\
         <AllowedMethods><Quantity>2</Quantity><Items><Method>GET</Method><Method>HEAD</Method></Items></AllowedMethods>\
         <Compress>false</Compress>\
         <ForwardedValues><QueryString>true</QueryString><Cookies><Forward>none</Forward></Cookies>\
         <Headers><Quantity>1</Quantity><Items><Name>Accept</Name></Items></Headers></ForwardedValues>\
         <MinTTL>0</MinTTL><DefaultTTL>0</DefaultTTL><MaxTTL>31536000</MaxTTL>\
         </DefaultCacheBehavior>\
         <Comment>Created by Janua for {site}</Comment><Enabled>true</Enabled></DistributionConfig>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { host: "x".into(), port: 80, is_tls: false, site: "shop.example".into() }
    }

    #[test]
    fn what_goes_into_xml_and_paths_stays_text() {
        let reference = "<CallerReference>a&lt;b&gt;&amp;</CallerReference>";
        assert!(distribution_config("a<b>&", &origin()).contains(reference));
        let xml = "<Distribution><Id>E1</Id><Status>InProgress</Status><DomainName>d.cloudfront.net</DomainName></Distribution>";
        assert_eq!(
            read(xml).unwrap(),
            External { id: "E1".into(), host: "d.cloudfront.net".into(), is_deployed: false }
        );
    }

    #[test]
    fn the_host_of_visitors_is_not_forwarded_and_the_site_is_named_instead() {
        let xml = distribution_config("r", &origin());
        assert!(!xml.contains("PolicyId"), "each policy that keeps to the headers of the origin forwards Host");
        let headers = xml.split_once("<Headers>").unwrap().1.split_once("</Headers>").unwrap().0;
        assert_eq!(headers, "<Quantity>1</Quantity><Items><Name>Accept</Name></Items>");
        let named = "<HeaderName>x-janua-site</HeaderName><HeaderValue>shop.example</HeaderValue>";
        assert!(xml.contains(named), "{xml}");
        let tls = distribution_config("r", &Origin { port: 8443, is_tls: true, ..origin() });
        assert!(tls.contains("<HTTPSPort>8443</HTTPSPort><OriginProtocolPolicy>https-only</OriginProtocolPolicy>"));
    }

    #[test]
    fn the_switch_of_a_distribution_is_none_of_its_parts() {
        let xml = "<?xml version=\"1.0\"?><DistributionConfig><Logging><Enabled>false</Enabled></Logging><A/>\
                   <Enabled>true</Enabled></DistributionConfig>";
        let at = enabled(xml).unwrap();
        assert_eq!((&xml[at.clone()], at.start > xml.find("<A/>").unwrap()), ("true", true));
        assert_eq!(
            enabled("<DistributionConfig><Logging><Enabled>true</Enabled></Logging></DistributionConfig>"),
            None
        );
        assert_eq!(enabled("<Distribution"), None);
        assert_eq!(enabled(&distribution_config("r", &origin())).map(|at| at.len()), Some(4));
    }
}
