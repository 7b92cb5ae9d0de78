//! The logo of an organization: admins put it, and nobody else.
use std::{io::Cursor, time::Duration};

use axum::http::Method;
use image::{DynamicImage, ImageFormat};
use kernel::{
    app::Feature,
    config::Config,
    db, params,
    testing::{Answer, Ask, TestApp},
    transact,
};
use serde_json::{Value, json};
use tenancy::orgs::{Member, OrgId, Role};

const PNG: &str = "image/png";

fn feature(config: &Config) -> Feature {
    tenancy::feature(config).and(identity::feature(config)).and(crate::feature(config))
}

struct Person {
    access: String,
    id: String,
}

impl Person {
    /// Signs up, reads the mail, signs in.
    async fn new(t: &TestApp, email: &str) -> Self {
        let password = "correct horse battery staple";
        let body = json!({ "email": email, "password": password, "name": "Ada" });
        t.post("/auth/register").json(&body).await;
        t.run_jobs().await;
        let mail = t.mailbox.mails().pop().unwrap().replace("=\r\n", "").replace("=3D", "=");
        let token = mail.split("?token=").nth(1).unwrap();
        let token: String = token.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
        assert_eq!(t.post("/auth/verify-email").json(&json!({ "token": token })).await.status, 200);
        let body = json!({ "email": email, "password": password, "options": { "tokenDelivery": "body" } });
        let signed_in = t.post("/auth/login").json(&body).await;
        t.run_jobs().await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self { access: text(&signed_in.body["accessToken"]), id: text(&signed_in.body["user"]["id"]) }
    }

    fn asks<'a>(&self, ask: Ask<'a>) -> Ask<'a> {
        ask.header("authorization", &format!("Bearer {}", self.access))
    }

    async fn offer(&self, t: &TestApp, org: OrgId, size: usize) -> Answer {
        let wish = json!({ "contentType": PNG, "size": size });
        self.asks(t.post(&format!("/org/{org}/logo/upload-url"))).json(&wish).await
    }

    async fn logo(&self, t: &TestApp, org: OrgId) -> Value {
        self.asks(t.get(&format!("/org/{org}"))).await.body["logoUrl"].clone()
    }
}

async fn join(t: &TestApp, org: OrgId, person: &Person, role: Role) {
    let (account, now) = (person.id.parse().unwrap(), t.app.clock.now());
    let joined = transact!(t.app.db, tx, {
        Member::add(tx, org, account, Role::Member, now).await?;
        Member::set_role(tx, org, account, role).await
    });
    joined.map_err(|error: db::Error| error.to_string()).unwrap();
}

async fn found(t: &TestApp, owner: &Person) -> OrgId {
    let made = owner.asks(t.post("/org")).json(&json!({ "name": "Acme" })).await;
    made.body["id"].as_str().unwrap().parse().unwrap()
}

fn logo() -> Vec<u8> {
    let mut out = Cursor::new(vec![]);
    DynamicImage::new_rgba8(600, 600).write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

fn path(url: &Value) -> String {
    url.as_str().unwrap().strip_prefix("http://localhost:0").unwrap().to_owned()
}

async fn put(t: &TestApp, offer: &Answer, file: &[u8]) -> Answer {
    let to = path(&offer.body["uploadUrl"]);
    t.ask(Method::PUT, &to).header("content-type", PNG).body(file.to_vec()).await
}

#[tokio::test]
async fn an_admin_uploads_a_logo_and_members_see_it() {
    let t = TestApp::start(feature).await;
    let (owner, admin) = (Person::new(&t, "owner@example.com").await, Person::new(&t, "admin@example.com").await);
    let (member, stranger) = (Person::new(&t, "member@example.com").await, Person::new(&t, "eve@example.com").await);
    let org = found(&t, &owner).await;
    join(&t, org, &admin, Role::Admin).await;
    join(&t, org, &member, Role::Member).await;
    let file = logo();
    assert_eq!(member.offer(&t, org, file.len()).await.refusal(), (403, "forbidden"));
    assert_eq!(
        stranger.offer(&t, org, file.len()).await.refusal(),
        (404, "not_found"),
        "does not learn that it exists"
    );
    let nobody = t.post(&format!("/org/{org}/logo/upload-url")).json(&json!({})).await;
    assert_eq!(nobody.status, 401);
    assert!(member.logo(&t, org).await.is_null());
    t.happened().await;

    let offer = admin.offer(&t, org, file.len()).await;
    assert_eq!(put(&t, &offer, &file).await.status, 204);
    t.expects(&["ORG_UPDATED"]).await;
    let url = member.logo(&t, org).await;
    assert_eq!(url, offer.body["pictureUrl"], "seen at once by others");
    let seen = t.get(&path(&url)).await;
    let shown = image::load_from_memory(&seen.bytes).unwrap();
    assert_eq!((shown.width(), shown.height(), shown.color().has_alpha()), (512, 512, true), "still transparent");
    let log: (String,) = t
        .app
        .db
        .one("SELECT details FROM audit_event WHERE type = 'ORG_UPDATED' AND actor = $1", params![&admin.id])
        .await
        .unwrap();
    assert_eq!(log.0, r#"{"fields":["logoUrl"]}"#);

    let offer = owner.offer(&t, org, file.len()).await;
    assert_eq!(put(&t, &offer, &file).await.status, 204);
    t.run_jobs().await;
    assert_eq!(t.get(&path(&url)).await.status, 404, "the one before is gone");
    t.finish().await;
}

#[tokio::test]
async fn whoever_is_no_admin_any_more_changes_no_logo() {
    let t = TestApp::start(feature).await;
    let (owner, admin) = (Person::new(&t, "owner@example.com").await, Person::new(&t, "admin@example.com").await);
    let org = found(&t, &owner).await;
    join(&t, org, &admin, Role::Admin).await;
    let file = logo();
    let first = owner.offer(&t, org, file.len()).await;
    assert_eq!(put(&t, &first, &file).await.status, 204);
    let offer = admin.offer(&t, org, file.len()).await;
    join(&t, org, &admin, Role::Member).await;
    t.happened().await;
    assert_eq!(put(&t, &offer, &file).await.refusal(), (403, "upload_refused"));
    t.expects(&[]).await;
    t.run_jobs().await;
    let url = owner.logo(&t, org).await;
    assert_eq!(url, first.body["pictureUrl"]);
    assert_eq!(t.get(&path(&url)).await.status, 200, "the logo that was there still is");
    assert_eq!(t.get(&path(&offer.body["pictureUrl"])).await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn a_logo_leaves_with_its_organization() {
    let t = TestApp::start(feature).await;
    let owner = Person::new(&t, "owner@example.com").await;
    let org = found(&t, &owner).await;
    let file = logo();
    let (first, open) = (owner.offer(&t, org, file.len()).await, owner.offer(&t, org, file.len()).await);
    assert_eq!(put(&t, &first, &file).await.status, 204);
    assert_eq!(owner.asks(t.ask(Method::DELETE, &format!("/org/{org}"))).await.status, 204);
    assert_eq!(put(&t, &open, &file).await.refusal(), (403, "upload_refused"));
    t.advance(Duration::from_secs(1));
    t.run_jobs().await;
    assert_eq!(t.get(&path(&first.body["pictureUrl"])).await.status, 404);
    t.finish().await;
}
