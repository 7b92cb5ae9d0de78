//! The logo of an organization: admins put it, and nobody else.
use std::{io::Cursor, time::Duration};

use axum::http::Method;
use db::params;
use identity::testing::{Person, signed_in};
use image::{DynamicImage, ImageFormat};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};
use tenancy::orgs::{OrgId, Role, members::OrgMember};

const PNG: &str = "image/png";

fn feature(config: &Config) -> Feature {
    tenancy::feature(config).and(identity::feature(config)).and(crate::feature(config))
}

async fn offer(t: &TestJanua, person: &Person, org: OrgId, size: usize) -> Answer {
    let wish = json!({ "contentType": PNG, "size": size });
    person.asks(t.post(&format!("/org/{org}/logo/upload-url"))).json(&wish).await
}

async fn logo_of(t: &TestJanua, person: &Person, org: OrgId) -> Value {
    person.asks(t.get(&format!("/org/{org}"))).await.body["logoUrl"].clone()
}

async fn join(t: &TestJanua, org: OrgId, person: &Person, role: Role) {
    let account = person.id.parse().unwrap();
    let joined = kernel::transact!(t.janua, async |tx| {
        OrgMember::add(tx, &t.janua, org, account, Role::Member).await?;
        Ok(OrgMember::set_role(tx, org, account, role).await?)
    });
    joined.map_err(|fault: kernel::fault::Fault| fault.whole_sentence()).unwrap();
}

async fn found(t: &TestJanua, owner: &Person) -> OrgId {
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

async fn put(t: &TestJanua, offered: &Answer, file: &[u8]) -> Answer {
    let to = path(&offered.body["uploadUrl"]);
    t.ask(Method::PUT, &to).header("content-type", PNG).body(file.to_vec()).await
}

#[tokio::test]
async fn an_admin_uploads_a_logo_and_members_see_it() {
    let t = TestJanua::start(feature).await;
    let (owner, admin) = (signed_in(&t, "owner@example.com").await, signed_in(&t, "admin@example.com").await);
    let (member, stranger) = (signed_in(&t, "member@example.com").await, signed_in(&t, "eve@example.com").await);
    let org = found(&t, &owner).await;
    join(&t, org, &admin, Role::Admin).await;
    join(&t, org, &member, Role::Member).await;
    let file = logo();
    assert_eq!(offer(&t, &member, org, file.len()).await.refusal(), (403, "forbidden"));
    assert_eq!(
        offer(&t, &stranger, org, file.len()).await.refusal(),
        (404, "not_found"),
        "does not learn that it exists"
    );
    let nobody = t.post(&format!("/org/{org}/logo/upload-url")).json(&json!({})).await;
    assert_eq!(nobody.status, 401);
    assert!(logo_of(&t, &member, org).await.is_null());
    t.happened().await;

    let offered = offer(&t, &admin, org, file.len()).await;
    assert_eq!(put(&t, &offered, &file).await.status, 204);
    t.expects(&["ORG_UPDATED"]).await;
    let url = logo_of(&t, &member, org).await;
    assert_eq!(url, offered.body["pictureUrl"], "seen at once by others");
    let seen = t.get(&path(&url)).await;
    let shown = image::load_from_memory(&seen.bytes).unwrap();
    assert_eq!((shown.width(), shown.height(), shown.color().has_alpha()), (512, 512, true), "still transparent");
    let log: (String,) = t
        .janua
        .db
        .one("SELECT details FROM audit_event WHERE type = 'ORG_UPDATED' AND actor = $1", params![&admin.id])
        .await
        .unwrap();
    assert_eq!(log.0, r#"{"fields":["logoUrl"]}"#);

    let offered = offer(&t, &owner, org, file.len()).await;
    assert_eq!(put(&t, &offered, &file).await.status, 204);
    t.run_jobs().await;
    assert_eq!(t.get(&path(&url)).await.status, 404, "the one before is gone");
    t.finish().await;
}

#[tokio::test]
async fn whoever_is_no_admin_any_more_changes_no_logo() {
    let t = TestJanua::start(feature).await;
    let (owner, admin) = (signed_in(&t, "owner@example.com").await, signed_in(&t, "admin@example.com").await);
    let org = found(&t, &owner).await;
    join(&t, org, &admin, Role::Admin).await;
    let file = logo();
    let first = offer(&t, &owner, org, file.len()).await;
    assert_eq!(put(&t, &first, &file).await.status, 204);
    let offered = offer(&t, &admin, org, file.len()).await;
    join(&t, org, &admin, Role::Member).await;
    t.happened().await;
    assert_eq!(put(&t, &offered, &file).await.refusal(), (403, "upload_refused"));
    t.expects(&[]).await;
    t.run_jobs().await;
    let url = logo_of(&t, &owner, org).await;
    assert_eq!(url, first.body["pictureUrl"]);
    assert_eq!(t.get(&path(&url)).await.status, 200, "the logo that was there still is");
    assert_eq!(t.get(&path(&offered.body["pictureUrl"])).await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn a_logo_leaves_with_its_organization() {
    let t = TestJanua::start(feature).await;
    let owner = signed_in(&t, "owner@example.com").await;
    let org = found(&t, &owner).await;
    let file = logo();
    let (first, open) = (offer(&t, &owner, org, file.len()).await, offer(&t, &owner, org, file.len()).await);
    assert_eq!(put(&t, &first, &file).await.status, 204);
    assert_eq!(owner.asks(t.ask(Method::DELETE, &format!("/org/{org}"))).await.status, 204);
    assert_eq!(put(&t, &open, &file).await.refusal(), (403, "upload_refused"));
    t.advance(Duration::from_secs(1));
    t.run_jobs().await;
    assert_eq!(t.get(&path(&first.body["pictureUrl"])).await.status, 404);
    t.finish().await;
}
