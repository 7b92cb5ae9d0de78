//! A distribution at CloudFront, or a service that speaks its interface: three calls, signed as AWS wants it (Signature
//! Version 4). The edge is its origin.
use std::time::Duration;

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

#[derive(Debug, thiserror::Error)]
pub enum CdnError {
    /// Worth trying again.
    #[error("the content delivery network is out of reach: {0}")]
    Away(String),
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
    pub async fn create(
        &self,
        reference: &str,
        origin: &str,
        port: u16,
        is_tls: bool,
        now: Timestamp,
    ) -> Result<External, CdnError> {
        let body = distribution_config(reference, origin, port, is_tls);
        read(&self.send(Method::POST, API, body, now).await?)
    }

    pub async fn look(&self, id: &str, now: Timestamp) -> Result<External, CdnError> {
        read(&self.send(Method::GET, &format!("{API}/{}", plain(id)), String::new(), now).await?)
    }

    /// Drops what the network keeps of a site. The same reference again does nothing more.
    pub async fn invalidate(&self, id: &str, reference: &str, now: Timestamp) -> Result<(), CdnError> {
        let body = format!(
            "<InvalidationBatch xmlns=\"http://cloudfront.amazonaws.com/doc/2020-05-31/\"><Paths><Quantity>1</Quantity>\
             <Items><Path>/*</Path></Items></Paths><CallerReference>{}</CallerReference></InvalidationBatch>",
            escape(reference)
        );
        self.send(Method::POST, &format!("{API}/{}/invalidation", plain(id)), body, now).await.map(drop)
    }

    async fn send(&self, method: Method, path: &str, body: String, now: Timestamp) -> Result<String, CdnError> {
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
        let response = request.body(body).send().await.map_err(away)?;
        let status = response.status();
        let text = response.text().await.map_err(away)?;
        if status.is_success() {
            return Ok(text);
        }
        let code = element(&text, "Code").unwrap_or("unknown");
        let message = element(&text, "Message").unwrap_or_default();
        let says = format!("{status} {code} {message}").chars().take(300).collect();
        Err(if status.is_server_error() || status.as_u16() == 429 {
            CdnError::Away(says)
        } else {
            CdnError::Refused(says)
        })
    }
}

fn read(xml: &str) -> Result<External, CdnError> {
    let wrong = || CdnError::Away("the answer cannot be read".into());
    let (id, host) = (element(xml, "Id").ok_or_else(wrong)?, element(xml, "DomainName").ok_or_else(wrong)?);
    let is_deployed = element(xml, "Status") == Some("Deployed");
    Ok(External { id: id.to_owned(), host: host.to_owned(), is_deployed })
}

/// Caching follows the headers that the edge sends; nothing is kept beyond them. The policy is that of AWS by the name
/// `UseOriginCacheControlHeaders`.
fn distribution_config(reference: &str, origin: &str, port: u16, is_tls: bool) -> String {
    let (http, https, policy) = if is_tls { (80, port, "https-only") } else { (port, 443, "http-only") };
    let (reference, origin) = (escape(reference), escape(origin));
    format!(
        "<DistributionConfig xmlns=\"http://cloudfront.amazonaws.com/doc/2020-05-31/\">\
         <CallerReference>{reference}</CallerReference>\
         <Origins><Quantity>1</Quantity><Items><Origin><Id>janua</Id><DomainName>{origin}</DomainName>\
         <CustomOriginConfig><HTTPPort>{http}</HTTPPort><HTTPSPort>{https}</HTTPSPort>\
         <OriginProtocolPolicy>{policy}</OriginProtocolPolicy></CustomOriginConfig></Origin></Items></Origins>\
         <DefaultCacheBehavior><TargetOriginId>janua</TargetOriginId>\
         <ViewerProtocolPolicy>redirect-to-https</ViewerProtocolPolicy>\
         <AllowedMethods><Quantity>2</Quantity><Items><Method>GET</Method><Method>HEAD</Method></Items></AllowedMethods>\
         <Compress>false</Compress><CachePolicyId>83da9c7e-98b4-4e11-a168-04f0df8e2c65</CachePolicyId>\
         </DefaultCacheBehavior>\
         <Comment>Created by Janua</Comment><Enabled>true</Enabled></DistributionConfig>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_xml_and_paths_stays_text() {
        assert!(
            distribution_config("a<b>&", "x", 80, false)
                .contains("<CallerReference>a&lt;b&gt;&amp;</CallerReference>")
        );
        let xml = "<Distribution><Id>E1</Id><Status>InProgress</Status><DomainName>d.cloudfront.net</DomainName></Distribution>";
        assert_eq!(
            read(xml).unwrap(),
            External { id: "E1".into(), host: "d.cloudfront.net".into(), is_deployed: false }
        );
    }
}
