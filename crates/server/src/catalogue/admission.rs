//! Every public route that takes a secret, a name or work from a stranger weighs the caller's network first. Its extractor
//! says so (`Admitted` or `ToAdmit`), and with the latter the handler must keep its word.
use axum::http::Method;
use db::params;
use kernel::testing::TestJanua;
use serde_json::Value;

use super::{built, catalogue, guard_of, matrix::samples};
use crate::start::features;

/// Weighed once its ticket is known: a ticket cannot be guessed.
const NEEDS_A_TICKET: (&str, &str) = ("POST", "/auth/2fa/login-verify");
/// Has its token in the query or in a form, which is read before the network is weighed.
const THE_LINK: &str = "/auth/verify";

/// Whether an operation says that it may ask for a captcha.
fn may_ask(operation: &Value, description: &Value) -> bool {
    let follow = |value: &Value| match value["$ref"].as_str() {
        Some(path) => description.pointer(&path[1..]).expect("it leads somewhere").clone(),
        None => value.clone(),
    };
    let refusal = follow(&operation["responses"]["403"]);
    follow(&refusal["content"]["application/problem+json"]["schema"]).to_string().contains("\"captcha_required\"")
}

#[tokio::test]
async fn every_public_route_that_may_ask_for_a_captcha_weighs_its_caller() {
    let t = TestJanua::start(features).await;
    let network = format!("network:{}", &t.janua.vault.mac("strike", b"192.0.2.1")[..32]);
    let failures = "INSERT INTO strike (subject, detail, strikes, last_at) VALUES ($1, '', 1000, $2)";
    t.janua.db.exec(failures, params![&network, t.janua.clock.now()]).await.expect("a thousand failures");
    let description = t.janua.description.get().expect("the description").value();
    let (catalogue, samples) = (catalogue(), samples());
    let (mut asked, mut wrong) = (0, vec![]);
    for (row, operation) in built(&description) {
        let is_page = operation["tags"][0] == "pages" || row.1 == "/oauth/authorize";
        let is_ticketed = (row.0.as_str(), row.1.as_str()) == NEEDS_A_TICKET;
        if guard_of(&catalogue, &row) != "public" || !may_ask(&operation, &description) || is_page || is_ticketed {
            continue;
        }
        let method: Method = row.0.parse().expect("a method");
        let is_link = row.1 == THE_LINK;
        let path = if is_link && method == Method::GET { format!("{THE_LINK}?token=x") } else { row.1.clone() };
        let ask = t.ask(method, &path.replace("{provider}", "google")).from("192.0.2.1");
        let answer = match samples.get(&row) {
            Some(body) => ask.json(body).await,
            None if is_link => ask.header("content-type", "application/x-www-form-urlencoded").body("token=x").await,
            None => ask.await,
        };
        asked += 1;
        let is_weighed = matches!(answer.refusal(), (403, "captcha_required") | (429, "rate_limited"));
        wrong.extend((!is_weighed).then(|| format!("{} {}: {} {}", row.0, row.1, answer.status, answer.text)));
        t.advance(std::time::Duration::from_secs(2));
    }
    assert!(asked >= 15, "only {asked} routes were asked");
    assert!(wrong.is_empty(), "{wrong:#?}");
    t.finish().await;
}
