//! Who may sign up.
use kernel::{config::Config, testing::TestJanua};
use serde_json::json;

use super::{actors::*, providers::*};
use crate::policy::{Settings, SignUpPolicy};

const ADA: &str = "ada@example.com";

async fn with(policy: SignUpPolicy) -> TestJanua {
    TestJanua::start_with(Config::for_tests().with(|settings: &mut Settings| settings.sign_up = policy), feature)
        .await
}

#[tokio::test]
async fn a_closed_sign_up_is_the_same_for_emails_with_and_without_an_account() {
    for (policy, code) in [(SignUpPolicy::Closed, "sign_up_closed"), (SignUpPolicy::Invited, "invitation_required")] {
        let t = with(policy).await;
        let now = t.janua.clock.now();
        let email = tenancy::email::Email::parse(ADA).unwrap();
        let id = tenancy::accounts::AccountId::new(&t.janua.entropy, now);
        let known = tenancy::accounts::Account::new(id, Some(&email), "Ada", now);
        db::transact!(t.janua.db, async |tx| tenancy::accounts::Account::ensure(tx, &known).await.map(drop)).unwrap();
        for email in [ADA, "new@example.com"] {
            let refused = t.post("/auth/register").json(&sign_up_body(email)).await;
            assert_eq!(refused.refusal(), (403, code), "{email}");
            // A sign-in link makes no account, and says nothing of one.
            let asked = t.post("/auth/magic-link/request").json(&json!({ "email": email })).await;
            assert_eq!((asked.status, &asked.body["accepted"]), (200, &json!(true)));
        }
        t.run_jobs().await;
        assert!(mail_to(&t, "new@example.com").is_none());
        t.finish().await;
    }
}

#[tokio::test]
async fn a_made_up_invitation_does_not_open_a_sign_up() {
    for (policy, refusal) in
        [(SignUpPolicy::Closed, (403, "sign_up_closed")), (SignUpPolicy::Invited, (410, "token_spent"))]
    {
        let t = with(policy).await;
        let mut body = sign_up_body(ADA);
        body["inviteToken"] = json!("made-up");
        assert_eq!(t.post("/auth/register").json(&body).await.refusal(), refusal);
        t.finish().await;
    }
}

#[tokio::test]
async fn a_provider_makes_no_account_where_sign_up_is_closed_and_opens_those_that_are_there() {
    for (policy, code) in [("closed", "sign_up_closed"), ("invited", "invitation_required")] {
        let (google, open) = StandIn::start().await;
        let t = TestJanua::start_with(google.settings(&[("sign_up", policy)]), feature).await;
        let refused = sign_in(&google, &t, "google", proven("g-1", ADA)).await;
        assert_eq!(refused.refusal(), (403, code));
        // A platform owner created the account, so the provider opens it.
        let now = t.janua.clock.now();
        let email = tenancy::email::Email::parse(ADA).unwrap();
        let id = tenancy::accounts::AccountId::new(&t.janua.entropy, now);
        let known = tenancy::accounts::Account {
            email_verified: true,
            ..tenancy::accounts::Account::new(id, Some(&email), "Ada", now)
        };
        db::transact!(t.janua.db, async |tx| tenancy::accounts::Account::ensure(tx, &known).await.map(drop)).unwrap();
        let entered = sign_in(&google, &t, "google", proven("g-1", ADA)).await;
        assert_eq!((entered.status, &entered.body["isNewUser"]), (200, &json!(false)), "{}", entered.text);
        t.run_jobs().await;
        t.finish().await;
        open.finish().await;
    }
}
