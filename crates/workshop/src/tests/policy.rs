//! What the operator decides: who signs up by an invitation, and who may create organizations.
use identity::{
    policy::{Settings, SignUpPolicy},
    testing::{PASSWORD, login, mail_to, token_in},
};
use tenancy::policy::{Builders, Policy};

use super::*;

const NEW: &str = "another fine password here";

/// Run by `root@example.com`.
async fn with(sign_up: SignUpPolicy, builders: Builders) -> (TestJanua, Person) {
    let config = Config::for_tests()
        .with(|settings: &mut Settings| settings.sign_up = sign_up)
        .with(|policy: &mut Policy| policy.builders = builders)
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    person(&t, "root@example.com").await;
    let root = Person::of(&login(&t, "root@example.com", PASSWORD).await);
    (t, root)
}

/// An account, however people sign up.
async fn person(t: &TestJanua, email: &str) {
    let now = t.janua.clock.now();
    let email = tenancy::email::Email::parse(email).unwrap();
    let hasher = t.janua.own::<tenancy::accounts::password::Hasher>();
    let hash = hasher.hash(&t.janua.entropy, &PASSWORD.to_owned().into()).await.unwrap();
    let id = tenancy::accounts::AccountId::new(&t.janua.entropy, now);
    let account = tenancy::accounts::Account {
        email_verified: true,
        password_hash: Some(hash),
        ..tenancy::accounts::Account::new(id, Some(&email), "Ada", now)
    };
    db::transact!(t.janua.db, async |tx| tenancy::accounts::Account::ensure(tx, &account).await.map(drop)).unwrap();
}

async fn make_org(t: &TestJanua, person: &Person) -> Value {
    let made = person.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body
}

async fn invite(t: &TestJanua, owner: &Person, org: &Value, email: &str) -> String {
    let path = format!("/org/{}/members", id(org));
    let sent = owner.asks(t.post(&path).json(&json!({ "email": email, "role": "member" }))).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    t.run_jobs().await;
    token_in(&mail_to(t, email).expect("a mail"))
}

#[tokio::test]
async fn an_invitation_opens_a_sign_up_that_is_for_the_invited_and_none_that_is_closed() {
    for (policy, status) in [(SignUpPolicy::Invited, 200), (SignUpPolicy::Closed, 403)] {
        for way in ["/auth/accept-invite", "/auth/register"] {
            let (t, root) = with(policy, Builders::Everyone).await;
            let org = make_org(&t, &root).await;
            let token = invite(&t, &root, &org, "bob@example.com").await;
            let body = json!({ "token": token, "inviteToken": token, "email": "bob@example.com", "name": "Bob",
                "password": NEW });
            let answer = t.post(way).json(&body).await;
            assert_eq!(answer.status, status, "{way} {}", answer.text);
            let code = answer.body["code"].as_str().unwrap_or("sign_up_closed");
            assert_eq!(code, "sign_up_closed");
            assert_eq!(login(&t, "bob@example.com", NEW).await.status, if status == 200 { 200 } else { 401 });
            t.run_jobs().await;
            t.finish().await;
        }
    }
}

#[tokio::test]
async fn only_builders_create_organizations_and_apps() {
    for (builders, of_a_stranger, of_an_invited, of_a_member) in
        [(Builders::Everyone, 200, 200, 200), (Builders::Members, 403, 200, 200), (Builders::Owners, 403, 403, 403)]
    {
        let (t, root) = with(SignUpPolicy::Open, builders).await;
        let org = make_org(&t, &root).await;
        let mut people = vec![];
        for name in ["stranger", "invited", "member"] {
            person(&t, &format!("{name}@example.com")).await;
            people.push(Person::of(&login(&t, &format!("{name}@example.com"), PASSWORD).await));
        }
        invite(&t, &root, &org, "invited@example.com").await;
        let put = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'admin', 0)";
        t.janua.db.exec(put, db::params![id(&org), &people[2].id]).await.unwrap();
        for (person, wanted) in people.iter().zip([of_a_stranger, of_an_invited, of_a_member]) {
            for (path, body) in [("/org", json!({ "name": "New" })), ("/apps", json!({ "name": "New" }))] {
                let answer = person.asks(t.post(path).json(&body)).await;
                assert_eq!(answer.status, wanted, "{builders:?} {path} {}", answer.text);
                if wanted == 403 {
                    assert_eq!(answer.refusal(), (403, "builders_only"));
                }
            }
        }
        assert_eq!(root.asks(t.post("/apps").json(&json!({ "name": "Own" }))).await.status, 200, "owners always may");
        t.run_jobs().await;
        t.finish().await;
    }
}
