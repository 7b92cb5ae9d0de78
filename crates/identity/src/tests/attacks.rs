//! What must not work: forged tokens, guessing, racing, poisoned links, foreign doors.
use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use kernel::{
    config::Config,
    testing::{Answer, TestJanua, join_all},
};
use serde_json::{Value, json};
use tenancy::sessions::keys::Ring;

use super::actors::*;

async fn me(t: &TestJanua, token: &str) -> u16 {
    let by_header = t.get("/auth/me").header("authorization", &format!("Bearer {token}")).await;
    let by_cookie = t.get("/auth/me").header("cookie", &format!("service_access={token}")).await;
    assert_eq!(by_header.status, by_cookie.status, "the same by either way");
    by_header.status
}

fn encode(part: &Value) -> String {
    BASE64URL_NOPAD.encode(part.to_string().as_bytes())
}

fn decode(part: &str) -> Value {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
}

/// A token as our own key would sign it, with other parts.
fn signed(t: &TestJanua, header: &Value, claims: &Value) -> String {
    let text = format!("{}.{}", encode(header), encode(claims));
    let signature = t.janua.own::<Ring>().signing(t.janua.clock.now(), |key| key.sign(text.as_bytes()).unwrap());
    format!("{text}.{}", BASE64URL_NOPAD.encode(&signature.unwrap()))
}

#[tokio::test]
async fn p01_p02_p03_only_our_own_rs256_signature_opens() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let parts: Vec<&str> = person.access.split('.').collect();
    let (header, claims) = (decode(parts[0]), decode(parts[1]));
    assert_eq!(me(&t, &signed(&t, &header, &claims)).await, 200, "the helper signs as we do");
    for alg in ["none", "None", "NONE", "nOnE", "HS256", "HS384", "HS512", "RS384", "PS256", "ES256", ""] {
        let mut changed = header.clone();
        changed["alg"] = json!(alg);
        assert_eq!(me(&t, &signed(&t, &changed, &claims)).await, 401, "{alg}");
        for signature in ["", parts[2]] {
            let forged = format!("{}.{}.{signature}", encode(&changed), parts[1]);
            assert_eq!(me(&t, &forged).await, 401, "{alg}");
        }
    }
    let mut other = claims.clone();
    other["sub"] = json!("019c137e-c107-7f36-aa03-c8508b253019");
    assert_eq!(me(&t, &format!("{}.{}.{}", parts[0], encode(&other), parts[2])).await, 401, "changed claims");
    let mallory = tenancy::sessions::keys::Key::for_tests("mallory");
    for kid in ["../../dev/null", "' OR 1=1--", &"x".repeat(8_000), header["kid"].as_str().unwrap(), ""] {
        let mut changed = header.clone();
        changed["kid"] = json!(kid);
        changed["jku"] = json!("http://127.0.0.1:1/jwks.json");
        changed["jwk"] = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        let text = format!("{}.{}", encode(&changed), parts[1]);
        let signature = BASE64URL_NOPAD.encode(&mallory.sign(text.as_bytes()).unwrap());
        assert_eq!(me(&t, &format!("{text}.{signature}")).await, 401, "{kid:.20}");
    }
    for junk in ["", ".", "..", "a.b.c", "a.b.c.d", &"x".repeat(20_000), &person.access[..person.access.len() - 1]] {
        assert_eq!(me(&t, junk).await, 401, "{junk:.20}");
    }
    t.finish().await;
}

#[tokio::test]
async fn p04_p05_claims_that_do_not_hold_are_refused() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let parts: Vec<&str> = person.access.split('.').collect();
    let (header, claims) = (decode(parts[0]), decode(parts[1]));
    let now = claims["iat"].as_i64().unwrap();
    for (name, value) in [
        ("exp", json!(now - 1)),
        ("exp", json!(format!("{}", now + 900))),
        ("exp", Value::Null),
        ("nbf", json!(now + 60)),
        ("iat", json!(now + 86_400)),
        ("iss", json!("http://evil.example")),
        ("iss", json!(null)),
        ("sid", json!("019c137e-c107-7f36-aa03-c8508b253019")),
        ("type", json!("agent")),
        ("type", json!("mcp")),
    ] {
        let mut changed = claims.clone();
        changed[name] = value.clone();
        assert_eq!(me(&t, &signed(&t, &header, &changed)).await, 401, "{name} = {value}");
    }
    let mut changed = header.clone();
    changed["typ"] = json!("JWT");
    assert_eq!(me(&t, &signed(&t, &changed, &claims)).await, 401, "an id token is no access token");
    t.advance(Duration::from_mins(15));
    assert_eq!(me(&t, &person.access).await, 401, "a quarter of an hour is enough, remembered or not");
    t.finish().await;
}

#[tokio::test]
async fn p29_guessing_ends_at_ten_and_the_owner_is_not_shut_out() {
    let t = start().await;
    let owner = signed_in(&t, "ada@example.com").await;
    let guess = |i: usize, pass: Option<String>| {
        let body = json!({ "email": "ada@example.com", "password": format!("wrong guess {i}") });
        let mut ask = t.post("/auth/login").json(&body).from("203.0.113.5");
        ask = ask.header("x-forwarded-for", &format!("198.51.100.{i}")).header("user-agent", FIREFOX);
        if let Some(pass) = pass {
            ask = ask.header("x-service-captcha-pass", &pass);
        }
        ask.send()
    };
    for i in 0..5 {
        assert_eq!(guess(i, None).await.refusal(), (401, "invalid_credentials"), "{i}");
    }
    for i in 5..10 {
        let refused = guess(i, None).await;
        assert_eq!(refused.refusal(), (403, "captcha_required"), "a new header from a stranger changes nothing");
        let pass = solve(&t, &refused).await;
        assert_eq!(guess(i, Some(pass)).await.refusal(), (401, "invalid_credentials"), "with a pass it is tried");
    }
    assert_eq!(guess(10, None).await.refusal(), (429, "rate_limited"), "and then it is over");
    t.run_jobs().await;
    let happened = t.happened().await;
    assert_eq!(happened.iter().filter(|kind| *kind == "SIGN_IN_FAILED").count(), 10, "{happened:?}");
    assert_eq!(happened.iter().filter(|kind| *kind == "SIGN_IN_LOCKED").count(), 1, "{happened:?}");
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("wrong password was entered ten times"));
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    let right = t.post("/auth/login").json(&body).from("203.0.113.5").header("user-agent", FIREFOX).await;
    assert_eq!(right.refusal(), (429, "rate_limited"), "there, for the right password too");
    assert_eq!(login(&t, "ada@example.com", PASSWORD).await.status, 200, "and nowhere else");
    assert_eq!(owner.asks(t.get("/auth/me")).await.status, 200, "but who is signed in stays so");
    t.advance(Duration::from_mins(16));
    let right = t.post("/auth/login").json(&body).from("203.0.113.5").header("user-agent", FIREFOX).await;
    assert_eq!(right.status, 200, "and after the window it works there again");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p29_guessing_all_at_once_is_counted_one_by_one() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let guess = |i: usize| {
        let body = json!({ "email": "ada@example.com", "password": format!("wrong guess {i}") });
        let from = format!("203.0.{}.{}", i / 250, i % 250);
        t.post("/auth/login").json(&body).header("user-agent", FIREFOX).from(&from).send()
    };
    let answers = join_all((0..200).map(guess)).await;
    let tried = answers.iter().filter(|answer| answer.status == 401).count();
    assert!((1..=5).contains(&tried), "{tried} passwords were compared without a proof of work");
    assert!(answers.iter().all(|answer| matches!(answer.status, 401 | 403)), "{answers:?}");
    assert_eq!(
        login(&t, "ada@example.com", PASSWORD).await.refusal(),
        (403, "captcha_required"),
        "and closed to nobody"
    );
    t.run_jobs().await;
    t.finish().await;
}

/// Solves the challenge of a refusal, for a pass.
async fn solve(t: &TestJanua, refused: &Answer) -> String {
    let answer = t.post("/auth/captcha/verify").json(&json!({ "token": solution(refused) })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["captchaPass"].as_str().unwrap().to_owned()
}

fn solution(refused: &Answer) -> String {
    let challenge: altcha::Challenge = serde_json::from_value(refused.body["challenge"].clone()).unwrap();
    let solution = altcha::solve_challenge(altcha::SolveChallengeOptions::new(&challenge)).unwrap().unwrap();
    BASE64.encode(json!({ "challenge": challenge, "solution": solution }).to_string().as_bytes())
}

#[tokio::test]
async fn p77_a_pass_works_once_and_only_where_it_was_asked_for() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let guess = |path: &str, pass: &str| {
        let body = json!({ "email": "ada@example.com", "password": "wrong wrong wrong" });
        t.post(path).json(&body).header("x-service-captcha-pass", pass).send()
    };
    // From a network that failed this often everything is asked for a proof of work.
    for i in 0..20 {
        let body = json!({ "email": format!("nobody{}@example.com", i % 5), "password": "wrong wrong wrong" });
        t.post("/auth/login").json(&body).await;
    }
    let refused = guess("/auth/login", "made up").await;
    assert_eq!(refused.refusal(), (403, "captcha_required"));
    let token = solution(&refused);
    let redeem = || t.post("/auth/captcha/verify").json(&json!({ "token": token })).send();
    let pass = redeem().await.body["captchaPass"].as_str().unwrap().to_owned();
    assert_eq!(redeem().await.refusal(), (410, "token_spent"), "one pass for one challenge");
    assert_eq!(guess("/auth/forgot-password", &pass).await.refusal(), (403, "captcha_required"), "another route");
    assert_eq!(guess("/auth/login", &pass).await.refusal(), (403, "captcha_required"), "and it is used up by that");

    let refused = guess("/auth/login", "").await;
    let pass = solve(&t, &refused).await;
    assert_eq!(guess("/auth/login", &pass).await.refusal(), (401, "invalid_credentials"));
    assert_eq!(guess("/auth/login", &pass).await.refusal(), (403, "captcha_required"));

    let late = guess("/auth/login", "").await;
    let token = solution(&late);
    t.advance(Duration::from_mins(11));
    let answer = t.post("/auth/captcha/verify").json(&json!({ "token": token })).await;
    assert_eq!(answer.refusal(), (400, "captcha_not_solved"), "an old challenge");
    for junk in ["x", "e30=", "bm90IGpzb24="] {
        let answer = t.post("/auth/captcha/verify").json(&json!({ "token": junk })).await;
        assert_eq!(answer.refusal(), (400, "captcha_not_solved"), "{junk}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p33_links_lead_home_whatever_the_request_says() {
    let config = Config { base_url: Some("https://id.example.com".parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    for (name, value) in [
        ("host", "evil.example"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "host=evil.example;proto=http"),
        ("x-forwarded-proto", "javascript"),
    ] {
        t.post("/auth/register").json(&sign_up_body("ada@example.com")).header(name, value).await;
        t.run_jobs().await;
        let mail = mail_to(&t, "ada@example.com").unwrap();
        assert!(mail.contains("https://id.example.com/auth/verify?token="), "{name}: {mail}");
        assert!(!mail.contains("evil") && !mail.contains("javascript"), "{name}");
    }
    t.finish().await;
}

#[tokio::test]
async fn p35_nothing_typed_becomes_a_header_or_a_second_recipient() {
    let t = start().await;
    for email in ["a@x.com\r\nBcc: b@y.com", "a@x.com,b@y.com", "a@x.com>\r\nRCPT TO:<b@y.com", "a@x.com\nb@y.com"] {
        let answer = t.post("/auth/register").json(&sign_up_body(email)).await;
        assert_eq!(answer.status, 400, "{email:?}: {}", answer.text);
    }
    let body = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada\r\nBcc: b@y.com\r\n\r\nhttp://evil.example" });
    t.post("/auth/register").json(&body).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").unwrap();
    let head = mail.split("\r\n\r\n").next().unwrap();
    assert!(!head.to_lowercase().contains("bcc") && head.matches("To: ").count() == 1, "{head}");
    assert!(!mail.contains("http://evil.example"), "a name makes no link: {mail}");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p76_of_many_at_once_one_wins() {
    let many = u32::MAX;
    let t = TestJanua::start_with(
        Config::for_tests().with(|tenancy: &mut tenancy::Settings| {
            tenancy.mail_per_hour = many;
            tenancy.mail_per_day = many;
        }),
        feature,
    )
    .await;
    member(&t, "ada@example.com").await;
    for round in 0..rounds() {
        // Or the door's own limit would end it.
        t.advance(Duration::from_mins(1));
        t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
        let follow = || t.post("/auth/magic-link/verify").json(&json!({ "token": token })).send();
        assert_eq!(wins(follow).await, 1, "magic link");

        t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
        let reset = || t.post("/auth/reset-password").json(&json!({ "token": token, "password": PASSWORD })).send();
        assert_eq!(wins(reset).await, 1, "reset");
        t.run_jobs().await;

        let email = format!("new-{round}@example.com");
        register(&t, &email).await;
        let token = token_in(&mail_to(&t, &email).unwrap());
        let verify = || t.post("/auth/verify-email").json(&json!({ "token": token })).send();
        assert_eq!(wins(verify).await, 1, "verify");

        let person = Person::of(&login(&t, &email, PASSWORD).await);
        let answers = join_all((0..32).map(|_| refresh(&t, &person.refresh))).await;
        let successors: std::collections::HashSet<_> =
            answers.iter().filter(|a| a.status == 200).map(|a| a.body["refreshToken"].to_string()).collect();
        assert_eq!(successors.len(), 1, "one successor, for everybody who asks within the grace");

        let email = format!("same-{round}@example.com");
        let sign_ups = join_all((0..32).map(|_| register(&t, &email))).await;
        assert!(sign_ups.iter().all(|answer| answer.status == 200), "{sign_ups:?}");
        t.run_jobs().await;
        let sql = "SELECT id FROM account WHERE email_key = $1";
        let made: Vec<(String,)> = t.janua.db.all(sql, db::params![&email]).await.unwrap();
        assert_eq!(made.len(), 1, "one account for an address");
    }
    t.finish().await;
}

/// How often each race is run: `RACE_ROUNDS=200` for a long look.
fn rounds() -> usize {
    std::env::var("RACE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

async fn wins<'a, F: Future<Output = Answer> + Send + 'a>(send: impl Fn() -> F) -> usize {
    let answers = join_all((0..32).map(|_| send())).await;
    assert!(answers.iter().all(|answer| answer.status < 500), "{answers:?}");
    answers.iter().filter(|answer| answer.status < 300).count()
}

#[tokio::test]
async fn p57_platform_routes_are_for_the_owners_of_the_platform() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["Root@Example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    let (owner, other) = (signed_in(&t, "root@example.com").await, signed_in(&t, "ada@example.com").await);
    assert_eq!(t.get("/admin/abuse-reports").await.status, 401);
    assert_eq!(other.asks(t.get("/admin/abuse-reports")).await.refusal(), (403, "forbidden"));
    for i in 0..12 {
        let body = json!({ "email": format!("nobody{i}@example.com"), "password": "wrong wrong wrong" });
        t.post("/auth/login").json(&body).from("203.0.113.9").await;
    }
    let reports = owner.asks(t.get("/admin/abuse-reports")).await;
    assert_eq!(reports.body["reports"][0]["subject"], "203.0.113.9", "{}", reports.text);
    assert!(!reports.text.contains("nobody"), "who was tried is not told");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn f16_keys_turn_over_without_breaking_a_token() {
    let t = start().await;
    t.run_jobs().await;
    let kids = || async {
        let jwks = t.get("/.well-known/jwks.json").await;
        assert_eq!(jwks.header("cache-control"), "public, max-age=300");
        let keys = jwks.body["keys"].as_array().unwrap().clone();
        assert!(keys.iter().all(|key| key["alg"] == "RS256" && key.get("d").is_none() && key.get("p").is_none()));
        keys.into_iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kids().await.len(), 2, "the one that signs and the next one");
    let mut person = signed_in(&t, "ada@example.com").await;
    for _ in 0..5 {
        let before = kids().await;
        tenancy::sessions::keys::rotate(&t.janua).await.unwrap();
        assert_eq!(me(&t, &person.access).await, 200, "an old token goes on");
        let next = Person::of(&refresh(&t, &person.refresh).await);
        let kid = decode(next.access.split('.').next().unwrap())["kid"].as_str().unwrap().to_owned();
        assert!(before.contains(&kid), "a key signs only after verifiers could see it");
        assert!(kids().await.len() >= 3, "previous, current and next");
        person = next;
        t.advance(Duration::from_mins(6));
    }
    t.advance(Duration::from_mins(30));
    assert!(kids().await.len() > 2, "other kinds of tokens live for an hour");
    t.advance(Duration::from_mins(40));
    assert_eq!(kids().await.len(), 2, "keys whose tokens are all gone are not published");
    t.finish().await;
}

/// The keys that are published now, by their ids.
async fn published(t: &TestJanua) -> Vec<String> {
    let keys = t.get("/.well-known/jwks.json").await.body["keys"].as_array().unwrap().clone();
    keys.into_iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// The id of the key that signs now.
fn signing(t: &TestJanua) -> String {
    t.janua.own::<Ring>().signing(t.janua.clock.now(), |key| key.id.clone()).unwrap()
}

#[tokio::test]
async fn a_key_stays_published_for_the_longest_life_of_any_token() {
    let t = start().await;
    t.run_jobs().await;
    t.advance(Duration::from_mins(10));
    let first = signing(&t);
    tenancy::sessions::keys::rotate(&t.janua).await.unwrap();
    assert_ne!(signing(&t), first);
    // A token of a framework or an MCP server that was signed at the last moment.
    t.advance(tenancy::sessions::keys::MACHINE_TOKEN_LIFE);
    assert!(published(&t).await.contains(&first));
    t.advance(Duration::from_mins(5));
    assert!(published(&t).await.contains(&first), "verifiers keep the set for five minutes");
    t.advance(Duration::from_secs(1));
    assert!(!published(&t).await.contains(&first));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_key_signs_only_after_every_verifier_can_have_seen_it() {
    let t = start().await;
    t.run_jobs().await;
    // Each minute a verifier reads the keys and keeps them for the five minutes that it may.
    let mut kept: Vec<Vec<String>> = vec![];
    let mut refused = 0;
    for minute in 0..18 {
        kept.push(published(&t).await);
        for seen in kept.iter().rev().take(6) {
            assert!(seen.contains(&signing(&t)), "minute {minute}: a key that a verifier has not seen");
        }
        let now = t.janua.clock.now();
        match tenancy::sessions::keys::rotate(&t.janua).await {
            Ok(takes_over) => assert!(takes_over >= now),
            Err(says) => {
                assert!(says.contains("a rotation is under way: the next key signs from 20"), "{says}");
                refused += 1;
            }
        }
        for seen in kept.iter().rev().take(6) {
            assert!(seen.contains(&signing(&t)), "minute {minute}: a key that a verifier has not seen");
        }
        t.advance(Duration::from_mins(1));
    }
    assert!(refused >= 8, "{refused}");
    // Of two at once one rotates; the other waits or is told.
    t.advance(Duration::from_mins(30));
    let before = published(&t).await;
    let (one, two) =
        tokio::join!(tenancy::sessions::keys::rotate(&t.janua), tenancy::sessions::keys::rotate(&t.janua));
    assert!(one.is_ok() || two.is_ok());
    assert!(before.contains(&signing(&t)), "what signs now was published before");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p17_discovery_says_what_is_so() {
    let config = Config { base_url: Some("https://id.example.com".parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let found = t.get("/.well-known/openid-configuration").await;
    assert_eq!(found.body["issuer"], "https://id.example.com");
    assert_eq!(found.body["jwks_uri"], "https://id.example.com/.well-known/jwks.json");
    assert_eq!(found.body["id_token_signing_alg_values_supported"], json!(["RS256"]));
    for path in ["/.well-known/openid-configuration", "/.well-known/jwks.json"] {
        let tag = t.get(path).await.header("etag").to_owned();
        assert_eq!(t.get(path).header("if-none-match", &tag).await.status, 304, "{path} is as it was");
        tenancy::sessions::keys::replace(&t.janua).await.unwrap();
        let is_new = t.get(path).header("if-none-match", &tag).await.status == 200;
        assert_eq!(is_new, path.ends_with("jwks.json"), "{path}: only the key set has changed");
    }
    t.finish().await;
}

#[tokio::test]
async fn f10_mail_that_cannot_go_out_waits_and_keeps_its_order() {
    let t = start().await;
    t.run_jobs().await;
    t.mailbox.set_down(true);
    t.post("/auth/register").json(&sign_up_body("ada@example.com")).await;
    t.run_jobs().await;
    t.advance(Duration::from_secs(1));
    t.post("/auth/resend-verification").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    assert!(t.mailbox.mails().is_empty());
    t.mailbox.set_down(false);
    t.advance(Duration::from_mins(2));
    t.run_jobs().await;
    let tokens: Vec<_> = t.mailbox.mails().iter().map(|mail| token_in(&readable(mail))).collect();
    assert_eq!(tokens.len(), 2, "each once");
    let first = t.post("/auth/verify-email").json(&json!({ "token": tokens[0] })).await;
    assert_eq!(first.status, 200);
    let kept: Vec<(String,)> = t.janua.db.all("SELECT id FROM mail", db::params![]).await.unwrap();
    assert!(kept.is_empty(), "what is sent is gone");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_mails_to_one_person_go_out_once_each_and_in_order() {
    let t = start().await;
    for round in 0..4 {
        let names: Vec<String> = (0..8).map(|i| format!("Nr{round}x{i}")).collect();
        for name in &names {
            db::transact!(t.janua.db, async |tx| {
                let warning =
                    crate::mails::Locked { name: name.clone(), origin: tenancy::messages::mail::Origin::sample() };
                tenancy::messages::mail::send(tx, &t.janua, "ada@example.com", &warning).await
            })
            .unwrap();
        }
        let before = t.mailbox.mails().len();
        join_all((0..4).map(|_| t.run_jobs())).await;
        t.run_jobs().await;
        let sent = t.mailbox.mails().split_off(before);
        let found = sent.iter().filter_map(|mail| names.iter().find(|name| mail.contains(name.as_str())));
        assert_eq!(found.collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    }
    t.finish().await;
}

#[tokio::test]
async fn of_two_changes_to_a_profile_at_once_neither_undoes_the_other() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    for round in 0..20 {
        let (name, bio) = (format!("Ada {round}"), format!("Round {round}"));
        let changes = [json!({ "name": name }), json!({ "bio": bio }), json!({ "acceptMarketing": true })];
        let answers =
            join_all(changes.iter().map(|change| {
                person.asks(t.ask(axum::http::Method::PATCH, "/user/profile").json(change)).into_future()
            }))
            .await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        let me = person.asks(t.get("/auth/me")).await.body;
        assert_eq!((&me["name"], &me["bio"]), (&json!(name), &json!(bio)), "round {round}");
    }
    t.finish().await;
}
