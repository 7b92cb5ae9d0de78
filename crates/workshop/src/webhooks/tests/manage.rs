//! Registering, looking, changing, removing.
use super::*;

#[tokio::test]
async fn a_webhook_is_made_once_with_its_secret_and_shown_without_it_ever_after() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    t.happened().await;
    let made = shop.register(&t, &receiver.url, &["user.signed_in", "audit.*", "user.signed_in"]).await;
    assert_eq!(made["url"], receiver.url.as_str());
    assert_eq!(made["events"], json!(["user.signed_in", "audit.*"]), "each once");
    assert_eq!(made["isActive"], true);
    assert!(made["createdAt"].as_str().unwrap().ends_with('Z'));
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.len() == 64 && secret.bytes().all(|b| b.is_ascii_hexdigit()), "{secret}");
    t.expects(&["WEBHOOK_CREATED"]).await;

    let path = format!("/webhooks/{}", id(&made));
    let dashboard = format!("/apps/{}/webhooks", id(&shop.app));
    let one = shop.asks(t.get(&path)).await;
    let all = shop.asks(t.get("/webhooks")).await;
    let shown = shop.owner.asks(t.get(&dashboard)).await;
    for answer in [&one, &all, &shown] {
        assert_eq!(answer.status, 200);
        assert!(!answer.text.contains(secret) && !answer.text.contains("secret"), "{}", answer.text);
    }
    assert_eq!((&one.body["id"], &all.body["webhooks"][0]["id"]), (&made["id"], &made["id"]));
    assert_eq!((shown.body["webhooks"].as_array().unwrap().len(), &shown.body["nextCursor"]), (1, &Value::Null));

    let change = json!({ "url": format!("{}/2", receiver.url), "events": ["*"], "isActive": false });
    let changed = shop.change(&t, &made, &change).await;
    assert_eq!(
        (changed.status, &changed.body["events"], &changed.body["isActive"]),
        (200, &json!(["*"]), &json!(false))
    );
    assert!(changed.body.get("secret").is_none());
    assert_eq!(shop.change(&t, &made, &json!({})).await.body["url"], change["url"], "nothing said, nothing changed");
    t.expects(&["WEBHOOK_UPDATED"]).await;

    let second = shop.owner.asks(t.post(&dashboard).json(&json!({ "url": receiver.url, "events": ["*"] }))).await;
    assert_eq!(second.body["secret"].as_str().map(str::len), Some(64), "{}", second.text);
    let removed = shop.owner.asks(t.ask(Method::DELETE, &format!("{dashboard}/{}", id(&second.body)))).await;
    assert_eq!(removed.status, 204);
    assert_eq!(shop.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(shop.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    assert_eq!(shop.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    assert_eq!(shop.change(&t, &made, &json!({ "isActive": true })).await.refusal(), (404, "not_found"));
    done(t).await;
}

#[tokio::test]
async fn unknown_events_are_listed_and_nothing_is_made() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let body = json!({ "url": receiver.url, "events": ["user.signed_in", "user.sneezed", "AUDIT.*", "**"] });
    let refused = shop.asks(t.post("/webhooks").json(&body)).await;
    assert_eq!(refused.refusal(), (400, "unknown_event_types"));
    assert_eq!(refused.body["unknown"], json!(["user.sneezed", "AUDIT.*", "**"]));
    assert_eq!(refused.wrong_fields(), ["events"]);
    assert!(refused.body["errors"][0]["message"].as_str().unwrap().contains("user.sneezed, AUDIT.*, **"));
    for body in
        [json!({ "url": receiver.url, "events": [] }), json!({ "url": receiver.url }), json!({ "events": ["*"] })]
    {
        assert_eq!(shop.asks(t.post("/webhooks").json(&body)).await.status, 400, "{body}");
    }
    let made = shop.register(&t, &receiver.url, &["*"]).await;
    let refused = shop.change(&t, &made, &json!({ "events": ["nope"], "isActive": false })).await;
    assert_eq!(refused.refusal(), (400, "unknown_event_types"));
    let all = shop.asks(t.get("/webhooks")).await;
    assert_eq!(all.body["webhooks"][0]["isActive"], true, "all or nothing");
    assert_eq!(all.body["webhooks"].as_array().unwrap().len(), 1);
    done(t).await;
}

#[tokio::test]
async fn p61_no_address_inside_is_registered_in_any_spelling() {
    let dns = Config { dns_servers: vec!["127.0.0.1:1".parse().unwrap()], ..public() };
    let t = TestJanua::start_with(dns, feature).await;
    let shop = Shop::open(&t).await;
    let good = shop.register(&t, "https://93.184.215.14/", &["*"]).await;
    for (url, code) in [
        ("https://10.0.0.1/", "private_address"),
        ("https://172.16.0.1/", "private_address"),
        ("https://172.31.255.255/", "private_address"),
        ("https://192.168.1.1/", "private_address"),
        ("https://127.0.0.1/", "private_address"),
        ("https://169.254.169.254/latest/meta-data", "private_address"),
        ("https://[::1]/", "private_address"),
        ("https://[fc00::1]/", "private_address"),
        ("https://[fe80::1]/", "private_address"),
        ("https://0.0.0.0/", "private_address"),
        ("https://127.1/", "private_address"),
        ("https://2130706433/", "private_address"),
        ("https://0x7f000001/", "private_address"),
        ("https://0177.0.0.1/", "private_address"),
        ("https://[::]/", "private_address"),
        ("https://[::ffff:127.0.0.1]/", "private_address"),
        ("https://[64:ff9b::7f00:1]/", "private_address"),
        ("https://localhost/", "private_address"),
        ("https://localhost./", "private_address"),
        ("https://100.64.0.1/", "private_address"),
        ("https://192.0.0.1/", "private_address"),
        ("https://198.18.0.1/", "private_address"),
        ("https://224.0.0.1/", "private_address"),
        ("https://240.0.0.1/", "private_address"),
        ("http://93.184.215.14/", "not_https"),
        ("file:///etc/passwd", "not_https"),
        ("javascript:alert(1)", "not_https"),
        ("https://user:pass@93.184.215.14/", "credentials"),
        ("https://user@93.184.215.14/", "credentials"),
        ("https://@93.184.215.14/", "credentials"),
        ("https://93.184.215.14/#fragment", "fragment"),
        ("https://93.184.215.14/#", "fragment"),
        ("https://93.184.215.14\\@127.0.0.1/", "wrong_form"),
        ("https:\\\\93.184.215.14/", "wrong_form"),
        ("https:/93.184.215.14/", "wrong_form"),
        ("https://93.184.215.14/a/../b", "wrong_form"),
        ("https://93.184.215.14/%2e%2e/b", "wrong_form"),
        ("https://93.184.215.14/a\tb", "wrong_form"),
        ("https://93.184.215.14/a\n", "wrong_form"),
        ("https://0x5db8d70e/", "wrong_form"),
        ("https://93.184.215.14:0/", "wrong_form"),
        ("not a url", "format"),
        ("https://", "format"),
    ] {
        let made = shop.asks(t.post("/webhooks").json(&json!({ "url": url, "events": ["*"] }))).await;
        let changed = shop.change(&t, &good, &json!({ "url": url })).await;
        for answer in [made, changed] {
            assert_eq!((answer.status, answer.wrong_fields()), (400, vec!["url"]), "{url}: {}", answer.text);
            assert_eq!(answer.body["errors"][0]["code"], code, "{url}");
        }
    }
    let silent = shop.asks(t.post("/webhooks").json(&json!({ "url": "https://a.example/", "events": ["*"] }))).await;
    assert_eq!(silent.refusal(), (502, "dns_unavailable"));
    assert_eq!(shop.asks(t.get("/webhooks")).await.body["webhooks"].as_array().unwrap().len(), 1);
    done(t).await;
}

/// A server that others reach.
fn public() -> Config {
    Config { base_url: Some("https://id.example".parse().unwrap()), ..Config::for_tests() }
}

/// A developer's own receiver, without any setting.
#[tokio::test]
async fn a_server_on_this_machine_alone_delivers_to_receivers_on_it() {
    let t = TestJanua::start_with(Config::for_tests(), feature).await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let by_name = receiver.url.replace("127.0.0.1", "localhost");
    for url in [&receiver.url, &by_name] {
        let webhook = shop.register(&t, url, &["user.signed_in"]).await;
        shop.rehearse(&t, &webhook).await;
        deliver(&t).await;
        assert_eq!(receiver.heard().len(), 1, "{url}");
    }
    for (url, code) in [
        ("http://10.0.0.1/", "not_https"),
        ("https://10.0.0.1/", "private_address"),
        ("http://93.184.215.14/", "not_https"),
        ("http://169.254.169.254/", "not_https"),
    ] {
        let refused = shop.asks(t.post("/webhooks").json(&json!({ "url": url, "events": ["*"] }))).await;
        assert_eq!(refused.body["errors"][0]["code"], code, "{url}: {}", refused.text);
    }
    done(t).await;
}

/// A wrong base URL, a proxy in front or a socket that others reach: loopback stays inside.
#[tokio::test]
async fn a_server_that_others_reach_does_not_and_names_the_settings() {
    let behind_a_proxy = Config { trusted_proxies: vec!["127.0.0.1/32".parse().unwrap()], ..Config::for_tests() };
    let for_everybody = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::for_tests() };
    for config in [public(), behind_a_proxy, for_everybody] {
        let t = TestJanua::start_with(config, feature).await;
        let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
        for (url, code, setting) in [
            (receiver.url.clone(), "not_https", "webhook_allow_http (WEBHOOK_ALLOW_HTTP=1)"),
            (receiver.url.replace("http:", "https:"), "private_address", "webhook_allow_nets"),
            ("http://localhost:9/".into(), "not_https", "webhook_allow_http"),
            ("https://localhost:9/".into(), "private_address", "webhook_allow_nets"),
        ] {
            let refused = shop.asks(t.post("/webhooks").json(&json!({ "url": url, "events": ["*"] }))).await;
            let error = &refused.body["errors"][0];
            assert_eq!(error["code"], code, "{url}: {}", refused.text);
            assert!(error["message"].as_str().unwrap().contains(setting), "{url}: {error}");
        }
        done(t).await;
    }
}

#[tokio::test]
async fn an_app_has_a_few_webhooks_for_one_host_and_no_more() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let register =
        |url: String| shop.asks(t.post("/webhooks").json(&json!({ "url": url, "events": ["user.signed_in"] })));
    for i in 0..10 {
        // Ports and spellings of the same host are the same host.
        let url =
            if i % 2 == 0 { format!("{}?{i}", receiver.url) } else { format!("https://127.0.0.1:{}/", 7000 + i) };
        assert_eq!(register(url).await.status, 200, "{i}");
    }
    assert_eq!(register(receiver.url.clone()).await.refusal(), (409, "too_many_webhooks_for_host"));
    let elsewhere = register("https://127.0.0.2/".into()).await;
    assert_eq!(elsewhere.status, 200, "another host");
    let moved = shop.change(&t, &elsewhere.body, &json!({ "url": receiver.url })).await;
    assert_eq!(moved.refusal(), (409, "too_many_webhooks_for_host"), "nor by moving there");
    // Those from before their hosts were written down count too, and one that is there already may change its path.
    t.janua.db.exec("UPDATE webhook SET host = NULL", vec![]).await.unwrap();
    assert_eq!(register(receiver.url.clone()).await.refusal(), (409, "too_many_webhooks_for_host"));
    let all = shop.asks(t.get("/webhooks")).await;
    let first = all.body["webhooks"].as_array().unwrap().last().unwrap().clone();
    // More than may be, from before: they can still be changed.
    let sql = "UPDATE webhook SET url = $1 WHERE id = $2";
    t.janua.db.exec(sql, db::params![&receiver.url, id(&elsewhere.body)]).await.unwrap();
    assert_eq!(shop.change(&t, &first, &json!({ "url": receiver.url })).await.status, 200);
    let many = shop.owner.asks(t.post(&format!("/apps/{}/webhooks", id(&shop.app))).json(&json!({
        "url": receiver.url, "events": ["*"] })));
    assert_eq!(many.await.refusal(), (409, "too_many_webhooks_for_host"), "nor in the console");
    for over in [&first, &elsewhere.body] {
        let gone = shop.asks(t.ask(Method::DELETE, &format!("/webhooks/{}", id(over)))).await;
        assert_eq!(gone.status, 204);
    }
    assert_eq!(register(receiver.url.clone()).await.status, 200);
    // Two at once for the last place.
    let other = Shop::of(&t, signed_in(&t, "eve@example.com").await).await;
    let ask = |i: usize| {
        other.asks(t.post("/webhooks").json(&json!({ "url": format!("{}?{i}", receiver.url), "events": ["*"] })))
    };
    let answers = futures_util::future::join_all((0..16).map(|i| ask(i).into_future())).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 10, "each app has its own");
    t.run_jobs().await;
    done(t).await;
}
