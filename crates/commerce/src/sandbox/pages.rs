//! What the sandbox's pages ask: a checkout, a portal or an onboarding that is open, and what a person did on it. The links
//! cannot be guessed and work while what they lead to is open.
use axum::extract::State;
use kernel::{
    Janua,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    accounts,
    book::{Book, Delivery, shown},
    cards::{CARDS, Card},
    life, serve, sessions,
};
use crate::payments::{Kind, Payments, wire::Wire};

const CARD_REFUSED: Code = Code::new(402, "card_refused", "The card was refused. Use another one.");
const NOT_A_TEST_CARD: Code = Code::new(
    400,
    "not_a_test_card",
    "This is not a test card. Never type a real card here: no money moves, and nothing of it is kept.",
);
const CONFIRMATION_REQUIRED: Code =
    Code::new(402, "confirmation_required", "The card's owner has to confirm the payment.");

pub fn routes() -> Routes {
    Routes::new("sandbox")
        .get("/sandbox/sessions/{sessionId}", show_session, "the data of a page of the sandbox")
        .fails(&[NOT_FOUND])
        .post("/sandbox/sessions/{sessionId}", act_on_session, "submit a page of the sandbox")
        .fails(&[NOT_FOUND, CARD_REFUSED, NOT_A_TEST_CARD, CONFIRMATION_REQUIRED])
        .unkept()
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionPath {
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SandboxView {
    /// checkout, portal, onboarding or dashboard
    kind: String,
    /// open, complete, expired
    status: String,
    /// The object of the event, in the processor's form.
    object: serde_json::Map<String, Value>,
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    items: Vec<Value>,
    trial_days: i64,
    cards: Vec<TestCard>,
    /// The URL where the user continues.
    next: Option<String>,
    back: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct TestCard {
    number: String,
    says: String,
}

#[derive(Deserialize, JsonSchema)]
struct SandboxAct {
    /// pay, leave, card, cancel, undo; complete, review, restrict or reject for an onboarding.
    action: String,
    #[schemars(length(max = 32))]
    card: Option<String>,
    /// Confirms a payment with a card that asks for it.
    confirmed: Option<bool>,
    /// How events are delivered: duplicate, reorder, delay or lose.
    delivery: Option<String>,
}

fn only_in_sandbox(janua: &Janua) -> Result<()> {
    let is_sandbox = Payments::of(janua).is_some_and(|driver| driver.kind == Kind::Sandbox);
    if is_sandbox { Ok(()) } else { Err(NOT_FOUND.into()) }
}

async fn show_session(State(janua): State<Janua>, Path(path): Path<SessionPath>) -> Result<Json<SandboxView>> {
    only_in_sandbox(&janua)?;
    let view = transact!(janua, async |tx| {
        let mut book = Book::open(tx, &janua).await?;
        view(&mut book, &path.session_id).await
    });
    view.map(Json)
}

async fn act_on_session(
    State(janua): State<Janua>,
    Path(path): Path<SessionPath>,
    Json(act): Json<SandboxAct>,
) -> Result<Json<SandboxView>> {
    only_in_sandbox(&janua)?;
    let view = transact!(janua, async |tx| {
        let mut book = Book::open(tx, &janua).await?;
        book.delivery = Delivery::read(act.delivery.as_deref().unwrap_or_default());
        let shown = view(&mut book, &path.session_id).await?;
        if shown.status != "open" {
            return Err(NOT_FOUND.into());
        }
        match shown.kind.as_str() {
            "checkout" => on_checkout(&mut book, &path.session_id, &act).await?,
            "portal" => on_portal(&mut book, &path.session_id, &act).await?,
            _ => on_account(&mut book, &path.session_id, &act).await?,
        }
        view(&mut book, &path.session_id).await
    });
    view.map(Json)
}

fn card_of(act: &SandboxAct) -> Result<Card> {
    let number = act.card.as_deref().unwrap_or_default();
    let card = Card::of_number(number)
        .ok_or_else(|| NOT_A_TEST_CARD.at("card", "unknown", "must be one of the test cards"))?;
    if card == Card::Confirms && act.confirmed != Some(true) {
        return Err(CONFIRMATION_REQUIRED.into());
    }
    Ok(card)
}

async fn on_checkout(book: &mut Book<'_>, id: &str, act: &SandboxAct) -> Result<()> {
    let Some(found) = book.find("session", id).await? else { return Err(NOT_FOUND.into()) };
    match act.action.as_str() {
        "pay" => {
            let card = card_of(act)?;
            let paid = sessions::pay(book, found.body, &found.parent, card).await?;
            paid.map(drop).map_err(|refusal| CARD_REFUSED.because(refusal.message))
        }
        "leave" => Ok(()),
        _ => Err(INVALID.at("action", "unknown", "must be pay or leave")),
    }
}

async fn subscriptions(book: &mut Book<'_>, customer: &str) -> db::Result<Vec<Value>> {
    let found = book.of_parent("subscription", customer).await?.into_iter();
    Ok(found.filter(|one| !matches!(one["status"].as_str(), Some("canceled" | "incomplete_expired"))).collect())
}

async fn on_portal(book: &mut Book<'_>, id: &str, act: &SandboxAct) -> Result<()> {
    let Some(portal) = book.find("portal", id).await? else { return Err(NOT_FOUND.into()) };
    for subscription in subscriptions(book, &portal.parent).await? {
        match act.action.as_str() {
            "card" => {
                let replaced = life::replace_card(book, subscription, card_of(act)?).await?;
                replaced.map_err(|refusal| CARD_REFUSED.because(refusal.message))?;
            }
            "cancel" | "undo" => {
                let request =
                    Wire::post(format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap_or_default()), "")
                        .with("cancel_at_period_end", act.action == "cancel");
                let _done = serve::serve(book, &request).await?;
            }
            "leave" => {}
            _ => return Err(INVALID.at("action", "unknown", "must be card, cancel, undo or leave")),
        }
    }
    Ok(())
}

async fn on_account(book: &mut Book<'_>, id: &str, act: &SandboxAct) -> Result<()> {
    let Some(mut link) = book.find("link", id).await? else { return Err(NOT_FOUND.into()) };
    if !["complete", "review", "restrict", "reject", "leave"].contains(&act.action.as_str()) {
        return Err(INVALID.at("action", "unknown", "must be complete, review, restrict, reject or leave"));
    }
    if let Some(account) = book.get("account", &link.parent).await? {
        accounts::onboard(book, account, &act.action).await?;
    }
    link.body["_used"] = true.into();
    book.put("link", &link.parent, &link.body, None).await?;
    Ok(())
}

fn text(of: &Value, name: &str) -> Option<String> {
    of[name].as_str().map(str::to_owned)
}

async fn view(book: &mut Book<'_>, id: &str) -> Result<SandboxView> {
    let cards = CARDS.iter().map(|(number, _, says)| TestCard { number: (*number).into(), says: (*says).into() });
    let object = |of: &Value| shown(of).as_object().cloned().unwrap_or_default();
    let mut view = SandboxView {
        kind: String::new(),
        status: "open".into(),
        object: serde_json::Map::new(),
        items: vec![],
        trial_days: 0,
        cards: cards.collect(),
        next: None,
        back: None,
    };
    if let Some(found) = book.find("session", id).await? {
        let session = found.body;
        view.kind = "checkout".into();
        view.status = text(&session, "status").unwrap_or_default();
        view.items = session["_items"].as_array().cloned().unwrap_or_default();
        view.trial_days = session["_trial_days"].as_i64().unwrap_or_default();
        view.next = text(&session, "success_url");
        view.back = text(&session, "cancel_url");
        view.object = object(&session);
    } else if let Some(found) = book.find("portal", id).await? {
        view.kind = "portal".into();
        if found.body["_expires_at"].as_i64().unwrap_or_default() < book.seconds() {
            view.status = "expired".into();
        }
        view.items = subscriptions(book, &found.parent).await?.iter().map(shown).collect();
        view.next = text(&found.body, "return_url");
        view.back = view.next.clone();
        view.object = object(&found.body);
    } else if let Some(found) = book.find("link", id).await? {
        view.kind = text(&found.body, "_mode").unwrap_or_default();
        if found.body["expires_at"].as_i64().unwrap_or_default() < book.seconds() {
            view.status = "expired".into();
        }
        if found.body["_used"] == true {
            view.status = "complete".into();
        }
        view.next = text(&found.body, "_back");
        view.back = view.next.clone();
        let account = book.get("account", &found.parent).await?.unwrap_or_else(|| json!({}));
        view.object = object(&account);
    } else {
        return Err(NOT_FOUND.into());
    }
    Ok(view)
}
