//! What relays report by webhook: Amazon SES (through SNS) and Postmark. A secret of their own stands in the URL.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    crypto::same,
    email::Email,
    fault::{INVALID, MALFORMED, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{Path, Query, Raw, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tenancy::enter::NotAdmitted;

use crate::{
    Settings,
    queue::{Report, ReportKind, is_hard, report},
    sending::{Recipient, RecipientId},
};

const LARGEST: usize = 512 * 1024;
const LONGEST: usize = 300;

pub fn routes() -> Routes {
    Routes::new("email")
        .body_limit(LARGEST)
        .post("/email/events/{relay}", receive_relay_events, "reports of a relay: ses or postmark")
        .fails(&[UNAUTHENTICATED, INVALID, MALFORMED])
}

#[derive(Deserialize, JsonSchema)]
struct RelayPath {
    /// `ses` or `postmark`.
    relay: String,
}

#[derive(Deserialize, JsonSchema)]
struct RelayQuery {
    /// `email_webhook_secret`.
    secret: Option<String>,
}

/// A report about one recipient, and what it is known by.
#[derive(Debug, PartialEq, Eq)]
struct About {
    email: String,
    /// Our own id of the mail to this recipient, if the relay hands it back.
    reference: Option<String>,
    relay_id: Option<String>,
    report: Report,
}

async fn receive_relay_events(
    State(janua): State<Janua>,
    _: NotAdmitted,
    Path(path): Path<RelayPath>,
    Query(query): Query<RelayQuery>,
    Raw(body): Raw,
) -> Result<NoContent> {
    let settings = janua.config.of::<Settings>();
    let secret = settings.email_webhook_secret.as_ref().ok_or(NOT_FOUND)?;
    if !query.secret.is_some_and(|given| same(given.as_bytes(), secret.expose().as_bytes())) {
        return Err(UNAUTHENTICATED.into());
    }
    let body: Value = serde_json::from_slice(&body).map_err(|_| MALFORMED)?;
    let reports = match path.relay.as_str() {
        "ses" => match body["Type"].as_str() {
            Some("SubscriptionConfirmation") => {
                // Confirmed by hand: this service opens no URL because a request names it.
                tracing::warn!(
                    url = body["SubscribeURL"].as_str(),
                    "open this URL to confirm the subscription of SNS"
                );
                vec![]
            }
            Some(_) => {
                ses(&serde_json::from_str(body["Message"].as_str().unwrap_or_default()).map_err(|_| MALFORMED)?)
            }
            None => ses(&body),
        },
        "postmark" => postmark(&body),
        _ => return Err(NOT_FOUND.into()),
    };
    for about in reports {
        let Some(mail) = find(&janua, &about).await? else { continue };
        transact!(janua, async |tx| report(tx, &janua, &mail, &about.report).await)?;
    }
    Ok(NoContent)
}

/// By our own id, or by that of the relay; the recipient must be the same in both cases.
async fn find(janua: &Janua, about: &About) -> Result<Option<Recipient>> {
    let Some(email) = Email::parse(&about.email) else { return Ok(None) };
    let own = match about.reference.as_ref().and_then(|id| id.parse::<RecipientId>().ok()) {
        Some(id) => Recipient::find(&janua.db, id).await?.filter(|mail| mail.email_key == email.key()),
        None => None,
    };
    match (own, &about.relay_id) {
        (Some(mail), _) => Ok(Some(mail)),
        (None, Some(id)) => Ok(Recipient::by_relay(&janua.db, id, email.key()).await?),
        (None, None) => Ok(None),
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn ses(event: &Value) -> Vec<About> {
    let mail = &event["mail"];
    let headers = mail["headers"].as_array().map_or(&[][..], Vec::as_slice);
    let own =
        headers.iter().find(|header| header["name"].as_str().is_some_and(|n| n.eq_ignore_ascii_case("X-Janua-Ref")));
    let (reference, relay_id) = (own.and_then(|header| text(&header["value"])), text(&mail["messageId"]));
    let about = |email: &Value, kind: ReportKind, detail: &str| About {
        email: email.as_str().unwrap_or_default().to_owned(),
        reference: reference.clone(),
        relay_id: relay_id.clone(),
        report: Report { kind, detail: short(detail) },
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let kind = event["notificationType"].as_str().or_else(|| event["eventType"].as_str());
    match kind.unwrap_or_default() {
        "Bounce" => {
            let bounce = &event["bounce"];
            let kind = if bounce["bounceType"] == "Permanent" { ReportKind::Hard } else { ReportKind::Soft };
            let all = list(&bounce["bouncedRecipients"]);
            let said = |one: &Value| {
                let code = one["diagnosticCode"].as_str().unwrap_or_default();
                let code = code.strip_prefix("smtp;").unwrap_or(code).trim();
                format!(
                    "{} {code}",
                    one["status"].as_str().unwrap_or(if kind == ReportKind::Hard { "5.1.1" } else { "" })
                )
            };
            all.iter().map(|one| about(&one["emailAddress"], kind, said(one).trim())).collect()
        }
        "Complaint" => {
            let all = list(&event["complaint"]["complainedRecipients"]);
            let said = event["complaint"]["complaintFeedbackType"].as_str().unwrap_or("reported as spam");
            all.iter().map(|one| about(&one["emailAddress"], ReportKind::Complaint, said)).collect()
        }
        "Delivery" => {
            let said = event["delivery"]["smtpResponse"].as_str().unwrap_or("delivered");
            list(&event["delivery"]["recipients"]).iter().map(|one| about(one, ReportKind::Delivered, said)).collect()
        }
        _ => vec![],
    }
}

fn postmark(event: &Value) -> Vec<About> {
    let details = event["Details"].as_str().or_else(|| event["Description"].as_str()).unwrap_or_default();
    let (kind, email) = match event["RecordType"].as_str().unwrap_or_default() {
        "Bounce" if event["Type"] == "HardBounce" || is_hard(details) => (ReportKind::Hard, &event["Email"]),
        "Bounce" => (ReportKind::Soft, &event["Email"]),
        "SpamComplaint" => (ReportKind::Complaint, &event["Email"]),
        "Delivery" => (ReportKind::Delivered, &event["Recipient"]),
        _ => return vec![],
    };
    let detail =
        if kind == ReportKind::Hard && !is_hard(details) { format!("5.1.1 {details}") } else { details.to_owned() };
    vec![About {
        email: email.as_str().unwrap_or_default().to_owned(),
        reference: text(&event["Metadata"]["ref"]),
        relay_id: text(&event["MessageID"]),
        report: Report { kind, detail: short(&detail) },
    }]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_of_relays_are_read() {
        let bounce = json!({
            "notificationType": "Bounce",
            "bounce": { "bounceType": "Permanent", "bouncedRecipients": [
                { "emailAddress": "a@x.com", "status": "5.1.1", "diagnosticCode": "smtp; 550 5.1.1 unknown" }] },
            "mail": { "messageId": "0100-1", "headers": [{ "name": "X-Janua-Ref", "value": "r" }] },
        });
        let found = ses(&bounce).remove(0);
        assert_eq!((found.report.kind, found.reference.as_deref()), (ReportKind::Hard, Some("r")));
        let spam = json!({ "RecordType": "SpamComplaint", "Email": "a@x.com", "MessageID": "m", "Metadata": { "ref": "r" } });
        assert_eq!(postmark(&spam).remove(0).report.kind, ReportKind::Complaint);
        assert!(postmark(&json!({ "RecordType": "Open" })).is_empty() && ses(&json!({})).is_empty());
    }
}
