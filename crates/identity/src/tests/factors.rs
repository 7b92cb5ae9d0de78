//! Second factors: switched on, asked for at every way in, guessed at, lost and switched off.
use std::time::Duration;

use kernel::{
    config::Config,
    testing::{Answer, TestJanua, join_all},
};
use serde_json::{Value, json};

use super::actors::*;

/// Somebody with an authenticator app.
pub struct Careful {
    /// Whose session switched the app on.
    pub person: Person,
    /// Their session from before that.
    pub before: Person,
    totp: totp_rs::Totp,
    pub recovery_codes: Vec<String>,
}

impl Careful {
    /// What the app shows now.
    pub fn code(&self, t: &TestJanua) -> String {
        self.totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string()
    }
}

pub async fn careful(t: &TestJanua, email: &str) -> Careful {
    let before = signed_in(t, email).await;
    let person = Person::of(&login(t, email, PASSWORD).await);
    let set_up = person.asks(t.post("/auth/2fa/setup")).await;
    assert_eq!(set_up.status, 200, "{}", set_up.text);
    assert!(set_up.body["qrSvg"].as_str().unwrap().starts_with("<svg"), "{}", set_up.text);
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let mut careful = Careful { person, before, totp, recovery_codes: vec![] };
    let body = json!({ "code": careful.code(t) });
    let enabled = careful.person.asks(t.post("/auth/2fa/enable").json(&body)).await;
    assert_eq!(enabled.status, 200, "{}", enabled.text);
    careful.recovery_codes = serde_json::from_value(enabled.body["recoveryCodes"].clone()).unwrap();
    t.run_jobs().await;
    // The step that switched it on is used up.
    t.advance(Duration::from_secs(30));
    careful
}

/// The ticket of a challenge.
pub fn ticket(answer: &Answer) -> String {
    assert_eq!((answer.status, &answer.body["requiresMfa"]), (200, &json!(true)), "{}", answer.text);
    assert!(answer.body.get("accessToken").is_none() && answer.headers.get("set-cookie").is_none());
    answer.body["mfaTicket"].as_str().unwrap().to_owned()
}

async fn half_way(t: &TestJanua, email: &str) -> String {
    ticket(&login(t, email, PASSWORD).await)
}

pub async fn verify(t: &TestJanua, ticket: &str, code: &str) -> Answer {
    let body = json!({ "mfaTicket": ticket, "code": code });
    t.post("/auth/2fa/login-verify").json(&body).header("user-agent", FIREFOX).await
}

#[tokio::test]
async fn an_app_is_set_up_asked_for_and_taken_away() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN", "SIGNED_IN", "MFA_ENABLED"]).await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("authenticator app was added"));
    assert_eq!(ada.person.asks(t.get("/auth/me")).await.body["mfaEnabled"], true);

    let challenge = login(&t, "ada@example.com", PASSWORD).await;
    assert_eq!(challenge.body["factors"], json!(["totp", "recovery"]));
    let ticket = ticket(&challenge);
    assert_eq!(verify(&t, &ticket, "000000").await.refusal(), (401, "invalid_code"));
    let answer = verify(&t, &ticket, &ada.code(&t)).await;
    let again = Person::of(&answer);
    assert_eq!(again.asks(t.get("/auth/me")).await.status, 200);
    t.expects(&["SIGN_IN_FAILED", "SIGNED_IN"]).await;
    let sessions = again.asks(t.get("/auth/sessions")).await;
    assert_eq!(sessions.body["sessions"][0]["methods"], json!(["pwd", "otp", "mfa"]));

    t.advance(Duration::from_secs(30));
    let off = again.asks(t.post("/auth/2fa/disable").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(off.status, 204, "{}", off.text);
    t.expects(&["MFA_DISABLED"]).await;
    assert_eq!(again.asks(t.get("/auth/me")).await.body["mfaEnabled"], false);
    assert_eq!(again.asks(t.post("/auth/2fa/disable")).await.refusal(), (409, "factor_not_on"));
    assert!(login(&t, "ada@example.com", PASSWORD).await.body.get("accessToken").is_some());
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p36_no_way_in_leads_around_the_gate() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    half_way(&t, "ada@example.com").await;

    // A session from before the factor lets no device in, unless it proves the factor now.
    let begun = t.post("/auth/device/code").await.body;
    let decide = |more: Value| {
        let mut body = more;
        body["user_code"] = begun["user_code"].clone();
        ada.before.asks(t.post("/auth/device/verify").json(&body))
    };
    assert_eq!(decide(json!({})).await.refusal(), (403, "reauthentication_required"));
    assert_eq!(decide(json!({ "code": "000000" })).await.refusal(), (403, "wrong_code"));
    assert_eq!(decide(json!({ "code": ada.code(&t) })).await.status, 200);

    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
    ticket(&t.post("/auth/magic-link/verify").json(&json!({ "token": token })).await);

    // P32: a new password is no second factor, and setting it signs nobody in; it ends what the old one began.
    let begun_before = half_way(&t, "ada@example.com").await;
    t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
    let reset = t.post("/auth/reset-password").json(&json!({ "token": token, "password": PASSWORD })).await;
    assert_eq!((reset.status, reset.headers.get("set-cookie")), (204, None));
    t.advance(Duration::from_secs(30));
    assert_eq!(verify(&t, &begun_before, &ada.code(&t)).await.refusal(), (410, "token_spent"));
    half_way(&t, "ada@example.com").await;
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p37_a_ticket_is_one_persons_once_and_for_ten_minutes() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    let eve = careful(&t, "eve@example.com").await;
    let ticket = half_way(&t, "ada@example.com").await;
    assert_eq!(verify(&t, &ticket, &eve.code(&t)).await.refusal(), (401, "invalid_code"), "somebody else's code");
    let as_bearer = t.get("/auth/me").header("authorization", &format!("Bearer {ticket}")).await;
    assert_eq!(as_bearer.status, 401);
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.status, 200);
    t.advance(Duration::from_secs(30));
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.refusal(), (410, "token_spent"), "used");
    let ticket = half_way(&t, "ada@example.com").await;
    t.advance(Duration::from_secs(601));
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.refusal(), (410, "token_spent"), "too late");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p38_a_code_works_once_and_one_step_either_way() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    let code = ada.code(&t);
    assert_eq!(verify(&t, &half_way(&t, "ada@example.com").await, &code).await.status, 200);
    let again = verify(&t, &half_way(&t, "ada@example.com").await, &code).await;
    assert_eq!(again.refusal(), (401, "invalid_code"), "the same code in its own time");
    t.advance(Duration::from_mins(1));
    let late = ada.code(&t);
    t.advance(Duration::from_secs(30));
    assert_eq!(verify(&t, &half_way(&t, "ada@example.com").await, &late).await.status, 200, "one step late");
    let early = ada.totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap() + 30).to_string();
    assert_eq!(verify(&t, &half_way(&t, "ada@example.com").await, &early).await.status, 200, "one step early");
    let behind = verify(&t, &half_way(&t, "ada@example.com").await, &ada.code(&t)).await;
    assert_eq!(behind.refusal(), (401, "invalid_code"), "and none before the last one");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p39_guessing_ends_at_five_a_ticket_and_ten_a_person() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    for _ in 0..2 {
        let ticket = half_way(&t, "ada@example.com").await;
        for _ in 0..5 {
            assert_eq!(verify(&t, &ticket, "000000").await.refusal(), (401, "invalid_code"));
        }
        assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.refusal(), (410, "token_spent"), "the ticket is done");
    }
    let ticket = half_way(&t, "ada@example.com").await;
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.refusal(), (429, "rate_limited"), "and so is the person");
    let off = ada.person.asks(t.post("/auth/2fa/disable").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(off.refusal(), (429, "rate_limited"), "at every door");
    t.advance(Duration::from_mins(16));
    assert_eq!(verify(&t, &half_way(&t, "ada@example.com").await, &ada.code(&t)).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p39_p76_many_at_once_get_no_more_than_their_share() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    let mut tickets = vec![];
    for _ in 0..40 {
        tickets.push(half_way(&t, "ada@example.com").await);
    }
    let guesses = (0..200).map(|i| verify(&t, &tickets[i % 40], "000000"));
    let tried = join_all(guesses).await.iter().filter(|answer| answer.status == 401).count();
    assert!((1..=10).contains(&tried), "{tried} codes were compared");
    t.advance(Duration::from_mins(16));
    for _ in 0..3 {
        let (ticket, code) = (half_way(&t, "ada@example.com").await, ada.code(&t));
        let answers = join_all((0..32).map(|_| verify(&t, &ticket, &code))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "one ticket, one code");
        t.advance(Duration::from_mins(16));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p40_a_recovery_code_works_once_and_is_kept_nowhere() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    assert_eq!(ada.recovery_codes.len(), 10);
    assert!(ada.recovery_codes.iter().all(|code| code.len() == 19), "{:?}", ada.recovery_codes);
    let typed = ada.recovery_codes[0].to_lowercase().replace('-', " ");
    let person = Person::of(&verify(&t, &half_way(&t, "ada@example.com").await, &typed).await);
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("recovery codes was used"));
    let again = verify(&t, &half_way(&t, "ada@example.com").await, &typed).await;
    assert_eq!(again.refusal(), (401, "invalid_code"), "once");
    let export = person.asks(t.get("/auth/export")).await;
    assert_eq!(export.body["recoveryCodesLeft"], 9);
    let kept: Vec<(String,)> = t.janua.db.all("SELECT hash FROM recovery_code", vec![]).await.unwrap();
    for code in &ada.recovery_codes {
        assert!(!export.text.contains(code) && !kept.iter().any(|(hash,)| hash.contains(code)));
    }
    let new = person.asks(t.post("/auth/2fa/recovery-codes/regenerate")).await;
    assert_eq!(new.status, 200, "{}", new.text);
    let old = verify(&t, &half_way(&t, "ada@example.com").await, &ada.recovery_codes[1]).await;
    assert_eq!(old.refusal(), (401, "invalid_code"), "an old one after new ones were made");
    let fresh = new.body["recoveryCodes"][0].as_str().unwrap();
    assert_eq!(verify(&t, &half_way(&t, "ada@example.com").await, fresh).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p41_a_factor_stays_unless_a_fresh_proof_says_otherwise() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    t.advance(Duration::from_mins(11));
    let stale = Person::of(&refresh(&t, &ada.person.refresh).await);
    for path in ["/auth/2fa/disable", "/auth/2fa/recovery-codes/regenerate", "/auth/2fa/setup"] {
        let nothing = stale.asks(t.post(path)).await;
        assert_eq!(nothing.refusal(), (403, "reauthentication_required"), "{path}");
        let wrong = stale.asks(t.post(path).json(&json!({ "code": "000000" }))).await;
        assert_eq!(wrong.refusal(), (403, "wrong_code"), "{path}");
        let weak = stale.asks(t.post(path).json(&json!({ "password": PASSWORD }))).await;
        assert_eq!(
            weak.refusal(),
            (403, "reauthentication_required"),
            "{path}: a password is weaker than the factor"
        );
    }
    let set_up = stale.asks(t.post("/auth/2fa/setup").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(set_up.status, 200);
    t.advance(Duration::from_secs(30));
    let ticket = half_way(&t, "ada@example.com").await;
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.status, 200, "the old secret counts until the new one does");
    let enable = json!({ "code": "000000" });
    assert_eq!(stale.asks(t.post("/auth/2fa/enable").json(&enable)).await.refusal(), (403, "wrong_code"));
    let nobody = signed_in(&t, "bob@example.com").await;
    let early = nobody.asks(t.post("/auth/2fa/enable").json(&json!({ "code": "123456" }))).await;
    assert_eq!(early.refusal(), (409, "not_set_up"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_trusted_device_is_asked_once_until_something_changes() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    careful(&t, "eve@example.com").await;
    let ticket = half_way(&t, "ada@example.com").await;
    let body = json!({ "mfaTicket": ticket, "code": ada.code(&t), "trustDevice": true });
    let answer = t.post("/auth/2fa/login-verify").json(&body).await;
    let cookie = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = cookie.filter(|line| line.starts_with("service_mfa_trusted=")).collect::<Vec<_>>();
    assert!(cookie[0].contains("HttpOnly; SameSite=Lax; Max-Age=2592000"), "{cookie:?}");
    let cookie = cookie[0].split(';').next().unwrap().to_owned();
    let sign_in = |email: &str| {
        let body = json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
        t.post("/auth/login").json(&body).header("cookie", &cookie).header("user-agent", FIREFOX).send()
    };
    let person = Person::of(&sign_in("ada@example.com").await);
    super::factors::ticket(&sign_in("eve@example.com").await);

    // P42: whoever is not our proxy says nothing by these headers.
    let value = cookie.split('=').nth(1).unwrap();
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    let forged = t.post("/auth/login").json(&body).header("x-service-mfa-trusted", value);
    super::factors::ticket(&forged.header("x-service-role", "owner").await);

    let kept = person.asks(t.get("/auth/export")).await;
    assert_eq!(kept.body["trustedDevices"].as_array().unwrap().len(), 1, "{}", kept.text);
    let change = json!({ "currentPassword": PASSWORD, "newPassword": format!("{PASSWORD} 2") });
    assert_eq!(person.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    let body: Value = json!({ "email": "ada@example.com", "password": format!("{PASSWORD} 2") });
    super::factors::ticket(&t.post("/auth/login").json(&body).header("cookie", &cookie).await);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p42_our_own_proxy_may_hand_the_mark_on() {
    let config = Config { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let ada = careful(&t, "ada@example.com").await;
    let ticket = half_way(&t, "ada@example.com").await;
    let body = json!({ "mfaTicket": ticket, "code": ada.code(&t), "trustDevice": true });
    let answer = t.post("/auth/2fa/login-verify").json(&body).await;
    let mut cookies = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let mark = cookies.find_map(|line| line.strip_prefix("service_mfa_trusted=")).unwrap();
    let mark = mark.split(';').next().unwrap();
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    let sign_in =
        |peer: &str| t.post("/auth/login").json(&body).header("x-service-mfa-trusted", mark).from(peer).send();
    assert!(sign_in("10.0.0.1").await.body.get("accessToken").is_some());
    super::factors::ticket(&sign_in("203.0.113.9").await);
    t.run_jobs().await;
    t.finish().await;
}

const PHONE: &str = "+41446681800";

/// The code in the newest message to a number.
pub fn texted(t: &TestJanua, number: &str) -> String {
    t.phones.message_to(number).expect("a message").chars().take(6).collect()
}

/// Somebody with a phone, and nothing else.
async fn reachable(t: &TestJanua, email: &str) -> Person {
    let person = signed_in(t, email).await;
    let sent = person.asks(t.post("/auth/mfa/sms/enroll").json(&json!({ "phone": "+41 44 668 18 00" }))).await;
    assert_eq!((sent.status, &sent.body["smsPhoneSuffix"]), (200, &json!("1800")), "{}", sent.text);
    t.run_jobs().await;
    let done = person.asks(t.post("/auth/mfa/sms/verify").json(&json!({ "code": texted(t, PHONE) }))).await;
    assert_eq!((done.status, &done.body["mfaSmsPhone"]), (200, &json!(PHONE)), "{}", done.text);
    assert_eq!(done.body["recoveryCodes"].as_array().unwrap().len(), 10, "the first factor brings them");
    t.run_jobs().await;
    person
}

#[tokio::test]
async fn a_phone_is_proven_asked_for_and_taken_away() {
    let t = start().await;
    let person = reachable(&t, "ada@example.com").await;
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN", "MFA_ENABLED"]).await;
    let me = person.asks(t.get("/auth/me")).await;
    assert_eq!((&me.body["mfaSmsEnabled"], &me.body["mfaSmsPhone"]), (&json!(true), &json!(PHONE)));

    let challenge = login(&t, "ada@example.com", PASSWORD).await;
    assert_eq!(challenge.body["factors"], json!(["sms", "recovery"]));
    assert_eq!(challenge.body["smsPhoneSuffix"], "1800");
    let ticket = ticket(&challenge);
    t.run_jobs().await;
    let first = texted(&t, PHONE);
    let again = t.post("/auth/mfa/sms/challenge").json(&json!({ "mfaTicket": ticket })).await;
    assert_eq!(again.status, 200, "{}", again.text);
    t.run_jobs().await;
    assert_eq!(verify(&t, &ticket, &first).await.refusal(), (401, "invalid_code"), "a newer code replaces it");
    let answer = verify(&t, &ticket, &texted(&t, PHONE)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let spent = t.post("/auth/mfa/sms/challenge").json(&json!({ "mfaTicket": ticket })).await;
    assert_eq!(spent.refusal(), (410, "token_spent"));

    // However fresh the session is, it is switched off by a code, which somebody who is signed in can ask for.
    let inside = Person::of(&answer);
    let bare = inside.asks(t.post("/auth/mfa/sms/disable")).await;
    assert_eq!(
        (bare.refusal(), &bare.body["methods"]),
        ((403, "reauthentication_required"), &json!(["sms", "recovery"]))
    );
    assert_eq!(t.post("/auth/mfa/sms/code").await.status, 401);
    assert_eq!(inside.asks(t.post("/auth/mfa/sms/code")).await.status, 200);
    t.run_jobs().await;
    let off = inside.asks(t.post("/auth/mfa/sms/disable").json(&json!({ "code": texted(&t, PHONE) }))).await;
    assert_eq!(off.status, 204, "{}", off.text);
    assert!(login(&t, "ada@example.com", PASSWORD).await.body.get("accessToken").is_some());
    let export = person.asks(t.get("/auth/export")).await;
    assert_eq!(export.body["recoveryCodesLeft"], 0, "they go with the last factor");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_texted_code_runs_out_and_is_not_guessed() {
    let t = start().await;
    reachable(&t, "ada@example.com").await;
    let ticket = half_way(&t, "ada@example.com").await;
    t.run_jobs().await;
    let right = texted(&t, PHONE);
    t.advance(Duration::from_secs(301));
    assert_eq!(verify(&t, &ticket, &right).await.refusal(), (401, "invalid_code"), "after five minutes");
    t.post("/auth/mfa/sms/challenge").json(&json!({ "mfaTicket": ticket })).await;
    t.run_jobs().await;
    let right = texted(&t, PHONE);
    let wrong = if right == "111111" { "222222" } else { "111111" };
    for _ in 0..4 {
        assert_eq!(verify(&t, &ticket, wrong).await.refusal(), (401, "invalid_code"));
    }
    assert_eq!(verify(&t, &ticket, &right).await.refusal(), (410, "token_spent"), "five tries a ticket");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn nobody_pumps_messages() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let enroll = |phone: &str| person.asks(t.post("/auth/mfa/sms/enroll").json(&json!({ "phone": phone })));
    for bad in ["12345", "0446681800", "+41", "not a number"] {
        let answer = enroll(bad).await;
        assert_eq!((answer.status, answer.wrong_fields()), (400, vec!["phone"]), "{bad}");
    }
    for _ in 0..5 {
        assert_eq!(enroll(PHONE).await.status, 200);
    }
    assert_eq!(enroll(PHONE).await.refusal(), (429, "rate_limited"), "five an hour to a number");
    for last in 0..5 {
        assert_eq!(enroll(&format!("+4144668181{last}")).await.status, 200);
    }
    assert_eq!(enroll("+41446681820").await.refusal(), (429, "rate_limited"), "ten an hour from a network");
    t.run_jobs().await;
    assert_eq!(t.phones.count(), 10);
    t.advance(Duration::from_hours(1));
    let person = Person::of(&refresh(&t, &person.refresh).await);
    let body = json!({ "phone": PHONE, "password": PASSWORD });
    assert_eq!(person.asks(t.post("/auth/mfa/sms/enroll").json(&body)).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn one_country_has_a_budget_of_its_own() {
    let config = Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.sms_per_country = 2);
    let t = TestJanua::start_with(config, feature).await;
    let person = signed_in(&t, "ada@example.com").await;
    let enroll = |phone: &str| person.asks(t.post("/auth/mfa/sms/enroll").json(&json!({ "phone": phone })));
    assert_eq!(enroll("+41446681801").await.status, 200);
    assert_eq!(enroll("+41446681802").await.status, 200);
    assert_eq!(enroll("+41446681803").await.refusal(), (429, "rate_limited"));
    assert_eq!(enroll("+16502530000").await.status, 200, "another country");
    t.run_jobs().await;
    t.finish().await;
}
