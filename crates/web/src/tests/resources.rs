//! Servers of others that tokens are made for: on loopback while developing, several at once, with scopes of their own.
use axum::http::Method;

use super::*;

async fn with_registration() -> TestJanua {
    let config = Config::for_tests()
        .with(|oauth: &mut identity::oauth::Settings| oauth.client_registration = kernel::config::Switch::On);
    TestJanua::start_with(config, feature).await
}

/// A client that registered itself, as editors and inspectors do.
async fn registered(t: &TestJanua) -> String {
    let body = json!({ "redirect_uris": [REDIRECT, "http://127.0.0.1/cb"], "client_name": "Inspector" });
    let made = t.post("/oauth/register").json(&body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    text(&made.body["client_id"])
}

async fn prove_domain(t: &TestJanua, app: &Client, domain: &str) {
    let sql =
        "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, status_since, is_own, verified_at)
               SELECT id, id, org_id, $2, 'x', 1, 1, TRUE, 1 FROM app WHERE id = $1";
    t.janua.db.exec(sql, db::params![&app.id, domain]).await.expect("a domain");
}

/// The code that somebody gives after they saw the consent page; and the page.
async fn agree(t: &TestJanua, request: &str, browser: &str) -> (String, Answer) {
    let answer = visit(t, &format!("/oauth/authorize?{request}"), browser).await;
    assert!(answer.header("location").contains("/consent?"), "{:?} {}", answer.headers, answer.text);
    let page = visit(t, answer.header("location"), browser).await;
    let decided = decide(t, &page, "allow", browser).await;
    (field(&decided, "code").unwrap_or_else(|| panic!("{:?} {}", decided.headers, decided.text)), page)
}

#[tokio::test]
async fn every_client_gets_a_token_for_a_server_on_loopback_once_the_person_agrees() {
    let t = with_registration().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let (id, app) = (registered(&t).await, client(&t, &ada, "App").await);
    for resource in [
        "http://127.0.0.1:9701/mcp",
        "http://localhost:9701/mcp",
        "http://[::1]:9701/mcp",
        "http://localhost/mcp",
        "https://localhost:9701/mcp",
    ] {
        // Also an app of the person's own organization asks, where the place is not one of its origins.
        for client in [&id, &app.id] {
            let request = asked(client, &[("resource", resource), ("scope", "openid")]);
            let (code, page) = agree(&t, &request, &browser).await;
            assert!(page.text.replace("&#x2f;", "/").contains(resource), "{resource}: {}", page.text);
            let given = redeem(&t, client, &code, &[("resource", resource)]).await;
            assert_eq!(given.status, 200, "{resource}: {}", given.text);
            assert_eq!(claims(&given.body["access_token"])["aud"], resource);
            let token = text(&given.body["access_token"]);
            assert_eq!(with_token(&t, "/oauth/userinfo", &token).await.status, 401, "it counts there alone");
        }
    }
    for resource in [
        "http://localhost.evil.example/mcp",
        "http://127.0.0.1.evil.example/",
        "http://evil.example@localhost/",
        "http://localhost/#f",
        "ftp://localhost/",
        "http://192.168.0.1/mcp",
        "http://0.0.0.0:9701/mcp",
        " http://localhost/mcp",
        "http://local host/mcp",
    ] {
        let answer =
            visit(&t, &format!("/oauth/authorize?{}", asked(&id, &[("resource", resource)])), &browser).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{resource}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn several_resources_are_granted_and_narrowed() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let (one, two) = (client(&t, &eve, "One").await, client(&t, &eve, "Two").await);
    prove_domain(&t, &one, "one.example").await;
    prove_domain(&t, &two, "two.example").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let browser = browser(&t, "ada@example.com").await;
    let (first, second) = ("https://one.example/mcp", "https://two.example/mcp");
    let both = format!("{}&{}", asked(&app.id, &[("resource", second)]), query(&[("resource", first)]));
    let (code, page) = agree(&t, &both, &browser).await;
    let shown = page.text.replace("&#x2f;", "/");
    assert!(shown.contains(first) && shown.contains(second), "{shown}");
    let other = redeem(&t, &app.id, &code, &[("resource", "https://one.example/else")]).await;
    assert_eq!(error_of(&other), (400, "invalid_target"));
    let given = redeem(&t, &app.id, &code, &[]).await;
    assert_eq!(claims(&given.body["access_token"])["aud"], json!([first, second]));
    assert_eq!(with_token(&t, "/oauth/userinfo", &text(&given.body["access_token"])).await.status, 401);
    let introspect = |token: String, key: String| {
        let t = &t;
        async move { form(t, "/oauth/introspect", &[("token", &token)], Some(("x-service-app-key", &key))).await.body }
    };
    for key in [&one.secret, &two.secret, &app.secret] {
        let seen = introspect(text(&given.body["access_token"]), key.clone()).await;
        assert_eq!((&seen["active"], &seen["aud"]), (&json!(true), &json!([first, second])));
    }
    // Each token may be narrowed; what was granted stays.
    let mut refresh = text(&given.body["refresh_token"]);
    for (asked, aud) in [
        (vec![second], json!(second)),
        (vec![second, first], json!([first, second])),
        (vec![], json!([first, second])),
    ] {
        let mut grant = vec![("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*app.id)];
        grant.extend(asked.iter().map(|resource| ("resource", *resource)));
        let turned = form(&t, "/oauth/token", &grant, None).await;
        assert_eq!(turned.status, 200, "{}", turned.text);
        assert_eq!(claims(&turned.body["access_token"])["aud"], aud, "{asked:?}");
        if asked.len() == 1 {
            let token = text(&turned.body["access_token"]);
            assert_eq!(introspect(token.clone(), one.secret.clone()).await, json!({ "active": false }));
            assert_eq!(introspect(token, two.secret.clone()).await["aud"], json!(second));
        }
        refresh = text(&turned.body["refresh_token"]);
    }
    let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*app.id)];
    let more = [grant[0], grant[1], grant[2], ("resource", first), ("resource", "https://three.example/")];
    assert_eq!(error_of(&form(&t, "/oauth/token", &more, None).await), (400, "invalid_target"));
    let as_json =
        json!({ "grant_type": "refresh_token", "refresh_token": refresh, "client_id": app.id, "resource": first });
    let turned = t.post("/oauth/token").json(&as_json).await;
    assert_eq!(claims(&turned.body["access_token"])["aud"], first, "{}", turned.text);

    // A consent is for all of them together, in any order, and ends what came of it.
    let again = format!("{}&{}", asked(&app.id, &[("resource", first)]), query(&[("resource", second)]));
    let answer = visit(&t, &format!("/oauth/authorize?{again}"), &browser).await;
    let code = field(&answer, "code").expect("remembered");
    let narrow = redeem(&t, &app.id, &code, &[("resource", first)]).await;
    assert_eq!(claims(&narrow.body["access_token"])["aud"], first);
    let list = ada.asks(t.get("/auth/consents")).await.body;
    assert_eq!(list["consents"][0]["resources"], json!([first, second]));
    let path = format!("/auth/consents/{}", text(&list["consents"][0]["id"]));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    for tokens in [&turned, &narrow] {
        let refresh = text(&tokens.body["refresh_token"]);
        let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*app.id)];
        assert_eq!(error_of(&form(&t, "/oauth/token", &grant, None).await), (400, "invalid_grant"));
    }
    let many: Vec<_> = (0..20).map(|i| format!("https://one.example/{i}")).collect();
    let many: Vec<_> = many.iter().map(|resource| ("resource", resource.as_str())).collect();
    let answer = authorize(&t, Some(&ada), &format!("{}&{}", asked(&app.id, &[]), query(&many))).await;
    assert_eq!(field(&answer, "error").as_deref(), Some("invalid_target"), "more than anybody needs");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_declares_scopes_and_others_ask_for_them_at_its_place() {
    let t = with_registration().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let place = client(&t, &eve, "Place").await;
    prove_domain(&t, &place, "place.example").await;
    let path = format!("/apps/{}", place.id);
    let declared = json!([
        { "name": "mcp:tools", "description": "Run the tools of <b>Place</b>" },
        { "name": "notes.read", "description": "Read your notes" },
    ]);
    let changed = eve.asks(t.ask(Method::PATCH, &path).json(&json!({ "scopes": declared }))).await;
    assert_eq!((changed.status, &changed.body["scopes"]), (200, &declared), "{}", changed.text);
    assert_eq!(eve.asks(t.get(&path)).await.body["scopes"], declared);

    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let id = registered(&t).await;
    let resource = "https://mcp.place.example/mcp";
    let request = asked(&id, &[("resource", resource), ("scope", "mcp:tools openid made:up offline_access")]);
    let (code, page) = agree(&t, &request, &browser).await;
    let shown = page.text.replace("&#x2f;", "/");
    assert!(shown.contains("Run the tools of &lt;b&gt;Place&lt;/b&gt;") && shown.contains("mcp:tools"), "{shown}");
    assert!(!shown.contains("Read your notes") && !shown.contains("<li>made:up"), "{shown}");
    let given = redeem(&t, &id, &code, &[]).await;
    let granted = "openid offline_access mcp:tools";
    assert_eq!(given.body["scope"], granted, "{}", given.text);
    assert_eq!(claims(&given.body["access_token"])["scope"], granted);
    let token = text(&given.body["access_token"]);
    let seen = form(&t, "/oauth/introspect", &[("token", &token)], Some(("x-service-app-key", &place.secret))).await;
    assert_eq!((&seen.body["active"], &seen.body["scope"]), (&json!(true), &json!(granted)));
    // A client that repeats all it asked for at first gets what was granted; more of ours is refused.
    let refresh = text(&given.body["refresh_token"]);
    let turn = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*id)];
    let more = [turn[0], turn[1], turn[2], ("scope", "openid email")];
    assert_eq!(error_of(&form(&t, "/oauth/token", &more, None).await), (400, "invalid_scope"));
    let same = [turn[0], turn[1], turn[2], ("scope", "mcp:tools openid made:up")];
    let turned = form(&t, "/oauth/token", &same, None).await;
    assert_eq!(turned.body["scope"], granted, "{}", turned.text);
    // Remembered, for this much; another scope is asked for again.
    let silent = visit(&t, &format!("/oauth/authorize?{request}"), &browser).await;
    assert!(field(&silent, "code").is_some(), "{:?}", silent.headers);
    let more = asked(&id, &[("resource", resource), ("scope", "mcp:tools notes.read")]);
    let (code, _) = agree(&t, &more, &browser).await;
    assert_eq!(redeem(&t, &id, &code, &[]).await.body["scope"], "offline_access mcp:tools notes.read");
    let consents = visit(&t, "/auth/consents", &browser).await;
    assert_eq!(
        consents.body["consents"][0]["scopes"],
        json!(["openid", "offline_access", "mcp:tools", "notes.read"])
    );
    // Elsewhere they mean nothing.
    let nowhere = asked(&place.id, &[("scope", "openid mcp:tools")]);
    let (code, _) = agree(&t, &nowhere, &browser).await;
    assert_eq!(redeem(&t, &place.id, &code, &[]).await.body["scope"], "openid");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_local_server_has_the_scopes_it_asks_for() {
    let t = with_registration().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let id = registered(&t).await;
    let resource = "http://127.0.0.1:9701/mcp";
    let request = asked(&id, &[("resource", resource), ("scope", "openid mcp:tools")]);
    let (code, page) = agree(&t, &request, &browser).await;
    assert!(page.text.contains("mcp:tools"), "the person sees it: {}", page.text);
    let given = redeem(&t, &id, &code, &[("resource", resource)]).await;
    assert_eq!(claims(&given.body["access_token"])["scope"], "openid mcp:tools");
    // What is no scope by the standard, and more than anybody needs, is left out.
    let odd = format!("openid \"quoted\" back\\slash caf\u{e9} {}", "x".repeat(200));
    let again = [("resource", resource), ("scope", &*odd), ("prompt", "consent")];
    let (code, _) = agree(&t, &asked(&id, &again), &browser).await;
    assert_eq!(redeem(&t, &id, &code, &[]).await.body["scope"], "openid");
    let many: Vec<_> = (0..60).map(|i| format!("s{i}")).chain(["openid".to_owned()]).collect();
    let (code, _) = agree(&t, &asked(&id, &[("resource", resource), ("scope", &many.join(" "))]), &browser).await;
    assert_eq!(text(&redeem(&t, &id, &code, &[]).await.body["scope"]).split(' ').count(), 51);

    // An app that lists the origin says what its scopes mean, and needs no consent of its own people.
    let app = client(&t, &ada, "App").await;
    let change = json!({ "allowedOrigins": ["http://localhost:3000"],
        "scopes": [{ "name": "mcp:tools", "description": "Run tools" }] });
    assert_eq!(ada.asks(t.ask(Method::PATCH, &format!("/apps/{}", app.id)).json(&change)).await.status, 200);
    let own = asked(&app.id, &[("resource", "http://localhost:3000/mcp"), ("scope", "mcp:tools made:up")]);
    let answer = visit(&t, &format!("/oauth/authorize?{own}"), &browser).await;
    let given = redeem(&t, &app.id, &field(&answer, "code").expect("no consent"), &[]).await;
    assert_eq!(given.body["scope"], "mcp:tools", "it declares its scopes, so others mean nothing");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_client_that_speaks_plain_oauth_can_refresh_its_token_for_a_server() {
    let t = with_registration().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let (id, resource) = (registered(&t).await, "http://127.0.0.1:9701/mcp");
    let stays = "Stay signed in while you are away";
    let (code, page) = agree(&t, &asked(&id, &[("resource", resource), ("scope", "mcp:tools")]), &browser).await;
    assert!(page.text.contains(stays), "the person agrees to it: {}", page.text);
    let given = redeem(&t, &id, &code, &[("resource", resource)]).await;
    assert_eq!(given.body["scope"], "offline_access mcp:tools", "{}", given.text);
    let refresh = text(&given.body["refresh_token"]);
    let turn = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*id)];
    let same = [turn[0], turn[1], turn[2], ("scope", "mcp:tools"), ("resource", resource)];
    let turned = form(&t, "/oauth/token", &same, None).await;
    assert_eq!((turned.status, claims(&turned.body["access_token"])["aud"].as_str()), (200, Some(resource)));
    // With `openid` a client knows how to ask, an app's owner decides for it, and without a resource it is sign-in.
    let target = ("resource", resource);
    for (client, changes) in [
        (&id, &[target, ("scope", "openid mcp:tools")][..]),
        (&app.id, &[target, ("scope", "mcp:tools")]),
        (&id, &[("scope", "profile")]),
    ] {
        let (code, page) = agree(&t, &asked(client, changes), &browser).await;
        assert!(!page.text.contains(stays), "{changes:?}");
        let given = redeem(&t, client, &code, &[]).await;
        assert_eq!((given.status, given.body.get("refresh_token")), (200, None), "{changes:?}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn scopes_are_declared_in_good_form() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let scope = |name: &str| json!({ "name": name, "description": "It" });
    let made = ada.asks(t.post("/apps").json(&json!({ "name": "App", "scopes": [scope("mcp:tools")] }))).await;
    assert_eq!((made.status, &made.body["scopes"]), (200, &json!([scope("mcp:tools")])), "{}", made.text);
    assert_eq!(made.body["requirePkce"], true);
    let path = format!("/apps/{}", text(&made.body["id"]));
    for (scopes, at) in [
        (json!([scope("openid")]), "scopes.0.name"),
        (json!([scope("ok"), scope("offline_access")]), "scopes.1.name"),
        (json!([scope("twice"), scope("twice")]), "scopes.1.name"),
        (json!([scope("two words")]), "scopes.0.name"),
        (json!([scope("quo\"te")]), "scopes.0.name"),
        (json!([scope("back\\slash")]), "scopes.0.name"),
        (json!([scope("caf\u{e9}")]), "scopes.0.name"),
        (json!([scope("")]), "scopes.0.name"),
        (json!([{ "name": "a" }]), "scopes.0.description"),
        (json!([{ "name": "a", "description": " " }]), "scopes.0.description"),
        (json!((0..51).map(|i| scope(&format!("s{i}"))).collect::<Vec<_>>()), "scopes"),
        (json!("mcp:tools"), "scopes"),
    ] {
        for ask in [
            t.ask(Method::PATCH, &path).json(&json!({ "scopes": scopes })),
            t.post("/apps").json(&json!({ "name": "Bad", "scopes": scopes })),
        ] {
            let answer = ada.asks(ask).await;
            assert_eq!(answer.refusal(), (400, "invalid"), "{scopes}");
            assert_eq!(answer.body["errors"][0]["field"], at, "{}", answer.text);
        }
    }
    let fifty: Vec<_> = (0..50).map(|i| scope(&format!("s{i}"))).collect();
    assert_eq!(ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "scopes": fifty }))).await.status, 200);
    let none = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "scopes": [] }))).await;
    assert_eq!(none.body["scopes"], json!([]));
    t.run_jobs().await;
    t.finish().await;
}

async fn declare(t: &TestJanua, owner: &Person, app: &Client, scopes: &[(&str, &str)]) {
    let scopes: Vec<_> = scopes.iter().map(|(name, says)| json!({ "name": name, "description": says })).collect();
    let change = t.ask(Method::PATCH, &format!("/apps/{}", app.id)).json(&json!({ "scopes": scopes }));
    assert_eq!(owner.asks(change).await.status, 200);
}

/// A request for several servers at once.
fn for_all(client: &str, scope: &str, resources: &[&str]) -> String {
    let resources: Vec<_> = resources.iter().map(|resource| ("resource", *resource)).collect();
    format!("{}&{}", asked(client, &[("scope", scope)]), query(&resources))
}

#[tokio::test]
async fn no_scope_reaches_a_server_of_others_that_does_not_declare_it() {
    let t = start().await;
    let (eve, bob) = (signed_in(&t, "eve@example.com").await, signed_in(&t, "bob@example.com").await);
    let (one, more) = (client(&t, &eve, "One").await, client(&t, &eve, "More").await);
    let two = client(&t, &bob, "Two").await;
    for (app, domain) in [(&one, "one.example"), (&more, "more.example"), (&two, "two.example")] {
        prove_domain(&t, app, domain).await;
    }
    declare(&t, &eve, &one, &[("files", "Words of One"), ("admin", "Nothing to see here")]).await;
    declare(&t, &bob, &two, &[("files", "Words of Two")]).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let browser = browser(&t, "ada@example.com").await;
    let (first, same, other) = ("https://one.example/mcp", "https://more.example/mcp", "https://two.example/mcp");
    let (local, local_2) = ("http://127.0.0.1:9701/mcp", "http://localhost:9702/mcp");
    for (scope, resources) in [
        ("openid admin", &[first, other][..]),
        ("openid files admin", &[other, first]),
        ("openid admin", &[first, same, other]),
        // Of the three one declares nothing.
        ("openid files", &[first, same, other]),
        ("openid", &[local, first]),
        ("openid files", &[other, local]),
        ("openid", &[local, local_2]),
    ] {
        let answer = authorize(&t, Some(&ada), &for_all(&app.id, scope, resources)).await;
        assert_eq!(field(&answer, "error").as_deref(), Some("invalid_target"), "{scope} {resources:?}");
    }
    // What each of them declares is shown in the words of each.
    let (code, page) = agree(&t, &for_all(&app.id, "openid files made:up", &[first, other]), &browser).await;
    let shown = page.text.replace("&#x2f;", "/");
    let (_, servers) = shown.split_once(&format!("One at {first}")).expect("the first server");
    let (of_one, of_two) = servers.split_once(&format!("Two at {other}")).expect("the second server");
    assert!(of_one.contains("Words of One") && !of_one.contains("Words of Two"), "{of_one}");
    assert!(of_two.contains("Words of Two") && !of_two.contains("Words of One"), "{of_two}");
    assert_eq!(redeem(&t, &app.id, &code, &[]).await.body["scope"], "openid files");
    // Standard scopes mean the same everywhere. Among its own servers an organization decides.
    agree(&t, &for_all(&app.id, "openid email", &[first, other]), &browser).await;
    let (code, page) = agree(&t, &for_all(&app.id, "admin", &[first, same]), &browser).await;
    let shown = page.text.replace("&#x2f;", "/");
    let (of_more, of_one) = shown.split_once(&format!("One at {first}")).expect("the server that declares it");
    assert!(of_one.contains("Nothing to see here") && of_one.contains("(admin)"), "{shown}");
    assert!(of_more.contains(&format!("More at {same}")) && !of_more.contains("admin</code>"), "{shown}");
    assert!(!of_more.contains("Nothing to see here"), "{shown}");
    assert_eq!(redeem(&t, &app.id, &code, &[]).await.body["scope"], "admin");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_of_an_app_lets_in_that_app_and_nobody_else() {
    let t = with_registration().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let (shop, sister) = (client(&t, &eve, "Shop").await, client(&t, &eve, "Sister").await);
    prove_domain(&t, &shop, "shop.example").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let own = browser(&t, "ada@example.com").await;
    let body = json!({ "email": "ada@example.com", "password": identity::testing::PASSWORD });
    let entered = t.post("/auth/login").json(&body).header("x-service-app-key", &shop.publishable).await;
    assert_eq!(entered.status, 200, "{}", entered.text);
    let (inside, token) = (cookies(&entered), text(&entered.body["accessToken"]));
    let editor = registered(&t).await;
    let local = "http://127.0.0.1:9701/mcp";
    for (client, resource) in [
        (&sister.id, ""),
        (&sister.id, "https://mcp.shop.example/"),
        (&shop.id, "https://mcp.shop.example/"),
        (&shop.id, local),
        (&editor, local),
        (&editor, "https://mcp.shop.example/"),
        (&editor, ""),
    ] {
        let request = asked(client, &[("resource", resource), ("scope", "openid")]);
        let path = format!("/oauth/authorize?{request}");
        let sign_in = format!("{}/sign-in", base(&t));
        let says = format!("{client} {resource}");
        assert_eq!(sent(&visit(&t, &path, &inside).await).0, sign_in, "{says}");
        assert_eq!(sent(&with_token(&t, &path, &token).await).0, sign_in, "{says}");
        let consent = format!("/consent?{}", query(&[("request", &request)]));
        assert_eq!(sent(&visit(&t, &consent, &inside).await).0, sign_in, "{says}");
        // Not even with the page that was drawn for the person's own session.
        let page = visit(&t, &consent, &own).await;
        t.happened().await;
        assert_eq!(decide(&t, &page, "allow", &inside).await.status, 401, "{says}");
        t.expects(&[]).await;
        assert!(field(&decide(&t, &page, "allow", &own).await, "code").is_some(), "{says}");
    }
    assert_eq!(ada.asks(t.get("/auth/consents")).await.body["consents"].as_array().map(Vec::len), Some(7));
    let (code, _) = agree(&t, &asked(&shop.id, &[]), &inside).await;
    assert_eq!(redeem(&t, &shop.id, &code, &[]).await.status, 200, "the app itself");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_mcp_client_signs_its_user_in_to_the_skills() {
    let t = with_registration().await;
    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let list = async |token: &str| {
        let ask = t.post("/mcp").json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "skills/list" }));
        if token.is_empty() { ask.await } else { ask.header("authorization", &format!("Bearer {token}")).await }
    };
    // What the client is told leads it to the authorization server.
    let place = format!("{}/.well-known/oauth-protected-resource/mcp", base(&t));
    let says = |error: &str| format!("Bearer {error}scope=\"skills:read\", resource_metadata=\"{place}\"");
    let refused = list("").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, says("").as_str()));
    let refused = list("none").await;
    assert_eq!(refused.header("www-authenticate"), says("error=\"invalid_token\", "));
    let metadata = t.get("/.well-known/oauth-protected-resource/mcp").await.body;
    let resource = text(&metadata["resource"]);
    assert_eq!(
        (&metadata["authorization_servers"], resource.as_str()),
        (&json!([base(&t)]), &*format!("{}/mcp", base(&t)))
    );
    let id = registered(&t).await;
    let scope = text(&metadata["scopes_supported"][0]);
    let granted = async |scope: &str, resource: &str| {
        let (code, page) = agree(&t, &asked(&id, &[("resource", resource), ("scope", scope)]), &browser).await;
        let given = redeem(&t, &id, &code, &[("resource", resource)]).await;
        assert_eq!(given.status, 200, "{}", given.text);
        (text(&given.body["access_token"]), page.text.replace("&#x2f;", "/"))
    };
    let (token, page) = granted(&scope, &resource).await;
    assert!(page.contains("Skills") && page.contains("Read the skills that you installed"), "{page}");
    let answer = list(&token).await;
    assert_eq!((answer.status, &answer.body["result"]["skills"]), (200, &json!([])), "{}", answer.text);
    for path in ["/auth/me", "/skills/installed", "/oauth/userinfo"] {
        assert!([401, 403].contains(&with_token(&t, path, &token).await.status), "{path}: it opens nothing else");
    }
    let (token, _) = granted("openid", &resource).await;
    let refused = list(&token).await;
    assert_eq!(refused.refusal(), (403, "insufficient_scope"));
    assert_eq!(refused.header("www-authenticate"), says("error=\"insufficient_scope\", "));
    let (token, _) = granted("skills:read", "http://127.0.0.1:9701/mcp").await;
    assert_eq!(list(&token).await.refusal(), (401, "unauthenticated"), "a token for another resource");
    t.run_jobs().await;
    t.finish().await;
}
