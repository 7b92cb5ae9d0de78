//! Amazon Route 53 Domains.
use std::time::Duration;

use kernel::{
    clock::{Clock, Timestamp},
    crypto::Secret,
};
use reqwest::{Client, StatusCode, redirect::Policy};
use serde_json::{Value, json};
use url::Url;

use super::{Answer, Availability, Away, Contact, DomainPrice, Offer, Progress, Registrar, model::Registration};
use crate::{
    settings::Settings,
    sigv4::{self, Signing},
};

const TARGET: &str = "Route53Domains_v20140515";
const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Route53 {
    url: Option<Url>,
    region: String,
    access_key: Option<Secret>,
    secret_key: Option<Secret>,
}

/// An error that the service answered, by its name.
enum ApiError {
    Away(Away),
    Error { kind: String, message: String },
}

impl From<Away> for ApiError {
    fn from(away: Away) -> Self {
        Self::Away(away)
    }
}

impl ApiError {
    fn away(self) -> Away {
        match self {
            Self::Away(away) => away,
            Self::Error { kind, message } => away(format!("{kind}: {message}")),
        }
    }
}

fn away(text: impl Into<String>) -> Away {
    Away { text: text.into(), wait: None }
}

impl Route53 {
    pub fn new(settings: &Settings) -> Self {
        Self {
            url: settings.registrar_url.clone(),
            region: settings.registrar_region.clone(),
            access_key: settings.registrar_access_key.clone(),
            secret_key: settings.registrar_secret_key.clone(),
        }
    }

    async fn call(&self, operation: &str, input: &Value) -> Result<Value, ApiError> {
        let standard = || format!("https://route53domains.{}.amazonaws.com/", self.region);
        let url = self.url.as_ref().map_or_else(standard, ToString::to_string);
        let url = Url::parse(&url).map_err(|error| away(error.to_string()))?;
        let host = sigv4::host_of(&url);
        let (body, target) = (input.to_string(), format!("{TARGET}.{operation}"));
        let content_type = "application/x-amz-json-1.1";
        let signing = Signing {
            access_key: self.access_key.as_ref().map(Secret::expose).unwrap_or_default(),
            secret_key: self.secret_key.as_ref().map(Secret::expose).unwrap_or_default(),
            region: &self.region,
            service: "route53domains",
        };
        let headers = [("content-type", content_type), ("host", host.as_str()), ("x-amz-target", target.as_str())];
        // The service refuses requests whose time is not its own: a clock that was moved must not matter.
        let signed = signing.sign("POST", "/", &headers, body.as_bytes(), Clock::System.now());
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
        let client = client.map_err(|error| away(error.to_string()))?;
        let sent = client
            .post(url)
            .header("content-type", content_type)
            .header("x-amz-target", &target)
            .header("x-amz-date", &signed.date)
            .header("authorization", &signed.authorization)
            .body(body)
            .send()
            .await;
        let answer = sent.map_err(|error| away(error.without_url().to_string()))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| away(error.without_url().to_string()))?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if status.is_success() {
            return Ok(value);
        }
        let kind = value["__type"].as_str().unwrap_or_default().rsplit('#').next().unwrap_or_default().to_owned();
        let message = value["message"].as_str().or(value["Message"].as_str()).unwrap_or_default().to_owned();
        let is_throttled = status == StatusCode::TOO_MANY_REQUESTS || kind.contains("Throttl");
        if status.is_server_error() || is_throttled || kind.is_empty() {
            let wait = is_throttled.then_some(Duration::from_mins(1));
            return Err(ApiError::Away(Away { text: format!("{status} {kind}"), wait }));
        }
        Err(ApiError::Error { kind, message })
    }

    async fn price(&self, domain: &str) -> Result<Option<DomainPrice>, Away> {
        let tld = psl::suffix_str(domain).unwrap_or_default();
        let answer = self.call("ListPrices", &json!({ "Tld": tld })).await.map_err(ApiError::away)?;
        let found = answer["Prices"].as_array().and_then(|prices| prices.iter().find(|price| price["Name"] == tld));
        let Some(price) = found.map(|price| &price["RegistrationPrice"]) else { return Ok(None) };
        let (Some(amount), Some(currency)) = (price["Price"].as_f64(), price["Currency"].as_str()) else {
            return Ok(None);
        };
        // They are decimal numbers of dollars.
        #[expect(clippy::cast_possible_truncation, reason = "prices of domains are small")]
        let amount = (amount * 100.0).round() as i64;
        Ok(Some(DomainPrice { amount, currency: currency.to_owned() }))
    }
}

/// How an operation stands, by the service's own words.
fn progress(detail: &Value, operation: &str) -> Progress {
    let message = detail["Message"].as_str().unwrap_or_default().to_owned();
    match detail["Status"].as_str().unwrap_or_default() {
        "SUCCESSFUL" => Progress::Succeeded { expires_at: None },
        "FAILED" | "ERROR" => Progress::Failed(message),
        _ => match detail["StatusFlag"].as_str().unwrap_or_default() {
            "PENDING_CUSTOMER_ACTION" | "PENDING_PAYMENT_VERIFICATION" | "PENDING_ACCEPTANCE" => {
                Progress::ActionRequired(message)
            }
            _ => Progress::Running(operation.to_owned()),
        },
    }
}

fn contact_detail(contact: &Contact) -> Value {
    let kind = if contact.organization.is_some() { "COMPANY" } else { "PERSON" };
    let mut detail = json!({
        "FirstName": contact.first_name, "LastName": contact.last_name, "ContactType": kind,
        "AddressLine1": contact.address_line1, "City": contact.city, "CountryCode": contact.country_code,
        "ZipCode": contact.zip_code, "PhoneNumber": contact.phone, "Email": contact.email,
    });
    for (name, value) in [
        ("OrganizationName", &contact.organization),
        ("AddressLine2", &contact.address_line2),
        ("State", &contact.state),
    ] {
        if let Some(value) = value {
            detail[name] = json!(value);
        }
    }
    detail
}

impl Registrar for Route53 {
    fn name(&self) -> &'static str {
        "route53"
    }

    fn offer<'a>(&'a self, domain: &'a str) -> Answer<'a, Offer> {
        Box::pin(async move {
            let answer = self.call("CheckDomainAvailability", &json!({ "DomainName": domain })).await;
            let availability = match answer.map_err(ApiError::away)?["Availability"].as_str().unwrap_or_default() {
                "AVAILABLE" => Availability::Available,
                "UNAVAILABLE" | "UNAVAILABLE_RESTRICTED" => Availability::Unavailable,
                "UNAVAILABLE_PREMIUM" => Availability::Premium,
                "RESERVED" | "AVAILABLE_RESERVED" | "AVAILABLE_PREORDER" => Availability::Reserved,
                _ => Availability::Unknown,
            };
            let price = if availability == Availability::Available { self.price(domain).await? } else { None };
            Ok(Offer { availability, price })
        })
    }

    fn register<'a>(&'a self, wanted: &'a Registration, contact: &'a Contact) -> Answer<'a, Progress> {
        Box::pin(async move {
            let contact = contact_detail(contact);
            let input = json!({
                "DomainName": wanted.domain, "DurationInYears": wanted.years, "AutoRenew": wanted.auto_renew,
                "AdminContact": contact, "RegistrantContact": contact, "TechContact": contact,
                "PrivacyProtectAdminContact": wanted.privacy, "PrivacyProtectRegistrantContact": wanted.privacy,
                "PrivacyProtectTechContact": wanted.privacy,
            });
            match self.call("RegisterDomain", &input).await {
                Ok(answer) => match answer["OperationId"].as_str() {
                    Some(operation) => Ok(Progress::Running(operation.to_owned())),
                    None => Err(away("it named no operation")),
                },
                Err(ApiError::Error { kind, .. }) if kind == "DuplicateRequest" => {
                    self.find(&wanted.domain).await?.ok_or_else(|| away("it has the request and does not show it"))
                }
                Err(ApiError::Error { kind, message }) => Ok(Progress::Failed(format!("{message} ({kind})"))),
                Err(ApiError::Away(away)) => Err(away),
            }
        })
    }

    fn find<'a>(&'a self, domain: &'a str) -> Answer<'a, Option<Progress>> {
        Box::pin(async move {
            let input = json!({ "MaxItems": 100, "SortBy": "SubmittedDate", "SortOrder": "DESC" });
            let answer = self.call("ListOperations", &input).await.map_err(ApiError::away)?;
            let operations = answer["Operations"].as_array().cloned().unwrap_or_default();
            let is_it = |one: &&Value| one["Type"] == "REGISTER_DOMAIN" && one["DomainName"] == domain;
            if let Some(found) = operations.iter().find(is_it) {
                let id = found["OperationId"].as_str().unwrap_or_default();
                return Ok(Some(Progress::Running(id.to_owned())));
            }
            match self.call("GetDomainDetail", &json!({ "DomainName": domain })).await {
                Ok(_) => Ok(Some(Progress::Succeeded { expires_at: None })),
                Err(ApiError::Error { .. }) => Ok(None),
                Err(ApiError::Away(away)) => Err(away),
            }
        })
    }

    fn poll<'a>(&'a self, wanted: &'a Registration, operation: &'a str) -> Answer<'a, Progress> {
        Box::pin(async move {
            let input = json!({ "OperationId": operation });
            let detail = self.call("GetOperationDetail", &input).await.map_err(ApiError::away)?;
            let stands = progress(&detail, operation);
            if !matches!(stands, Progress::Succeeded { .. }) {
                return Ok(stands);
            }
            let detail = self.call("GetDomainDetail", &json!({ "DomainName": wanted.domain })).await;
            let expiry = detail.ok().and_then(|detail| detail["ExpirationDate"].as_f64());
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let expires_at = expiry.map(|seconds| Timestamp((seconds * 1000.0) as i64));
            Ok(Progress::Succeeded { expires_at })
        })
    }
}
