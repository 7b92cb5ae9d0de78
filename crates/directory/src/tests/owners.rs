//! An organization has an owner at every moment, and only owners make and unmake them.
use db::testing::TestDb;
use identity::testing::{PASSWORD, Person, login};
use kernel::testing::join_all;

use super::*;

#[tokio::test]
async fn p52_the_last_owner_stays() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let org = id(&org);
    let bob = joined(&t, &ada, org, "bob@example.com", "admin").await;
    assert_eq!(set_role(&t, &ada, org, &ada.id, "member").await.refusal(), (409, "last_owner"));
    assert_eq!(remove(&t, &ada, org, &ada.id).await.refusal(), (409, "last_owner"));
    assert_eq!(remove(&t, &bob, org, &ada.id).await.refusal(), (403, "forbidden"));
    let leave = ada.asks(t.ask(Method::DELETE, "/auth/me")).await;
    assert_eq!(leave.refusal(), (409, "last_owner"), "others are in it");
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 200, "and nothing happened");
    assert_eq!(set_role(&t, &ada, org, &bob.id, "owner").await.status, 200);
    assert_eq!(remove(&t, &ada, org, &ada.id).await.status, 204, "anybody may leave");
    assert_eq!(ada.asks(t.get(&format!("/org/{org}"))).await.status, 404);
    assert_eq!(ada.asks(t.ask(Method::DELETE, "/auth/me")).await.status, 204);
    // Who is alone in it takes it along.
    let bob = Person::of(&login(&t, "bob@example.com", PASSWORD).await);
    t.happened().await;
    assert_eq!(bob.asks(t.ask(Method::DELETE, "/auth/me")).await.status, 204);
    assert!(t.happened().await.contains(&"ORG_DELETED".to_owned()));
    let left: (i64,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM org", vec![]).await.unwrap();
    assert_eq!(left, (0,));
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p52_two_owners_who_remove_each_other_at_once_leave_one() {
    let t = start().await;
    for round in 0..4 {
        let (a, b) = (format!("a{round}@example.com"), format!("b{round}@example.com"));
        let ada = signed_in(&t, &a).await;
        let org = make_org(&t, &ada, "Acme").await;
        let org = id(&org);
        let bob = joined(&t, &ada, org, &b, "owner").await;
        // Each way in which an owner stops being one.
        let answers = if round % 2 == 0 {
            join_all([remove(&t, &ada, org, &bob.id), remove(&t, &bob, org, &ada.id)]).await
        } else {
            join_all([set_role(&t, &ada, org, &ada.id, "member"), set_role(&t, &bob, org, &bob.id, "member")]).await
        };
        let done = answers.iter().filter(|answer| answer.status < 300).count();
        assert_eq!(done, 1, "{answers:?}");
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM org_member WHERE org_id = $1 AND role = 'owner'";
        let owners: (i64,) = t.janua.db.one(sql, db::params![org]).await.unwrap();
        assert_eq!(owners, (1,));
    }
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn p50_admins_leave_owners_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let org = id(&org);
    let bob = joined(&t, &ada, org, "bob@example.com", "admin").await;
    let cyd = joined(&t, &ada, org, "cyd@example.com", "member").await;
    for role in ["admin", "member"] {
        assert_eq!(set_role(&t, &bob, org, &ada.id, role).await.refusal(), (403, "forbidden"));
    }
    assert_eq!(set_role(&t, &bob, org, &bob.id, "owner").await.refusal(), (403, "forbidden"));
    assert_eq!(set_role(&t, &bob, org, &cyd.id, "owner").await.refusal(), (403, "forbidden"));
    assert_eq!(invite(&t, &bob, org, "dan@example.com", "owner").await.refusal(), (403, "forbidden"));
    assert_eq!(invite(&t, &ada, org, "eli@example.com", "owner").await.status, 200);
    assert_eq!(invite(&t, &bob, org, "eli@example.com", "member").await.refusal(), (403, "forbidden"));
    let path = format!("/org/{org}/invites/eli@example.com");
    assert_eq!(bob.asks(t.ask(Method::DELETE, &path)).await.refusal(), (403, "forbidden"));
    assert_eq!(set_role(&t, &bob, org, &cyd.id, "admin").await.status, 200);
    assert_eq!(set_role(&t, &bob, org, &cyd.id, "root").await.wrong_fields(), ["role"]);
    // P56: what somebody was a moment ago counts for nothing.
    assert_eq!(set_role(&t, &ada, org, &bob.id, "member").await.status, 200);
    assert_eq!(set_role(&t, &bob, org, &cyd.id, "member").await.refusal(), (403, "forbidden"));
    assert_eq!(remove(&t, &ada, org, &bob.id).await.status, 204);
    assert_eq!(bob.asks(t.get(&format!("/org/{org}/members"))).await.refusal(), (404, "not_found"));
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p56_who_loses_a_role_while_they_use_it_leaves_nothing_behind() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let bob = signed_in(&t, "bob@example.com").await;
    for round in 0..6 {
        let org = make_org(&t, &ada, "Acme").await;
        let org = id(&org).to_owned();
        let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'admin', 0)";
        t.janua.db.exec(sql, db::params![&org, &bob.id]).await.unwrap();
        let ask = |i: usize| {
            let (t, bob, org) = (&t, &bob, &org);
            async move { invite(t, bob, org, &format!("p{round}x{i}@example.com"), "admin").await }
        };
        let demote = async {
            set_role(&t, &ada, &org, &bob.id, "member").await;
        };
        let (..) = tokio::join!(join_all((0..6).map(ask)), demote);
        let left: (i64,) = t
            .janua
            .db
            .one("SELECT CAST(COUNT(*) AS BIGINT) FROM org_invite WHERE org_id = $1", db::params![&org])
            .await
            .unwrap();
        assert_eq!(left, (0,), "what they promised goes with the role");
    }
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn who_leaves_for_good_leaves_the_organizations_past() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let org = id(&org);
    let bob = joined(&t, &ada, org, "bob@example.com", "admin").await;
    assert_eq!(invite(&t, &bob, org, "friend@example.com", "admin").await.status, 200);
    let seen = bob.asks(t.get("/auth/audit-log")).await;
    assert!(seen.body["events"][0]["ip"].is_string(), "one's own acts");
    assert_eq!(set_role(&t, &ada, org, &bob.id, "member").await.status, 200);
    let seen = bob.asks(t.get("/auth/audit-log")).await;
    assert_eq!(
        (&seen.body["events"][0]["type"], &seen.body["events"][0]["ip"]),
        (&json!("MEMBER_ROLE_CHANGED"), &Value::Null),
        "where somebody else sat is theirs"
    );
    assert_eq!(bob.asks(t.ask(Method::DELETE, "/auth/me")).await.status, 204);
    let past = ada.asks(t.get(&format!("/org/{org}/export"))).await;
    let events = past.body["auditEvents"].as_array().unwrap();
    let of =
        |kind: &str| events.iter().find(|event| event["type"] == kind && event["actor"] == json!(bob.id)).cloned();
    let invited = of("MEMBER_INVITED").expect("it stays");
    assert_eq!((&invited["details"]["email"], &invited["ip"]), (&json!("friend@example.com"), &Value::Null));
    assert!(of("MEMBER_REMOVED").is_some(), "{}", past.text);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn p56_a_lost_role_is_lost_on_every_node() {
    if !TestDb::on_postgres() {
        // An embedded database has one node.
        return;
    }
    let t = start().await;
    let other = t.another_node(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let bob = joined(&t, &ada, id(&org), "bob@example.com", "admin").await;
    let path = format!("/org/{}/invites", id(&org));
    assert_eq!(bob.asks(other.get(&path)).await.status, 200, "the other node remembers it");
    assert_eq!(set_role(&t, &ada, id(&org), &bob.id, "member").await.status, 200);
    let gone = async {
        while bob.asks(other.get(&path)).await.status != 403 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(1), gone).await.expect("there within a second");
    drop(other);
    t.run_jobs().await;
    finish(t).await;
}
