//! P62: a name that leads elsewhere by the time of the delivery, told by a real name server.
use super::*;
use kernel::testing::NameServer;

#[tokio::test]
async fn p62_the_name_is_looked_up_again_before_each_attempt() {
    let mut dns = NameServer::start().await;
    let inside = Receiver::start().await;
    let port = inside.url.trim_end_matches("/hook").rsplit(':').next().unwrap().to_owned();
    // Loopback's second address stands for the internet; the first stays inside.
    let config = Config { dns_servers: vec![([127, 0, 0, 1], dns.port()).into()], ..Config::for_tests() };
    let config = config.with(|webhooks: &mut crate::webhooks::Settings| {
        webhooks.webhook_allow_nets = vec!["127.0.0.2/32".parse().unwrap()];
        webhooks.webhook_allow_http = Switch::On;
    });
    let t = TestJanua::start_with(config, feature).await;
    let shop = Shop::open(&t).await;
    let url = format!("http://hook.example.test:{port}/");
    let register = || shop.asks(t.post("/webhooks").json(&json!({ "url": url, "events": ["user.created"] })));
    let missing = register().await;
    assert_eq!(missing.body["errors"][0]["code"], "no_such_host", "{}", missing.text);
    for addresses in [&["127.0.0.1"][..], &["127.0.0.2", "127.0.0.1"], &["127.0.0.2", "10.0.0.1"]] {
        dns.leads("hook", addresses).await;
        let refused = register().await;
        assert_eq!(refused.body["errors"][0]["code"], "private_address", "{addresses:?}: one bad address is enough");
    }
    dns.leads("hook", &["127.0.0.2"]).await;
    let webhook = register().await;
    assert_eq!(webhook.status, 200, "{}", webhook.text);

    dns.leads("hook", &["127.0.0.1"]).await;
    shop.rehearse(&t, &webhook.body).await;
    deliver(&t).await;
    let record = shop.deliveries(&t, &webhook.body).await.remove(0);
    assert_eq!((&record["statusCode"], &record["status"]), (&json!(0), &json!("pending")));
    assert_eq!(record["response"], "leads to a private or reserved IP address");
    assert!(inside.heard().is_empty(), "the listener inside heard nothing");
    // Another address that is allowed may be tried again; nobody listens there.
    dns.leads("hook", &["127.0.0.2"]).await;
    t.advance(Duration::from_secs(2));
    deliver(&t).await;
    let record = shop.deliveries(&t, &webhook.body).await.remove(0);
    assert_eq!((&record["statusCode"], &record["attemptCount"]), (&json!(0), &json!(2)), "{record}");
    assert_ne!(record["response"], "leads to a private or reserved IP address");
    assert!(inside.heard().is_empty());
    t.advance(Duration::from_secs(30));
    deliver(&t).await;
    done(t).await;
}
