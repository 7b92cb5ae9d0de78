//! Framework agents: credentials, kill switch, delegation.
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::http::Method;
use data_encoding::BASE64URL_NOPAD;

use super::actors::*;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

async fn token(t: &TestJanua, person: &Person, agent: &Framework, more: Value) -> Answer {
    let mut body = json!({ "clientId": agent.id, "clientSecret": agent.secret });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    person.asks(t.post("/framework-agent/token").json(&body)).await
}

#[tokio::test]
async fn a_framework_agent_gets_tokens_for_its_secret() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    t.happened().await;
    let agent = framework(&t, &ada, json!({ "scopes": ["a", "b"] })).await;
    assert!(agent.secret.starts_with("fa_live_") && agent.kill_switch.starts_with("ks_live_"));
    let good = token(&t, &ada, &agent, json!({ "scopes": ["a"] })).await;
    assert_eq!(
        (good.status, &good.body["expiresIn"], &good.body["scope"]),
        (200, &json!(3600), &json!("a")),
        "{}",
        good.text
    );
    let seen = me(&t, &text(&good.body["accessToken"])).await;
    assert_eq!((&seen.body["type"], &seen.body["id"]), (&json!("framework"), &json!(agent.id)));
    assert_eq!(
        token(&t, &eve, &agent, json!({})).await.refusal(),
        (404, "not_found"),
        "right credentials, wrong person"
    );
    let wrong = Framework {
        secret: agent.secret.replace("fa_live_", "fa_live_x"),
        id: agent.id.clone(),
        kill_switch: String::new(),
    };
    assert_eq!(token(&t, &ada, &wrong, json!({})).await.refusal(), (401, "invalid_credentials"));
    assert_eq!(
        token(&t, &ada, &agent, json!({ "clientId": "019c137e-c107-7f36-aa03-c8508b253019" })).await.status,
        401
    );
    assert_eq!(token(&t, &ada, &agent, json!({ "scopes": ["c"] })).await.refusal(), (400, "invalid_scope"));
    t.expects(&["ORG_CREATED", "FRAMEWORK_AGENT_REGISTERED", "FRAMEWORK_AGENT_TOKEN_ISSUED"]).await;
    let list = ada.asks(t.get("/framework-agent")).await;
    assert!(
        !list.text.contains(&agent.secret) && list.body["agents"][0]["framework"] == "langgraph",
        "{}",
        list.text
    );

    let headless = framework_token(&t, &agent).await;
    assert_eq!(me(&t, &headless).await.status, 200);
    let basic = data_encoding::BASE64.encode(format!("{}:{}", agent.id, agent.secret).as_bytes());
    let ask = t.post("/oauth/token").header("content-type", "application/x-www-form-urlencoded");
    let answer =
        ask.header("authorization", &format!("Basic {basic}")).body("grant_type=client_credentials&scope=a").await;
    assert_eq!((answer.status, &answer.body["scope"]), (200, &json!("a")), "{}", answer.text);
    let refused = oauth(
        &t,
        "/oauth/token",
        &[("grant_type", "client_credentials"), ("client_id", &agent.id), ("client_secret", &wrong.secret)],
    )
    .await;
    assert_eq!((refused.status, &refused.body["error"]), (401, &json!("invalid_client")));

    // A rotation without grace ends tokens and the old secret; with grace both work.
    let rotated =
        ada.asks(t.post(&format!("/framework-agent/{}/rotate", agent.id)).json(&json!({ "graceSeconds": 60 }))).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_eq!((me(&t, &headless).await.status, token(&t, &ada, &agent, json!({})).await.status), (200, 200));
    t.advance(Duration::from_secs(61));
    assert_eq!(token(&t, &ada, &agent, json!({})).await.status, 401, "the grace is over");
    let newer = Framework { secret: text(&rotated.body["clientSecret"]), ..wrong };
    assert_eq!(token(&t, &ada, &newer, json!({})).await.status, 200);
    let last = ada.asks(t.post(&format!("/framework-agent/{}/rotate", agent.id))).await;
    assert_eq!(last.status, 200);
    assert_eq!((me(&t, &headless).await.status, token(&t, &ada, &newer, json!({})).await.status), (401, 401));
    t.advance(Duration::from_mins(11));
    let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    t.advance(Duration::from_mins(11));
    let stale = ada.asks(t.post(&format!("/framework-agent/{}/rotate", agent.id))).await;
    assert_eq!(stale.refusal(), (403, "reauthentication_required"));
    t.finish().await;
}

#[tokio::test]
async fn m10_a_kill_switch_has_one_purpose() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (x, y) = (framework(&t, &ada, json!({})).await, framework(&t, &ada, json!({})).await);
    let live = framework_token(&t, &x).await;
    t.run_jobs().await;
    t.happened().await;
    let pull = async |switch: &str, method: Method, path: String| {
        t.ask(method, &path).header("authorization", &format!("Bearer {switch}")).await
    };
    let path = |agent: &Framework, what: &str| format!("/framework-agent/{}{what}", agent.id);
    assert_eq!(pull(&x.kill_switch, Method::POST, path(&y, "/suspend")).await.refusal(), (404, "not_found"));
    assert_eq!(pull(&x.kill_switch, Method::POST, path(&x, "/reactivate")).await.status, 401);
    assert_eq!(pull(&x.kill_switch, Method::GET, path(&x, "")).await.status, 401);
    assert_eq!(pull(&x.kill_switch, Method::GET, "/auth/me".into()).await.status, 401);
    assert_eq!(pull(&x.kill_switch, Method::GET, "/machine/me".into()).await.status, 401);
    assert_eq!(pull("ks_live_nothing", Method::POST, path(&x, "/suspend")).await.status, 401);
    let off = pull(&x.kill_switch, Method::POST, path(&x, "/suspend")).await;
    assert_eq!((off.status, &off.body["agent"]["suspendedBy"]), (200, &json!("kill_switch")), "{}", off.text);
    t.expects(&["FRAMEWORK_AGENT_SUSPENDED", "KILL_SWITCH_USED"]).await;
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("kill switch"), "the owner hears of it");
    assert_eq!(me(&t, &live).await.status, 401);
    let refused = oauth(
        &t,
        "/oauth/token",
        &[("grant_type", "client_credentials"), ("client_id", &x.id), ("client_secret", &x.secret)],
    )
    .await;
    assert_eq!((refused.status, &refused.body["error"]), (400, &json!("invalid_grant")), "{}", refused.text);
    assert_eq!(suspend(&t, &ada, &path(&x, "/reactivate")).await.status, 200);
    assert_eq!(
        pull(&x.kill_switch, Method::POST, path(&x, "/suspend")).await.status,
        200,
        "again after a reactivation"
    );
    assert_eq!(suspend(&t, &ada, &path(&x, "/reactivate")).await.status, 200);
    let newer = ada.asks(t.post(&path(&x, "/kill-switch"))).await;
    assert_eq!(newer.status, 200, "{}", newer.text);
    assert_eq!(pull(&x.kill_switch, Method::POST, path(&x, "/suspend")).await.status, 401, "the old one ended");
    assert_eq!(pull(&text(&newer.body["killSwitchToken"]), Method::POST, path(&x, "/suspend")).await.status, 200);
    let mut tries = vec![];
    for _ in 0..5 {
        tries.push(pull("ks_live_nothing", Method::POST, path(&x, "/suspend")).await.status);
    }
    assert_eq!(tries, [401, 401, 401, 401, 429], "ten a minute from one network");
    t.run_jobs().await;
    t.finish().await;
}

/// A delegated token by exchange.
async fn exchange(t: &TestJanua, subject: &str, actor: Option<&str>, more: &[(&str, &str)]) -> Answer {
    let kind = "urn:ietf:params:oauth:token-type:access_token";
    let mut fields = vec![("grant_type", EXCHANGE), ("subject_token", subject), ("subject_token_type", kind)];
    fields.extend(actor.into_iter().flat_map(|actor| [("actor_token", actor), ("actor_token_type", kind)]));
    fields.extend_from_slice(more);
    oauth(t, "/oauth/token", &fields).await
}

#[tokio::test]
async fn m12_delegation_only_narrows_and_dies_with_session_and_machine() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let scopes = json!({ "scopes": ["a", "b", "c"], "audiences": ["https://api.example.com"] });
    let mut chain = vec![];
    for _ in 0..4 {
        chain.push(framework(&t, &ada, scopes.clone()).await);
    }
    let mut actors = vec![];
    for agent in &chain {
        actors.push(framework_token(&t, agent).await);
    }
    t.happened().await;
    let said = |answer: &Answer| (answer.status, text(&answer.body["error"]));
    assert_eq!(
        said(&exchange(&t, &ada.access, None, &[]).await),
        (400, "invalid_request".into()),
        "nobody is impersonated"
    );
    assert_eq!(
        said(&exchange(&t, &actors[0], Some(&actors[0]), &[]).await),
        (400, "invalid_grant".into()),
        "a machine is no subject"
    );
    assert_eq!(
        said(&exchange(&t, &ada.access, Some(&ada.access), &[]).await),
        (400, "invalid_grant".into()),
        "nor a person an actor"
    );
    assert_eq!(
        said(&exchange(&t, &eve.access, Some(&actors[0]), &[]).await),
        (400, "invalid_grant".into()),
        "without consent"
    );
    assert_eq!(
        said(&exchange(&t, &ada.access, Some(&actors[0]), &[("scope", "d")]).await),
        (400, "invalid_scope".into())
    );
    t.expects(&[]).await;

    let first =
        exchange(&t, &ada.access, Some(&actors[0]), &[("scope", "a b"), ("resource", "https://api.example.com/v1")])
            .await;
    assert_eq!(
        (first.status, &first.body["scope"], &first.body["expires_in"]),
        (200, &json!("a b"), &json!(900)),
        "{}",
        first.text
    );
    assert_eq!(first.body["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    t.expects(&["DELEGATION_GRANTED"]).await;
    let one = text(&first.body["access_token"]);
    let seen = me(&t, &one).await;
    assert_eq!((&seen.body["subject"], &seen.body["id"]), (&json!(ada.id), &json!(chain[0].id)), "{}", seen.text);
    assert_eq!(
        t.get("/auth/me").header("authorization", &format!("Bearer {one}")).await.status,
        401,
        "no user route takes it"
    );
    let key = app_key(&t, &ada).await;
    let looked = t.post("/oauth/introspect").header("x-service-app-key", &key).json(&json!({ "token": one })).await;
    assert_eq!(
        (&looked.body["sub"], &looked.body["act"]["sub"]),
        (&json!(ada.id), &json!(chain[0].id)),
        "{}",
        looked.text
    );

    assert_eq!(
        said(&exchange(&t, &one, Some(&actors[1]), &[("scope", "a c")]).await),
        (400, "invalid_scope".into()),
        "never wider"
    );
    assert_eq!(
        said(&exchange(&t, &one, Some(&actors[1]), &[("resource", "https://api.example.com/v2")]).await),
        (400, "invalid_target".into())
    );
    assert_eq!(said(&exchange(&t, &one, Some(&actors[0]), &[]).await), (400, "invalid_grant".into()), "no circle");
    let two = exchange(&t, &one, Some(&actors[1]), &[]).await;
    assert_eq!((two.status, &two.body["scope"]), (200, &json!("a b")), "{}", two.text);
    let two = text(&two.body["access_token"]);
    let three = text(&exchange(&t, &two, Some(&actors[2]), &[("scope", "a")]).await.body["access_token"]);
    assert_eq!(
        said(&exchange(&t, &three, Some(&actors[3]), &[]).await),
        (400, "invalid_grant".into()),
        "three deep at the most"
    );
    for token in [&one, &two, &three] {
        assert_eq!(me(&t, token).await.status, 200);
    }
    assert_eq!(suspend(&t, &ada, &format!("/framework-agent/{}/suspend", chain[1].id)).await.status, 200);
    let alive = [me(&t, &one).await.status, me(&t, &two).await.status, me(&t, &three).await.status];
    assert_eq!(alive, [200, 401, 401], "with a machine on the way everything after it dies");
    let own = token(&t, &ada, &chain[0], json!({ "onBehalfOf": true })).await;
    assert_eq!((own.status, &own.body["expiresIn"]), (200, &json!(900)), "{}", own.text);
    let own = text(&own.body["accessToken"]);
    assert_eq!(me(&t, &own).await.body["subject"], json!(ada.id));
    assert_eq!(ada.asks(t.post("/auth/logout")).await.status, 204);
    assert_eq!([me(&t, &one).await.status, me(&t, &own).await.status], [401, 401], "with the session, too");
    assert_eq!(me(&t, &actors[0]).await.status, 200, "its own token lives on");
    t.run_jobs().await;
    t.finish().await;
}

struct Signer(Ed25519KeyPair);

impl Signer {
    fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn jwks(&self) -> Value {
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "1", "x": BASE64URL_NOPAD.encode(self.0.public_key().as_ref()) }] })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let text = format!("{}.{}", part(header), part(claims));
        format!("{text}.{}", BASE64URL_NOPAD.encode(self.0.sign(text.as_bytes()).as_ref()))
    }
}

#[tokio::test]
async fn a_user_takes_back_that_a_machine_acts_for_them() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let agent = framework(&t, &ada, json!({ "redirectUris": ["https://agent.example/cb"] })).await;
    let sql = "INSERT INTO consent (id, account_id, client, resource, name, scopes, place, created_at, updated_at)
               VALUES ('019c137e-c107-7f36-aa03-c8508b253019', $1, $2, '', 'Helper', 'openid', 'https://agent.example', 0, 0)";
    t.janua.db.exec(sql, db::params![&bob.id, &agent.id]).await.unwrap();
    t.happened().await;
    let path = "/auth/consents/019c137e-c107-7f36-aa03-c8508b253019";
    assert_eq!(bob.asks(t.ask(Method::DELETE, path)).await.status, 204);
    t.expects(&["CONSENT_REVOKED", "DELEGATION_REVOKED"]).await;
    let log = ada.asks(t.get(&format!("/framework-agent/{}/logs?limit=1", agent.id))).await;
    assert_eq!(
        (&log.body["logs"][0]["type"], &log.body["logs"][0]["subject"]),
        (&json!("DELEGATION_REVOKED"), &json!(bob.id)),
        "{}",
        log.text
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m09_an_admin_who_suspends_a_framework_agent_keeps_it_from_being_deleted() {
    let t = start().await;
    let (boss, ada) = (signed_in(&t, "boss@example.com").await, signed_in(&t, "ada@example.com").await);
    let org = text(&boss.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await.body["id"]);
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, db::params![&org, &ada.id]).await.unwrap();
    let agent = framework(&t, &ada, json!({ "orgId": org })).await;
    let path = format!("/framework-agent/{}", agent.id);
    assert_eq!(suspend(&t, &boss, &format!("{path}/suspend")).await.status, 200);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.refusal(), (403, "suspended_by_admin"));
    assert_eq!(boss.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m14_client_assertions_count_once_and_for_us_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (key, other) = (Signer::new(1), Signer::new(2));
    let agent = framework(&t, &ada, json!({ "jwks": key.jwks(), "scopes": ["a"] })).await;
    let elsewhere = framework(&t, &ada, json!({ "jwks": other.jwks() })).await;
    let now = t.janua.clock.now().0 / 1000;
    let base = t.janua.config.base_url();
    let claims = |jti: &str| json!({ "iss": agent.id, "sub": agent.id, "aud": base, "exp": now + 60, "jti": jti });
    let header = json!({ "alg": "EdDSA", "kid": "1" });
    let ask = async |assertion: &str| {
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        oauth(
            &t,
            "/oauth/token",
            &[("grant_type", "client_credentials"), ("client_assertion_type", kind), ("client_assertion", assertion)],
        )
        .await
    };
    let good = key.sign(&header, &claims("one"));
    let answer = ask(&good).await;
    assert_eq!((answer.status, &answer.body["scope"]), (200, &json!("a")), "{}", answer.text);
    assert_eq!(ask(&good).await.status, 401, "a jti counts once");
    let by_session = ada
        .asks(t.post("/framework-agent/token").json(&json!({ "clientAssertion": key.sign(&header, &claims("two")) })))
        .await;
    assert_eq!(by_session.status, 200, "{}", by_session.text);
    let with = |name: &str, value: Value| {
        let mut claims = claims(&format!("wrong {name}"));
        claims[name] = value;
        claims
    };
    for (what, header, claims) in [
        ("another audience", &header, with("aud", json!("https://other.example"))),
        ("six minutes", &header, with("exp", json!(now + 360))),
        ("expired", &header, with("exp", json!(now - 1))),
        ("another issuer", &header, with("iss", json!(elsewhere.id))),
        (
            "another agent",
            &header,
            json!({ "iss": elsewhere.id, "sub": elsewhere.id, "aud": base, "exp": now + 60, "jti": "x" }),
        ),
        ("no algorithm", &json!({ "alg": "none" }), claims("three")),
        ("HMAC", &json!({ "alg": "HS256" }), claims("four")),
        ("another algorithm", &json!({ "alg": "ES256", "kid": "1" }), claims("five")),
        ("another key", &json!({ "alg": "EdDSA", "kid": "2" }), claims("six")),
    ] {
        let answer = ask(&key.sign(header, &claims)).await;
        assert_eq!((answer.status, &answer.body["error"]), (401, &json!("invalid_client")), "{what}");
    }
    assert_eq!(ask(&other.sign(&header, &claims("seven"))).await.status, 401, "signed by another agent's key");
    let private = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": "AAAA", "d": "AAAA" }] });
    let body = json!({ "name": "x", "framework": "x", "jwks": private });
    assert_eq!(ada.asks(t.post("/framework-agent/register").json(&body)).await.status, 400, "no private keys");
    t.finish().await;
}
