//! Accounts of merchants and the links by which they are set up.
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    book::{Book, Refusal, Served},
    serve::Params,
};
use crate::payments::wire::Verb;

const LINK: Duration = Duration::from_mins(5);

pub async fn serve(book: &mut Book<'_>, verb: Verb, path: &[&str], params: &Params<'_>) -> Served {
    match (verb, path) {
        (Verb::Post, ["accounts"]) => {
            let account = json!({
                "id": book.id("acct"), "object": "account", "country": params.get("country"), "email": params.get("email"),
                "business_profile": { "name": params.get("business_profile[name]") }, "default_currency": "usd",
                "charges_enabled": false, "payouts_enabled": false, "details_submitted": false, "livemode": false,
                "requirements": { "currently_due": ["business_profile.url", "external_account"], "past_due": [],
                                  "current_deadline": null, "disabled_reason": "requirements.past_due" },
            });
            book.put("account", "", &account, None).await?;
            Ok(Ok(account))
        }
        (Verb::Get, ["accounts", id]) => {
            Ok(book.get("account", id).await?.ok_or_else(|| Refusal::missing("account")))
        }
        (Verb::Post, ["account_links"]) => {
            let account = params.get("account").unwrap_or_default();
            link(book, account, params.get("return_url"), "onboarding").await
        }
        (Verb::Post, ["accounts", id, "login_links"]) => link(book, id, None, "dashboard").await,
        _ => Ok(Err(Refusal::missing("path"))),
    }
}

async fn link(book: &mut Book<'_>, account: &str, back: Option<&str>, mode: &str) -> Served {
    if book.get("account", account).await?.is_none() {
        return Ok(Err(Refusal::missing("account")));
    }
    let id = book.id("link");
    let expires = book.now.plus(LINK).0 / 1000;
    let link = json!({ "id": id, "object": "account_link", "url": format!("{}/sandbox/onboard/{id}", book.janua.config.base_url()),
                       "created": book.seconds(), "expires_at": expires, "_account": account, "_back": back, "_mode": mode });
    book.put("link", account, &link, None).await?;
    Ok(Ok(link))
}

/// What a merchant says on the onboarding page.
pub async fn onboard(book: &mut Book<'_>, mut account: Value, outcome: &str) -> db::Result<Value> {
    let id = account["id"].as_str().unwrap_or_default().to_owned();
    let (submitted, enabled, due, past_due, reason) = match outcome {
        "complete" => (true, true, json!([]), json!([]), Value::Null),
        "review" => (true, false, json!([]), json!([]), json!("requirements.pending_verification")),
        "restrict" => (
            true,
            false,
            json!(["individual.verification.document"]),
            json!(["individual.verification.document"]),
            json!("requirements.past_due"),
        ),
        "reject" => (true, false, json!([]), json!([]), json!("rejected.other")),
        _ => return Ok(account),
    };
    account["details_submitted"] = submitted.into();
    account["charges_enabled"] = enabled.into();
    account["payouts_enabled"] = enabled.into();
    account["requirements"] =
        json!({ "currently_due": due, "past_due": past_due, "current_deadline": null, "disabled_reason": reason });
    book.put("account", "", &account, None).await?;
    book.emit("account.updated", &account, &id).await?;
    Ok(account)
}
