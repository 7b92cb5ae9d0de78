//! Apps: made, changed, given up; and whose they are.
use std::time::Duration;

use kernel::testing::join_all;

use super::*;

#[tokio::test]
async fn an_app_is_made_changed_and_given_up() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let body = json!({ "name": "My App", "redirectUris": ["https://app.example.com/cb", "http://localhost:3000/cb"],
        "allowedOrigins": ["https://App.example.com"] });
    let made = ada.asks(t.post("/apps").json(&body)).await;
    assert_eq!((made.status, &made.body["slug"], &made.body["role"]), (200, &json!("my-app"), &json!("owner")));
    assert_eq!(made.body["allowedOrigins"], json!(["https://app.example.com"]), "as browsers write it");
    assert_eq!(made.body["ownerId"], json!(ada.id));
    t.expects(&["ORG_CREATED", "APP_CREATED"]).await;
    let orgs = ada.asks(t.get("/user/orgs")).await;
    assert_eq!(orgs.body["orgs"][0]["id"], made.body["orgId"], "whoever has none gets one");
    assert_eq!(orgs.body["orgs"][0]["name"], "Ada's organization");
    let second = make_app(&t, &ada, "My App").await;
    assert_eq!(second["orgId"], made.body["orgId"]);
    assert!(second["slug"].as_str().unwrap().starts_with("my-app-"));

    let path = format!("/apps/{}", id(&made.body));
    let change = json!({ "name": "Other", "settings": { "theme": "dark", "gone": 1 }, "redirectUris": [] });
    let changed = ada.asks(t.ask(Method::PATCH, &path).json(&change)).await;
    assert_eq!((changed.status, &changed.body["name"]), (200, &json!("Other")), "{}", changed.text);
    assert_eq!(changed.body["allowedOrigins"], json!(["https://app.example.com"]), "what is left out stays");
    let settings = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "settings": { "gone": null } }))).await;
    assert_eq!(settings.body["settings"], json!({ "theme": "dark" }));
    assert_eq!(ada.asks(t.get(&path)).await.body["redirectUris"], json!([]));

    let wrong = json!({ "name": "x", "redirectUris": ["https://a.example/cb", "javascript:alert(1)", "http://a.example"],
        "allowedOrigins": ["https://a.example/path", "*"] });
    let refused = ada.asks(t.post("/apps").json(&wrong)).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.wrong_fields(), ["redirectUris.1", "redirectUris.2", "allowedOrigins.0", "allowedOrigins.1"]);
    // What separates in a header is in no host.
    let hosts = ["https://a;b.example/cb", "https://a.example,b.example/cb", "cursor://a;b/cb"];
    let wrong = json!({ "redirectUris": hosts, "allowedOrigins": ["https://a;b.example"] });
    let refused = ada.asks(t.ask(Method::PATCH, &path).json(&wrong)).await;
    assert_eq!(
        (refused.status, refused.wrong_fields()),
        (400, vec!["redirectUris.0", "redirectUris.1", "redirectUris.2", "allowedOrigins.0"])
    );
    let listed = ada.asks(t.get("/apps?limit=1")).await;
    assert_eq!(listed.body["apps"][0]["id"], second["id"], "newest first");
    let cursor = listed.body["nextCursor"].as_str().unwrap();
    let rest = ada.asks(t.get(&format!("/apps?cursor={cursor}"))).await;
    assert_eq!((rest.body["apps"].as_array().unwrap().len(), &rest.body["nextCursor"]), (1, &Value::Null));

    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(ada.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    t.expects(&["APP_CREATED", "APP_UPDATED", "APP_UPDATED", "APP_DELETED"]).await;
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_belongs_where_one_may_build() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let of_ada = make_app(&t, &ada, "One").await;
    let body = json!({ "name": "Two", "orgId": of_ada["orgId"] });
    assert_eq!(bob.asks(t.post("/apps").json(&body)).await.refusal(), (404, "not_found"), "a stranger");
    put(&t, &of_ada, &bob, "member").await;
    assert_eq!(bob.asks(t.post("/apps").json(&body)).await.refusal(), (403, "forbidden"), "a member");
    let own = make_app(&t, &bob, "Three").await;
    assert_ne!(own["orgId"], of_ada["orgId"], "where one may not build one does not");
    let seen = bob.asks(t.get("/apps")).await;
    let names: Vec<_> = seen.body["apps"].as_array().unwrap().iter().map(|app| app["name"].clone()).collect();
    assert_eq!(names, ["Three", "One"]);
    // P51
    let extra = json!({ "name": "Four", "id": of_ada["id"], "ownerId": ada.id, "role": "owner", "slug": "four",
        "createdAt": "2001-01-01T00:00:00.000Z", "settings": { "a": 1 } });
    let made = bob.asks(t.post("/apps").json(&extra)).await;
    assert_eq!((&made.body["ownerId"], &made.body["settings"]), (&json!(bob.id), &json!({})));
    assert_ne!(made.body["id"], of_ada["id"]);
    let path = format!("/apps/{}", id(&made.body));
    let moved = json!({ "orgId": of_ada["orgId"], "ownerId": ada.id, "id": of_ada["id"] });
    let patched = bob.asks(t.ask(Method::PATCH, &path).json(&moved)).await;
    assert_eq!((&patched.body["orgId"], &patched.body["ownerId"]), (&own["orgId"], &json!(bob.id)));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_first_apps_at_once_make_one_organization() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let body = json!({ "name": "App" });
    let answers = join_all((0..8).map(|_| ada.asks(t.post("/apps").json(&body)).send())).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!(ada.asks(t.get("/user/orgs")).await.body["orgs"].as_array().unwrap().len(), 1);
    let taken = json!({ "name": "App", "slug": "the-one" });
    let answers = join_all((0..8).map(|_| ada.asks(t.post("/apps").json(&taken)).send())).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn pages_of_an_app_may_call_and_its_cookies_count_there_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, evil) = (make_app(&t, &ada, "App").await, make_app(&t, &ada, "Evil").await);
    let key = make_key(&t, &ada, id(&app), "publishable", "live").await["value"].as_str().unwrap().to_owned();
    let (shop, elsewhere) = ("https://shop.example.com", "https://evil.example.com");
    let preflight = |origin: &'static str| {
        let ask = t.ask(Method::OPTIONS, "/auth/me").header("origin", origin);
        ask.header("access-control-request-method", "GET").send()
    };
    assert_eq!(preflight(shop).await.header("access-control-allow-origin"), "");
    for (app, origin) in [(&app, shop), (&evil, elsewhere)] {
        let change = json!({ "allowedOrigins": [origin] });
        let path = format!("/apps/{}", id(app));
        assert_eq!(ada.asks(t.ask(Method::PATCH, &path).json(&change)).await.status, 200);
    }
    tenancy::enter::read_origins(&t.janua).await.unwrap();
    assert_eq!(preflight(shop).await.header("access-control-allow-origin"), shop);
    assert_eq!(preflight("https://shop.example.com.evil").await.header("access-control-allow-origin"), "");

    let through = login_with(&t, "ada@example.com", &key).await;
    let (access, refresh) =
        (through.body["accessToken"].as_str().unwrap(), through.body["refreshToken"].as_str().unwrap());
    let cookies = format!("service_access={access}; service_refresh={refresh}");
    let me = |cookies: String, origin: &'static str| {
        t.get("/auth/me").header("cookie", &cookies).header("origin", origin).send()
    };
    let own = format!("service_access={}; service_refresh={}", ada.access, ada.refresh);
    assert_eq!(me(cookies.clone(), shop).await.status, 200, "the app's session on the app's page");
    assert_eq!(me(cookies.clone(), elsewhere).await.refusal(), (403, "cross_site"), "on another app's page");
    assert_eq!(
        me(own.clone(), shop).await.refusal(),
        (403, "cross_site"),
        "the service's own session on an app's page"
    );
    assert_eq!(me(own.clone(), "http://localhost:0").await.status, 200);
    let turn = |cookies: &str, origin: &str| {
        let ask = t.post("/auth/refresh").header("cookie", cookies).header("origin", origin);
        if cookies.contains(refresh) { ask.header("x-service-app-key", &key).send() } else { ask.send() }
    };
    assert_eq!(turn(&own, elsewhere).await.refusal(), (403, "cross_site"));
    assert_eq!(turn(&cookies, elsewhere).await.refusal(), (403, "cross_site"));
    assert_eq!(turn(&cookies, "https://nobody.example.com").await.refusal(), (403, "cross_site"));
    assert_eq!(turn(&own, "http://localhost:0").await.status, 200, "and nothing was turned meanwhile");
    assert_eq!(turn(&cookies, shop).await.status, 200);
    let bearer = t.get("/auth/me").header("authorization", &format!("Bearer {access}")).header("origin", elsewhere);
    assert_eq!(bearer.await.status, 200, "who has the token in hand needs no cookie");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_slug_is_a_host_name_that_nobody_takes_for_the_service() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "Shop").await;
    let path = format!("/apps/{}", id(&app));
    for slug in
        ["www", "api", "admin", "localhost", "edge", "xn--80ak6aa92e", "abcdefghijkl--shop", "-a", "a-", "A", ""]
    {
        let made = ada.asks(t.post("/apps").json(&json!({ "name": "x", "slug": slug }))).await;
        let changed = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "slug": slug }))).await;
        for refused in [made, changed] {
            assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["slug"]), "{slug}: {}", refused.text);
        }
        let org = ada.asks(t.post("/org").json(&json!({ "name": "x", "slug": slug }))).await;
        assert_eq!((org.status, org.wrong_fields()), (400, vec!["slug"]), "an organization's {slug}: {}", org.text);
    }
    let long = ada.asks(t.post("/apps").json(&json!({ "name": "x", "slug": "a".repeat(48) }))).await;
    assert_eq!(long.status, 200, "with the label of a deployment before it, it fits into one of DNS");
    for name in ["www", "API", "Admin!", "x".repeat(100).as_str(), "a -- b", "XN--80ak6aa92e", "\u{65e5}\u{672c}"] {
        let made = make_app(&t, &ada, name).await;
        let slug = made["slug"].as_str().unwrap();
        assert!(tenancy::apps::slugs::check(slug).is_ok(), "made from {name}: {slug}");
        let org = ada.asks(t.post("/org").json(&json!({ "name": name }))).await;
        assert!(tenancy::apps::slugs::check(org.body["slug"].as_str().unwrap()).is_ok(), "{}", org.text);
    }
    // One from before the rules stays until it is changed.
    t.janua.db.exec("UPDATE app SET slug = 'old--shop' WHERE id = $1", db::params![id(&app)]).await.unwrap();
    let kept = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "name": "Shop 2", "slug": "old--shop" }))).await;
    assert_eq!((kept.status, &kept.body["slug"]), (200, &json!("old--shop")), "{}", kept.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_slug_of_an_app_that_is_gone_is_held_back_for_its_organization() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let take =
        |person: &Person, slug: &str| person.asks(t.post("/apps").json(&json!({ "name": "Shop", "slug": slug })));
    let made = take(&ada, "shop").await;
    let path = format!("/apps/{}", id(&made.body));
    let other = make_app(&t, &eve, "Evil").await;
    let into =
        |slug: &str| eve.asks(t.ask(Method::PATCH, &format!("/apps/{}", id(&other))).json(&json!({ "slug": slug })));
    // It takes another name: the old one is in links out there.
    assert_eq!(ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "slug": "store" }))).await.status, 200);
    assert_eq!(take(&eve, "shop").await.refusal(), (409, "slug_taken"));
    assert_eq!(ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "slug": "shop" }))).await.status, 200, "its own");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(take(&eve, "shop").await.refusal(), (409, "slug_taken"));
    assert_eq!(into("shop").await.refusal(), (409, "slug_taken"), "nor by renaming");
    let near = make_app(&t, &eve, "Shop").await;
    assert!(near["slug"].as_str().unwrap().starts_with("shop-"), "one made from a name is another one: {near}");
    let back = take(&ada, "shop").await;
    assert_eq!(back.status, 200, "its organization may have it again: {}", back.text);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&back.body)))).await.status, 204);
    // The whole organization goes.
    let org = back.body["orgId"].as_str().unwrap();
    let last = take(&ada, "last-one").await;
    assert_eq!(last.body["orgId"], *org);
    let gone = ada.asks(t.ask(Method::DELETE, &format!("/org/{org}"))).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    for slug in ["shop", "last-one", "store"] {
        assert_eq!(take(&eve, slug).await.refusal(), (409, "slug_taken"), "{slug}");
    }
    let eve = Person::of(&login_again(&t, "eve@example.com", Duration::from_hours(89 * 24)).await);
    assert_eq!(take(&eve, "shop").await.refusal(), (409, "slug_taken"), "89 days");
    let eve = Person::of(&login_again(&t, "eve@example.com", Duration::from_hours(26)).await);
    assert_eq!(take(&eve, "shop").await.status, 200, "90 days");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_organization_and_an_account_hold_back_few_slugs() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let take = |person: &Person, slug: &str, org: &Value| {
        let body = json!({ "name": "Shop", "slug": slug, "orgId": org });
        person.asks(t.post("/apps").json(&body))
    };
    let give_up = async |slug: &str, org: &Value| {
        let made = take(&eve, slug, org).await;
        assert_eq!(made.status, 200, "{slug}: {}", made.text);
        t.advance(Duration::from_secs(1));
        assert_eq!(eve.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&made.body)))).await.status, 204);
    };
    let mut orgs = vec![];
    for name in ["One", "Two", "Three"] {
        orgs.push(eve.asks(t.post("/org").json(&json!({ "name": name }))).await.body["id"].clone());
    }
    for number in 0..20 {
        give_up(&format!("first-{number}"), &orgs[0]).await;
    }
    for slug in ["first-0", "first-19"] {
        assert_eq!(take(&ada, slug, &Value::Null).await.refusal(), (409, "slug_taken"), "{slug}: twenty are held");
    }
    give_up("first-20", &orgs[0]).await;
    assert_eq!(take(&ada, "first-0", &Value::Null).await.status, 200, "the oldest is free");
    // By renaming, too.
    let app = take(&eve, "first-a", &orgs[0]).await;
    let path = format!("/apps/{}", id(&app.body));
    assert_eq!(eve.asks(t.ask(Method::PATCH, &path).json(&json!({ "slug": "first-b" }))).await.status, 200);
    assert_eq!(take(&ada, "first-1", &Value::Null).await.status, 200);
    assert_eq!(take(&ada, "first-a", &Value::Null).await.refusal(), (409, "slug_taken"), "the newest is held");
    // More organizations are no way around it, whether they stay or go.
    for number in 0..16 {
        give_up(&format!("second-{number}"), &orgs[1]).await;
    }
    let gone = format!("/org/{}", orgs[1].as_str().unwrap());
    assert_eq!(eve.asks(t.ask(Method::DELETE, &gone)).await.status, 204);
    for number in 0..14 {
        give_up(&format!("third-{number}"), &orgs[2]).await;
    }
    assert_eq!(take(&ada, "first-2", &Value::Null).await.refusal(), (409, "slug_taken"), "fifty are held");
    give_up("third-14", &orgs[2]).await;
    assert_eq!(take(&ada, "third-14", &Value::Null).await.status, 200, "one too many for the account");
    // What another organization holds stays held, whoever created the app.
    for slug in ["first-2", "second-0", "third-0"] {
        assert_eq!(take(&ada, slug, &Value::Null).await.refusal(), (409, "slug_taken"), "{slug}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_former_member_who_holds_many_slugs_takes_none_from_the_organization() {
    let t = start().await;
    let [ada, eve, mallory] = ["ada@example.com", "eve@example.com", "mallory@example.com"];
    let (ada, eve, mallory) = (signed_in(&t, ada).await, signed_in(&t, eve).await, signed_in(&t, mallory).await);
    let take = |person: &Person, slug: &str, org: &Value| {
        person.asks(t.post("/apps").json(&json!({ "name": "Shop", "slug": slug, "orgId": org })))
    };
    let org = ada.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await.body["id"].clone();
    let org_path = format!("/org/{}", org.as_str().unwrap());
    let invite = json!({ "email": "eve@example.com", "role": "admin" });
    assert_eq!(ada.asks(t.post(&format!("{org_path}/members")).json(&invite)).await.status, 200);
    t.run_jobs().await;
    let token = identity::testing::token_in(&identity::testing::mail_to(&t, "eve@example.com").unwrap());
    assert_eq!(eve.asks(t.post("/auth/accept-invite").json(&json!({ "token": token }))).await.status, 200);
    // Eve made the app, has left, and holds as many slugs elsewhere as an account may.
    let app = take(&eve, "acme-shop", &org).await;
    assert_eq!(app.status, 200, "{}", app.text);
    let leave = format!("{org_path}/members/{}", eve.id);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &leave)).await.status, 204);
    for number in 0..3 {
        let name = json!({ "name": format!("Org {number}") });
        let own = eve.asks(t.post("/org").json(&name)).await.body["id"].clone();
        for slug in 0..20 {
            let made = take(&eve, &format!("held-{number}-{slug}"), &own).await;
            assert_eq!(made.status, 200, "{}", made.text);
            t.advance(Duration::from_secs(1));
            assert_eq!(eve.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&made.body)))).await.status, 204);
        }
    }
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&app.body)))).await.status, 204);
    let own = mallory.asks(t.post("/org").json(&json!({ "name": "Mallory" }))).await.body["id"].clone();
    assert_eq!(take(&mallory, "acme-shop", &own).await.refusal(), (409, "slug_taken"), "held for the organization");
    assert_eq!(take(&ada, "acme-shop", &org).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

/// Signs in once more after some time: sessions do not live that long.
async fn login_again(t: &TestJanua, email: &str, later: Duration) -> Answer {
    t.advance(later);
    t.run_jobs().await;
    identity::testing::login(t, email, identity::testing::PASSWORD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slug_that_is_given_up_at_this_moment_goes_to_nobody_else() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    for round in 0..8 {
        let body = json!({ "name": "Shop", "slug": format!("shop-{round}") });
        let made = ada.asks(t.post("/apps").json(&body)).await;
        let path = format!("/apps/{}", id(&made.body));
        let asks = (0..6).map(|i| match i {
            2 => ada.asks(t.ask(Method::DELETE, &path)).send(),
            _ => eve.asks(t.post("/apps").json(&body)).send(),
        });
        let answers = join_all(asks).await;
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert!(!statuses.contains(&200), "{statuses:?}");
    }
    t.run_jobs().await;
    t.finish().await;
}
