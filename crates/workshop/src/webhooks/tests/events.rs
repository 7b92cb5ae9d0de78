//! All ten values: what is told to whom, and that it is told exactly when it happened.
use identity::events::{MfaDisabled, MfaEnabled, PasskeyAdded, PasskeyRemoved};
use tenancy::events::{By, record};

use super::*;

/// The schema of an event in the description, with what it refers to.
fn validator(t: &TestJanua, event: &str) -> jsonschema::Validator {
    let document = &t.janua.description.get().unwrap().value();
    let name = if event.starts_with("audit.") { "audit.*" } else { event };
    let content = &document["webhooks"][name]["post"]["requestBody"]["content"]["application/json"];
    assert!(content["example"].is_object(), "{event} has an example");
    let mut schema = content["schema"].clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut example = content["example"].clone();
    example["event"] = json!(event);
    assert!(validator.is_valid(&example), "{event}: the example is not what is described");
    validator
}

/// Every body is what the description says.
fn described(t: &TestJanua, heard: &[Heard]) -> Vec<String> {
    let names = heard.iter().map(|one| {
        let event = one.body["event"].as_str().unwrap().to_owned();
        assert_eq!(one.header("webhook-event-type"), event);
        let wrong: Vec<String> = validator(t, &event).iter_errors(&one.body).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{event}: {wrong:?}\n{}", one.body);
        event
    });
    names.collect()
}

async fn told(t: &TestJanua, receiver: &Receiver) -> Vec<String> {
    t.run_jobs().await;
    deliver(t).await;
    let mut names = described(t, &receiver.heard());
    names.sort();
    names
}

/// What the product promises to tell by name.
const NAMED: [&str; 8] = [
    "user.signed_in",
    "user.created",
    "user.mfa_enabled",
    "user.mfa_disabled",
    "user.passkey_added",
    "user.passkey_removed",
    "user.email_verified",
    "session.revoked",
];

#[tokio::test]
async fn each_event_goes_to_those_who_listen_to_it() {
    let t = start().await;
    let (shop, named, audit, all) =
        (Shop::open(&t).await, Receiver::start().await, Receiver::start().await, Receiver::start().await);
    shop.register(&t, &named.url, &NAMED).await;
    shop.register(&t, &audit.url, &["audit.*"]).await;
    shop.register(&t, &all.url, &["*"]).await;
    told(&t, &all).await;
    named.heard();
    audit.heard();

    // An account is made in the app, its address proven, somebody signs in and out.
    let body = identity::testing::sign_up_body("bob@example.com");
    assert_eq!(t.post("/auth/register").json(&body).header("x-service-app-key", &shop.key).await.status, 200);
    assert_eq!(told(&t, &named).await, ["user.created"]);
    let token = identity::testing::token_in(&identity::testing::mail_to(&t, "bob@example.com").unwrap());
    let proven = t.post("/auth/verify-email").json(&json!({ "token": token })).header("x-service-app-key", &shop.key);
    assert_eq!(proven.await.status, 200);
    let bob = Person::of(&login_with(&t, "bob@example.com", &shop.key).await);
    assert_eq!(told(&t, &named).await, ["user.email_verified", "user.signed_in"]);
    deliver(&t).await;
    let expected = ["audit.ACCOUNT_CREATED", "audit.EMAIL_VERIFIED", "audit.SIGNED_IN"];
    assert_eq!(told(&t, &audit).await, expected);
    let both = told(&t, &all).await;
    assert_eq!(both.len(), 6, "under both names: {both:?}");

    assert_eq!(bob.asks(t.post("/auth/logout")).header("x-service-app-key", &shop.key).await.status, 204);
    assert_eq!(told(&t, &named).await, ["session.revoked"]);
    done(t).await;
}

#[tokio::test]
async fn factors_and_passkeys_are_told_too() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    shop.register(&t, &receiver.url, &NAMED).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    told(&t, &receiver).await;
    // Done on the service's own pages: they go to the app she has signed in to.
    let account = shop.owner.id.parse().unwrap();
    let by = By { ip: Some("203.0.113.9".into()), user_agent: Some("elsewhere".into()), ..By::default() };
    let happened: [(Box<dyn tenancy::events::Event>, &str); 4] = [
        (Box::new(MfaEnabled { factor: tenancy::accounts::factors::Factor::Totp }), "user.mfa_enabled"),
        (Box::new(MfaDisabled { factor: tenancy::accounts::factors::Factor::Totp }), "user.mfa_disabled"),
        (Box::new(PasskeyAdded { credential_id: "abc".into(), device_name: "Key".into() }), "user.passkey_added"),
        (Box::new(PasskeyRemoved { credential_id: "abc".into() }), "user.passkey_removed"),
    ];
    for (event, name) in happened {
        let written: db::Result<()> =
            db::transact!(t.janua.db, async |tx| record(tx, &t.janua, &by, Some(account), &*event).await);
        written.unwrap();
        deliver(&t).await;
        let heard = receiver.heard();
        assert_eq!(described(&t, &heard), [name]);
        assert!(heard[0].body.get("ip").is_none(), "where she is elsewhere is not this app's business");
    }
    done(t).await;
}

#[tokio::test]
async fn an_event_is_there_exactly_when_what_it_tells_of_is() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    shop.register(&t, &receiver.url, &["user.mfa_enabled"]).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    let (account, event) =
        (shop.owner.id.parse().unwrap(), MfaEnabled { factor: tenancy::accounts::factors::Factor::Totp });
    let mut tx = t.janua.db.begin().await.unwrap();
    record(&mut tx, &t.janua, &By::default(), Some(account), &event).await.unwrap();
    drop(tx);
    deliver(&t).await;
    assert!(receiver.heard().is_empty(), "it never happened");
    done(t).await;
}

#[tokio::test]
async fn nobody_elses_app_hears_it_and_who_leaves_is_forgotten() {
    let t = start().await;
    let (shop, mine, theirs) = (Shop::open(&t).await, Receiver::start().await, Receiver::start().await);
    let eve = Shop::of(&t, signed_in(&t, "eve@example.com").await).await;
    shop.register(&t, &mine.url, &["*"]).await;
    eve.register(&t, &theirs.url, &["*"]).await;
    told(&t, &mine).await;
    theirs.heard();
    login_with(&t, "ada@example.com", &shop.key).await;
    let rename = json!({ "name": "New" });
    shop.owner.asks(t.ask(Method::PATCH, &format!("/apps/{}", id(&shop.app))).json(&rename)).await;
    let heard = told(&t, &mine).await;
    assert!(
        heard.contains(&"user.signed_in".to_owned()) && heard.contains(&"audit.APP_UPDATED".to_owned()),
        "{heard:?}"
    );
    assert!(theirs.heard().is_empty(), "eve's app hears nothing of ada");

    let bob = signed_in(&t, "bob@example.com").await;
    login_with(&t, "bob@example.com", &shop.key).await;
    told(&t, &mine).await;
    let gone =
        bob.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": identity::testing::PASSWORD }))).await;
    assert!(gone.status < 300, "{}", gone.text);
    t.run_jobs().await;
    deliver(&t).await;
    let last = mine.heard();
    assert!(last.iter().any(|one| one.body["event"] == "audit.ACCOUNT_DELETED"), "the app learns that bob is gone");
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM app_event WHERE facts LIKE '%bob@example.com%'";
    let (left,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert_eq!(left, 0, "and nothing of him is kept");
    done(t).await;
}

#[tokio::test]
async fn one_event_reaches_hundreds_of_webhooks_once_each() {
    let t = TestJanua::start_with(
        config()
            .with(|webhooks: &mut crate::webhooks::Settings| webhooks.webhooks_per_host = 1000.try_into().unwrap()),
        feature,
    )
    .await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    for _ in 0..10 {
        shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    }
    for _ in 0..600 {
        let made =
            shop.asks(t.post("/webhooks").json(&json!({ "url": receiver.url, "events": ["session.revoked"] })));
        assert_eq!(made.await.status, 200);
    }
    deliver(&t).await;
    // They listen to everything, but were not told of each other.
    let sql = "UPDATE webhook_subscription SET event = '*' WHERE event = 'session.revoked'";
    assert_eq!(t.janua.db.exec(sql, vec![]).await.unwrap(), 600);
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    let heard = receiver.heard();
    let ids: std::collections::HashSet<_> = heard.iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert_eq!(
        (heard.len(), ids.len()),
        (1210, 1210),
        "each under an id of its own, and under both names where both are heard"
    );
    done(t).await;
}

#[tokio::test]
async fn f15_two_nodes_share_the_work_and_nothing_is_sent_twice() {
    if !db::testing::TestDb::on_postgres() {
        // Two nodes need PostgreSQL; the run on it comes by here.
        return;
    }
    let t = TestJanua::start_with(
        config().with(|webhooks: &mut crate::webhooks::Settings| webhooks.webhooks_per_host = 20.try_into().unwrap()),
        feature,
    )
    .await;
    let other = t.another_node(feature).await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    for _ in 0..20 {
        shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    }
    for _ in 0..10 {
        login_with(&t, "ada@example.com", &shop.key).await;
    }
    let both = tokio::join!(deliver_due(&t.janua), deliver_due(&other.janua));
    both.0.unwrap();
    both.1.unwrap();
    deliver(&t).await;
    let heard = receiver.heard();
    let ids: std::collections::HashSet<_> = heard.iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert_eq!((heard.len(), ids.len()), (200, 200));
    done(t).await;
}
