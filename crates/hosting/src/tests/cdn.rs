//! A distribution at another provider: what it is told, what it asks the edge, and how it ends.
use super::{moto::Moto, *};
use crate::edge::{
    cdn,
    cloudfront::{self, CloudFront, External},
};

async fn beside(moto: &Moto, origin: Option<&str>) -> TestJanua {
    let (port, origin) = (moto.port, origin.map(str::to_owned));
    let config = Config::for_tests().with(|settings: &mut cloudfront::Settings| {
        settings.cdn_endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
        settings.cdn_access_key = Some("AKIDEXAMPLE".into());
        settings.cdn_secret_key = Some("hush".to_owned().into());
        settings.cdn_origin = origin;
    });
    TestJanua::start_with(config, feature).await
}

fn path(owner: &Owner) -> String {
    format!("/apps/{}/cdn", owner.app)
}

async fn moves(t: &TestJanua, ada: &Owner, provider: &str) -> Answer {
    ada.person.asks(t.post(&path(ada)).json(&json!({ "provider": provider }))).await
}

/// Runs the jobs until the distribution is there.
async fn provisioned(t: &TestJanua, ada: &Owner) -> Value {
    let moved = moves(t, ada, "external").await;
    assert_eq!((moved.status, &moved.body["status"]), (202, &json!("provisioning")), "{}", moved.text);
    settle(t).await;
    let site = ada.person.asks(t.get(&path(ada))).await.body;
    assert_eq!(site["status"], "active", "{site}");
    site
}

async fn settle(t: &TestJanua) {
    for _ in 0..4 {
        t.run_jobs().await;
        t.advance(std::time::Duration::from_secs(21));
    }
}

/// The distributions that the provider has, as its list tells them.
async fn all(moto: &Moto) -> String {
    let url = format!("http://127.0.0.1:{}/2020-05-31/distribution", moto.port);
    let credential = "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/cloudfront/aws4_request, \
                      SignedHeaders=host, Signature=0";
    let answer = reqwest::Client::new().get(url).header("authorization", credential).send().await.unwrap();
    answer.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_distribution_names_the_site_it_asks_for_and_gets_its_files() {
    let moto = Moto::start().await;
    let t = beside(&moto, Some("origin.example.test")).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let made = ada.deployed(&t, &[("index.html", "home"), ("a.html", "a")]).await;
    let site = provisioned(&t, &ada).await;
    assert!(site["hostname"].as_str().unwrap().ends_with(".cloudfront.net"), "{site}");
    let told = all(&moto).await;
    assert!(told.contains("<DomainName>origin.example.test</DomainName>"), "{told}");
    assert!(told.contains("shop.localhost"), "{told}");
    // As it asks: its own origin as `Host`, and the header that it was told to send.
    let asks = async |host: &str, site: &str| ask(&t, host, "/a", &[("x-janua-site", site)]).await;
    let asked = asks("origin.example.test", "shop.localhost").await;
    assert_eq!((asked.status, asked.text().as_str()), (200, "a"));
    assert_eq!(asks("origin.example.test", "SHOP.localhost").await.status, 200);
    assert_eq!(ask(&t, "origin.example.test", "/a", &[]).await.status, 404, "it names no site");
    let preview = host_of(&made["previewUrl"]);
    assert_eq!(asks("origin.example.test", &preview).await.status, 404, "previews are not distributed");
    // Elsewhere the header says nothing.
    let other = Owner::of(&t, "eve@example.com", "evil").await;
    other.deployed(&t, &[("index.html", "evil"), ("a.html", "evil")]).await;
    assert_eq!(asks("shop.localhost", "evil.localhost").await.text(), "a", "W22");
    assert_eq!(asks("other.localhost", "shop.localhost").await.status, 404);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_distribution_that_is_left_is_switched_off_and_deleted() {
    let moto = Moto::start().await;
    let t = beside(&moto, None).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home")]).await;
    let first = provisioned(&t, &ada).await;
    assert!(all(&moto).await.contains("<Enabled>true</Enabled>"));
    let back = moves(&t, &ada, "edge").await;
    assert_eq!((back.status, &back.body["hostname"]), (200, &json!("shop.localhost")), "{}", back.text);
    t.run_jobs().await;
    settle(&t).await;
    assert!(!all(&moto).await.contains("cloudfront.net"), "nothing is paid for any more");

    let second = provisioned(&t, &ada).await;
    assert_ne!(first["hostname"], second["hostname"]);
    assert_eq!(ada.person.asks(t.ask(axum::http::Method::DELETE, &path(&ada))).await.status, 204);
    settle(&t).await;
    assert!(!all(&moto).await.contains("cloudfront.net"), "switched off");
    let on = ada.person.asks(t.post(&path(&ada)).json(&json!({}))).await;
    assert_eq!((on.status, &on.body["status"]), (202, &json!("provisioning")), "{}", on.text);
    let sql = "SELECT details FROM audit_event WHERE type = 'DISTRIBUTION_UPDATED' ORDER BY at DESC, id DESC LIMIT 1";
    let (details,): (Value,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert_eq!(details["fields"], json!(["status"]), "what changed, and nothing else");
    settle(&t).await;
    assert!(all(&moto).await.contains("cloudfront.net"), "switched on again");

    let gone = ada.person.asks(t.ask(axum::http::Method::DELETE, &format!("/apps/{}", ada.app))).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    settle(&t).await;
    assert!(!all(&moto).await.contains("cloudfront.net"), "the app is gone");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_distribution_that_is_made_too_late_is_not_kept() {
    let moto = Moto::start().await;
    let t = beside(&moto, None).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home")]).await;
    // Two jobs of one site, as after moving to and fro: the second makes what nobody asked for.
    let app = ada.app.parse().unwrap();
    assert_eq!(moves(&t, &ada, "external").await.status, 202);
    let job = cdn::Provision { app, reference: "another".into() };
    let now = t.janua.clock.now();
    db::transact!(t.janua.db, async |tx| kernel::jobs::enqueue(tx, &t.janua, now, &job).await).unwrap();
    settle(&t).await;
    settle(&t).await;
    let site = ada.person.asks(t.get(&path(&ada))).await.body;
    assert_eq!(site["status"], "active", "{site}");
    let told = all(&moto).await;
    assert!(told.contains(site["hostname"].as_str().unwrap()), "{told}");
    assert_eq!(told.matches("<DistributionSummary>").count(), 1, "{told}");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_to_the_provider_may_be_repeated() {
    let moto = Moto::start().await;
    let t = beside(&moto, None).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home")]).await;
    let provider = CloudFront::from_config(&t.janua.config).unwrap();
    let origin = cloudfront::Origin { host: "x.test".into(), port: 80, is_tls: false, site: "x.test".into() };
    let now = t.janua.clock.now();
    let made: External = provider.create("r", &origin, now).await.unwrap();
    assert_eq!(provider.create("r", &origin, now).await.unwrap().id, made.id, "asked again: its answer was lost");
    assert!(!provider.retire(&made.id, now).await.unwrap(), "first it is switched off");
    let gone = async || provider.retire(&made.id, now).await.unwrap();
    assert!(gone().await || gone().await || gone().await, "then it is deleted");
    assert!(provider.retire(&made.id, now).await.unwrap(), "it is gone, whoever deleted it");
    let members = ada.person.asks(t.post(&path(&ada)).json(&json!({
        "provider": "external", "settings": { "access": "members" }
    })));
    assert_eq!(members.await.wrong_fields(), ["settings.access"], "it could not tell members apart");
    t.run_jobs().await;
    t.finish().await;
}
